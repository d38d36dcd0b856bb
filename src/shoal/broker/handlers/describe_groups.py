"""DescribeGroups: each group by its coordinator."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from shoal.broker.handlers.group_request import ask_each
from shoal.broker.handlers.metadata import GROUP_OPERATIONS
from shoal.errors import ErrorCode
from shoal.wire.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(
    broker: Broker, call: Call, request: DescribeGroupsRequest
) -> Generator[None, None, None]:
    def part(group_id: str) -> DescribeGroupsRequest:
        return DescribeGroupsRequest(groups=[group_id])

    def otherwise(error: ErrorCode) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[])

    def finish(replies: list[Any]) -> None:
        groups = [group for reply in replies for group in reply.groups]
        for group in groups:
            if request.include_authorized_operations:
                group.authorized_operations = GROUP_OPERATIONS
        call.answer(DescribeGroupsResponse(groups=groups))

    parts = ((name, part(name), otherwise) for name in request.groups)
    yield from ask_each(broker, call, parts, finish)


def refuse(request: DescribeGroupsRequest, code: ErrorCode, version: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribeGroupsResponse.DescribedGroup(group_id=name, error_code=code)
            for name in request.groups
        ]
    )
