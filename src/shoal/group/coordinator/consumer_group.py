"""A consumer group (KIP-848): what its records say, and what follows from them.

    group epoch     grows when the target must be computed again
    target          member → partitions, computed for one group epoch: the target epoch
    member          what it subscribes to, its own epoch, what it holds and what it gives up

Everybody moves to the target at their own pace, one heartbeat at a time (``reconciliation.py``);
nobody waits for everybody.

Rule: what is durable changes in ``replay`` and nowhere else, and nothing that can be computed from
it is stored beside it, but for counts that would take a walk through all members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import Enum
from typing import ClassVar, TypeVar

from shoal.assign.server import Target, TopicId
from shoal.errors import ErrorCode
from shoal.group.coordinator import consumer_fencing, consumer_timers, target_assignment
from shoal.group.coordinator.classic_group_member import CONSUMER_PROTOCOL_TYPE
from shoal.group.coordinator.cluster_image import ClusterImage
from shoal.group.coordinator.consumer_group_member import (
    FIRST_EPOCH,
    LEAVES,
    NO_TARGET,
    ConsumerGroupMember,
)
from shoal.group.coordinator.consumer_journal import (
    ConsumerGroupEpoch,
    ConsumerGroupTombstone,
    ConsumerMemberMetadata,
    ConsumerRecord,
    ConsumerRecordType,
    CurrentAssignment,
    LegacyPartitionMetadata,
    PartitionEpochs,
    ReconciliationState,
    ResolvedRegex,
    TargetAssignment,
    TargetEpoch,
)
from shoal.group.coordinator.decision import Draft, EventKind, TimerName
from shoal.group.coordinator.journal import KindRecord
from shoal.group.coordinator.regex_resolution import Resolution
from shoal.group.coordinator.states import GroupType
from shoal.group.coordinator.target_orders import Failures, TargetAnswer, TargetOrder
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeResponse
from shoal.wire.apis.describe_groups import DescribeGroupsResponse

_Name = TypeVar("_Name", bound=Hashable)

STALE_EPOCHS_SINCE = 9
"""Of OffsetCommit: before, members cannot be told that their epoch is old."""


class ConsumerGroupState(Enum):
    """Values are Kafka's own spellings, as ConsumerGroupDescribe and ListGroups report them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """One group that speaks ConsumerGroupHeartbeat; some of its members may be classic ones."""

    type: ClassVar[GroupType] = GroupType.CONSUMER

    __slots__ = (
        "assignor_fault",
        "buried",
        "classic_support",
        "epoch",
        "failed_orders",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "metadata_known_for",
        "owners",
        "regex_counts",
        "resolution",
        "resolved",
        "stable_at",
        "static_ids",
        "target_epoch",
        "target_timestamp_ms",
        "targets",
        "topic_counts",
        "tried_ms",
        "votes",
    )

    @property
    def protocol_type(self) -> str | None:
        return CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = 0
        self.targets: dict[str, Target] = {}
        self.members: dict[str, ConsumerGroupMember] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        """A record of type 4 stands in the journal; the next change of the epoch removes it."""

        # What follows from the members.
        self.static_ids: dict[str, str] = {}
        self.owners: dict[TopicId, dict[int, int]] = {}
        """Topic id → partition → epoch of the member that holds it or is giving it up."""
        self.topic_counts: Counter[str] = Counter()
        self.regex_counts: Counter[str] = Counter()
        self.votes: Counter[str] = Counter()
        self.classic_support: Counter[str] = Counter()
        """Protocol → classic members that support it; "" counts all of them."""
        self.stable_at: Counter[int] = Counter()

        # Volatile.
        self.buried = False
        self.metadata_known_for: int | None = None
        """The group epoch up to which the hash was compared; ``None``: compare it again."""
        self.resolution: Resolution | None = None
        self.tried_ms = 0
        """When the assignor last failed."""
        self.failed_orders = Failures()
        self.assignor_fault: str | None = None
        """Why the target is older than the group; ``None`` if nothing is wrong with that."""

    # --- Durable -------------------------------------------------------------------------------

    def replay(self, record: KindRecord, *, live: bool) -> None:
        match record:
            case ConsumerMemberMetadata():
                self._describe(record)
            case CurrentAssignment():
                self._place(record)
            case TargetAssignment():
                self.targets[record.member_id] = record.partitions
            case TargetEpoch():
                self.target_epoch = record.epoch
                self.target_timestamp_ms = record.timestamp_ms
                self.assignor_fault = None
                self.failed_orders = Failures()
            case ConsumerGroupEpoch():
                self.epoch = record.epoch
                self.metadata_hash = record.metadata_hash
            case ResolvedRegex():
                self.resolved[record.regex] = record
            case LegacyPartitionMetadata():
                self.has_partition_metadata = True
            case ConsumerGroupTombstone():
                self._forget(record)
            case _:
                raise AssertionError(f"not a record of a consumer group: {record}")

    def _forget(self, record: ConsumerGroupTombstone) -> None:
        """What is unknown is forgotten already: compaction may have left the tombstone alone."""
        match record.type:
            case ConsumerRecordType.CURRENT:
                if record.name in self.members:
                    gone = CurrentAssignment(self.group_id, record.name, LEAVES, LEAVES)
                    self._place(gone)
            case ConsumerRecordType.TARGET:
                self.targets.pop(record.name, None)
            case ConsumerRecordType.MEMBER:
                self._remove(record.name)
            case ConsumerRecordType.TARGET_EPOCH:
                self.target_epoch, self.target_timestamp_ms = -1, 0
            case ConsumerRecordType.REGEX:
                self.resolved.pop(record.name, None)
            case ConsumerRecordType.PARTITION_METADATA:
                self.has_partition_metadata = False
            case ConsumerRecordType.EPOCH:
                raise AssertionError("the shard buries groups")

    def _describe(self, metadata: ConsumerMemberMetadata) -> None:
        """What a member says of itself is this now."""
        member_id = metadata.member_id
        old = self.members.get(member_id)
        if old is None:
            current = CurrentAssignment(self.group_id, member_id)
            self._count_stable(current, +1)
        else:
            current = old.current
            self._count(old.metadata, -1)
        self.members[member_id] = ConsumerGroupMember(metadata, current)
        self._count(metadata, +1)
        instance_id = metadata.instance_id
        if old is not None and old.metadata.instance_id not in (None, instance_id):
            self._free_name(old)  # KAFKA-20747
        if instance_id is not None:
            self.static_ids[instance_id] = member_id

    def _place(self, current: CurrentAssignment) -> None:
        """A member is there now, and holds that."""
        member_id = current.member_id
        old = self.members.get(member_id)
        if old is None:
            metadata = ConsumerMemberMetadata(self.group_id, member_id)
        else:
            metadata = old.metadata
            self._count_stable(old.current, -1)
            self._release(old.current)
        self.members[member_id] = ConsumerGroupMember(metadata, current)
        self._count_stable(current, +1)
        self._take(current)

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.metadata, -1)
            self._count_stable(member.current, -1)
            self._release(member.current)
            self._free_name(member)

    def _free_name(self, member: ConsumerGroupMember) -> None:
        """Unless somebody else has taken the name meanwhile."""
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_ids.get(instance_id) == member.member_id:
            del self.static_ids[instance_id]

    def _count(self, metadata: ConsumerMemberMetadata, change: int) -> None:
        for topic in metadata.topics:
            _add(self.topic_counts, topic, change)
        if metadata.regex:
            _add(self.regex_counts, metadata.regex, change)
        if metadata.server_assignor is not None:
            _add(self.votes, metadata.server_assignor, change)
        if metadata.classic is not None:
            for name in {"", *(name for name, _ in metadata.classic.protocols)}:
                _add(self.classic_support, name, change)

    def _count_stable(self, current: CurrentAssignment, change: int) -> None:
        if current.state is ReconciliationState.STABLE:
            _add(self.stable_at, current.member_epoch, change)

    def _take(self, current: CurrentAssignment) -> None:
        """A larger epoch wins: compaction may have dropped the record in which the former owner
        let go (KAFKA-19862)."""
        for held in (current.assigned, current.pending_revocation):
            for topic_id, epochs in held.items():
                owners = self.owners.setdefault(topic_id, {})
                for partition in epochs:
                    if owners.get(partition, current.member_epoch) <= current.member_epoch:
                        owners[partition] = current.member_epoch

    def _release(self, current: CurrentAssignment) -> None:
        for held in (current.assigned, current.pending_revocation):
            for topic_id, epochs in held.items():
                owners = self.owners.get(topic_id, {})
                for partition in epochs:
                    if owners.get(partition) == current.member_epoch:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)

    def bury(self) -> None:
        self.buried = True

    def durable(self) -> object:
        return (
            self.epoch,
            self.metadata_hash,
            self.target_epoch,
            self.target_timestamp_ms,
            self.targets,
            self.members,
            self.resolved,
            self.has_partition_metadata,
        )

    # --- What happens to it --------------------------------------------------------------------

    def loaded(self, draft: Draft) -> None:
        consumer_timers.arm_missing(draft, self)

    def append_failed(self, draft: Draft, error: ErrorCode) -> None:
        """Timers that were stopped for what was not written run again."""
        if self.resolution is not None and self.resolution.is_done:
            self.resolution = None
        consumer_timers.arm_missing(draft, self)

    def abandon(self, draft: Draft, error: ErrorCode) -> None:
        """Nobody waits here: every request is answered at once."""
        for timer in self.timers():
            draft.cancel(timer)

    def timer_due(self, draft: Draft, kind: str, member_id: str) -> None:
        consumer_fencing.timer_due(draft, self, kind, member_id)

    def member_lost(self, draft: Draft, member_id: str, cause: str) -> None:
        member = self.members.get(member_id)
        if member is not None and member.metadata.instance_id is None:
            consumer_fencing.fence(draft, self, [member], EventKind.MEMBER_EXPIRED, cause)

    def timers(self) -> Iterator[TimerName]:
        yield consumer_timers.regex_timer(self.group_id)
        for member_id in self.members:
            yield from consumer_timers.of_member(self.group_id, member_id)

    def topics_changed(self, names: frozenset[str]) -> None:
        if any(map(self.is_subscribed, names)):
            self.metadata_known_for = None

    def settings_changed(self) -> None:
        """The hash of what a target depends on is compared again."""
        self.metadata_known_for = None

    def target_answered(self, draft: Draft, order: TargetOrder, answered: TargetAnswer) -> None:
        target_assignment.take_answer(draft, self, order, answered)

    # --- Questions -----------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if self.buried:
            return ConsumerGroupState.DEAD
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if self.stable_at[self.target_epoch] < len(self.members):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def is_removable(self) -> bool:
        return not self.members

    @property
    def classic_count(self) -> int:
        return self.classic_support[""]

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        member_id = self.static_ids.get(instance_id) if instance_id is not None else None
        return self.members.get(member_id) if member_id is not None else None

    def target_of(self, member_id: str) -> Target:
        return self.targets.get(member_id, NO_TARGET)

    def is_free(self, topic_id: TopicId, partition: int) -> bool:
        return partition not in self.owners.get(topic_id, ())

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.topic_counts or any(
            topic in each.topics for each in self.resolved.values()
        )

    def supports_classic(self, protocol_type: str, names: set[str]) -> bool:
        """May a classic member with these protocols join? One must suit all classic members."""
        count = self.classic_count
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            self.classic_support[name] == count for name in names if name
        )

    def commit_error(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        version: int,
    ) -> ErrorCode:
        if generation < 0 and not self.members:
            return ErrorCode.NONE
        if transactional and generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and not member.is_classic and version < STALE_EPOCHS_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        if generation > member.current.member_epoch:
            return _stale(member)
        return ErrorCode.NONE

    def commit_check(
        self, image: ClusterImage, member_id: str, generation: int
    ) -> Callable[[str, int], ErrorCode] | None:
        """With an older epoch a member commits what it has had since then (KIP-1251)."""
        member = self.members.get(member_id)
        if member is None or generation == member.current.member_epoch:
            return None

        def check(topic: str, partition: int) -> ErrorCode:
            known = image.topic(topic)
            since = member.assignment_epoch(known.topic_id, partition) if known else None
            return ErrorCode.NONE if since is not None and since <= generation else _stale(member)

        return check

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.current.member_epoch else _stale(member)

    def keep_alive(self, draft: Draft, member_id: str) -> None:
        """A commit says nothing here: only heartbeats do, as in Kafka."""

    def delete_error(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def offset_delete_error(self) -> ErrorCode:
        return ErrorCode.NONE

    def retention_start(self, commit_timestamp_ms: int) -> int | None:
        """Nobody notes when the group became empty: the commit counts, as in Kafka."""
        return commit_timestamp_ms

    def tombstones(self) -> tuple[ConsumerRecord, ...]:
        """In the order in which Kafka wants to read them."""
        return self.tombstones_for(list(self.members))

    def tombstones_for(self, member_ids: list[str]) -> tuple[ConsumerRecord, ...]:
        """All that the journal says of the group with these members is over."""

        def gone(kind: ConsumerRecordType, names: list[str]) -> Iterator[ConsumerRecord]:
            return (ConsumerGroupTombstone(kind, self.group_id, name) for name in names)

        return (
            *gone(ConsumerRecordType.CURRENT, member_ids),
            *gone(ConsumerRecordType.TARGET, member_ids),
            ConsumerGroupTombstone(ConsumerRecordType.TARGET_EPOCH, self.group_id),
            *gone(ConsumerRecordType.MEMBER, member_ids),
            *gone(ConsumerRecordType.REGEX, list(self.resolved)),
            ConsumerGroupTombstone(ConsumerRecordType.PARTITION_METADATA, self.group_id),
            ConsumerGroupTombstone(ConsumerRecordType.EPOCH, self.group_id),
        )

    # --- Described -----------------------------------------------------------------------------

    def described(self) -> DescribeGroupsResponse.DescribedGroup | None:
        return None

    def described_with_epochs(
        self, image: ClusterImage, assignors: Sequence[str]
    ) -> ConsumerGroupDescribeResponse.DescribedGroup | None:
        own = image.overrides_of(self.group_id).assignor
        return ConsumerGroupDescribeResponse.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            group_epoch=self.epoch,
            assignment_epoch=self.target_epoch,
            error_message=self.assignor_fault,
            assignor_name=own
            if own is not None and own in assignors
            else max(assignors, key=self.votes.__getitem__),
            members=[
                _described(each, self.target_of(each.member_id), image)
                for each in self.members.values()
            ],
        )


