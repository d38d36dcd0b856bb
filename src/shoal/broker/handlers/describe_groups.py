"""DescribeGroups: each group by its coordinator."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from shoal.access.resources import ResourceType
from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import ask_each, in_elements
from shoal.group.coordinator.refusals import refusal
from shoal.wire.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_Group = DescribeGroupsResponse.DescribedGroup

refuse = refusal


def handle(
    broker: Broker, call: Call, request: DescribeGroupsRequest
) -> Generator[None, None, Deferred]:
    def finish(replies: list[Any]) -> None:
        groups = [group for reply in replies for group in reply.groups]
        for group in groups:
            if request.include_authorized_operations and not group.error_code:
                name = group.group_id
                group.authorized_operations = call.operations(ResourceType.GROUP, name)
        groups += [_Group(group_id=name, error_code=code) for name, code in refused.items()]
        call.answer(DescribeGroupsResponse(groups=groups))

    names = dict.fromkeys(request.groups)
    refused = {name: code for name in names if (code := call.check(ResourceType.GROUP, name))}
    parts = ((name, DescribeGroupsRequest(groups=[name])) for name in names if name not in refused)
    return (yield from ask_each(broker, call, parts, finish, _weight))


def _weight(response: DescribeGroupsResponse) -> int:
    return sum(
        1 + in_elements(len(member.member_metadata) + len(member.member_assignment))
        for group in response.groups
        for member in group.members
    ) + len(response.groups)
