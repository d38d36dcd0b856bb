"""Transactions of a data directory that may be in use: where they are open, what was aborted.

From the newest snapshot up to the high watermark the batches themselves are read, and what is
found is kept for the next question; before it the transaction indexes tell. Nothing is changed.

Rule: an index file is believed if it is what it should be; else everything is read from the start
of the log. That costs time, never a wrong row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from shoal.errors import CorruptDataError
from shoal.log.disk import Disk, File, read_file
from shoal.log.partition_files import base_of
from shoal.log.producers import Producers
from shoal.log.segment import file_name
from shoal.log.transaction_index import ENTRY_SIZE, IndexSize, TransactionIndex
from shoal.records.batch import BatchHeader
from shoal.records.checksum import crc32c
from shoal.records.markers import read_marker

_INDEX_MAX_BYTES: Final = 1 << 30

Walk = Callable[[int], Iterator[tuple[File, int, BatchHeader]]]
"""Every batch from an offset on: its file, position and header."""


class OfflineTransactions:
    """The transactions of one partition."""

    def __init__(self, disk: Disk, directory: str, walk: Walk) -> None:
        self._disk = disk
        self._directory = directory
        self._walk = walk
        self._producers = Producers()
        self._found = TransactionIndex()  # aborted behind the snapshot
        self._from: int | None = None  # where the reading began
        self._to = 0  # and ended

    def last_stable_offset(self, bases: Sequence[int], high_watermark: int) -> int:
        """Up to where everything is decided; ``bases`` are those of the segments."""
        self._read_to(bases, high_watermark)
        return min(next(iter(self._producers.open), high_watermark), high_watermark)

    def aborted(
        self, bases: Sequence[int], start: int, end: int, high_watermark: int
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of what was aborted with data in offsets start..end."""
        self._read_to(bases, high_watermark)
        found: dict[int, tuple[int, int]] = {}
        assert self._from is not None
        below = [base for base in bases if base <= start]
        for base in bases[max(len(below) - 1, 0) :]:
            if base >= self._from:
                break
            index = self._index(base)
            if index is None:
                self._begin_anew()
                return self.aborted(bases, start, end, high_watermark)
            if self._collect(index, start, end, found):
                return list(found.values())
        self._collect(self._found, start, end, found)
        return list(found.values())

    @staticmethod
    def _collect(
        index: TransactionIndex, start: int, end: int, found: dict[int, tuple[int, int]]
    ) -> bool:
        entries: list[int] = []
        is_last = index.collect(start, end, entries)
        for at in entries:
            found[index[at].last_offset] = index.producer_and_first_offset(at)
        return is_last

    def _index(self, base: int) -> TransactionIndex | None:
        path = f"{self._directory}/{file_name(base, '.txnindex')}"
        data = read_file(self._disk, path, limit_bytes=_INDEX_MAX_BYTES) or b""
        # The last entry may be being written.
        return TransactionIndex.decode(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE])

    def _begin_anew(self) -> None:
        """No index is believed: read everything."""
        self._producers, self._found = Producers(), TransactionIndex()
        self._from = self._to = 0

    def _read_to(self, bases: Sequence[int], high_watermark: int) -> None:
        if self._from is None or self._to > high_watermark:
            self._begin(bases, high_watermark)
        for file, position, header in self._walk(self._to):
            if header.last_offset >= high_watermark:
                break
            if header.base_offset >= self._to:
                self._note(file, position, header)
                self._to = header.next_offset

    def _begin(self, bases: Sequence[int], high_watermark: int) -> None:
        """From the newest snapshot whose transaction index is there."""
        self._begin_anew()
        snapshots = [
            base
            for entry in self._disk.list(self._directory)
            if (base := base_of(entry.name, ".snapshot")) is not None and base <= high_watermark
        ]
        for base in sorted(snapshots, reverse=True):
            data = read_file(self._disk, f"{self._directory}/{file_name(base, '.snapshot')}")
            loaded = None if data is None else Producers.decode(data, base)
            if loaded is not None and self._fits(bases, base, loaded[1]):
                self._producers, self._from, self._to = loaded[0], base, base
                return

    def _fits(self, bases: Sequence[int], at: int, size: IndexSize | None) -> bool:
        if size is None or not size.size_bytes:
            return True
        holder = max((base for base in bases if base <= at), default=None)
        if holder is None or holder == at:
            return True
        path = f"{self._directory}/{file_name(holder, '.txnindex')}"
        data = read_file(self._disk, path, limit_bytes=_INDEX_MAX_BYTES) or b""
        return IndexSize(size.size_bytes, crc32c(data[: size.size_bytes])) == size

    def _note(self, file: File, position: int, header: BatchHeader) -> None:
        if header.producer_id < 0:
            return
        if not header.is_control:
            if header.is_transactional:
                self._producers.note(header, header.last_offset)
            return
        try:
            marker = read_marker(file.read_at(position, header.size_bytes))
        except CorruptDataError:
            return
        if marker is None:
            return
        aborted = self._producers.note_marker(header, marker, header.last_offset)
        if aborted is not None:
            self._found.append(aborted)