def _add(counts: Counter[_Name], name: _Name, change: int) -> None:
    """A count of zero is not an entry."""
    left = counts.get(name, 0) + change
    if left:
        counts[name] = left
    else:
        dict.__delitem__(counts, name)  # the Counter's own is slow, and allows for what is absent


def _stale(member: ConsumerGroupMember) -> ErrorCode:
    """Classic members know another word for it."""
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


_Member = ConsumerGroupDescribeResponse.Member
_Assignment = ConsumerGroupDescribeResponse.Assignment
_Partitions = ConsumerGroupDescribeResponse.TopicPartitions


def _described(member: ConsumerGroupMember, target: Target, image: ClusterImage) -> _Member:
    metadata, current = member.metadata, member.current
    return _Member(
        member_id=metadata.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=current.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topics),
        subscribed_topic_regex=metadata.regex,
        # It answers for what it is giving up, too, until it has done so (KAFKA-20431).
        assignment=_shown(_held(current.assigned, current.pending_revocation), image),
        target_assignment=_shown(target, image),
        member_type=0 if member.is_classic else 1,
    )


def _held(*parts: PartitionEpochs) -> Target:
    held: Target = {}
    for part in parts:
        for topic_id, epochs in part.items():
            held.setdefault(topic_id, []).extend(epochs)
    return held


def _shown(partitions: Target, image: ClusterImage) -> _Assignment:
    """Without topics that are gone."""
    found = ((image.by_id(topic_id), numbers) for topic_id, numbers in partitions.items())
    return _Assignment(
        topic_partitions=[
            _Partitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(numbers))
            for topic, numbers in found
            if topic is not None
        ]
    )
