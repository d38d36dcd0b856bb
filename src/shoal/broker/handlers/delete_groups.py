"""DeleteGroups: each group by its coordinator."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from shoal.broker.handlers.group_request import ask_each
from shoal.errors import ErrorCode
from shoal.group.refusals import refusal
from shoal.wire.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

refuse = refusal


def handle(broker: Broker, call: Call, request: DeleteGroupsRequest) -> Generator[None, None, None]:
    def finish(replies: list[Any]) -> None:
        results = [each for reply in replies for each in reply.results]
        for each in results:
            if each.error_code == ErrorCode.NONE:
                broker.audit("group deleted", user=call.session.principal, group=each.group_id)
        call.answer(DeleteGroupsResponse(results=results))

    names = dict.fromkeys(request.groups_names)
    parts = ((name, DeleteGroupsRequest(groups_names=[name])) for name in names)
    yield from ask_each(broker, call, parts, finish)
