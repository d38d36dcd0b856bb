"""Administration of groups: list, describe, offsets, reset, delete.

Rule: as in ``topic_admin.py``. A group is always asked about at its coordinator, except for the
list of groups, which every broker has a part of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from shoal.client.cluster import Cluster
from shoal.client.connection import Versioned
from shoal.client.deadlines import Deadline
from shoal.client.offsets import EARLIEST, LATEST, commit_as_nobody, fetch_committed, list_offsets
from shoal.client.topic_admin import need_partitions
from shoal.errors import BrokerError, ErrorCode, InvalidMessageError
from shoal.types import OffsetAndMetadata, TopicPartition
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from shoal.wire.apis.delete_groups import DeleteGroupsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.offset_delete import OffsetDeleteRequest
from shoal.wire.apis.registry import ApiKey
from shoal.wire.consumer_protocol import ConsumerProtocolAssignment, subscribed_topics


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in a list. ``state`` and ``kind`` are empty if the broker is too old to say."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group.

    The last four are of groups of the new protocol (KIP-848): what the member should have, by the
    coordinator's ``target``, as opposed to what it has or is giving up; the epoch it has reached;
    the pattern it lets the broker match; and how it speaks itself, "classic" ones may be in there.
    ``attached``: what a custom assignor of a classic group attached to the assignment, in bytes.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    pattern: str | None = None
    protocol: str = "classic"
    attached: int = 0


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator sees it; ``state`` is Kafka's word, "Dead" if there is none.

    ``protocol_type`` is empty for a group that is committed to and never had members. ``protocol``
    is how its members rebalance: "classic", or "consumer" (KIP-848). Those have epochs: how often
    the group has changed, and for which of them its target was computed; and if that failed, why.
    """

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator_id: int
    protocol: str = "classic"
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    assignor_fault: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in one partition; ``None``: nothing is committed."""

    committed: int | None
    end: int
    lag: int | None
    member_id: str | None = None


async def list_groups(
    cluster: Cluster, states: Collection[str], kinds: Collection[str], deadline: Deadline
) -> list[GroupListing]:
    request = Versioned(ApiKey.LIST_GROUPS, lambda version: list_request(version, states, kinds))

    async def of(node_id: int) -> list[GroupListing]:
        answer = await cluster.ask(request, node_id=node_id, deadline=deadline)
        cluster.check("Group", answer.error_code)
        return [
            GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
            for one in answer.groups
        ]

    async def attempt() -> list[GroupListing]:
        metadata = await cluster.refresh((), deadline)
        parts = await asyncio.gather(*(of(node_id) for node_id in metadata.nodes))
        return sorted((one for part in parts for one in part), key=lambda one: one.group_id)

    return await cluster.retrying(attempt, deadline)


def list_request(
    version: int, states: Collection[str], kinds: Collection[str]
) -> ListGroupsRequest:
    for needed, given, what in ((4, states, "states"), (5, kinds, "kinds")):
        if given and version < needed:
            reason = f"a broker this old cannot list groups by their {what}"
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, reason)
    request = ListGroupsRequest()
    if version >= 4:
        request.states_filter = list(states)
    if version >= 5:
        request.types_filter = list(kinds)
    return request


async def describe_group(cluster: Cluster, group_id: str, deadline: Deadline) -> GroupDescription:
    async def attempt() -> GroupDescription:
        request = DescribeGroupsRequest(groups=[group_id])
        answer = await cluster.ask_coordinator(group_id, request, deadline)
        (group,) = answer.groups
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            # KIP-1043: what older brokers call a dead group.
            group.group_state = "Dead"
        else:
            cluster.check("Group", group.error_code, repr(group_id), group_id=group_id)
        coordinator_id = await cluster.coordinator(group_id, deadline)
        if group.group_state == "Dead":
            # To the classic API a group of the new protocol looks as if it were not there.
            found = await _describe_consumer_group(cluster, group_id, coordinator_id, deadline)
            if found is not None:
                return found
        return classic_description(group, coordinator_id)

    return await cluster.retrying(attempt, deadline)


def classic_description(group: Any, coordinator_id: int) -> GroupDescription:
    """What a DescribeGroups answer says of one group."""
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        tuple(_member(one) for one in group.members),
        coordinator_id,
    )


async def _describe_consumer_group(
    cluster: Cluster, group_id: str, coordinator_id: int, deadline: Deadline
) -> GroupDescription | None:
    """A group of the new protocol (KIP-848); ``None`` if it is not one, or there can be none."""
    request = ConsumerGroupDescribeRequest(
        group_ids=[group_id], include_authorized_operations=False
    )
    try:
        answer = await cluster.ask_coordinator(group_id, request, deadline)
    except BrokerError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    (group,) = answer.groups
    if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    cluster.check("Group", group.error_code, repr(group_id), group_id=group_id)
    return consumer_description(group, coordinator_id)


def consumer_description(group: Any, coordinator_id: int) -> GroupDescription:
    """What a ConsumerGroupDescribe answer says of one group."""
    return GroupDescription(
        group.group_id,
        group.group_state,
        "consumer",
        group.assignor_name,
        tuple(_new_member(one) for one in group.members),
        coordinator_id,
        protocol="consumer",
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_fault=group.error_message or None,
    )


def _new_member(one: Any) -> MemberDescription:
    assignment = _named(one.assignment)
    topics = set(one.subscribed_topic_names)
    if one.subscribed_topic_regex:
        # Only the broker knows what else the pattern matches.
        topics |= {tp.topic for tp in assignment}
    return MemberDescription(
        one.member_id,
        one.instance_id,
        one.client_id,
        one.client_host.removeprefix("/"),
        tuple(sorted(topics)),
        assignment,
        target=_named(one.target_assignment),
        member_epoch=one.member_epoch,
        pattern=one.subscribed_topic_regex or None,
        # Before Kafka 4.1 nobody said it.
        protocol="classic" if one.member_type == 0 else "consumer",
    )


def _named(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def _member(one: Any) -> MemberDescription:
    try:
        topics = subscribed_topics(one.member_metadata) if one.member_metadata else ()
        assignment = (
            ConsumerProtocolAssignment.decode(one.member_assignment)
            if one.member_assignment
            else None
        )
    except InvalidMessageError:
        topics, assignment = (), None  # a group of some other kind than consumers
    return MemberDescription(
        one.member_id,
        one.group_instance_id,
        one.client_id,
        one.client_host.removeprefix("/"),
        tuple(topics),
        () if assignment is None else tuple(sorted(assignment.partitions)),
        attached=0 if assignment is None else len(assignment.user_data or b""),
    )


async def has_new_protocol(cluster: Cluster, group_id: str, deadline: Deadline) -> bool:
    async def attempt() -> bool:
        return await cluster.coordinator_has_new_groups(group_id, deadline)

    return await cluster.retrying(attempt, deadline)


async def group_lag(
    cluster: Cluster, group_id: str, deadline: Deadline
) -> dict[TopicPartition, PartitionLag]:
    """Per partition that is committed or assigned: how far behind, and who reads it."""
    committed = await fetch_committed(cluster, group_id, None, deadline, require_stable=False)
    description = await describe_group(cluster, group_id, deadline)
    owners = {tp: m.member_id for m in description.members for tp in m.assignment}
    partitions = sorted({*committed, *owners})
    ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST), deadline)
    found = {}
    for tp in partitions:
        end_offset = ends[tp]
        end = 0 if end_offset is None else end_offset.offset
        at = committed.get(tp)
        lag = None if at is None else max(0, end - at.offset)
        found[tp] = PartitionLag(None if at is None else at.offset, end, lag, owners.get(tp))
    return found


async def reset_group_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Collection[TopicPartition],
    to: str | int,
    deadline: Deadline,
) -> dict[TopicPartition, int]:
    """Commit an end, a time or an offset for partitions of a group without members.

    ``to``: "earliest", "latest", "time:<ms>" or an offset, which is kept within the log.
    """
    time_ms = _time_of(to)
    await need_partitions(cluster, partitions, deadline)
    first = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST), deadline)
    last = await list_offsets(cluster, dict.fromkeys(partitions, LATEST), deadline)
    starts = {tp: one.offset for tp, one in first.items() if one is not None}
    ends = {tp: one.offset for tp, one in last.items() if one is not None}
    if to == "earliest":
        targets = starts
    elif to == "latest":
        targets = ends
    elif time_ms is not None:
        found = await list_offsets(cluster, dict.fromkeys(partitions, time_ms), deadline)
        targets = {tp: ends[tp] if one is None else one.offset for tp, one in found.items()}
    else:
        assert isinstance(to, int)
        targets = {tp: min(max(to, starts[tp]), ends[tp]) for tp in partitions}
    commit = {tp: OffsetAndMetadata(offset) for tp, offset in targets.items()}
    await alter_group_offsets(cluster, group_id, commit, deadline)
    return targets


def _time_of(to: str | int) -> int | None:
    """The time ``to`` names; ``None`` if it names an end or an offset.

    Raises:
        ValueError: it names nothing.
    """
    if isinstance(to, int) or to in ("earliest", "latest"):
        return None
    prefix, _, number = to.partition(":")
    if prefix != "time" or not (number.isascii() and number.isdigit()):
        raise ValueError(f'to={to!r} is not "earliest", "latest", "time:<ms>" or an offset')
    return int(number)


async def alter_group_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    deadline: Deadline,
) -> None:
    """Commit for a group that has no members; says so if it has."""
    try:
        await commit_as_nobody(cluster, group_id, offsets, deadline)
    except BrokerError as error:
        if error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            raise BrokerError(
                ErrorCode.NON_EMPTY_GROUP, f"stop the members of {group_id!r} first"
            ) from error
        raise


async def delete_groups(cluster: Cluster, group_ids: Collection[str], deadline: Deadline) -> None:
    for group_id in group_ids:
        await cluster.retrying(partial(_delete_group, cluster, group_id, deadline), deadline)


async def _delete_group(cluster: Cluster, group_id: str, deadline: Deadline) -> None:
    request = DeleteGroupsRequest(groups_names=[group_id])
    answer = await cluster.ask_coordinator(group_id, request, deadline)
    for one in answer.results:
        cluster.check("Group", one.error_code, repr(one.group_id), group_id=group_id)


async def delete_group_offsets(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition], deadline: Deadline
) -> None:
    topics: dict[str, list[OffsetDeleteRequest.Partition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(
            OffsetDeleteRequest.Partition(partition_index=tp.partition)
        )
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequest.Topic(name=name, partitions=parts) for name, parts in topics.items()
        ],
    )

    async def attempt() -> None:
        answer = await cluster.ask_coordinator(group_id, request, deadline)
        cluster.check("Group", answer.error_code, repr(group_id), group_id=group_id)
        for topic in answer.topics:
            for one in topic.partitions:
                cluster.check("Group", one.error_code, f"{topic.name}-{one.partition_index}")

    await cluster.retrying(attempt, deadline)


async def remove_members(
    cluster: Cluster, group_id: str, group_instance_ids: Collection[str], deadline: Deadline
) -> None:
    """Throw static members out, by instance id, before their session times out."""
    request = LeaveGroupRequest(
        group_id=group_id,
        members=[
            LeaveGroupRequest.MemberIdentity(
                member_id="", group_instance_id=instance_id, reason="removed by an administrator"
            )
            for instance_id in group_instance_ids
        ],
    )

    async def attempt() -> None:
        answer = await cluster.ask_coordinator(group_id, request, deadline)
        cluster.check("Group", answer.error_code, repr(group_id), group_id=group_id)
        for one in answer.members:
            cluster.check("Group", one.error_code, str(one.group_instance_id))

    await cluster.retrying(attempt, deadline)
