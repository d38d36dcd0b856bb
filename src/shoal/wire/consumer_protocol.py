"""What consumers tell each other inside JoinGroup and SyncGroup, which brokers only pass on.

    subscription   int16 version | topics | user data | owned partitions (v1) | generation (v2)
                   | rack (v3)
    assignment     int16 version | partitions by topic | user data

Both sides of a group may be of different age, so reading is lenient where messages are strict: a
version above ours is read as our highest and what follows is ignored; what an older version lacks
is at its default. Only a negative version and bytes that end too early are errors.

Sticky assignors keep what a member owned in its user data, without a version: first with a
generation (v1), formerly without (v0). The cooperative one writes only the generation there.

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
_GENERATION: Final = Layout(">i")


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


class _StickyOwned(Message, versions=(0, 1), flexible=None):
    owned_partitions: Array[TopicPartitions]
    generation_id: Int32 = since(1, default=-1, ignorable=True)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member wants to read, and what it owns until the group decides anew."""

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
    def decode(cls, data: bytes | memoryview) -> Subscription:
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
class Assignment:
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
    def decode(cls, data: bytes | memoryview) -> Assignment:
        message, _ = _Assignment.decode_prefix(data, *_start(data), budget=_BUDGET)
        return cls(_flat(message.assigned_partitions), message.user_data)


def subscribed_topics(data: bytes | memoryview) -> tuple[str, ...]:
    """The topics of a subscription, by reading no further than a coordinator has to."""
    _, position = _start(data)
    message, _ = _Topics.decode_prefix(data, 0, position, budget=_BUDGET)
    return tuple(message.topics)


def encode_sticky_user_data(
    partitions: Iterable[TopicPartition], generation_id: int | None
) -> bytes:
    """User data of the sticky assignor, v1: topics sorted, their partitions in the given order.

    Java writes the topics in the order of a hash map, which readers must not care about.
    """
    generation = -1 if generation_id is None else generation_id
    owned = sorted(_by_topic(partitions), key=lambda each: each.topic)
    return _StickyOwned(owned_partitions=owned, generation_id=generation).encode(1)


def decode_sticky_user_data(
    data: bytes | memoryview,
) -> tuple[tuple[TopicPartition, ...], int | None]:
    """Owned partitions and their generation, which v0 does not have."""
    try:
        message, _ = _StickyOwned.decode_prefix(data, 1, budget=_BUDGET)
    except InvalidMessageError:
        message, _ = _StickyOwned.decode_prefix(data, 0, budget=_BUDGET)
    generation = None if message.generation_id < 0 else message.generation_id
    return _flat(message.owned_partitions), generation


def encode_cooperative_user_data(generation_id: int | None) -> bytes:
    """User data of the cooperative sticky assignor: the generation, -1 before the first."""
    return _GENERATION.pack(-1 if generation_id is None else generation_id)


def decode_cooperative_user_data(data: bytes | memoryview) -> int | None:
    if len(data) < _GENERATION.size:
        raise InvalidMessageError(f"cooperative user data of {len(data)} bytes; it has four")
    generation: int = _GENERATION.unpack_from(data)[0]
    return None if generation < 0 else generation


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
