"""The partitions of a data directory, straight from their segment files: no broker.

The directory may be in use by a broker, ours or Apache Kafka's, or be a copy of one. Nothing in it
is locked, changed or mapped: files are read with plain reads, so a segment that is deleted or
swapped meanwhile is read to its end, and a truncated one ends early instead of killing the process.

Rule: nothing past the high watermark is shown. It is the one in ``replication-offset-checkpoint``,
which brokers write every few seconds; where a copy has no such file, the last whole batch ends
the log. Who reads committed records only ends at the last stable offset below it, and is told what
was aborted. An index file is a hint where to begin: whatever is found there is checked, and a wrong
hint costs a longer walk, never wrong rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from shoal.errors import CorruptDataError, OffsetRangeMissingError
from shoal.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, decode_offsets
from shoal.log.directory import directory_name, partition_of
from shoal.log.disk import DirectoryEntry, File, OsDisk, read_file
from shoal.log.index import OffsetIndex
from shoal.log.offline_transactions import OfflineTransactions
from shoal.log.segment import file_name
from shoal.log.walking import first_record_at, walk
from shoal.records.batch import BatchHeader, iter_headers, read_header
from shoal.types import TopicPartition

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""How much of a segment is read at a time: more lies in fresh memory each time, and costs more."""
_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_BATCH_BYTES_MAX: Final = 1 << 30


class SegmentFile(NamedTuple):
    """One ``.log`` file."""

    base_offset: int
    size_bytes: int


