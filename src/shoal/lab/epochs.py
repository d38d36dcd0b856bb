"""The group of KIP-848: epochs and reconciliation, as a model without a wire.

The group has an epoch that grows with every change, a target assignment with the epoch it was
computed for, and for each member an epoch, what it is assigned and what it still has to give up.
A member moves towards its part of the target step by step, in its own heartbeats: first it gives
up, then it is given what others have given up. Nobody waits for everybody.

Rule: a partition is free only when the member who had it says, in a heartbeat, that it no longer
has it, or is fenced. Who waits for a partition keeps everything else meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from shoal.assign.server import ServerMember, UniformAssignor
from shoal.types import TopicPartition

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
"""Member epochs with a meaning of their own."""


class MemberStatus(Enum):
    """How far a member has come towards its target. The words are Kafka's."""

    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked"
    """It still reports partitions it has to give up."""
    UNRELEASED_PARTITIONS = "unreleased"
    """It waits for partitions that others have not given up."""


@dataclass(slots=True)
class EpochMember:
    """What the coordinator knows of a member."""

    topics: tuple[str, ...]
    instance_id: str | None
    epoch: int = 0
    previous_epoch: int = 0
    status: MemberStatus = MemberStatus.STABLE
    assigned: set[TopicPartition] = field(default_factory=set)
    revoking: set[TopicPartition] = field(default_factory=set)
    revoke_by_ms: int | None = None
    heard_ms: int = 0
    is_away: bool = False
    """A static member that left and said it would be back."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat."""

    epoch: int
    """Zero: you are no member (any more); give everything up and join again."""
    assigned: tuple[TopicPartition, ...] | None = None
    """Given if it has changed, or if everything was asked for."""


FENCED = Beat(0)


