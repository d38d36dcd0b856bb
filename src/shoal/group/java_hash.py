"""Where Java's hashes decide something a client can see.

The partition of a group is computed by clients and tools too, and the order in which a
coordinator walks its members decides who leads and how votes tie. Both follow Java's
``String.hashCode`` and the iteration order of ``java.util.HashMap``, so results can be compared
with a real broker's.

Rule: only the *order* of a HashMap is imitated. Entries are kept in a dict, whose insertion order
is the order inside a bucket. Buckets that Java turns into trees (eight equal hashes) are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

V = TypeVar("V")


def string_hash(text: str) -> int:
    """``String.hashCode`` as an unsigned 32-bit number.

    ``shoal.assign`` has it too; but a broker starts without the assignors, and sooner.
    """
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def partition_for(group_id: str, count: int) -> int:
    """The partition of ``__consumer_offsets`` that holds a group."""
    value = string_hash(group_id)
    if value >= 0x80000000:
        value = 0x100000000 - value
    # Java's abs(MIN_VALUE) stays negative; Kafka's own abs makes it 0.
    return 0 if value == 0x80000000 else value % count


def _spread(text: str) -> int:
    value = string_hash(text)
    return value ^ (value >> 16)


class JavaMap(dict[str, V]):
    """A dict that also knows the order in which a ``HashMap`` would hand out its entries.

    Only ``put`` may add a key: it keeps the capacity, which never shrinks, as in Java.
    """

    __slots__ = ("_capacity", "_hashes")

    def __init__(self) -> None:
        super().__init__()
        self._capacity = 16
        self._hashes: dict[str, int] = {}

    def put(self, key: str, value: V) -> None:
        if key not in self:
            self._hashes[key] = _spread(key)
        self[key] = value
        if len(self) > self._capacity * 3 // 4:
            self._capacity *= 2

    def take(self, key: str) -> V | None:
        """Remove a key; ``None`` if it is not there."""
        self._hashes.pop(key, None)
        return self.pop(key, None)

    def _bucket(self, key: str) -> int:
        return self._hashes[key] & (self._capacity - 1)

    def in_java_order(self) -> list[V]:
        return [self[key] for key in sorted(self, key=self._bucket)]

    def first(self) -> str | None:
        """The key a Java iterator would return first."""
        return min(self, key=self._bucket, default=None)


def java_order(keys: Iterable[str]) -> list[str]:
    """Keys as a ``HashMap`` filled in this order would list them."""
    filled: JavaMap[str] = JavaMap()
    for key in keys:
        filled.put(key, key)
    return filled.in_java_order()
