"""ConsumerGroupDescribe: each group by its coordinator.

A group is shown to those who may see all its topics, and to nobody else.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from shoal.access.resources import Operation, ResourceType
from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import ask_each, in_elements
from shoal.errors import ErrorCode
from shoal.group.coordinator.refusals import refusal
from shoal.wire.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_Group = ConsumerGroupDescribeResponse.DescribedGroup

refuse = refusal


def handle(
    broker: Broker, call: Call, request: ConsumerGroupDescribeRequest
) -> Generator[None, None, Deferred]:
    def finish(replies: list[Any]) -> None:
        groups = [_shown(call, group) for reply in replies for group in reply.groups]
        for group in groups:
            if request.include_authorized_operations and not group.error_code:
                name = group.group_id
                group.authorized_operations = call.operations(ResourceType.GROUP, name)
        groups += [_Group(group_id=name, error_code=code) for name, code in refused.items()]
        call.answer(ConsumerGroupDescribeResponse(groups=groups))

    def part(group_id: str) -> tuple[str, ConsumerGroupDescribeRequest]:
        alone = ConsumerGroupDescribeRequest(
            group_ids=[group_id], include_authorized_operations=False
        )
        return group_id, alone

    names = dict.fromkeys(request.group_ids)
    refused = {name: code for name in names if (code := call.check(ResourceType.GROUP, name))}
    if "" in names:
        refused.setdefault("", ErrorCode.INVALID_GROUP_ID)
    parts = map(part, (name for name in names if name not in refused))
    return (yield from ask_each(broker, call, parts, finish, _weight))


def _weight(response: ConsumerGroupDescribeResponse) -> int:
    total = len(response.groups)
    for group in response.groups:
        for member in group.members:
            total += 1 + len(member.subscribed_topic_names)
            for part in (member.assignment, member.target_assignment):
                total += sum(1 + in_elements(4 * len(r.partitions)) for r in part.topic_partitions)
    return total


def _shown(call: Call, group: _Group) -> _Group:
    seen = (Operation.DESCRIBE, ResourceType.TOPIC)
    if all(call.may(*seen, name) for name in set(_topics(group))):
        return group
    return _Group(
        group_id=group.group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to "
        "describe.",
    )


def _topics(group: _Group) -> Iterator[str]:
    for member in group.members:
        yield from member.subscribed_topic_names
        for part in (member.assignment, member.target_assignment):
            yield from (row.topic_name for row in part.topic_partitions)
