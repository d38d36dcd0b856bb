"""Which transactions were aborted in a segment: what a reader of committed records must leave out.

An entry is written for each abort marker that ends a transaction with data, in the segment of the
marker. In memory the fields are flat integer arrays; on disk they are Kafka's file, big endian:

    .txnindex   per entry: i16 version = 0, i64 producer id, i64 first offset, i64 last offset (the
                marker's), i64 last stable offset (behind the marker, or where the oldest
                transaction begins that was open then)

Rule: over a whole partition the last offsets grow and the last stable offsets never fall, so the
entries that matter to a read are found by bisection, however many there are.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from struct import Struct
from typing import Final, NamedTuple

from shoal.log.disk import Buffer
from shoal.records.checksum import crc32c

ENTRY_SIZE: Final = 34
_ENTRY: Final = Struct(">hqqqq")
assert _ENTRY.size == ENTRY_SIZE
_LITTLE_ENDIAN: Final = sys.byteorder == "little"
# So many entries share one smallest first offset, by which they are skipped together.
_BLOCK: Final = 64


class AbortedTransaction(NamedTuple):
    """One entry."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class IndexSize(NamedTuple):
    """How much of a file there must be, and its checksum."""

    size_bytes: int
    crc: int


class TransactionIndex:
    """The entries of one segment."""

    __slots__ = ("_crc", "_first", "_last", "_oldest", "_producers", "_stable", "saved")

    def __init__(self) -> None:
        self._producers = array("q")
        self._first = array("q")
        self._last = array("q")
        self._stable = array("q")
        self._oldest = array("q")  # the smallest first offset of each block
        self._crc = 0
        #: How many entries are in the file.
        self.saved = 0

    def __len__(self) -> int:
        return len(self._last)

    def __getitem__(self, at: int) -> AbortedTransaction:
        return AbortedTransaction(
            self._producers[at], self._first[at], self._last[at], self._stable[at]
        )

    def producer_and_first_offset(self, at: int) -> tuple[int, int]:
        return self._producers[at], self._first[at]

    @property
    def size(self) -> IndexSize:
        return IndexSize(len(self) * ENTRY_SIZE, self._crc)

    def append(self, entry: AbortedTransaction) -> None:
        assert not self._last or self._last[-1] < entry.last_offset
        self._crc = crc32c(_ENTRY.pack(0, *entry), self._crc)
        if len(self) % _BLOCK == 0:
            self._oldest.append(entry.first_offset)
        elif entry.first_offset < self._oldest[-1]:
            self._oldest[-1] = entry.first_offset
        self._producers.append(entry.producer_id)
        self._first.append(entry.first_offset)
        self._last.append(entry.last_offset)
        self._stable.append(entry.last_stable_offset)

    def collect(self, start: int, end: int, found: list[int]) -> bool:
        """Add which entries are of transactions with data in offsets start..end.

        True if later segments have nothing to add: everything before ``end`` is decided.
        """
        at = bisect_left(self._last, start)
        stop = bisect_left(self._stable, end, at)
        is_last = stop < len(self)
        stop += is_last
        first, oldest = self._first, self._oldest
        while at < stop:
            block = at // _BLOCK
            until = min((block + 1) * _BLOCK, stop)
            if oldest[block] < end:
                found += [each for each in range(at, until) if first[each] < end]
            at = until
        return is_last

    def encode(self, start: int = 0) -> bytes:
        """The file's bytes from entry ``start`` on."""
        count = len(self) - start
        data = bytearray(count * ENTRY_SIZE)
        for field, values in enumerate((self._producers, self._first, self._last, self._stable)):
            swapped = values[start:]
            if _LITTLE_ENDIAN:
                swapped.byteswap()
            flat = swapped.tobytes()
            for byte in range(8):
                data[2 + 8 * field + byte :: ENTRY_SIZE] = flat[byte::8]
        return bytes(data)

    @classmethod
    def decode(cls, data: Buffer) -> TransactionIndex | None:
        """None if this cannot be an index."""
        if len(data) % ENTRY_SIZE or any(data[0::ENTRY_SIZE]) or any(data[1::ENTRY_SIZE]):
            return None
        found = cls()
        columns = []
        for field in range(4):
            flat = bytearray(len(data) // ENTRY_SIZE * 8)
            for byte in range(8):
                flat[byte::8] = data[2 + 8 * field + byte :: ENTRY_SIZE]
            values = array("q")
            values.frombytes(flat)
            if _LITTLE_ENDIAN:
                values.byteswap()
            columns.append(values)
        found._producers, found._first, found._last, found._stable = columns
        last, stable = found._last, found._stable
        if not (
            all(map(int.__lt__, last, last[1:]))
            and all(map(int.__le__, stable, stable[1:]))
            and all(map(int.__lt__, found._first, last))
        ):
            return None
        found._oldest = array(
            "q", [min(found._first[at : at + _BLOCK]) for at in range(0, len(found), _BLOCK)]
        )
        found._crc = crc32c(data)
        found.saved = len(found)
        return found

    def cut(self, offset: int) -> None:
        """Drop entries whose marker is at ``offset`` or behind it."""
        count = bisect_left(self._last, offset)
        if count == len(self):
            return
        kept = self.encode()[: count * ENTRY_SIZE]
        for values in (self._producers, self._first, self._last, self._stable):
            del values[count:]
        self._oldest = array(
            "q", [min(self._first[at : at + _BLOCK]) for at in range(0, count, _BLOCK)]
        )
        self._crc = crc32c(kept)
        self.saved = min(self.saved, count)
