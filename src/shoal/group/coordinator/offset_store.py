"""Committed offsets of all groups of one coordinator: what the journal says, and queries on it.

    committed   group → topic → partition → position
    pending     producer → group → (topic, partition) → position, until the transaction ends

Rule: ``replay``, ``forget`` and ``end_transaction`` are called by the coordinator's replay alone.
Everything else reads. Nothing here knows how a group works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from shoal.group.coordinator.journal import OffsetRecord, OffsetTombstone
from shoal.types import TopicPartition


class Committed(NamedTuple):
    """A position as it stands in the journal."""

    offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    record_offset: int
    """Where in the journal. Among commits of one partition the newest *record* counts, whenever
    its transaction ended; compaction keeps the same one (KAFKA-15784)."""
    topic_id: bytes | None = None
    """Of the topic that had the name; ``None`` if nobody knew."""


ByTopic: TypeAlias = dict[str, dict[int, Committed]]


class OffsetStore:
    """Offsets by group, and transactional ones by producer until their marker."""

    __slots__ = ("_committed", "_open", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, ByTopic] = {}
        self._pending: dict[int, dict[str, dict[TopicPartition, Committed]]] = {}
        self._open: dict[str, dict[int, None]] = {}
        """Group → producers with an open transaction in it."""

    # --- Replay --------------------------------------------------------------------------------

    def replay(self, record: OffsetRecord, record_offset: int) -> None:
        position = Committed(
            record.offset,
            record.leader_epoch,
            record.metadata,
            record.commit_timestamp_ms,
            record.expire_timestamp_ms,
            record_offset,
            record.topic_id,
        )
        tp = TopicPartition(record.topic, record.partition)
        if record.producer_id is None:
            self._store(record.group_id, tp, position)
            return
        groups = self._pending.setdefault(record.producer_id, {})
        groups.setdefault(record.group_id, {})[tp] = position
        self._open.setdefault(record.group_id, {})[record.producer_id] = None

    def forget(self, record: OffsetTombstone) -> None:
        """Staged positions go too; a tombstone of something unknown is nothing (KAFKA-17306)."""
        group_id, topic, partition = record
        topics = self._committed.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is not None and not partitions:
            del topics[topic]
            if not topics:
                del self._committed[group_id]
        for producer_id in self._open.get(group_id, ()):
            self._pending[producer_id][group_id].pop(TopicPartition(topic, partition), None)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        for group_id, positions in self._pending.pop(producer_id, {}).items():
            del self._open[group_id][producer_id]
            if not self._open[group_id]:
                del self._open[group_id]
            if not commit:
                continue
            for tp, position in positions.items():
                known = self.get(group_id, tp)
                if known is None or known.record_offset < position.record_offset:
                    self._store(group_id, tp, position)

    def _store(self, group_id: str, tp: TopicPartition, position: Committed) -> None:
        topics = self._committed.setdefault(group_id, {})
        topics.setdefault(tp.topic, {})[tp.partition] = position

    # --- Questions -----------------------------------------------------------------------------

    def get(self, group_id: str, tp: TopicPartition) -> Committed | None:
        return self._committed.get(group_id, {}).get(tp.topic, {}).get(tp.partition)

    def by_topic(self, group_id: str) -> ByTopic:
        """Do not change it."""
        return self._committed.get(group_id, {})

    def is_unstable(self, group_id: str, tp: TopicPartition) -> bool:
        """An open transaction will decide about this partition."""
        return any(
            tp in self._pending[producer_id][group_id]
            for producer_id in self._open.get(group_id, ())
        )

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def partitions_of(self, group_id: str) -> Iterator[TopicPartition]:
        """Every partition of a group with a position, stored or staged, once."""
        stored = self.by_topic(group_id)
        for topic, partitions in stored.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)
        staged: dict[TopicPartition, None] = {}
        for producer_id in self._open.get(group_id, ()):
            staged.update(dict.fromkeys(self._pending[producer_id][group_id]))
        for tp in staged:
            if tp.partition not in stored.get(tp.topic, ()):
                yield tp

    def groups(self) -> Iterator[str]:
        """Every group with a position, stored or staged."""
        return iter(dict.fromkeys((*self._committed, *self._open)))

    def durable(self) -> object:
        """What a store rebuilt from the journal must hold too."""
        return (self._committed, self._pending, self._open)
