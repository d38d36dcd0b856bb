"""A group of the new protocol (KIP-848) as its journal tells it: what a watcher compares with.

Rule: much simpler than the coordinator, and none of its code. What holds of a single batch of
records is checked by ``consumer_group_invariants.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from shoal.errors import ErrorCode
from shoal.group.coordinator.consumer_journal import (
    ConsumerGroupEpoch,
    ConsumerGroupTombstone,
    ConsumerMemberMetadata,
    ConsumerRecordType,
    CurrentAssignment,
    ResolvedRegex,
    TargetAssignment,
    TargetEpoch,
)
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

Partition = tuple[bytes, int]
"""A topic's id, and a number."""

AWAY = -2


class ConsumerGroupModel:
    """Epochs, members, who holds what, and who should."""

    def __init__(self) -> None:
        # Both begin at 1: whoever joins before there is a target must not get 0 (KAFKA-20268).
        self.epoch = 1
        self.target_epoch = 1
        self.target_ms = 0
        self.members: dict[str, ConsumerMemberMetadata] = {}
        self.current: dict[str, CurrentAssignment] = {}
        self.targets: dict[str, frozenset[Partition]] = {}
        self.resolved: dict[str, frozenset[str]] = {}

    def adopt(self, record: object) -> bool:
        """Take over what a record says; False if it ends the group."""
        match record:
            case ConsumerGroupEpoch():
                self.epoch = record.epoch
            case TargetEpoch():
                self.target_epoch, self.target_ms = record.epoch, record.timestamp_ms
            case ConsumerMemberMetadata():
                self.members[record.member_id] = record
            case CurrentAssignment():
                self.current[record.member_id] = record
            case TargetAssignment():
                self.targets[record.member_id] = frozenset(_partitions(record.partitions))
            case ResolvedRegex():
                self.resolved[record.regex] = record.topics
            case ConsumerGroupTombstone():
                return self._forget(record)
        return True

    def _forget(self, record: ConsumerGroupTombstone) -> bool:
        match record.type:
            case ConsumerRecordType.MEMBER:
                self.members.pop(record.name, None)
            case ConsumerRecordType.CURRENT:
                self.current.pop(record.name, None)
            case ConsumerRecordType.TARGET:
                self.targets.pop(record.name, None)
            case ConsumerRecordType.REGEX:
                self.resolved.pop(record.name, None)
            case ConsumerRecordType.EPOCH:
                return False
        return True

    # --- questions -----------------------------------------------------------------------------

    def subscribed(self, member_id: str) -> frozenset[str]:
        metadata = self.members[member_id]
        return metadata.topics | self.resolved.get(metadata.regex, frozenset())

    def held(self, member_id: str) -> frozenset[Partition]:
        """What a member has, and what it is giving up."""
        current = self.current.get(member_id)
        if current is None:
            return frozenset()
        parts = (current.assigned, current.pending_revocation)
        return frozenset(one for part in parts for one in _partitions(part))

    def assigned(self, member_id: str) -> frozenset[Partition]:
        current = self.current.get(member_id)
        return frozenset(_partitions(current.assigned)) if current else frozenset()

    def member_epoch(self, member_id: str) -> int:
        current = self.current.get(member_id)
        return current.member_epoch if current is not None else 0

    def label(self, member_id: str) -> str:
        """Of a process: a static member keeps its name under another id."""
        metadata = self.members.get(member_id)
        return (metadata.instance_id if metadata is not None else None) or member_id

    def _holder(self, instance_id: str) -> str | None:
        for member_id, each in self.members.items():
            if each.instance_id == instance_id:
                return member_id
        return None

    def heartbeat_error(self, request: ConsumerGroupHeartbeatRequest) -> ErrorCode:
        """What a ConsumerGroupHeartbeat is to be answered, as KIP-848 says."""
        member_id, epoch = request.member_id, request.member_epoch
        if request.instance_id is not None:
            holder = self._holder(request.instance_id)
            if epoch == 0:
                return self._place_error(holder)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        elif member_id not in self.members:
            return ErrorCode.NONE if epoch == 0 else ErrorCode.UNKNOWN_MEMBER_ID
        if epoch <= 0 or epoch == self.member_epoch(member_id):
            return ErrorCode.NONE
        return ErrorCode.NONE if self._lost_an_answer(request) else ErrorCode.FENCED_MEMBER_EPOCH

    def _place_error(self, holder: str | None) -> ErrorCode:
        if holder is None or self.members[holder].classic is not None:
            return ErrorCode.NONE
        is_away = self.member_epoch(holder) == AWAY
        return ErrorCode.NONE if is_away else ErrorCode.UNRELEASED_INSTANCE_ID

    def _lost_an_answer(self, request: ConsumerGroupHeartbeatRequest) -> bool:
        current = self.current.get(request.member_id)
        if current is None or request.topic_partitions is None:
            return False
        epoch = request.member_epoch
        if not epoch == current.previous_member_epoch < current.member_epoch:
            return False
        said = {
            (bytes(topic.topic_id), number)
            for topic in request.topic_partitions
            for number in topic.partitions
        }
        return said <= self.assigned(request.member_id)

    def commit_error(
        self, member_id: str, epoch: int, partitions: Collection[Partition | None]
    ) -> bool:
        """Whether a commit is to be refused (KIP-1251); ``None`` is a topic nobody knows."""
        if not self.members and epoch < 0:
            return False
        if member_id not in self.members:
            return True
        current = self.current.get(member_id)
        mine = current.member_epoch if current is not None else 0
        if epoch >= mine or current is None:
            return epoch != mine
        since: dict[Partition | None, int] = {}
        for part in (current.assigned, current.pending_revocation):
            for topic_id, epochs in part.items():
                since.update(((topic_id, number), each) for number, each in epochs.items())
        return any(one not in since or since[one] > epoch for one in partitions)


def _partitions(by_topic: Mapping[bytes, Collection[int]]) -> Iterator[Partition]:
    for topic_id, numbers in by_topic.items():
        for number in numbers:
            yield topic_id, number
