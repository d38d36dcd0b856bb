"""One segment: a file of batches, the indexes beside it, and how to find a batch in it.

Rule: a segment knows bytes and positions; what may be appended or seen is decided in
``partition.py``. The log file is the truth. The indexes are kept in memory while in use, saved
with a checksum, and built again from the log whenever that does not fit (``IndexSeal``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from shoal.errors import CorruptDataError
from shoal.log.checkpoints import IndexSeal
from shoal.log.config import LogConfig
from shoal.log.disk import (
    Buffer,
    Disk,
    File,
    overwrite_file,
    read_file,
    remove_files,
    write_fully,
    write_parts_fully,
)
from shoal.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, OffsetIndex, TimeIndex
from shoal.log.transaction_index import (
    ENTRY_SIZE,
    AbortedTransaction,
    IndexSize,
    TransactionIndex,
)
from shoal.log.walking import first_record_at, walk
from shoal.records.batch import HEADER_SIZE, BatchHeader, decode_batch
from shoal.records.checksum import crc32c

# base_offset, length, leader_epoch, magic, last_offset_delta: enough to hop over a batch.
_HOP: Final = Struct(">qiib6xi")
_LENGTH_FROM: Final = 12
_LENGTH_MIN: Final = HEADER_SIZE - _LENGTH_FROM
_WINDOW: Final = 4096
_HINTS_MAX: Final = 256
OFFSETS_MAX: Final = 2**31 - 1
#: The files beside a segment that are derived from it.
INDEX_SUFFIXES: Final = (".index", ".timeindex", ".txnindex")
_TXNINDEX_MAX_BYTES: Final = 1 << 30
_UNKNOWN: Final = -1

#: Batches to append, their last offset, the largest timestamp, and the offset it is found by.
Part = tuple[Buffer, int, int, int]


class Found(NamedTuple):
    """Where a batch stands."""

    position: int
    size: int
    base_offset: int
    next_offset: int

    @property
    def end(self) -> int:
        return self.position + self.size


def file_name(base_offset: int, suffix: str = ".log") -> str:
    return f"{base_offset:020d}{suffix}"


class Segment:
    """Batches from ``base_offset`` on. ``size`` is what was written, ``file`` opens on demand."""

    __slots__ = (
        "_aborted",
        "_directory",
        "_disk",
        "_file",
        "_held",
        "_hints",
        "_index",
        "_times",
        "_txnindex_bytes",
        "_unindexed",
        "bad",
        "base_offset",
        "first_timestamp_ms",
        "index_interval_bytes",
        "max_timestamp_ms",
        "modified_ms",
        "offset_of_max_timestamp",
        "seal",
        "size",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int = 4096
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._file: File | None = None
        self._held: File | None = None
        self._index: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._aborted: TransactionIndex | None = None
        self._txnindex_bytes = 0
        self._hints: dict[int, int] = {}
        self._unindexed = 0
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.size = 0
        self.bad: list[tuple[int, int]] = []  # positions of bytes that are no batches, in order
        self.first_timestamp_ms: int | None = None
        self.max_timestamp_ms = -1
        self.offset_of_max_timestamp = base_offset
        self.modified_ms = 0
        self.seal: IndexSeal | None = None

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int, index_interval_bytes: int
    ) -> Segment:
        """A new, empty segment. What a crash left under its name is replaced."""
        segment = cls(disk, directory, base_offset, index_interval_bytes=index_interval_bytes)
        segment._file = disk.open(segment.path(), create=True)
        if segment._file.size():
            segment._file.truncate(0)
        remove_files(disk, map(segment.path, INDEX_SUFFIXES))
        segment._index, segment._times = OffsetIndex(), TimeIndex()
        segment._aborted = TransactionIndex()
        segment.modified_ms = now_ms
        return segment

    @classmethod
    def existing(
        cls,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        size: int,
        modified_ms: int,
        seal: IndexSeal | None,
        index_interval_bytes: int,
        txnindex_bytes: int = 0,
    ) -> Segment:
        """A segment found on disk; nothing is read before it is needed."""
        segment = cls(disk, directory, base_offset, index_interval_bytes=index_interval_bytes)
        segment.size = size
        segment.modified_ms = modified_ms
        segment.seal = seal
        segment._txnindex_bytes = txnindex_bytes
        if seal is not None:
            if seal.txnindex_bytes >= 0:
                segment._txnindex_bytes = seal.txnindex_bytes
            segment.max_timestamp_ms = seal.max_timestamp_ms
            segment.offset_of_max_timestamp = seal.offset_of_max_timestamp
        return segment

    def path(self, suffix: str = ".log") -> str:
        return f"{self._directory}/{file_name(self.base_offset, suffix)}"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path())
        return self._file

    def adopt(self, file: File) -> None:
        """Take an open, empty file as this segment's, to be filled with ``note``."""
        self._file = file
        self.forget_entries()

    def hold(self) -> None:
        """Keep the file open although its name may change, until ``unhold``."""
        self._held = self.file

    def unhold(self) -> None:
        self._held = None

    def let_go(self, *, indexes: bool) -> None:
        """Close the file until it is needed again, and forget the indexes if they are saved.

        Open reads keep the file for themselves.
        """
        self._file = self._held
        if indexes:
            self._index = self._times = None
            self._hints.clear()
            if self._aborted is not None and self._aborted.saved == len(self._aborted):
                self._txnindex_bytes, self._aborted = len(self._aborted) * ENTRY_SIZE, None

    # Appending

    def append(self, parts: Sequence[Part]) -> None:
        """Write batches at the end, all parts in one step.

        Raises:
            OSError: the file may hold some of it past ``size``: ``cut_back`` or give up.
        """
        file = self._file if self._file is not None else self.file
        if len(parts) == 1:
            write_fully(file, self.size, parts[0][0])
        else:
            write_parts_fully(file, self.size, [part[0] for part in parts])
        for data, last_offset, max_timestamp_ms, at_offset in parts:
            position, size = self.size, len(data)
            self.size = position + size
            if max_timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = max_timestamp_ms
                self.offset_of_max_timestamp = at_offset
            if self.first_timestamp_ms is None:
                self.first_timestamp_ms = max_timestamp_ms
            if self._unindexed > self.index_interval_bytes:
                self._add_entries(last_offset, position)
            self._unindexed += size

    def _add_entries(self, last_offset: int, position: int) -> None:
        assert self._index is not None
        assert self._times is not None
        base = self.base_offset
        self._index.append(last_offset - base, position)
        self._times.maybe_append(self.max_timestamp_ms, self.offset_of_max_timestamp - base)
        self._unindexed = 0

    def cut_back(self) -> None:
        """Remove what a failed append left behind ``size``."""
        self.file.truncate(self.size)

    def must_roll(
        self,
        config: LogConfig,
        size: int,
        end_offset: int,
        timestamp_ms: int,
        now_ms: int,
        entries: int = 1,
    ) -> bool:
        """Whether an append of ``size`` bytes that ends at ``end_offset`` needs a new segment."""
        if self.size == 0:
            return False
        if self.size + size > config.segment_bytes:
            return True
        first_ms = self.first_timestamp_ms
        if first_ms is None or first_ms < 0 or timestamp_ms < 0:
            first_ms, timestamp_ms = self.modified_ms, now_ms
        return (
            timestamp_ms - first_ms > config.segment_ms
            or end_offset - self.base_offset > OFFSETS_MAX
            # Whether there is room for an entry matters when one is to be added.
            or (
                self._unindexed + size > self.index_interval_bytes
                and self.is_full(config.segment_index_bytes, entries)
            )
        )

    def is_full(self, segment_index_bytes: int, entries: int = 1) -> bool:
        """Whether an index has no room for so many entries more."""
        assert self._index is not None, "appended to after loading the indexes"
        assert self._times is not None
        return (
            len(self._index.offsets) + entries > segment_index_bytes // OFFSET_ENTRY_SIZE
            or len(self._times) + entries > segment_index_bytes // TIME_ENTRY_SIZE
        )

    # Indexes

    @property
    def index(self) -> OffsetIndex:
        if self._index is None:
            self.load_indexes()
            assert self._index is not None
        return self._index

    @property
    def times(self) -> TimeIndex:
        if self._times is None:
            self.load_indexes()
            assert self._times is not None
        return self._times

    def load_indexes(self) -> bool:
        """Read the index files if they fit their seal, else derive them; True if they fitted."""
        if self.seal is not None:
            index = self._read_index(".index", self.seal.index_bytes, self.seal.index_crc)
            times = self._read_index(
                ".timeindex", self.seal.timeindex_bytes, self.seal.timeindex_crc
            )
            if index is not None and times is not None:
                self._index, self._times = OffsetIndex.decode(index), TimeIndex.decode(times)
                if self._index is not None and self._times is not None:
                    return True
        if self.aborted is None:
            self._txnindex_bytes = _UNKNOWN
        self.seal = None  # it speaks of something else
        self.rebuild_indexes()
        return False

    def _read_index(self, suffix: str, size: int, crc: int) -> bytes | None:
        data = read_file(self._disk, self.path(suffix))
        if data is None or len(data) < size:
            return None
        data = data[:size]
        return data if crc32c(data) == crc else None

    @property
    def has_aborted(self) -> bool:
        """Whether a transaction was aborted by a marker in this segment."""
        return bool(self._txnindex_bytes) if self._aborted is None else len(self._aborted) > 0

    @property
    def aborted(self) -> TransactionIndex | None:
        """The transactions aborted here; None if that must be found out from the log again."""
        if self._aborted is None:
            self._aborted = self._load_aborted(self._txnindex_bytes)
        return self._aborted

    def load_aborted(self, size: IndexSize | None) -> bool:
        """Believe so much of the file, or all that makes sense; False if it is something else."""
        size_bytes = self._txnindex_bytes if size is None else size.size_bytes
        self._aborted = self._load_aborted(size_bytes)
        return self._aborted is not None and (size is None or self._aborted.size == size)

    def _load_aborted(self, size_bytes: int) -> TransactionIndex | None:
        if size_bytes == _UNKNOWN:
            return None
        if not size_bytes:
            return TransactionIndex()
        data = read_file(self._disk, self.path(".txnindex"), limit_bytes=_TXNINDEX_MAX_BYTES)
        if data is None or len(data) < size_bytes:
            return None
        found = TransactionIndex.decode(data[:size_bytes])
        if found is None or found[0].last_offset < self.base_offset:
            return None
        is_sealed = self.seal is not None and self.seal.txnindex_bytes == size_bytes
        if is_sealed and self.seal is not None and self.seal.txnindex_crc != found.size.crc:
            return None
        return found

    def note_aborted(self, entry: AbortedTransaction) -> None:
        """A marker here aborted a transaction; the index was loaded before."""
        assert self._aborted is not None
        self._aborted.append(entry)

    def adopt_aborted(self, aborted: TransactionIndex) -> None:
        """What was found out from the log; it is saved with the other indexes."""
        self._aborted = aborted

    def rebuild_indexes(self) -> None:
        """Derive both indexes from the batches; stops quietly where the bytes stop making sense."""
        self.forget_entries()
        try:
            for position, header in self.headers():
                self.note(position, header)
        except CorruptDataError:
            pass  # a reader that gets there will say so

    def forget_entries(self) -> None:
        """Start indexing again, before ``note`` is called for every batch."""
        self._index, self._times, self._unindexed = OffsetIndex(), TimeIndex(), 0
        self.max_timestamp_ms, self.offset_of_max_timestamp = -1, self.base_offset
        self.first_timestamp_ms = None

    def note(self, position: int, header: BatchHeader) -> None:
        """Index a batch that is already in the file, as ``append`` would have."""
        if header.max_timestamp_ms > self.max_timestamp_ms and header.record_count:
            self.max_timestamp_ms = header.max_timestamp_ms
            self.offset_of_max_timestamp = header.last_offset
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = header.max_timestamp_ms
        if self._unindexed > self.index_interval_bytes:
            self._add_entries(header.last_offset, position)
        self._unindexed += header.size_bytes

    def resume(self, position: int) -> int:
        """Drop index entries from ``position`` on, so that ``note`` can go on from there.

        Returns where to go on: the last indexed batch at or before ``position``. What the indexes
        say of the part before it is exact, the largest timestamp included.
        """
        index, times = self.index, self.times
        start = index.floor_position(min(position, self.size - 1)) if self.size else 0
        try:
            first_timestamp_ms = next(self.headers())[1].max_timestamp_ms if start else None
        except CorruptDataError:
            start = 0
        if start == 0:
            self.forget_entries()
            return 0
        offset = index.offset_at(start)
        index.cut(start + 1)
        times.cut(offset + 1)
        self._unindexed = 0
        if len(times):
            self.max_timestamp_ms, relative_offset = times[len(times) - 1]
            self.offset_of_max_timestamp = self.base_offset + relative_offset
        else:
            self.max_timestamp_ms, self.offset_of_max_timestamp = -1, self.base_offset
        self.first_timestamp_ms = first_timestamp_ms
        return start

    def save_indexes(self, *, finished: bool) -> Callable[[], list[File]]:
        """Seal the indexes as they are now, and return the work that writes them.

        ``finished`` adds the last time entry, as Kafka does when a segment is rolled or closed.
        """
        index, times = self.index, self.times
        if finished:
            times.maybe_append(
                self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset
            )
        contents = {".index": index.encode(), ".timeindex": times.encode()}
        aborted = self.aborted
        size = IndexSize(-1, 0) if aborted is None else aborted.size
        self.seal = IndexSeal(
            len(contents[".index"]),
            crc32c(contents[".index"]),
            len(contents[".timeindex"]),
            crc32c(contents[".timeindex"]),
            self.max_timestamp_ms,
            self.offset_of_max_timestamp,
            *size,
        )
        disk, paths = self._disk, {suffix: self.path(suffix) for suffix in contents}
        save_aborted = self._save_aborted(aborted, is_final=finished)

        def write() -> list[File]:
            files = [overwrite_file(disk, paths[suffix], data) for suffix, data in contents.items()]
            return files + save_aborted()

        return write

    def _save_aborted(
        self, aborted: TransactionIndex | None, *, is_final: bool
    ) -> Callable[[], list[File]]:
        """The work that adds to the transaction index what is not in it yet."""
        if aborted is None or not len(aborted) or (aborted.saved == len(aborted) and not is_final):
            return list
        disk, path, start = self._disk, self.path(".txnindex"), aborted.saved * ENTRY_SIZE
        data = aborted.encode(aborted.saved)
        aborted.saved = len(aborted)

        def write() -> list[File]:
            # If an earlier part is missing, its checksum says so when it is read.
            file = disk.open(path, create=True)
            write_fully(file, start, data)
            if file.size() != start + len(data):
                file.truncate(start + len(data))
            return [file]

        return write

    # Finding

    def seek(self, offset: int, end: int) -> Found | None:
        """The first batch before position ``end`` that reaches ``offset``."""
        position = self._hints.get(offset)
        if position is None:
            position = self.index.floor(max(0, offset - self.base_offset))
        return self._hop(position, end, offset)

    def boundary(self, start: int, limit: int, end: int) -> tuple[int, int | None]:
        """The last batch boundary in ``start..limit``, and the next batch's offset if seen.

        ``start`` is a boundary; ``end`` is where the batches end, with nothing bad before.
        """
        if limit >= end:
            return end, None
        position = max(start, self.index.floor_position(limit))
        file, data, origin = self.file, b"", position
        while True:
            at = position - origin
            if at + _HOP.size > len(data):
                data, origin, at = file.read_at(position, _WINDOW), position, 0
            base_offset, length = self._unpack(data, at, position, end)
            if position + _LENGTH_FROM + length > limit:
                return position, base_offset
            position += _LENGTH_FROM + length
            if position == end:
                return end, None

    def newest_ms(self) -> int:
        """The largest timestamp in the segment, -1 if there is none."""
        if self.seal is None and self._index is None:
            self.load_indexes()
        return self.max_timestamp_ms

    def newest_between(self, start_offset: int, end: int) -> int:
        """The largest timestamp from an offset to a position, by reading what lies between."""
        newest = -1
        position = self.index.floor(max(0, start_offset - self.base_offset))
        for at, header in self.headers(position, end):
            if header.last_offset < start_offset or header.max_timestamp_ms <= newest:
                continue
            if header.base_offset >= start_offset:
                newest = header.max_timestamp_ms if header.record_count else newest
                continue
            for record in decode_batch(self.file.read_at(at, header.size_bytes), check_crc=False):
                if record.offset >= start_offset:
                    newest = max(newest, record.timestamp_ms)
        return newest

    def first_at(self, timestamp_ms: int, start_offset: int, end: int) -> tuple[int, int] | None:
        """Offset and time of the first record before ``end`` at or after both arguments."""
        offset = max(start_offset, self.base_offset + self.times.floor(timestamp_ms))
        position = self.index.floor(offset - self.base_offset)
        for at, header in self.headers(position, end):
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < start_offset:
                continue
            data = self.file.read_at(at, header.size_bytes)
            found = first_record_at(data, header, timestamp_ms, start_offset)
            if found is not None:
                return found
        return None

    def remember(self, offset: int, position: int) -> None:
        """A reader stopped here and will be back for ``offset``."""
        hints = self._hints
        if len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]
        hints[offset] = position

    def forget_hints(self) -> None:
        self._hints.clear()

    def _hop(self, position: int, end: int, offset: int) -> Found | None:
        file, data, origin = self.file, b"", position
        unpack, previous = _HOP.unpack_from, -1
        skips = dict(self.bad)
        while position < end:
            if position in skips:
                position = skips[position]
                continue
            at = position - origin
            if at + _HOP.size > len(data):
                data, origin, at = file.read_at(position, _WINDOW), position, 0
                if len(data) < _HOP.size:
                    raise self._corrupt(position, "a batch header is cut off")
            base_offset, length, _, magic, delta = unpack(data, at)
            size = _LENGTH_FROM + length
            if (
                magic != 2
                or length < _LENGTH_MIN
                or position + size > end
                or base_offset <= previous
                or delta < 0
            ):
                raise self._corrupt(position, "no batch starts here")
            previous = base_offset + delta
            if previous >= offset:
                return Found(position, size, base_offset, previous + 1)
            position += size
        return None

    def _unpack(self, data: bytes, at: int, position: int, end: int) -> tuple[int, int]:
        if len(data) - at < _HOP.size:
            raise self._corrupt(position, "a batch header is cut off")
        base_offset, length, _, magic, _ = _HOP.unpack_from(data, at)
        if magic != 2 or length < _LENGTH_MIN or position + _LENGTH_FROM + length > end:
            raise self._corrupt(position, "no batch starts here")
        return base_offset, length

    def headers(
        self, position: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Every batch from a boundary on, corrupt ranges left out; checks no checksums."""
        end = self.size if end is None else end
        for start, stop in (*self.bad, (end, end)):
            if position < start:
                yield from walk(self.file, self.path(), position, min(start, end))
            position = max(position, stop)

    def _corrupt(self, position: int, reason: str) -> CorruptDataError:
        return CorruptDataError(reason, path=self.path(), position=position)
