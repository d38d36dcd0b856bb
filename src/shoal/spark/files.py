"""Topics straight from the segment files of a data directory: no broker (option ``logDir``).

The directory may be in use by a broker, ours or Apache Kafka's, or be a copy of one. Nothing in it
is locked, changed or mapped: files are read with plain reads, so a segment that is deleted or
swapped meanwhile is read to its end, and a truncated one ends early instead of killing the process.

Rule: nothing past the high watermark is shown. It is the one in ``replication-offset-checkpoint``,
which brokers write every few seconds; where a copy has no such file, the last whole batch ends
the log. An index file is a hint where to begin: whatever is found there is checked, and a wrong
hint costs a longer walk, never wrong rows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.errors import ConfigError, CorruptDataError
from shoal.log.checkpoints import HIGH_WATERMARKS, LOG_STARTS, decode_offsets
from shoal.log.directory import directory_name, partition_of
from shoal.log.disk import Entry, File, OsDisk, read_file
from shoal.log.index import OffsetIndex
from shoal.log.segment import file_name
from shoal.log.walking import first_record_at, walk
from shoal.records.batch import BatchHeader, iter_headers, read_header
from shoal.spark.decoding import as_columns
from shoal.spark.options import SourceOptions
from shoal.spark.ranges import OffsetRange
from shoal.spark.stock import DataLossError, chosen
from shoal.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

WINDOW_BYTES: Final = 8 * 1024 * 1024
"""How much of a segment is read at a time: more lies in fresh memory each time, and costs more."""
_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_BATCH_BYTES_MAX: Final = 1 << 30


class _Segment(NamedTuple):
    base_offset: int
    size_bytes: int


def log_files(options: SourceOptions) -> LogFiles:
    """The records of the data directory that the options name."""
    assert options.log_dir is not None
    return LogFiles(options.log_dir, options)


class LogFiles:
    """The records of a data directory; implements ``stock.Stock``."""

    def __init__(self, directory: str, options: SourceOptions) -> None:
        self._disk = OsDisk(directory, read_only=True)
        self._options = options
        self._watermarks_seen: Entry | None = None
        self._watermarks: dict[TopicPartition, int] | None = None
        self._ends: dict[TopicPartition, int] = {}

    def partitions(self) -> list[TopicPartition]:
        try:
            entries = self._disk.list()
        except OSError as error:
            raise ConfigError(
                f"option logDir={self._disk.root} cannot be read: {error.strerror}"
            ) from None
        found = [partition_of(one.name) for one in entries if one.kind == "directory"]
        return chosen(self._options, [tp for tp in found if tp is not None])

    def earliest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        starts = decode_offsets(read_file(self._disk, LOG_STARTS)) or {}
        first = {}
        for tp in tps:
            segments = self._segments(tp)
            base = segments[0].base_offset if segments else 0
            first[tp] = max(base, starts.get(tp, 0))
        return first

    def latest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._look_at_watermarks()
        wanted = list(tps)
        for tp in wanted:
            if self._watermarks is None or tp not in self._ends:
                self._ends[tp] = self._end(tp)
        return {tp: self._ends[tp] for tp in wanted}

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
        segments = self._segments(tp)
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
        first, last = self.earliest(times_ms), self.latest(times_ms)
        return {tp: self._at(tp, time, first[tp], last[tp]) for tp, time in times_ms.items()}

    def _at(self, tp: TopicPartition, time_ms: int, first: int, last: int) -> int | None:
        for segment in self._segments(tp):
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

    def bytes_per_record(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        wanted = list(tps)
        first, last = self.earliest(wanted), self.latest(wanted)
        sizes = {tp: sum(one.size_bytes for one in self._segments(tp)) for tp in wanted}
        return {tp: sizes[tp] / (last[tp] - first[tp]) for tp in wanted if last[tp] > first[tp]}

    def pieces(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Cut at the segments' edges: a task then reads whole files."""
        cut: list[OffsetRange] = []
        for one in ranges:
            bases = [segment.base_offset for segment in self._segments(one.topic_partition)]
            inner = [base for base in bases if one.start < base < one.end]
            cut += [one._replace(start=a, end=b) for a, b in pairwise([one.start, *inner, one.end])]
        return cut

    def read(
        self, ranges: Sequence[OffsetRange], columns: Sequence[str], *, fail_on_data_loss: bool
    ) -> Iterator[pa.RecordBatch]:
        for wanted in ranges:
            one: OffsetRange | None = wanted
            while one is not None:
                left = one
                try:
                    for data, start, end in self._read_range(one):
                        chunk = (one.topic, one.partition, data, start, end)
                        yield from as_columns([chunk], columns, self._options.batch_bytes_max)
                        left = left._replace(start=end)
                    one = None
                except DataLossError as error:
                    if fail_on_data_loss:
                        raise
                    logger.warning("left out, for failOnDataLoss=false: %s", error)
                    one = self._after_the_gap(left)

    def _after_the_gap(self, one: OffsetRange) -> OffsetRange | None:
        """What is left of a range whose first records were deleted."""
        start = self.earliest([one.topic_partition])[one.topic_partition]
        return one._replace(start=start) if one.start < start < one.end else None

    def _read_range(self, one: OffsetRange) -> Iterator[tuple[memoryview, int, int]]:
        """Windows of whole batches with the offsets wanted of each."""
        tp, at = one.topic_partition, one.start
        while at < one.end:
            segments = self._segments(tp)
            below = [segment for segment in segments if segment.base_offset <= at]
            if not below:
                first = segments[0].base_offset if segments else None
                raise DataLossError([f"{tp} offsets {at} to {one.end - 1}: log starts at {first}"])
            following = [s.base_offset for s in segments if s.base_offset > at]
            end = min([one.end, *following])
            try:
                for data, after in self._windows(tp, below[-1], at, end):
                    if after > at:
                        yield data, at, min(after, end)
                        at = min(after, end)
            except FileNotFoundError:
                continue  # deleted or merged meanwhile: look again
            if at < end and end == one.end and not following:
                raise DataLossError([f"{tp} ends at {at}, before {one.end}: shorter or recreated"])
            at = end

    def _windows(
        self, tp: TopicPartition, segment: _Segment, start: int, end: int
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
        self, tp: TopicPartition, segment: _Segment, start: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        file = self._open(tp, segment)
        position = self._hint(tp, segment, file, start)
        yield from walk(file, self._path(tp, segment), position, file.size())

    def _hint(self, tp: TopicPartition, segment: _Segment, file: File, offset: int) -> int:
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

    def _segments(self, tp: TopicPartition) -> list[_Segment]:
        try:
            entries = self._disk.list(directory_name(tp))
        except FileNotFoundError:
            return []
        return [
            _Segment(int(match[1]), one.size_bytes)
            for one in entries
            if one.kind == "file" and (match := _SEGMENT.fullmatch(one.name))
        ]

    def _open(self, tp: TopicPartition, segment: _Segment) -> File:
        return self._disk.open(self._path(tp, segment), write=False)

    @staticmethod
    def _path(tp: TopicPartition, segment: _Segment, suffix: str = ".log") -> str:
        return f"{directory_name(tp)}/{file_name(segment.base_offset, suffix)}"


def _whole(data: bytes, end: int) -> tuple[int, int]:
    """How many bytes of ``data`` are whole batches below ``end``, and where they end in the log."""
    size, upto = 0, -1
    for position, header in iter_headers(data):
        size, upto = position + header.size_bytes, header.next_offset
        if upto >= end:
            break
    return size, upto
