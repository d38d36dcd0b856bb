"""DescribeGroups: each group by its coordinator."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from shoal.broker.handlers.group_request import ask_each
from shoal.broker.handlers.metadata import GROUP_OPERATIONS
from shoal.group.refusals import refusal
from shoal.wire.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


refuse = refusal


def handle(
    broker: Broker, call: Call, request: DescribeGroupsRequest
) -> Generator[None, None, None]:
    def finish(replies: list[Any]) -> None:
        groups = [group for reply in replies for group in reply.groups]
        for group in groups:
            if request.include_authorized_operations:
                group.authorized_operations = GROUP_OPERATIONS
        call.answer(DescribeGroupsResponse(groups=groups))

    parts = ((name, DescribeGroupsRequest(groups=[name])) for name in request.groups)
    yield from ask_each(broker, call, parts, finish)
