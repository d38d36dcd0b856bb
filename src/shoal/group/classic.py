"""A classic group: what the journal says about it, and what only the living coordinator knows.

* *Durable*: ``record``, the last ``GroupRecord``. It changes in ``adopt`` and nowhere else, and
  ``adopt`` is called by replay alone.
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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from shoal.errors import ErrorCode
from shoal.group.classic_member import (
    CONSUMER_PROTOCOL_TYPE,
    Member,
    NamedProtocol,
    member_of,
    member_record,
    topics_of,
)
from shoal.group.decision import Draft, Ticket, TimerName
from shoal.group.java_hash import JavaMap
from shoal.group.journal import GroupRecord, GroupTombstone
from shoal.group.states import GroupState, GroupType, may_move
from shoal.wire.apis.describe_groups import DescribeGroupsResponse


@dataclass(slots=True)
class Rebalance:
    """The join phase of a rebalance."""

    cause: str
    started_ms: int
    initial: bool
    """The group was Empty: wait a little for more members before the first generation."""
    delay_ms: int = 0
    remaining_ms: int = 0
    new_member_added: bool = False


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
        self.members: JavaMap[Member] = JavaMap()
        self.static_ids: dict[str, str] = {}
        self.pending_ids: dict[str, None] = {}
        """Given out with MEMBER_ID_REQUIRED (KIP-394), not used yet."""
        self.pending_sync: dict[str, None] = {}
        self.awaiting_join = 0
        self.rebalance: Rebalance | None = None
        self.last_rebalance: Rebalance | None = None
        self.staged: Member | None = None
        """Becomes a member when the record that names it is replayed."""
        self._support: Counter[str] = Counter()

    # --- Durable -------------------------------------------------------------------------------

    def adopt(self, record: GroupRecord) -> None:
        """Take over what the journal says: the only place where the durable half changes."""
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

    def _refresh(self, known: Member, loaded: Member) -> None:
        self.update(
            known,
            loaded.protocols,
            rebalance_timeout_ms=loaded.rebalance_timeout_ms,
            session_timeout_ms=loaded.session_timeout_ms,
        )

    def _take_staged(self, member_id: str) -> Member | None:
        staged, self.staged = self.staged, None
        assert staged is None or staged.member_id == member_id
        return staged

    def durable(self) -> GroupRecord | None:
        return self.record

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
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
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

    def described(self) -> DescribeGroupsResponse.DescribedGroup:
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

    def begin_rebalance(self, rebalance: Rebalance) -> None:
        assert may_move(self.state, GroupState.PREPARING_REBALANCE)
        assert self.rebalance is None
        self.rebalance = self.last_rebalance = rebalance
        self.pending_sync.clear()

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        assert member.member_id not in self.members
        self.pending_ids.pop(member.member_id, None)
        self._put(member)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
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

    def swap(self, old_id: str, member: Member) -> None:
        """A static member comes back under a new id; if it led, it leads."""
        led = self.leader_id == old_id
        self.remove(old_id)
        self._put(member)
        if led:
            self.leader_id = member.member_id

    def update(
        self,
        member: Member,
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

    def park_join(self, member: Member, ticket: Ticket) -> None:
        assert member.joining is None
        member.joining = ticket
        self.awaiting_join += 1

    def take_join(self, member: Member) -> Ticket | None:
        ticket, member.joining = member.joining, None
        if ticket is not None:
            self.awaiting_join -= 1
        return ticket

    def take_sync(self, member: Member) -> Ticket | None:
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

    def _put(self, member: Member) -> None:
        self.members.put(member.member_id, member)
        self._count(member, +1)
        if member.joining is not None:
            self.awaiting_join += 1
        if member.instance_id is not None:
            assert member.instance_id not in self.static_ids
            self.static_ids[member.instance_id] = member.member_id

    def _count(self, member: Member, change: int) -> None:
        # A set: a name sent twice must not count twice.
        for name in {name for name, _ in member.protocols}:
            self._support[name] += change


def session_timer(group: ClassicGroup, member_id: str) -> TimerName:
    return ("session", group.group_id, member_id)


def join_timer(group: ClassicGroup) -> TimerName:
    return ("join", group.group_id, "")


def sync_timer(group: ClassicGroup) -> TimerName:
    return ("sync", group.group_id, "")
