"""The order in which Java's hash tables are walked, because Kafka's results depend on it.

Which of several equal members keeps a partition, and which of several equal partitions moves back,
is decided in Apache Kafka by walking a ``HashMap`` or ``HashSet``. To give the same answer we walk
in the same order: buckets ascending, and inside a bucket by insertion (for entries made by ``put``;
``computeIfAbsent`` inserts in front).

Rule: everything Java-shaped about order is in this file. Buckets that Java turns into trees (eight
or more colliding keys in a table of 64 or more) are not imitated; it takes hostile ids to make one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache

_MASK = 0xFFFFFFFF
_FIRST_CAPACITY = 16
# From here on hashing all keys at once pays for loading NumPy.
_MANY = 256


def name_order(text: str) -> bytes:
    """Sort key equal to Java's ``String.compareTo``: by UTF-16 code units.

    Python compares code points. The two differ when a character above U+FFFF meets one from
    U+E000 to U+FFFF; client ids may hold either.
    """
    return text.encode("utf-16-be", "surrogatepass")


def sorted_names(names: Iterable[str]) -> list[str]:
    """Names in Java's order."""
    listed = list(names)
    if all(name.isascii() for name in listed):
        return sorted(listed)
    return sorted(listed, key=name_order)


@lru_cache(maxsize=1 << 14)
def string_hash(text: str) -> int:
    """``String.hashCode`` as an unsigned 32-bit number. The same topics come again and again."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & _MASK
        return value
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (31 * value + (data[index] << 8 | data[index + 1])) & _MASK
    return value


def partition_hash(topic_hash: int, partition: int) -> int:
    """``TopicPartition.hashCode`` as an unsigned 32-bit number."""
    return (31 * (31 + partition) + topic_hash) & _MASK


def _spread(value: int) -> int:
    return value ^ (value >> 16)


def _capacity(count: int) -> int:
    capacity = _FIRST_CAPACITY
    while count > capacity * 3 // 4:
        capacity *= 2
    return capacity


def _copied_capacity(count: int) -> int:
    """Of ``new HashSet<>(other)``, which leaves room where growing one by one would not."""
    capacity = _FIRST_CAPACITY
    while capacity < count * 4 // 3 + 1:
        capacity *= 2
    return capacity


def put_order(keys: Sequence[str]) -> list[str]:
    """Distinct keys in the order a ``HashMap`` walks them after ``put`` in this order."""
    mask = _capacity(len(keys)) - 1
    if len(keys) >= _MANY:
        from shoal.assign.arrays import bucket_order

        order = bucket_order(keys, mask)
        if order is not None:
            return [keys[index] for index in order]
    return sorted(keys, key=lambda key: _spread(string_hash(key)) & mask)


def id_order(topic_ids: Collection[bytes], *, copied: bool = False) -> list[bytes]:
    """Topic ids in the order a ``HashMap<Uuid, …>`` walks them, or a set copied from another."""
    mask = (_copied_capacity if copied else _capacity)(len(topic_ids)) - 1
    return sorted(topic_ids, key=lambda topic_id: _spread(_uuid_hash(topic_id)) & mask)


def number_order(numbers: Collection[int]) -> list[int]:
    """Partition numbers in the order a ``HashSet<Integer>`` walks them."""
    mask = _capacity(len(numbers)) - 1
    if max(numbers, default=0) <= min(mask, 0xFFFF):
        return sorted(numbers)  # each has a bucket of its own, whose number is the same
    return sorted(numbers, key=lambda number: (number ^ number >> 16) & mask)


def id_key(topic_id: bytes) -> tuple[int, int]:
    """Sort key equal to ``Uuid.compareTo``: by two signed halves."""
    return (
        int.from_bytes(topic_id[:8], "big", signed=True),
        int.from_bytes(topic_id[8:], "big", signed=True),
    )


def _uuid_hash(topic_id: bytes) -> int:
    both = int.from_bytes(topic_id[:8], "big") ^ int.from_bytes(topic_id[8:], "big")
    return (both >> 32) ^ (both & _MASK)


def compute_order(keys: Collection[str], *, calls_follow: bool) -> list[str]:
    """Distinct keys in the order a ``HashMap`` walks them after ``computeIfAbsent`` for each.

    A new entry goes to the front of its bucket, and the table grows at the start of the call
    *after* the one that made it too full, even if that (``calls_follow``) is for a known key.
    """
    capacity = _FIRST_CAPACITY
    buckets: dict[int, list[tuple[int, str]]] = {}
    for count, key in enumerate(keys):
        if count > capacity * 3 // 4:
            capacity *= 2
            buckets = _grown(buckets, capacity)
        spread = _spread(string_hash(key))
        buckets.setdefault(spread & (capacity - 1), []).insert(0, (spread, key))
    if calls_follow and len(keys) > capacity * 3 // 4:
        buckets = _grown(buckets, capacity * 2)
    return [key for index in sorted(buckets) for _, key in buckets[index]]


def _grown(
    buckets: dict[int, list[tuple[int, str]]], capacity: int
) -> dict[int, list[tuple[int, str]]]:
    grown: dict[int, list[tuple[int, str]]] = {}
    for index in sorted(buckets):
        for entry in buckets[index]:
            grown.setdefault(entry[0] & (capacity - 1), []).append(entry)
    return grown


class PartitionSet:
    """A ``HashSet<TopicPartition>`` of one topic, as far as its first element goes.

    It holds whatever integers the caller numbers partitions by, with their Java hashes.
    """

    __slots__ = ("_hashes", "capacity")

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self._hashes: dict[int, int] = {}

    def __iter__(self) -> Iterator[int]:
        """By insertion, not in Java's order; for telling sets apart."""
        return iter(self._hashes)

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, key: int, java_hash: int) -> None:
        self._hashes.setdefault(key, _spread(java_hash))
        # A HashSet never shrinks, so growth is remembered.
        while len(self._hashes) > self.capacity * 3 // 4:
            self.capacity *= 2

    def remove(self, key: int) -> None:
        del self._hashes[key]

    def first(self) -> int:
        mask = self.capacity - 1
        # min keeps the first of equals, which is the one inserted first.
        return min(self._hashes, key=lambda key: self._hashes[key] & mask)
