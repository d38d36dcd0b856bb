"""ListGroups: of all coordinators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.access.resources import ResourceType
from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import Gathering, caller_of
from shoal.broker.memory import TOO_MUCH
from shoal.wire.apis.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(broker: Broker, call: Call, request: ListGroupsRequest) -> Deferred:
    def finish(replies: list[Any]) -> None:
        groups = sorted(
            (
                group
                for reply in replies
                for group in reply.groups
                if call.shows(ResourceType.GROUP, group.group_id)
            ),
            key=lambda group: group.group_id,
        )
        if call.spend(len(groups)):
            call.reply(ListGroupsResponse(groups=groups))
        else:
            call.reply(ListGroupsResponse(error_code=TOO_MUCH))

    gathering = Gathering(call, finish)
    for runtime in list(broker.groups.runtimes.values()):
        runtime.handle(request, caller_of(call, gathering.ticket()))
    return gathering.close()
