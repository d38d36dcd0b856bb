"""The two sparse indexes of a segment: offset → position, and timestamp → offset.

Both are only a way to start a scan nearby: whatever they say is checked against the batch found
there, and they can be built again from the log. In memory they are flat integer arrays; on disk
they are Kafka's files, big endian:

    .index      per entry: u32 offset - base, u32 position          a batch starts at position
    .timeindex  per entry: i64 timestamp, u32 offset - base         nothing up to offset is later
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from shoal.log.disk import Buffer

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
_LITTLE_ENDIAN: Final = sys.byteorder == "little"
assert array("I").itemsize == 4


class OffsetIndex:
    """Entries ``(offset - base, position)``, both strictly growing."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def floor(self, relative_offset: int) -> int:
        """The position of the last entry at or before an offset; 0 if there is none."""
        at = bisect_right(self.offsets, relative_offset)
        return self.positions[at - 1] if at else 0

    def floor_position(self, position: int) -> int:
        """The last indexed batch start at or before ``position``; 0 if there is none."""
        at = bisect_right(self.positions, position)
        return self.positions[at - 1] if at else 0

    def offset_at(self, position: int) -> int:
        """The relative offset of the entry for exactly this position."""
        at = bisect_left(self.positions, position)
        assert self.positions[at] == position
        return self.offsets[at]

    def cut(self, position: int) -> None:
        """Drop entries at or past ``position``."""
        at = bisect_left(self.positions, position)
        del self.offsets[at:]
        del self.positions[at:]

    def encode(self, start: int = 0) -> bytes:
        """The file's bytes from entry ``start`` on."""
        count = len(self.offsets) - start
        flat = array("I", bytes(count * OFFSET_ENTRY_SIZE))
        flat[0::2] = self.offsets[start:]
        flat[1::2] = self.positions[start:]
        return _to_disk(flat)

    @classmethod
    def decode(cls, data: Buffer) -> OffsetIndex | None:
        """None if this cannot be an index. Zeros at the end are Kafka's pre-allocation."""
        flat = _from_disk(data, OFFSET_ENTRY_SIZE)
        if flat is None:
            return None
        found = cls()
        found.offsets, found.positions = flat[0::2], flat[1::2]
        found._drop_zeros()
        if not _grows(found.offsets) or not _grows(found.positions):
            return None
        return found

    def _drop_zeros(self) -> None:
        while len(self.offsets) > 1 and not self.offsets[-1] and not self.positions[-1]:
            self.offsets.pop()
            self.positions.pop()
        if len(self.offsets) == 1 and not self.offsets[0] and not self.positions[0]:
            self.offsets.pop()
            self.positions.pop()


class TimeIndex:
    """Entries ``(timestamp, offset - base)``: timestamps strictly growing, offsets too."""

    __slots__ = ("_flat",)

    def __init__(self) -> None:
        self._flat = array("I")  # high word, low word, relative offset

    def __len__(self) -> int:
        return len(self._flat) // 3

    def __getitem__(self, entry: int) -> tuple[int, int]:
        high, low, relative_offset = self._flat[entry * 3 : entry * 3 + 3]
        return high << 32 | low, relative_offset

    def maybe_append(self, timestamp_ms: int, relative_offset: int) -> bool:
        """Add an entry if time moved on."""
        if timestamp_ms < 0:
            return False
        if self._flat:
            flat = self._flat
            if timestamp_ms <= flat[-3] << 32 | flat[-2] or relative_offset < flat[-1]:
                return False
        self._flat.extend((timestamp_ms >> 32, timestamp_ms & 0xFFFFFFFF, relative_offset))
        return True

    def floor(self, timestamp_ms: int) -> int:
        """The offset of the last entry at or before a time; 0 if there is none."""
        flat = self._flat
        at = bisect_right(
            range(len(self)),
            timestamp_ms,
            key=lambda entry: flat[entry * 3] << 32 | flat[entry * 3 + 1],
        )
        return flat[at * 3 - 1] if at else 0

    def cut(self, relative_offset: int) -> None:
        """Drop entries at or past an offset."""
        while self._flat and self._flat[-1] >= relative_offset:
            del self._flat[-3:]

    def encode(self, start: int = 0) -> bytes:
        return _to_disk(self._flat[start * 3 :])

    @classmethod
    def decode(cls, data: Buffer) -> TimeIndex | None:
        flat = _from_disk(data, TIME_ENTRY_SIZE)
        if flat is None:
            return None
        while flat and not any(flat[-3:]):
            del flat[-3:]
        found = cls()
        found._flat = flat
        previous = (-1, -1)
        for entry in range(len(found)):
            timestamp_ms, offset = found[entry]
            if timestamp_ms <= previous[0] or offset < previous[1] or timestamp_ms >= 2**63:
                return None
            previous = timestamp_ms, offset
        return found


def _to_disk(flat: array[int]) -> bytes:
    if _LITTLE_ENDIAN:
        flat = flat[:]
        flat.byteswap()
    return flat.tobytes()


def _from_disk(data: Buffer, entry_size: int) -> array[int] | None:
    if len(data) % entry_size:
        return None
    flat = array("I")
    flat.frombytes(data)
    if _LITTLE_ENDIAN:
        flat.byteswap()
    return flat


def _grows(values: array[int]) -> bool:
    """Strictly, in one pass of the interpreter's own loops."""
    return all(map(int.__lt__, values, values[1:]))
