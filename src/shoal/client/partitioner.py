"""Which partition a record goes to: Java's murmur2 for keys, sticky without one.

Rule: a key lands on the same partition from here, from Java and from librdkafka's
``murmur2_random``; that is the only reason for this hash.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

Partitioner = Callable[[str, bytes | None, int], int]

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number."""
    length = len(data)
    h = (0x9747B28C ^ length) & _MASK
    whole = length & ~3
    for index in range(0, whole, 4):
        k = int.from_bytes(data[index : index + 4], "little")
        k = (k * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Where Java's default partitioner puts ``key``."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Sticky:
    """Keys by hash; without a key one partition until its batch is full, then another.

    ``batch_done`` is told when a partition got a full batch (KIP-480, KIP-794): larger batches,
    and over time every partition gets as many bytes.
    """

    def __init__(self, chance: Callable[[int], int] = random.randrange) -> None:
        self._chance = chance
        self.current: dict[str, int] = {}
        """Where records without a key go now."""
        self._led: Mapping[str, Sequence[int]] = {}

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        if key is not None:
            return partition_for_key(key, partition_count)
        current = self.current.get(topic)
        if current is None or current >= partition_count:
            led = self._led.get(topic) or range(partition_count)
            current = self.current[topic] = led[self._chance(len(led))]
        return current

    def batch_done(self, topic: str, partition: int, partition_count: int) -> None:
        """Move on from ``partition``, if it is the current one, to another of the rest."""
        if self.current.get(topic) != partition:
            return
        if led := self._led.get(topic):
            others = [number for number in led if number != partition] or led
            self.current[topic] = others[self._chance(len(others))]
        elif partition_count > 1:
            step = 1 + self._chance(partition_count - 1)
            self.current[topic] = (partition + step) % partition_count

    def leaders_known(self, led: Mapping[str, Sequence[int]]) -> None:
        """Topics in which partitions lack a leader, and those which do not: only these are taken;
        what is sent to the others would wait."""
        self._led = led
        for topic, numbers in led.items():
            if numbers and self.current.get(topic) not in numbers:
                self.current.pop(topic, None)


class RoundRobin:
    """Every record to the next partition, keys or not."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:  # noqa: ARG002 - the interface names it
        number = self._next.get(topic, 0)
        self._next[topic] = number + 1
        return number % partition_count


class HashedKeys:
    """librdkafka's other ways to place a key, by its names for them; see ``foreign_settings``.

    Those that end in ``random`` put records without a key anywhere: here, as ``Sticky`` does it.
    The others put all of them on one partition.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._spreads = name.endswith("random")
        self._sticky = Sticky()
        self.batch_done = self._sticky.batch_done
        self.leaders_known = self._sticky.leaders_known

    def __repr__(self) -> str:
        return f"HashedKeys({self._name!r})"

    def __call__(self, topic: str, key: bytes | None, partition_count: int) -> int:
        is_crc = self._name.startswith("consistent")
        is_keyless = key is None or (is_crc and not key)
        if self._name == "random" or (self._spreads and is_keyless):
            return self._sticky(topic, None, partition_count)
        data = key or b""
        if is_crc:
            return zlib.crc32(data) % partition_count
        if self._name.startswith("fnv1a"):
            return fnv1a(data) % partition_count
        return partition_for_key(data, partition_count)


def fnv1a(data: bytes) -> int:
    """32-bit FNV-1a, taken for a signed number, without its sign, as librdkafka and sarama do."""
    h = 0x811C9DC5
    for byte in data:
        h = ((h ^ byte) * 0x01000193) & _MASK
    return h if h < 0x80000000 else (1 << 32) - h


class ObservesBatches(Protocol):
    """A partitioner which wants to know when a batch is full."""

    def batch_done(self, topic: str, partition: int, partition_count: int) -> None: ...


def partitioner_named(name: str) -> Partitioner:
    return Sticky() if name == "sticky" else RoundRobin()
