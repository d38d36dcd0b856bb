"""Opening a log after a crash: where do the good bytes end? Pure: bytes in, verdict out.

Kafka cuts a log at the first bad batch. It can: a replica has the rest. We have no replica, so two
things are told apart. A *torn tail* is bad bytes with nothing good behind them, what a write leaves
that was under way when the power went; only that may be cut. Bad bytes with a good batch behind
them are *corruption*: they stay where they are, and whoever asks for their offsets is told.

What was never compacted has dense offsets. That matters because the first 16 bytes of a batch
(offset, length, leader epoch) are not under its checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from shoal.errors import CorruptDataError
from shoal.records.batch import HEADER_SIZE, BatchHeader, checksum_holds, read_header

Buffer = bytes | bytearray | memoryview
Read = Callable[[int, int], Buffer]
Visit = Callable[[int, BatchHeader], None]

#: No batch is larger; a length above is a wrong length.
BATCH_SIZE_MAX: Final = 256 << 20
_WINDOW: Final = 1 << 20
_PREFIX: Final = Struct(">qi")
_MAGIC_AT: Final = 16
_OFFSET_STEP_MAX: Final = 2**31
#: How many batches inside a bad one are followed to its end.
_CANDIDATES_MAX: Final = 64


class BadBytes(NamedTuple):
    """Bytes that are not a batch, and the offsets that are missing because of them."""

    position: int
    end_position: int
    start_offset: int
    end_offset: int
    reason: str


class Scan(NamedTuple):
    """What stands in a segment from the start of the scan on."""

    end_position: int
    """Behind the last good batch."""
    next_offset: int
    bad: list[BadBytes]
    """Corruption: good batches follow."""
    tail: str | None
    """Why the bytes from ``end_position`` on are no batches; None if there are none."""


def scan(
    read: Read,
    *,
    start: int,
    size: int,
    next_offset: int | None,
    visit: Visit,
    dense: bool = True,
    epoch_at: Callable[[int], int | None] | None = None,
) -> Scan:
    """Walk the batches in positions ``start..size`` and judge what is not one.

    Args:
        read: bytes of the file, by position and size.
        next_offset: the first offset expected; None to believe the first batch.
        visit: called for every good batch, in order.
        dense: whether every batch must follow the one before without a hole.
        epoch_at: the leader epoch known to have written an offset.
    """
    segment = _Segment(read, size, epoch_at, dense=dense)
    position = start
    bad: list[BadBytes] = []
    while position < size:
        found = segment.batch_at(position, next_offset)
        if isinstance(found, BatchHeader):
            visit(position, found)
            position += found.size_bytes
            next_offset = found.next_offset
            continue
        if next_offset is None:
            next_offset = 0
        resumed = segment.find_good(position, next_offset)
        if resumed is None:
            return Scan(position, next_offset, bad, found)
        end_position, end_offset = resumed
        bad.append(BadBytes(position, end_position, next_offset, end_offset, found))
        position, next_offset = end_position, end_offset
    return Scan(position, next_offset or 0, bad, None)


def is_blank(read: Read, start: int, end: int) -> bool:
    """Whether there are only zeros: space set aside in advance, not data."""
    while start < end:
        data = bytes(read(start, min(_WINDOW, end - start)))
        if not data or data.count(0) != len(data):
            return False
        start += len(data)
    return True


class _Segment:
    """The bytes of a segment through a window, and the checks on one batch."""

    def __init__(
        self,
        read: Read,
        size: int,
        epoch_at: Callable[[int], int | None] | None,
        *,
        dense: bool,
    ) -> None:
        self._dense = dense
        self._read = read
        self._size = size
        self._epoch_at = epoch_at
        self._data: Buffer = b""
        self._origin = 0

    def _window(self, position: int, size: int) -> tuple[Buffer, int]:
        """Bytes with ``position`` in them, and its index; fewer than ``size`` only at the end."""
        at = position - self._origin
        if at < 0 or at + size > len(self._data):
            self._data = self._read(position, max(_WINDOW, size))
            self._origin, at = position, 0
        return self._data, at

    def batch_at(self, position: int, offset: int | None) -> BatchHeader | str:
        """The batch at ``position`` if all is well with it, else what is wrong."""
        data, at = self._window(position, HEADER_SIZE)
        try:
            header = read_header(data, at)
        except CorruptDataError as error:
            return error.reason
        size = header.size_bytes
        if size > BATCH_SIZE_MAX:
            return f"a batch of {size} bytes is impossible"
        if size > self._size - position:
            return f"{self._size - position} bytes of a batch of {size}"
        if offset is not None and (
            header.base_offset != offset if self._dense else header.base_offset < offset
        ):
            return f"offset {header.base_offset} where {offset} is due"
        if self._epoch_at is not None:
            epoch = self._epoch_at(header.base_offset)
            if epoch is not None and epoch != header.leader_epoch:
                return f"leader epoch {header.leader_epoch} where {epoch} is due"
        data, at = self._window(position, size)
        if not checksum_holds(data, at, size):
            return "the checksum fails"
        return header

    def find_good(self, position: int, offset: int) -> tuple[int, int] | None:
        """Position and offset of the next good batch behind a bad one at ``position``.

        Records may hold anything, whole batches of another log included. So a good batch *inside*
        the bad one counts only if good batches go on from there to where the bad one ends by its
        own word, or to the end of the file: then that word, its length, is what is bad.
        """
        claimed_end = min(self._claimed_end(position), self._size)
        followed = 0
        for start, header in self._candidates(position + 1, offset):
            if start >= claimed_end:
                return start, header.base_offset
            if followed < _CANDIDATES_MAX:
                followed += 1
                if self._runs_to(claimed_end, start, header):
                    return start, header.base_offset
        return None

    def _claimed_end(self, position: int) -> int:
        """Where a bad batch ends by its own word, if it is worth anything."""
        data, at = self._window(position, HEADER_SIZE)
        if len(data) - at < _PREFIX.size:
            return position
        length: int = _PREFIX.unpack_from(data, at)[1]
        return position + _PREFIX.size + length if length > 0 else position

    def _plausible(self, position: int, offset: int) -> BatchHeader | None:
        """A good batch here whose offset can follow."""
        if position >= self._size:
            return None
        found = self.batch_at(position, None)
        if not isinstance(found, BatchHeader) or found.base_offset < offset:
            return None
        return found if found.base_offset - offset < _OFFSET_STEP_MAX else None

    def _candidates(self, start: int, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Every later place where a good batch could stand."""
        while start + HEADER_SIZE <= self._size:
            block = bytes(self._read(start, _WINDOW + HEADER_SIZE))
            at = block.find(2, _MAGIC_AT)
            while at >= 0 and at - _MAGIC_AT < _WINDOW:
                base_offset, length = _PREFIX.unpack_from(block, at - _MAGIC_AT)
                position = start + at - _MAGIC_AT
                if (
                    0 <= base_offset - offset < _OFFSET_STEP_MAX
                    and HEADER_SIZE - 12 <= length <= self._size - position - 12
                ):
                    header = self._plausible(position, offset)
                    if header is not None:
                        yield position, header
                at = block.find(2, at + 1)
            start += _WINDOW

    def _runs_to(self, end: int, position: int, header: BatchHeader) -> bool:
        while True:
            position += header.size_bytes
            if position >= end:
                return True
            following = self.batch_at(position, header.next_offset)
            if not isinstance(following, BatchHeader):
                return False
            header = following
