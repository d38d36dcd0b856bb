"""Where the records of ``__consumer_offsets`` come from when there is no Spark: a cluster, a log
directory, or a directory that a recorder has filled. And samples of end offsets, from each of them.

Rule: every source gives the same columns; whoever reads them does not know which it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from shoal.client.admin import Admin
from shoal.client.ranges import RangeReader
from shoal.errors import ConfigError
from shoal.fleet.tables import INTERNAL, TOPIC, names, schema
from shoal.log.offline_reader import OfflineReader
from shoal.records.columns import iter_columns
from shoal.types import OffsetAndTimestamp, TopicPartition

RECORDS_DIRECTORY: Final = "records"
ENDS_DIRECTORY: Final = "ends"
PLACES_MAX: Final = 2_000
"""How many records a report looks up to tell since when groups are behind."""
BATCH_ROWS: Final = 50_000
FETCH_MAX_BYTES: Final = 50 << 20
PROBE_BYTES: Final = 64 * 1024
_PROBED: Final = ("topic", "partition", "offset", "timestamp")
_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")


class HistorySource(Protocol):
    """Records, and where partitions ended."""

    def records(self) -> Iterator[pa.RecordBatch]:
        """All records of the topic there are now."""
        ...

    def ends(self) -> pa.Table:
        """Samples of end offsets."""
        ...

    def written_at(self, places: Iterable[tuple[TopicPartition, int]]) -> pa.Table:
        """When records were written, as samples: before that moment the partition ended there."""
        ...


class ClusterSource:
    """A live cluster, ours or Apache Kafka."""

    def __init__(self, admin: Admin, settings: Mapping[str, Any]) -> None:
        self._admin = admin
        self._settings = settings

    def records(self) -> Iterator[pa.RecordBatch]:
        yield from self.records_after({})

    def records_after(
        self,
        positions: Mapping[int, int],
        *,
        max_rows: int | None = None,
        fetch_max_bytes: int = FETCH_MAX_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """What was written from ``positions`` on, which are offsets by partition of the topic.

        With fewer rows or bytes at once it takes longer and needs less memory.
        """
        ranges = self._ranges(positions)
        with RangeReader(**self._settings) as reader:
            yield from reader.read(
                ranges,
                columns=_COLUMNS,
                max_rows=max_rows or BATCH_ROWS,
                fetch_max_bytes=fetch_max_bytes,
            )

    def _ranges(self, positions: Mapping[int, int]) -> dict[TopicPartition, tuple[int, int]]:
        if TOPIC not in self._admin.list_topics():
            return {}  # nobody has committed anything yet
        described = self._admin.describe_topics(TOPIC)[TOPIC]
        tps = [TopicPartition(TOPIC, one.partition) for one in described.partitions]
        first = self._admin.list_offsets(dict.fromkeys(tps, "earliest"))
        last = self._admin.list_offsets(dict.fromkeys(tps, "latest"))
        ranges = {}
        for tp in tps:
            low, high = first[tp], last[tp]
            assert low is not None
            assert high is not None
            start = max(low.offset, positions.get(tp.partition, 0))
            if start < high.offset:
                ranges[tp] = (start, high.offset)
        return ranges

    def ends(self) -> pa.Table:
        return sample_ends(self._admin)

    def written_at(self, places: Iterable[tuple[TopicPartition, int]]) -> pa.Table:
        left = list(islice(places, PLACES_MAX))
        first = self._admin.list_offsets(dict.fromkeys((tp for tp, _ in left), "earliest"))
        found = [schema("ends").empty_table()]
        with RangeReader(**self._settings) as reader:
            while left:
                # A read takes a partition once; several groups may stand in one.
                now = dict(reversed(left))
                left = [one for one in left if now[one[0]] != one[1]]
                ranges = {tp: (at, at + 1) for tp, at in now.items() if _has(first[tp], at)}
                batches = reader.read(
                    ranges, columns=_PROBED, max_partition_fetch_bytes=PROBE_BYTES
                )
                found += [pa.table(one).rename_columns(names("ends")) for one in batches]
        return pa.concat_tables([one.cast(schema("ends")) for one in found])


def _has(first: OffsetAndTimestamp | None, offset: int) -> bool:
    return first is not None and first.offset <= offset


def sample_ends(admin: Admin) -> pa.Table:
    """Where every partition of the cluster ends at this moment; internal topics are left out."""
    topics = [name for name in admin.list_topics() if name not in INTERNAL]
    tps = [
        TopicPartition(name, one.partition)
        for name, described in (admin.describe_topics(*topics) if topics else {}).items()
        for one in described.partitions
    ]
    found = admin.list_offsets(dict.fromkeys(tps, "latest"))
    ends = {tp: one.offset for tp, one in found.items() if one is not None}
    return _ends_table(ends, time.time_ns() // 1000)


def _ends_table(ends: Mapping[TopicPartition, int], at_us: int) -> pa.Table:
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "end_offset": end, "at": at_us}
        for tp, end in sorted(ends.items())
    ]
    return pa.Table.from_pylist(rows, schema("ends"))


class LogDirectorySource:
    """The data directory of a broker, or a copy of it. Its end is one sample: the newest record's
    time, for nobody knows when a copy was made."""

    def __init__(self, directory: Path) -> None:
        self._reader = OfflineReader(str(directory))
        self._newest_us = 0

    def records(self) -> Iterator[pa.RecordBatch]:
        tps = [tp for tp in self._reader.partitions() if tp.topic == TOPIC]
        first, last = self._reader.earliest(tps), self._reader.latest(tps)
        for tp in tps:
            for data, start, end in self._reader.read(tp, first[tp], last[tp]):
                chunk = (tp.topic, tp.partition, data, start, end)
                for batch in iter_columns([chunk], columns=_COLUMNS, max_rows=BATCH_ROWS):
                    if batch.num_rows:
                        newest = pc.max(batch.column("timestamp")).value
                        self._newest_us = max(self._newest_us, newest)
                    yield batch

    def written_at(self, places: Iterable[tuple[TopicPartition, int]]) -> pa.Table:  # noqa: ARG002 - the interface names it
        return schema("ends").empty_table()

    def ends(self) -> pa.Table:
        tps = [tp for tp in self._reader.partitions() if tp.topic not in INTERNAL]
        return _ends_table(self._reader.latest(tps), self._newest_us)


class RecordedSource:
    """What a recorder kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def records(self) -> Iterator[pa.RecordBatch]:
        for batch in self._read(RECORDS_DIRECTORY, "records"):
            if batch.num_rows:
                yield batch

    def written_at(self, places: Iterable[tuple[TopicPartition, int]]) -> pa.Table:  # noqa: ARG002 - the interface names it
        return schema("ends").empty_table()

    def ends(self) -> pa.Table:
        return pa.Table.from_batches(self._read(ENDS_DIRECTORY, "ends"), schema("ends"))

    def _read(self, part: str, table: str) -> Iterator[pa.RecordBatch]:
        # Imported here: they bring pandas along if it is there, 60 MB that an exporter has no use
        # for.
        from pyarrow import dataset

        from shoal.fleet import recording_files

        with recording_files.reading(self._directory, part) as files:
            if not files:
                return
            found = dataset.dataset(files, format="parquet", exclude_invalid_files=False)
            for batch in found.to_batches(columns=names(table)):
                yield batch.cast(schema(table))


def directory_source(directory: Path) -> HistorySource:
    """A recorder's directory or a broker's, told apart by what is in it.

    Raises:
        ConfigError: it is neither.
    """
    if (directory / RECORDS_DIRECTORY).is_dir():
        return RecordedSource(directory)
    if any(directory.glob(f"{TOPIC}-*")):
        return LogDirectorySource(directory)
    if not directory.is_dir():
        raise ConfigError(f"there is no directory {directory}")
    raise ConfigError(
        f"{directory} holds neither a recording (records/) nor a broker's log ({TOPIC}-0)"
    )
