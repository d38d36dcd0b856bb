"""What consumers tell each other inside JoinGroup and SyncGroup, which brokers only pass on.

    subscription   int16 version | topics | user data | owned partitions (v1) | generation (v2)
                   | rack (v3)
    assignment     int16 version | partitions by topic | user data

Both sides of a group may be of different age, so reading is lenient where messages are strict: a
version above ours is read as our highest and what follows is ignored; what an older version lacks
is at its default. Only a negative version and bytes that end too early are errors.

Rule: bytes in, plain values out; nothing here decides anything about a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct as Layout
from typing import Final

from shoal.errors import InvalidMessageError
from shoal.types import TopicPartition
from shoal.wire.schema import Array, Bytes, Int32, Message, String, Struct, since

MAX_VERSION: Final = 3
# The bytes came from a member of one's own group, inside a frame that was bounded already.
_BUDGET: Final = 1_000_000
_VERSION: Final = Layout(">h")


class TopicPartitions(Struct):
    topic: String
    partitions: Array[Int32]


class _Subscription(Message, versions=(0, MAX_VERSION), flexible=None):
    topics: Array[String]
    user_data: Bytes | None
    owned_partitions: Array[TopicPartitions] = since(1, default=(), ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)  # KIP-792
    rack_id: String | None = since(3, default=None, ignorable=True)  # KIP-881


class _Assignment(Message, versions=(0, MAX_VERSION), flexible=None):
    assigned_partitions: Array[TopicPartitions]
    user_data: Bytes | None


class _Topics(Message, versions=(0, 0), flexible=None):
    topics: Array[String]


@dataclass(frozen=True, slots=True)
class ConsumerProtocolSubscription:
    """What one member wants to read, and what it owns until the group decides again."""

    topics: Sequence[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    generation_id: int | None = None
    rack_id: str | None = None

    def encode(self, version: int = MAX_VERSION) -> bytes:
        """The bytes of JoinGroup's protocol metadata. Topics and partitions are sorted."""
        message = _Subscription(
            topics=sorted(self.topics),
            user_data=self.user_data,
            owned_partitions=_by_topic(sorted(self.owned_partitions)),
            generation_id=-1 if self.generation_id is None else self.generation_id,
            rack_id=self.rack_id,
        )
        return _VERSION.pack(version) + message.encode(version)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> ConsumerProtocolSubscription:
        message, _ = _Subscription.decode_prefix(data, *_start(data), budget=_BUDGET)
        return cls(
            topics=tuple(message.topics),
            user_data=message.user_data,
            owned_partitions=_flat(message.owned_partitions),
            generation_id=None if message.generation_id < 0 else message.generation_id,
            # An empty rack is no rack.
            rack_id=message.rack_id or None,
        )


@dataclass(frozen=True, slots=True)
class ConsumerProtocolAssignment:
    """What one member is to read. The order of the partitions is the assignor's."""

    partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None

    def encode(self, version: int = MAX_VERSION) -> bytes:
        """The bytes of SyncGroup's assignment; topics in the order of their first partition."""
        message = _Assignment(
            assigned_partitions=_by_topic(self.partitions), user_data=self.user_data
        )
        return _VERSION.pack(version) + message.encode(version)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> ConsumerProtocolAssignment:
        message, _ = _Assignment.decode_prefix(data, *_start(data), budget=_BUDGET)
        return cls(_flat(message.assigned_partitions), message.user_data)


def subscribed_topics(data: bytes | memoryview) -> tuple[str, ...]:
    """The topics of a subscription, by reading no further than a coordinator has to."""
    _, position = _start(data)
    message, _ = _Topics.decode_prefix(data, 0, position, budget=_BUDGET)
    return tuple(message.topics)


def subscription_version(data: bytes | memoryview) -> int:
    """The highest version that both the sender of a subscription and we can read."""
    return _start(data)[0]


def _start(data: bytes | memoryview) -> tuple[int, int]:
    """The version to read as, and where the body starts."""
    if len(data) < _VERSION.size:
        raise InvalidMessageError("consumer protocol: no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise InvalidMessageError(f"consumer protocol: version {version}")
    return min(version, MAX_VERSION), _VERSION.size


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]


def _flat(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(each.topic, number) for each in topics for number in each.partitions
    )
