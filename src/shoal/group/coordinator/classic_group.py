"""A classic group: what the journal says about it, and what only the living coordinator knows.

* *Durable*: ``record``, the last ``GroupRecord``. It changes in ``replay`` and nowhere else.
* *Volatile*: parked requests, members on their way in or out, the running rebalance. They change
  in the methods of this class under "Volatile" and nowhere else.

The state is not stored. It follows from the two halves: a running rebalance is
PreparingRebalance; else a record without members is Empty, one without a leader is
CompletingRebalance, any other is Stable. So a replayed record cannot leave a group in a state
that contradicts it.

Rule: outside PreparingRebalance the living members are exactly those of the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from shoal.errors import ErrorCode
from shoal.group.coordinator import classic_rebalance
from shoal.group.coordinator.classic_group_member import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroupMember,
    NamedProtocol,
    member_of,
    member_record,
    topics_of,
)
from shoal.group.coordinator.classic_rebalance import (
    JoinPhase,
    join_timer,
    migration_timer,
    session_timer,
    sync_timer,
)
from shoal.group.coordinator.cluster_image import ClusterImage
from shoal.group.coordinator.decision import Draft, TimerName
from shoal.group.coordinator.java_hash import JavaMap
from shoal.group.coordinator.journal import GroupRecord, GroupTombstone, KindRecord
from shoal.group.coordinator.states import GroupState, GroupType, may_move
from shoal.group.coordinator.target_orders import TargetAnswer, TargetOrder
from shoal.machine.decision import Ticket
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeResponse
from shoal.wire.apis.describe_groups import DescribeGroupsResponse


class ClassicGroup:
    """One group that speaks JoinGroup and SyncGroup."""

    type: ClassVar[GroupType] = GroupType.CLASSIC

    __slots__ = (
        "_assignments",
        "_support",
        "_topics",
        "awaiting_join",
        "buried",
        "group_id",
        "last_rebalance",
        "leader_id",
        "members",
        "pending_ids",
        "pending_sync",
        "protocol_type",
        "rebalance",
        "record",
        "staged",
        "static_ids",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.record: GroupRecord | None = None
        self.buried = False
        self._assignments: dict[str, bytes] = {}
        self._topics: tuple[frozenset[str] | None] | None = None

        self.protocol_type: str | None = None
        self.leader_id: str | None = None
        self.members: JavaMap[ClassicGroupMember] = JavaMap()
        self.static_ids: dict[str, str] = {}
        self.pending_ids: dict[str, None] = {}
        """Given out with MEMBER_ID_REQUIRED (KIP-394), not used yet."""
        self.pending_sync: dict[str, None] = {}
        self.awaiting_join = 0
        self.rebalance: JoinPhase | None = None
        self.last_rebalance: JoinPhase | None = None
        self.staged: ClassicGroupMember | None = None
        """Becomes a member when the record that names it is replayed."""
        self._support: Counter[str] = Counter()

    # --- Durable -------------------------------------------------------------------------------

    def replay(self, record: KindRecord, *, live: bool) -> None:
        """Take over what the journal says: the only place where the durable half changes."""
        assert isinstance(record, GroupRecord)
        before = self.state
        self._adopt(record)
        # A journal tells only of the states that were written down; live, every move counts.
        assert may_move(before, self.state) or not live

    def _adopt(self, record: GroupRecord) -> None:
        if record.generation != self.generation:
            self.rebalance = None  # A new generation is what a join phase ends with.
        self.record = record
        self._assignments = {each.member_id: each.assignment for each in record.members}
        self._topics = None
        if self.rebalance is None:
            self._follow(record)

    def bury(self) -> None:
        """The journal says that the group is gone."""
        self.buried = True

    def _follow(self, record: GroupRecord) -> None:
        """Make the living members those of the record."""
        for member_id in [each for each in self.members if each not in self._assignments]:
            self.remove(member_id)
        for each in record.members:
            known = self.members.get(each.member_id)
            if known is None:
                self._put(self._take_staged(each.member_id) or member_of(each, record.protocol))
            elif (record.protocol, each.subscription) not in known.protocols:
                # Loading: an earlier generation voted for another protocol, or for the same one
                # with another subscription. A living member knows what its record says.
                self._refresh(known, member_of(each, record.protocol))
        self.protocol_type = record.protocol_type
        if record.leader is not None:
            self.leader_id = record.leader
        elif self.leader_id not in self.members:
            self.leader_id = next(iter(self._assignments), None)

    def _refresh(self, known: ClassicGroupMember, loaded: ClassicGroupMember) -> None:
        self.update(
            known,
            loaded.protocols,
            rebalance_timeout_ms=loaded.rebalance_timeout_ms,
            session_timeout_ms=loaded.session_timeout_ms,
        )

    def _take_staged(self, member_id: str) -> ClassicGroupMember | None:
        staged, self.staged = self.staged, None
        assert staged is None or staged.member_id == member_id
        return staged

    def durable(self) -> object:
        return self.record

    # --- What happens to it --------------------------------------------------------------------

    def loaded(self, draft: Draft) -> None:
        classic_rebalance.loaded(draft, self)

    def abandon(self, draft: Draft, error: ErrorCode) -> None:
        classic_rebalance.abandon(draft, self, error)

    def append_failed(self, draft: Draft, error: ErrorCode) -> None:
        classic_rebalance.append_failed(draft, self, error)

    def timer_due(self, draft: Draft, kind: str, member_id: str) -> None:
        classic_rebalance.timer_due(draft, self, kind, member_id)

    def member_lost(self, draft: Draft, member_id: str, cause: str) -> None:
        member = self.members.get(member_id)
        if member is not None and member.instance_id is None:
            classic_rebalance.member_gone(draft, self, member_id, cause)

    def timers(self) -> Iterator[TimerName]:
        yield join_timer(self)
        yield sync_timer(self)
        yield migration_timer(self.group_id)
        for member_id in (*self.pending_ids, *self.members):
            yield session_timer(self, member_id)

    # --- Questions -----------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        if self.buried:
            return GroupState.DEAD
        if self.rebalance is not None:
            return GroupState.PREPARING_REBALANCE
        if self.record is None or not self.record.members:
            return GroupState.EMPTY
        if self.record.leader is None:
            return GroupState.COMPLETING_REBALANCE
        return GroupState.STABLE

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def generation(self) -> int:
        return 0 if self.record is None else self.record.generation

    @property
    def protocol(self) -> str | None:
        return None if self.record is None else self.record.protocol

    @property
    def rebalance_timeout_ms(self) -> int:
        """As long as the slowest member asks for."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def everyone_joined(self) -> bool:
        """Ids that were given out count: a rebalance waits for them (KAFKA-7909)."""
        return len(self.members) == self.awaiting_join and not self.pending_ids

    @property
    def is_removable(self) -> bool:
        return self.state is GroupState.EMPTY and not self.pending_ids

    def assignment(self, member_id: str) -> bytes:
        return self._assignments.get(member_id, b"")

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Is the sender who it says it is?"""
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """May somebody with these protocols join? At least one must be common to all."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        if protocol_type != self.protocol_type:
            return False
        size = len(self.members)
        return any(self._support[name] == size for name in names)

    def commit_error(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        version: int,
    ) -> ErrorCode:
        state = self.state
        if generation < 0 and state is GroupState.EMPTY:
            # An admin, or a consumer that assigns its partitions itself.
            return ErrorCode.NONE
        if generation >= 0 or member_id or instance_id is not None:
            error = self.member_error(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if state is GroupState.COMPLETING_REBALANCE and not transactional:
            # The member knows the new generation but not yet what it owns in it.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def commit_check(
        self, image: ClusterImage, member_id: str, generation: int
    ) -> Callable[[str, int], ErrorCode] | None:
        """A generation holds for all partitions or for none."""
        return None

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Anybody may read."""
        return ErrorCode.NONE

    def topics_changed(self, names: frozenset[str]) -> None:
        """The leader watches topics, not the coordinator."""

    def settings_changed(self) -> None:
        """What is set on a group is for the newer protocols."""

    def target_answered(self, draft: Draft, order: TargetOrder, answered: TargetAnswer) -> None:
        """It was ordered before the group became this one."""

    def keep_alive(self, draft: Draft, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None:
            draft.arm(session_timer(self, member_id), member.session_timeout_ms)

    def delete_error(self) -> ErrorCode:
        return ErrorCode.NONE if self.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def offset_delete_error(self) -> ErrorCode:
        if self.state is GroupState.EMPTY or self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def is_subscribed(self, topic: str) -> bool:
        topics = self._subscribed_topics()
        if topics is None:
            # Unknown: assume the worst of a consumer, nothing of anybody else.
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in topics

    def retention_start(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            # KIP-211: a group's offsets live as long as the group, and then the retention.
            assert self.record is not None
            since = self.record.state_timestamp_ms
            return commit_timestamp_ms if since is None else since
        if (
            self.state is GroupState.STABLE
            and self.protocol_type == CONSUMER_PROTOCOL_TYPE
            and self._subscribed_topics() is not None
        ):
            return commit_timestamp_ms
        return None  # KAFKA-13636: while it rebalances nobody knows what it will read.

    def tombstones(self) -> tuple[GroupTombstone, ...]:
        return (GroupTombstone(self.group_id),)

    def described_with_epochs(
        self, image: ClusterImage, assignors: Sequence[str]
    ) -> ConsumerGroupDescribeResponse.DescribedGroup | None:
        return None

    def described(self) -> DescribeGroupsResponse.DescribedGroup | None:
        """While the group rebalances, what its members sent is about to change: not shown."""
        stable = self.state is GroupState.STABLE
        protocol = self.protocol or ""
        return DescribeGroupsResponse.DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            protocol_type=self.protocol_type or "",
            protocol_data=protocol if stable else "",
            members=[
                DescribeGroupsResponse.DescribedGroupMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    member_metadata=each.metadata(protocol) if stable else b"",
                    member_assignment=self.assignment(each.member_id),
                )
                for each in self.members.in_java_order()
            ],
        )

    def _subscribed_topics(self) -> frozenset[str] | None:
        """What the members of the record read; ``None`` if that cannot be told."""
        if self._topics is None:
            self._topics = (topics_of(self.record),)
        return self._topics[0]

    def next_record(
        self,
        *,
        generation: int,
        leader: str | None,
        now_ms: int,
        protocol: str | None,
        assignments: dict[str, bytes],
    ) -> GroupRecord:
        """The group as it would be journaled with these changes."""
        return GroupRecord(
            group_id=self.group_id,
            protocol_type=self.protocol_type,
            generation=generation,
            protocol=protocol,
            leader=leader,
            state_timestamp_ms=now_ms,
            members=tuple(
                member_record(each, protocol or "", assignments.get(each.member_id, b""))
                for each in self.members.in_java_order()
            ),
        )

    # --- Volatile ------------------------------------------------------------------------------

    def begin_rebalance(self, rebalance: JoinPhase) -> None:
        assert may_move(self.state, GroupState.PREPARING_REBALANCE)
        assert self.rebalance is None
        self.rebalance = self.last_rebalance = rebalance
        self.pending_sync.clear()

    def add(self, member: ClassicGroupMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        assert member.member_id not in self.members
        self.pending_ids.pop(member.member_id, None)
        self._put(member)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> ClassicGroupMember | None:
        """Forget a member or a pending id. A leader is followed by the first of the others."""
        self.pending_ids.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        member = self.members.take(member_id)
        if member is None:
            return None
        self._count(member, -1)
        if member.joining is not None:
            self.awaiting_join -= 1
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = self.members.first()
        return member

    def swap(self, old_id: str, member: ClassicGroupMember) -> None:
        """A static member comes back under a new id; if it led, it leads."""
        led = self.leader_id == old_id
        self.remove(old_id)
        self._put(member)
        if led:
            self.leader_id = member.member_id

    def update(
        self,
        member: ClassicGroupMember,
        protocols: tuple[NamedProtocol, ...],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, +1)
        # KAFKA-14009: the timeouts are part of what a member may change.
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: ClassicGroupMember, ticket: Ticket) -> None:
        assert member.joining is None
        member.joining = ticket
        self.awaiting_join += 1

    def take_join(self, member: ClassicGroupMember) -> Ticket | None:
        ticket, member.joining = member.joining, None
        if ticket is not None:
            self.awaiting_join -= 1
        return ticket

    def take_sync(self, member: ClassicGroupMember) -> Ticket | None:
        ticket, member.syncing = member.syncing, None
        return ticket

    def elect_leader(self) -> bool:
        """The leader must be somebody who waits for the join to complete. False: nobody does."""
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.joining is None:
            awaiting = (each for each in self.members.in_java_order() if each.joining is not None)
            leader = next(awaiting, None)
            if leader is None:
                return False
            self.leader_id = leader.member_id
        return True

    def _put(self, member: ClassicGroupMember) -> None:
        self.members.put(member.member_id, member)
        self._count(member, +1)
        if member.joining is not None:
            self.awaiting_join += 1
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids
            self.static_ids[member.instance_id] = member.member_id

    def _count(self, member: ClassicGroupMember, change: int) -> None:
        # A set: a name sent twice must not count twice.
        for name in {name for name, _ in member.protocols}:
            self._support[name] += change
