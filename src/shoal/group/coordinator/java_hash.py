"""Where the order of Java's hash tables decides something a client can see.

The order in which a coordinator walks its members decides who leads and how votes tie. It follows
the iteration order of ``java.util.HashMap``, so results can be compared with a real broker's.

Rule: only the *order* of a HashMap is imitated. Entries are kept in a dict, whose insertion order
is the order inside a bucket. Buckets that Java turns into trees (eight equal hashes) are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from shoal.machine.internal_topic import string_hash

V = TypeVar("V")


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
