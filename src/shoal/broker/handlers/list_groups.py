"""ListGroups: of all coordinators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.broker.handlers.group_request import Gathering
from shoal.wire.apis.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(broker: Broker, call: Call, request: ListGroupsRequest) -> None:
    def finish(replies: list[Any]) -> None:
        groups = sorted(
            (group for reply in replies for group in reply.groups), key=lambda g: g.group_id
        )
        call.reply(ListGroupsResponse(groups=groups))

    gathering = Gathering(finish)
    for shard in list(broker.groups.shards.values()):
        shard.handle(
            request,
            version=call.api_version,
            client=(call.client_id, call.client_host),
            ticket=gathering.ticket(),
        )
    gathering.close()
