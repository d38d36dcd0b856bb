"""The leader's duty: from everybody's subscriptions to everybody's assignment, in bytes.

Rule: one member's broken bytes or one custom assignor's broken result must not harm the group:
the first is read as "wants nothing", the second is refused before it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.assign.loading import validate
from shoal.assign.model import Assignment, Assignor, ClusterMetadata, Subscription
from shoal.errors import InvalidAssignmentError, InvalidFrameError
from shoal.types import TopicPartition
from shoal.wire import consumer_protocol
from shoal.wire.apis.join_group import JoinGroupResponse
from shoal.wire.apis.sync_group import SyncGroupRequest


def read_subscriptions(
    members: Iterable[JoinGroupResponse.Member],
) -> dict[str, Subscription]:
    """Member id → what it asks for, in the order of the answer: assignors depend on it."""
    return {member.member_id: _read_subscription(member) for member in members}


def _read_subscription(member: JoinGroupResponse.Member) -> Subscription:
    try:
        read = consumer_protocol.Subscription.decode(member.metadata)
    except InvalidFrameError:
        return Subscription((), group_instance_id=member.group_instance_id)
    raise NotImplementedError(read)


def topics_of(subscriptions: Mapping[str, Subscription]) -> frozenset[str]:
    return frozenset(topic for asked in subscriptions.values() for topic in asked.topics)


def assign(
    assignor: Assignor, cluster: ClusterMetadata, subscriptions: Mapping[str, Subscription]
) -> list[SyncGroupRequest.Assignment]:
    """Run the voted assignor and write what it decided.

    Raises:
        InvalidAssignmentError: it returned nonsense, or raised; the cause is chained.
    """
    try:
        result = assignor.assign(cluster, subscriptions)
    except InvalidAssignmentError:
        raise
    except Exception as error:
        raise InvalidAssignmentError(assignor.name, f"it raised {error!r}") from error
    checked = validate(assignor, result, cluster, subscriptions)
    return [
        SyncGroupRequest.Assignment(member_id=member_id, assignment=write_assignment(given))
        for member_id, given in checked.items()
    ]


def write_assignment(assignment: Assignment) -> bytes:
    raise NotImplementedError


def read_assignment(data: bytes) -> Assignment:
    raise NotImplementedError


def write_subscription(subscription: Subscription) -> bytes:
    raise NotImplementedError


def sorted_partitions(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partitions))