class EpochGroup:
    """One group on the coordinator's side."""

    def __init__(self, *, session_timeout_ms: int, rebalance_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self.epoch = 0
        self.target_epoch = 0
        self.target: dict[str, set[TopicPartition]] = {}
        self.members: dict[str, EpochMember] = {}
        self._owner_epochs: dict[TopicPartition, tuple[str, int]] = {}
        """Who has it since which epoch; absent: free."""
        self._counts: dict[str, int] = {}

    # --- changes -------------------------------------------------------------------------------

    def topics_changed(self, counts: Mapping[str, int]) -> None:
        if self._counts != dict(counts):
            self._counts = dict(counts)
            self.epoch += 1

    def _join(
        self, member_id: str, topics: tuple[str, ...], instance_id: str | None, now_ms: int
    ) -> None:
        old_id = self._with_instance(instance_id)
        member = EpochMember(topics, instance_id, heard_ms=now_ms)
        self.members[member_id] = member
        if old_id is not None and self.members[old_id].is_away:
            # It comes back under its instance id: the same target, and nobody else is disturbed.
            old = self.members.pop(old_id)
            self.target[member_id] = self.target.pop(old_id, set())
            if old.topics == topics:
                return
        self.epoch += 1

    def _with_instance(self, instance_id: str | None) -> str | None:
        if instance_id is None:
            return None
        for member_id, member in self.members.items():
            if member.instance_id == instance_id:
                return member_id
        return None

    def leave(self, member_id: str, *, for_a_while: bool = False) -> None:
        """A static member may say that it will be back; its target waits for it."""
        member = self.members.get(member_id)
        if member is None:
            return
        if for_a_while and member.instance_id is not None:
            member.is_away = True
        self._own(member_id, member, ())
        self._free(member_id, member.revoking)
        member.revoking = set()
        member.revoke_by_ms = None
        if member.is_away and for_a_while:
            return
        del self.members[member_id]
        self.target.pop(member_id, None)
        self.epoch += 1

    def expire(self, now_ms: int) -> list[str]:
        """Fence who was silent for too long, or did not give up in time."""
        fenced = [
            member_id
            for member_id, member in self.members.items()
            if now_ms - member.heard_ms >= self._session_timeout_ms
            or (member.revoke_by_ms is not None and now_ms >= member.revoke_by_ms)
        ]
        for member_id in fenced:
            self.leave(member_id)
        return fenced

    # --- heartbeats ----------------------------------------------------------------------------

    def heartbeat(
        self,
        member_id: str,
        epoch: int,
        now_ms: int,
        *,
        topics: tuple[str, ...] | None = None,
        owned: Collection[TopicPartition] | None = None,
        instance_id: str | None = None,
    ) -> Beat:
        """A member is here: note what it says, and bring it one step nearer to its target."""
        if epoch == JOIN:
            assert topics is not None, "who joins says what it wants"
            if member_id in self.members:
                self.leave(member_id)
            self._join(member_id, topics, instance_id, now_ms)
        member = self.members.get(member_id)
        if member is None or not self._knows(member, epoch, owned):
            return FENCED
        member.heard_ms = now_ms
        if topics is not None and topics != member.topics:
            member.topics = topics
            self.epoch += 1
        if self.epoch > self.target_epoch:
            self._retarget()
        before = set(member.assigned)
        self._reconcile(member_id, member, owned, now_ms)
        is_full = epoch == JOIN or topics is not None
        changed = is_full or member.assigned != before
        return Beat(member.epoch, tuple(sorted(member.assigned)) if changed else None)

    @staticmethod
    def _knows(member: EpochMember, epoch: int, owned: Collection[TopicPartition] | None) -> bool:
        """The epoch is the member's, or the one before if the last answer was lost."""
        if epoch in (JOIN, member.epoch):
            return True
        is_retry = epoch == member.previous_epoch and owned is not None
        return is_retry and member.assigned.issuperset(owned or ())

    def _retarget(self) -> None:
        """Run the assignor: as even as can be, with as little change as can be."""
        members = {
            member_id: ServerMember(
                topics=[_topic_id(topic) for topic in member.topics if topic in self._counts],
                assigned=_by_topic(self.target.get(member_id, ())),
                instance_id=member.instance_id,
            )
            for member_id, member in self.members.items()
        }
        counts = {_topic_id(topic): count for topic, count in self._counts.items()}
        given = UniformAssignor().assign(members, counts)
        self.target = {
            member_id: {
                TopicPartition(topic.rstrip(b"\0").decode(), number)
                for topic, numbers in by_topic.items()
                for number in numbers
            }
            for member_id, by_topic in given.items()
        }
        self.target_epoch = self.epoch

    def _reconcile(
        self,
        member_id: str,
        member: EpochMember,
        owned: Collection[TopicPartition] | None,
        now_ms: int,
    ) -> None:
        if member.status is MemberStatus.UNREVOKED_PARTITIONS:
            if owned is None or member.revoking.intersection(owned):
                return  # it has not given them up
            self._free(member_id, member.revoking)
            member.revoking = set()
            member.revoke_by_ms = None
        elif member.status is MemberStatus.STABLE and member.epoch == self.target_epoch:
            return
        target = self.target.get(member_id, set())
        keep = member.assigned & target
        revoke = member.assigned - target
        if revoke and (owned is None or revoke.intersection(owned)):
            member.status = MemberStatus.UNREVOKED_PARTITIONS
            member.assigned = keep
            member.revoking = revoke
            member.revoke_by_ms = now_ms + self._rebalance_timeout_ms
            return
        free = {tp for tp in target - keep if self._is_free_for(tp, member_id)}
        member.previous_epoch, member.epoch = member.epoch, self.target_epoch
        self._own(member_id, member, keep | free)
        is_waiting = len(keep) + len(free) < len(target)
        member.status = MemberStatus.UNRELEASED_PARTITIONS if is_waiting else MemberStatus.STABLE

    def _is_free_for(self, tp: TopicPartition, member_id: str) -> bool:
        owner = self._owner_epochs.get(tp)
        return owner is None or owner[0] == member_id

    def _own(
        self, member_id: str, member: EpochMember, partitions: Iterable[TopicPartition]
    ) -> None:
        wanted = set(partitions)
        self._free(member_id, member.assigned - wanted)
        for tp in wanted:
            self._owner_epochs[tp] = (member_id, member.epoch)
        member.assigned = wanted

    def _free(self, member_id: str, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            if self._owner_epochs.get(tp, ("", 0))[0] == member_id:
                del self._owner_epochs[tp]

    def accepts_commit(self, member_id: str, epoch: int) -> bool:
        """Offsets are taken from current members in their current epoch alone."""
        member = self.members.get(member_id)
        return member is not None and not member.is_away and member.epoch == epoch


def _topic_id(topic: str) -> bytes:
    """The assignor knows topics by ids of 16 bytes; the lab's names are short enough to be one."""
    return topic.encode()[:16].ljust(16, b"\0")


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[bytes, list[int]]:
    grouped: dict[bytes, list[int]] = {}
    for tp in sorted(partitions):
        grouped.setdefault(_topic_id(tp.topic), []).append(tp.partition)
    return grouped
