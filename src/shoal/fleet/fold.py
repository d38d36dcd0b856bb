"""Group records in the order of the log → generations, each with its members and their partitions.

    classic     one record says it all. Shoal's broker writes two, the first when the members are
                known and the second when the leader has assigned; Apache Kafka writes the second.
    consumer    (KIP-848) members, target assignment and epoch come one by one; a generation is
                whole when the epoch of its assignment is written, or when nobody is left.

Rule: fed with a log from its beginning, the fold knows each group as its coordinator did; fed with
what compaction left, it knows less and makes nothing up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from shoal.fleet.group_records import (
    GroupRecordRow,
    is_assigned,
    partitions_of,
    rebalance_timeout_ms,
    topics_of,
)
from shoal.types import TopicPartition
from shoal.wire.offsets_topic import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
)

STABLE: Final = 0
"""The state of a member that owns all of its target and has nothing left to give up."""


@dataclass(frozen=True, slots=True)
class RecordedMember:
    """One member of a generation."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    topics: frozenset[str] = frozenset()
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True)
class RecordedGeneration:
    """A group between two rebalances. ``began_us`` is when its members were known, if told."""

    group: str
    generation: int
    protocol: str
    at_us: int
    began_us: int | None
    assignor: str | None
    members: Mapping[str, RecordedMember]
    unfinished: int = 0
    """Generations that began before this one and were never assigned."""
    protocol_type: str = "consumer"
    """What its members are: Kafka Connect and others use groups, too."""
    leader: str | None = None
    """The member that assigns, in a classic group."""

    @cached_property
    def owners(self) -> dict[TopicPartition, str]:
        return {tp: one.member_id for one in self.members.values() for tp in one.partitions}


@dataclass
class GroupFold:
    """What the records said of one group so far."""

    group: str
    names: Mapping[bytes, str] = field(default_factory=dict)
    """Topic ids that are known by name, for groups of the new protocol."""
    is_deleted: bool = False
    reached: dict[int, dict[str, int]] = field(default_factory=dict)
    """By epoch of a group of the new protocol: when each member had nothing left to do for it."""
    _started: tuple[int, int] | None = None
    _unfinished: int = 0
    _members: dict[str, RecordedMember] = field(default_factory=dict)
    _targets: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    _bumped_us: int | None = None
    _epoch: int = 0

    def feed(self, event: GroupRecordRow) -> RecordedGeneration | None:
        """The generation that this record completes, if it does."""
        value = event.value
        if isinstance(event.key, GroupMetadataKey | ConsumerGroupMetadataKey) and value is None:
            self.is_deleted = True
            self._started, self._unfinished = None, 0
            self.reached.clear()
            return None
        if isinstance(value, GroupMetadataValue):
            self.is_deleted = False
            return self._classic(value, event.place.time_us)
        return self._consumer(event)

    def _classic(self, value: GroupMetadataValue, at_us: int) -> RecordedGeneration | None:
        started = self._started
        if value.generation == 0 and not value.members:
            return None  # the group was made; its first generation is yet to come
        if not is_assigned(value):
            if started is not None and started[0] != value.generation:
                self._unfinished += 1
            self._started = (value.generation, at_us)
            return None
        began_us: int | None = None
        if started is not None and started[0] == value.generation:
            began_us = started[1]
        elif value.members and value.current_state_timestamp >= 0:
            began_us = value.current_state_timestamp * 1000
        self._started = None
        unfinished, self._unfinished = self._unfinished, 0
        return RecordedGeneration(
            group=self.group,
            generation=value.generation,
            protocol="classic",
            at_us=at_us,
            began_us=began_us,
            assignor=value.protocol,
            members={one.member_id: _classic_member(value, one) for one in value.members},
            unfinished=unfinished,
            protocol_type=value.protocol_type or "consumer",
            leader=value.leader,
        )

    def _consumer(self, event: GroupRecordRow) -> RecordedGeneration | None:
        key, value, at_us = event.key, event.value, event.place.time_us
        if isinstance(key, ConsumerGroupMemberMetadataKey):
            if value is None:
                self._members.pop(key.member_id, None)
                self._targets.pop(key.member_id, None)
            else:
                assert isinstance(value, ConsumerGroupMemberMetadataValue)
                self._members[key.member_id] = _consumer_member(key.member_id, value)
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            if value is None:
                self._targets.pop(key.member_id, None)
            else:
                assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                self._targets[key.member_id] = self._named(value)
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            if (
                isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                and value.state == STABLE
            ):
                self.reached.setdefault(value.member_epoch, {}).setdefault(key.member_id, at_us)
        elif isinstance(value, ConsumerGroupPartitionMetadataValue):
            known = {bytes(one.topic_id): one.topic_name for one in value.topics}
            self.names = {**self.names, **known}
        elif isinstance(value, ConsumerGroupMetadataValue):
            self.is_deleted = False
            self._epoch, self._bumped_us = value.epoch, at_us
            if not self._members:
                return self._whole(value.epoch, at_us)
        elif isinstance(value, ConsumerGroupTargetAssignmentMetadataValue) and self._members:
            return self._whole(value.assignment_epoch, at_us)
        return None

    def _whole(self, epoch: int, at_us: int) -> RecordedGeneration:
        began_us = self._bumped_us if epoch == self._epoch and self._members else None
        return RecordedGeneration(
            group=self.group,
            generation=epoch,
            protocol="consumer",
            at_us=at_us,
            began_us=began_us,
            assignor=None,
            members={
                member_id: replace(one, partitions=self._targets.get(member_id, frozenset()))
                for member_id, one in self._members.items()
            },
        )

    def _named(self, value: ConsumerGroupTargetAssignmentMemberValue) -> frozenset[TopicPartition]:
        found = set()
        for topic in value.topic_partitions:
            topic_id = bytes(topic.topic_id)
            name = self.names.get(topic_id, f"id:{topic_id.hex()}")
            found |= {TopicPartition(name, number) for number in topic.partitions}
        return frozenset(found)


def _classic_member(
    value: GroupMetadataValue, one: GroupMetadataValue.MemberMetadata
) -> RecordedMember:
    return RecordedMember(
        member_id=one.member_id,
        instance_id=one.group_instance_id,
        client_id=one.client_id,
        host=one.client_host,
        session_timeout_ms=one.session_timeout,
        rebalance_timeout_ms=rebalance_timeout_ms(one),
        topics=frozenset(topics_of(value, one.subscription)),
        partitions=frozenset(partitions_of(value, one.assignment)),
    )


def _consumer_member(member_id: str, value: ConsumerGroupMemberMetadataValue) -> RecordedMember:
    pattern = value.subscribed_topic_regex
    return RecordedMember(
        member_id=member_id,
        instance_id=value.instance_id,
        client_id=value.client_id,
        host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topics=frozenset([*value.subscribed_topic_names, *([f"/{pattern}/"] if pattern else [])]),
    )
