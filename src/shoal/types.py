"""Nouns shared by every package: no behaviour, no imports from the rest of Shoal.

Names are Kafka's in Python's spelling. ``None`` means absent; Kafka's ``-1`` and ``""`` are
translated at the wire and do not appear here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")

Header = tuple[str, bytes | None]


class TopicPartition(NamedTuple):
    """One partition of one topic. Sorts by topic, then number, as Kafka's listings do."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TimestampType(IntEnum):
    """Who set a record's timestamp. The values stand in the batch attributes on disk."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(slots=True)
class Record(Generic[K, V]):
    """One record as a consumer sees it.

    Not frozen: records are made by the hundred thousand, and a frozen one costs four times as
    much to build. Treat it as a value all the same.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: K
    value: V
    headers: Sequence[Header] = ()
    leader_epoch: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed position: the *next* offset to read, and a note of the committer."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The answer of ``offsets_for_times`` for one partition."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a produced record went. ``offset`` is ``None`` with ``acks=0``."""

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Node:
    """One broker."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who serves a partition."""

    topic: str
    partition: int
    leader: Node | None
    replicas: tuple[Node, ...] = ()
    in_sync_replicas: tuple[Node, ...] = ()
    offline_replicas: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """A consumer's identity in its group at one moment."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction of which all is stored but how it ends: what it takes to end it.

    ``is_v2``: it was begun in the protocol of ``transaction.version`` 2, and ends in it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_v2: bool
