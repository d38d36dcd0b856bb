"""DeleteGroups: each group by its coordinator."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from shoal.broker.handlers.group_request import ask_each
from shoal.errors import ErrorCode
from shoal.wire.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = DeleteGroupsResponse.DeletableGroupResult


def handle(broker: Broker, call: Call, request: DeleteGroupsRequest) -> Generator[None, None, None]:
    def part(name: str) -> tuple[str, DeleteGroupsRequest, Any]:
        def otherwise(error: ErrorCode) -> DeleteGroupsResponse:
            return DeleteGroupsResponse(results=[_Result(group_id=name, error_code=error)])

        return name, DeleteGroupsRequest(groups_names=[name]), otherwise

    def finish(replies: list[Any]) -> None:
        for name in request.groups_names:
            broker.audit("group deleted", user=call.session.principal, group=name)
        call.answer(
            DeleteGroupsResponse(results=[each for reply in replies for each in reply.results])
        )

    yield from ask_each(broker, call, map(part, dict.fromkeys(request.groups_names)), finish)


def refuse(request: DeleteGroupsRequest, code: ErrorCode, version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[_Result(group_id=name, error_code=code) for name in request.groups_names]
    )
