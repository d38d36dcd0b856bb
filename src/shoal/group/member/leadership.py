"""The leader's duty: from everybody's subscriptions to everybody's assignment, in bytes.

Rule: one member's broken bytes or one custom assignor's broken result must not harm the group:
the first is read as "wants nothing", the second is refused before it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shoal.assign.loading import left_out, validate
from shoal.assign.model import Assignment, Assignor, ClusterMetadata, Subscription
from shoal.errors import InvalidAssignmentError, InvalidFrameError
from shoal.wire import consumer_protocol
from shoal.wire.apis.join_group import JoinGroupResponse
from shoal.wire.apis.sync_group import SyncGroupRequest


def read_subscriptions(members: Iterable[JoinGroupResponse.Member]) -> dict[str, Subscription]:
    """Member id → what it asks for, in the order of the answer: assignors depend on it."""
    return {member.member_id: _read_subscription(member) for member in members}


def _read_subscription(member: JoinGroupResponse.Member) -> Subscription:
    # The instance id is the coordinator's word, not the member's.
    instance_id = member.group_instance_id
    try:
        read = consumer_protocol.ConsumerProtocolSubscription.decode(member.metadata)
    except InvalidFrameError:
        return Subscription((), group_instance_id=instance_id)
    return Subscription(
        read.topics,
        read.user_data,
        read.owned_partitions,
        instance_id,
        read.generation_id,
        read.rack_id,
    )


def write_subscription(subscription: Subscription) -> bytes:
    return consumer_protocol.ConsumerProtocolSubscription(
        subscription.topics,
        subscription.user_data,
        subscription.owned_partitions,
        subscription.generation_id,
        subscription.rack_id,
    ).encode()


def topics_of(subscriptions: Mapping[str, Subscription]) -> frozenset[str]:
    return frozenset(topic for asked in subscriptions.values() for topic in asked.topics)


class LeaderPlan(NamedTuple):
    """What the voted assignor decided."""

    assignments: list[SyncGroupRequest.Assignment]
    warning: str | None = None
    """What is allowed, and looks like a mistake."""


def assign(
    assignor: Assignor, cluster: ClusterMetadata, subscriptions: Mapping[str, Subscription]
) -> LeaderPlan:
    """Run the voted assignor and write what it decided.

    Raises:
        InvalidAssignmentError: it returned nonsense, or raised; the cause is chained.
    """
    try:
        result = assignor.assign(cluster, subscriptions)
        checked = validate(assignor, result, cluster, subscriptions)
        warning = left_out(assignor, result, cluster, subscriptions)
    except InvalidAssignmentError:
        raise
    except Exception as error:  # user code: anything may come out of it
        raise InvalidAssignmentError(assignor.name, f"it raised {error!r}") from error
    assignments = [
        SyncGroupRequest.Assignment(member_id=member_id, assignment=write_assignment(given))
        for member_id, given in checked.items()
    ]
    return LeaderPlan(assignments, warning)


def write_assignment(assignment: Assignment) -> bytes:
    return consumer_protocol.ConsumerProtocolAssignment(
        assignment.partitions, assignment.user_data
    ).encode()


def read_assignment(data: bytes) -> Assignment:
    """Raises InvalidMessageError, also for no bytes at all: the leader forgot this member."""
    read = consumer_protocol.ConsumerProtocolAssignment.decode(data)
    return Assignment(read.partitions, read.user_data)