class OfflineReader:
    """Reads a data directory without its broker.

    Args:
        committed_only: end at the last stable offset, and leave out what was aborted.
    """

    def __init__(self, directory: str, *, committed_only: bool = False) -> None:
        self._disk = OsDisk(directory, read_only=True)
        self._committed_only = committed_only
        self._transactions: dict[TopicPartition, OfflineTransactions] = {}
        self._watermarks_seen: DirectoryEntry | None = None
        self._watermarks: dict[TopicPartition, int] | None = None
        self._ends: dict[TopicPartition, int] = {}

    def partitions(self) -> list[TopicPartition]:
        """The partitions there are now, sorted.

        Raises:
            OSError: the directory cannot be read.
        """
        found = [partition_of(one.name) for one in self._disk.list() if one.kind == "directory"]
        return sorted(tp for tp in found if tp is not None)

    def earliest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each."""
        starts = decode_offsets(read_file(self._disk, LOG_STARTS)) or {}
        first = {}
        for tp in tps:
            segments = self.segments(tp)
            base = segments[0].base_offset if segments else 0
            first[tp] = max(base, starts.get(tp, 0))
        return first

    def latest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each, or the last stable offset."""
        self._look_at_watermarks()
        wanted = list(tps)
        for tp in wanted:
            if self._watermarks is None or tp not in self._ends:
                self._ends[tp] = self._end(tp)
        if not self._committed_only:
            return {tp: self._ends[tp] for tp in wanted}
        return {tp: self._last_stable_offset(tp) for tp in wanted}

    def _last_stable_offset(self, tp: TopicPartition) -> int:
        bases = [segment.base_offset for segment in self.segments(tp)]
        return self._transactions_of(tp).last_stable_offset(bases, self._ends[tp])

    def _transactions_of(self, tp: TopicPartition) -> OfflineTransactions:
        found = self._transactions.get(tp)
        if found is None:
            found = OfflineTransactions(
                self._disk, directory_name(tp), lambda start: self._walk(tp, start)
            )
            self._transactions[tp] = found
        return found

    def _walk(self, tp: TopicPartition, start: int) -> Iterator[tuple[File, int, BatchHeader]]:
        """Every batch from the one that holds ``start``, through all segments."""
        segments = self.segments(tp)
        followers: list[SegmentFile | None] = [*segments[1:], None]
        for segment, following in zip(segments, followers, strict=True):
            if following is not None and following.base_offset <= start:
                continue
            try:
                file = self._open(tp, segment)
                for position, header in self._headers(tp, segment, start):
                    yield file, position, header
            except FileNotFoundError:
                continue  # deleted meanwhile
            except CorruptDataError:
                return  # a batch that is being written, or whoever reads it is told

    def aborted(self, tp: TopicPartition, start: int, end: int) -> list[tuple[int, int]]:
        """What was aborted with data in a range of offsets, for readers of committed records.

        (producer id, first offset) each, as a ``Chunk`` wants them.
        """
        if not self._committed_only:
            return []
        self.latest([tp])
        bases = [segment.base_offset for segment in self.segments(tp)]
        return self._transactions_of(tp).aborted(bases, start, end, self._ends[tp])

    def _look_at_watermarks(self) -> None:
        """Read the checkpoint again if it was replaced."""
        seen = self._disk.stat(HIGH_WATERMARKS)
        if seen == self._watermarks_seen and seen is not None:
            return
        self._watermarks = decode_offsets(read_file(self._disk, HIGH_WATERMARKS))
        self._watermarks_seen = seen
        self._ends.clear()

    def _end(self, tp: TopicPartition) -> int:
        """The high watermark, as far as there are whole batches up to it."""
        limit = None if self._watermarks is None else self._watermarks.get(tp, 0)
        segments = self.segments(tp)
        if not segments or limit == 0:
            return segments[0].base_offset if segments else 0
        below = [one for one in segments if limit is None or one.base_offset < limit]
        last = below[-1] if below else segments[0]
        end = last.base_offset
        try:
            start = end if limit is None else limit
            for _, header in self._headers(tp, last, start):
                if limit is not None and header.next_offset > limit:
                    break
                end = header.next_offset
        except (CorruptDataError, FileNotFoundError):
            pass  # a torn tail, or a segment deleted this moment: what was seen is the end
        return end if limit is None else min(end, limit)

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time; ``None`` where no record is that young."""
        first, last = self.earliest(times_ms), self.latest(times_ms)
        return {tp: self._at(tp, time, first[tp], last[tp]) for tp, time in times_ms.items()}

    def _at(self, tp: TopicPartition, time_ms: int, first: int, last: int) -> int | None:
        for segment in self.segments(tp):
            for position, header in self._headers(tp, segment, segment.base_offset):
                if header.base_offset >= last:
                    return None
                if header.max_timestamp_ms < time_ms or header.next_offset <= first:
                    continue
                data = self._open(tp, segment).read_at(position, header.size_bytes)
                found = first_record_at(data, header, time_ms, first)
                if found is not None:
                    return found[0]
        return None

    def segments(self, tp: TopicPartition) -> list[SegmentFile]:
        """The segments of a partition, the oldest first; none if there is no such partition."""
        try:
            entries = self._disk.list(directory_name(tp))
        except FileNotFoundError:
            return []
        return [
            SegmentFile(int(match[1]), one.size_bytes)
            for one in entries
            if one.kind == "file" and (match := _SEGMENT.fullmatch(one.name))
        ]

    def read(
        self, tp: TopicPartition, start: int, end: int
    ) -> Iterator[tuple[memoryview, int, int]]:
        """The offsets of a range as windows of whole batches, each with the offsets wanted of it.

        Raises:
            OffsetRangeMissingError: the log begins behind the range, or ends within it.
        """
        at = start
        while at < end:
            segments = self.segments(tp)
            below = [segment for segment in segments if segment.base_offset <= at]
            if not below:
                first = segments[0].base_offset if segments else None
                raise OffsetRangeMissingError(tp, at, end, f"log starts at {first}")
            following = [s.base_offset for s in segments if s.base_offset > at]
            upto = min([end, *following])
            try:
                for data, after in self._windows(tp, below[-1], at, upto):
                    if after > at:
                        yield data, at, min(after, upto)
                        at = min(after, upto)
            except FileNotFoundError:
                continue  # deleted or merged meanwhile: look again
            if at < upto and upto == end and not following:
                raise OffsetRangeMissingError(
                    tp, at, end, f"log ends at {at}: shorter or recreated"
                )
            at = upto

    def _windows(
        self, tp: TopicPartition, segment: SegmentFile, start: int, end: int
    ) -> Iterator[tuple[memoryview, int]]:
        """Runs of whole batches of a segment from ``start`` on, and the offset after each."""
        file = self._open(tp, segment)
        position = self._hint(tp, segment, file, start)
        size = WINDOW_BYTES
        while True:
            data = file.read_at(position, size)
            whole, upto = _whole(data, end)
            if not whole:
                if len(data) < size:
                    return  # the end of the file, or a batch that is being written
                size = min(2 * size, _BATCH_BYTES_MAX)
                continue
            yield memoryview(data)[:whole], upto
            if upto >= end:
                return
            position += whole
            size = WINDOW_BYTES

    def _headers(
        self, tp: TopicPartition, segment: SegmentFile, start: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        file = self._open(tp, segment)
        position = self._hint(tp, segment, file, start)
        yield from walk(file, self._path(tp, segment), position, file.size())

    def _hint(self, tp: TopicPartition, segment: SegmentFile, file: File, offset: int) -> int:
        """A position at or before the batch of ``offset``: the index's, if a batch is there."""
        data = read_file(self._disk, self._path(tp, segment, ".index"))
        index = OffsetIndex.decode(data) if data else None
        hint = 0 if index is None else index.floor(max(0, offset - segment.base_offset))
        if not hint:
            return 0
        try:
            header = read_header(file.read_at(hint, 128))
        except CorruptDataError:
            return 0
        fits = segment.base_offset < header.base_offset <= offset
        return hint if fits and header.size_bytes + hint <= file.size() else 0

    def _open(self, tp: TopicPartition, segment: SegmentFile) -> File:
        return self._disk.open(self._path(tp, segment), write=False)

    @staticmethod
    def _path(tp: TopicPartition, segment: SegmentFile, suffix: str = ".log") -> str:
        return f"{directory_name(tp)}/{file_name(segment.base_offset, suffix)}"


def _whole(data: bytes, end: int) -> tuple[int, int]:
    """How many bytes of ``data`` are whole batches below ``end``, and where they end in the log."""
    size, upto = 0, -1
    for position, header in iter_headers(data):
        size, upto = position + header.size_bytes, header.next_offset
        if upto >= end:
            break
    return size, upto
