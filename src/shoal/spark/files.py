"""Topics straight from the segment files of a data directory: no broker (option ``logDir``).

How the files are read stands in ``shoal.log.offline_reader``; here they are what a Spark read asks
for: the partitions its options name, tasks cut at segments, and data loss as its options want it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from shoal.errors import ConfigError, OffsetRangeMissingError
from shoal.log.offline_reader import OfflineReader
from shoal.records.chunks import Chunk
from shoal.spark.decoding import as_columns
from shoal.spark.options import SourceOptions
from shoal.spark.ranges import OffsetRange
from shoal.spark.read_tally import ReadTally
from shoal.spark.record_store import DataLossError, chosen
from shoal.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


def log_files(options: SourceOptions) -> LogFiles:
    """The records of the data directory that the options name."""
    assert options.log_dir is not None
    return LogFiles(options.log_dir, options)


class LogFiles:
    """The records of a data directory; implements ``record_store.Stock``."""

    def __init__(self, directory: str, options: SourceOptions) -> None:
        self._directory = directory
        self._reader = OfflineReader(directory, committed_only=options.committed_only)
        self._options = options

    def partitions(self) -> list[TopicPartition]:
        try:
            found = self._reader.partitions()
        except OSError as error:
            raise ConfigError(
                f"option logDir={self._directory} cannot be read: {error.strerror}"
            ) from None
        return chosen(self._options, found)

    def earliest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._reader.earliest(tps)

    def latest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._reader.latest(tps)

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        # Nobody will end a transaction that is open in files: what it wrote is not to be had.
        return self.latest(tps)

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return self._reader.at_times(times_ms)

    def bytes_per_record(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        wanted = list(tps)
        first, last = self.earliest(wanted), self.latest(wanted)
        sizes = {tp: sum(one.size_bytes for one in self._reader.segments(tp)) for tp in wanted}
        return {tp: sizes[tp] / (last[tp] - first[tp]) for tp in wanted if last[tp] > first[tp]}

    def pieces(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Cut at the segments' edges: a task then reads whole files."""
        cut: list[OffsetRange] = []
        for one in ranges:
            bases = [segment.base_offset for segment in self._reader.segments(one.topic_partition)]
            inner = [base for base in bases if one.start < base < one.end]
            cut += [one._replace(start=a, end=b) for a, b in pairwise([one.start, *inner, one.end])]
        return cut

    def read(
        self,
        ranges: Sequence[OffsetRange],
        columns: Sequence[str],
        *,
        fail_on_data_loss: bool,
        tally: ReadTally | None = None,
    ) -> Iterator[pa.RecordBatch]:
        tally = tally or ReadTally()
        for wanted in ranges:
            one: OffsetRange | None = wanted
            while one is not None:
                left = one
                try:
                    pieces = self._reader.read(one.topic_partition, one.start, one.end)
                    for data, start, end in tally.fetched(pieces, lambda piece: len(piece[0])):
                        aborted = self._reader.aborted(one.topic_partition, start, end)
                        chunk = Chunk(one.topic, one.partition, data, start, end, aborted)
                        yield from as_columns([chunk], columns, self._options.batch_bytes_max)
                        left = left._replace(start=end)
                    one = None
                except OffsetRangeMissingError as error:
                    lost = f"{error.topic_partition} offsets {error.start} to {error.end - 1}"
                    if fail_on_data_loss:
                        raise DataLossError([f"{lost}: {error.reason}"]) from None
                    logger.warning("left out, for failOnDataLoss=false: %s: %s", lost, error.reason)
                    one = self._after_the_gap(left)

    def _after_the_gap(self, one: OffsetRange) -> OffsetRange | None:
        """What is left of a range whose first records were deleted."""
        start = self.earliest([one.topic_partition])[one.topic_partition]
        return one._replace(start=start) if one.start < start < one.end else None
