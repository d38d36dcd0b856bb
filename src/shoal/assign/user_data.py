"""What ``sticky`` and ``cooperative-sticky`` carry from one rebalance to the next, as bytes.

    sticky v1             array of (string topic, array of int32 partition), int32 generation
    sticky v0             the array only (Kafka before 2.3)
    cooperative-sticky    int32 generation

No version field stands in front: v1 is tried first, then v0. Whatever is neither counts as nothing
owned in generation -1, as Kafka does; a peer's bad bytes must not stop the group. Big endian;
string = int16 length + UTF-8, array = int32 count.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from shoal.assign.hash_order import compute_order
from shoal.assign.partitions import by_topic
from shoal.types import TopicPartition

NO_GENERATION: Final = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

TopicGroups = list[tuple[str, tuple[int, ...]]]


def encode_sticky(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    """User data v1 of ``sticky``; topics in the order Java's writer gives them."""
    grouped = by_topic(partitions)
    # The table may still grow after the last new topic, for Java asks it once per partition.
    newest = next(reversed(grouped), "")
    calls_follow = bool(partitions) and (partitions[-1][0] != newest or len(grouped[newest]) > 1)
    order = compute_order(grouped, calls_follow=calls_follow)
    parts = [_INT32.pack(len(order))]
    for topic in order:
        name = topic.encode()
        numbers = grouped[topic]
        parts.append(_INT16.pack(len(name)) + name)
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    parts.append(_INT32.pack(generation))
    return b"".join(parts)


def decode_sticky(data: bytes) -> tuple[TopicGroups, int | None]:
    """Owned partitions by topic, and the generation; ``None`` when the writer knew none (v0)."""
    try:
        groups, position = _read_groups(data)
    except (struct.error, ValueError):
        return [], NO_GENERATION
    if len(data) - position < _INT32.size:
        return groups, None
    return groups, _INT32.unpack_from(data, position)[0]


def _read_groups(data: bytes) -> tuple[TopicGroups, int]:
    (count,) = _INT32.unpack_from(data, 0)
    position = 4
    _check_count(count, len(data) - position)
    groups: TopicGroups = []
    for _ in range(count):
        (length,) = _INT16.unpack_from(data, position)
        position += 2
        _check_count(length, len(data) - position)
        topic = data[position : position + length].decode(errors="replace")
        position += length
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        # Checked before unpacking: a hostile count must not become a huge format.
        _check_count(size, (len(data) - position) // 4)
        groups.append((topic, struct.unpack_from(f">{size}i", data, position)))
        position += 4 * size
    return groups, position


def _check_count(count: int, most: int) -> None:
    if not 0 <= count <= most:
        raise ValueError(f"{count} items announced where at most {most} fit")


def encode_generation(generation: int | None) -> bytes:
    """User data of ``cooperative-sticky``."""
    return _INT32.pack(NO_GENERATION if generation is None else generation)


def decode_generation(data: bytes | None) -> int | None:
    """The generation, ``None`` when there is no user data, -1 when it cannot be read."""
    if data is None:
        return None
    if len(data) < _INT32.size:
        return NO_GENERATION
    generation: int = _INT32.unpack_from(data, 0)[0]
    return generation
