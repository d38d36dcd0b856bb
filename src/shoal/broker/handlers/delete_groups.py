"""DeleteGroups: each group by its coordinator."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from shoal.access.resources import ResourceType
from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import ask_each
from shoal.errors import ErrorCode
from shoal.group.coordinator.refusals import refusal
from shoal.wire.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_Result = DeleteGroupsResponse.DeletableGroupResult

refuse = refusal


def handle(
    broker: Broker, call: Call, request: DeleteGroupsRequest
) -> Generator[None, None, Deferred]:
    def finish(replies: list[Any]) -> None:
        results = [each for reply in replies for each in reply.results]
        for each in results:
            if each.error_code == ErrorCode.NONE:
                broker.audit("group deleted", user=call.session.principal, group=each.group_id)
        results += [_Result(group_id=name, error_code=code) for name, code in refused.items()]
        call.answer(DeleteGroupsResponse(results=results))

    names = dict.fromkeys(request.groups_names)
    refused = {name: code for name in names if (code := call.check(ResourceType.GROUP, name))}
    parts = (
        (name, DeleteGroupsRequest(groups_names=[name])) for name in names if name not in refused
    )
    return (yield from ask_each(broker, call, parts, finish))
