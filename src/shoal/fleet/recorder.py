"""Keeps what ``__consumer_offsets`` forgets: the topic is compacted, so its past goes away.

    DIRECTORY/records/day=2026-11-15/batch=000000042/part.parquet    raw records, by their own day
    DIRECTORY/ends/day=2026-11-15/1794…000.parquet                    samples of end offsets
    DIRECTORY/_positions.json                                        up to where records are kept
    DIRECTORY/_merging.json                                          only while files are merged

Each round reads what was written since the last one. Its files are on disk before the positions
are replaced, and files beyond the positions are removed at the next start: killed at any moment, it
goes on without losing or repeating a record. What compaction took while nobody recorded is lost.

Rule: the positions file is the only truth about what is recorded.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from shoal.errors import (
    ConfigError,
    ConnectionFailedError,
    RequestTimeoutError,
    RetriableError,
    ShoalError,
)
from shoal.fleet import durable_files, recording_files
from shoal.fleet.sources import ENDS_DIRECTORY, RECORDS_DIRECTORY, ClusterSource
from shoal.fleet.tables import schema
from shoal.records.arrow import need_arrow

if TYPE_CHECKING:
    from shoal.client.admin import Admin

POSITIONS: Final = "_positions.json"
CHECKPOINT: Final = "_checkpoint"
"""Where the Spark form keeps its progress; one directory is kept by one form."""
_LOCK: Final = "_lock"
ROWS_MAX: Final = 500_000
"""How many records are held at once, on the first day of a long topic."""
_US_PER_DAY: Final = 86_400_000_000


class RecordingProgress(NamedTuple):
    """How far a recording is."""

    cluster_id: str
    batch: int = -1
    next_offsets: Mapping[int, int] = {}


class Recorder:
    """Records one cluster into one directory; use it in a ``with`` block."""

    def __init__(self, admin: Admin, settings: Mapping[str, Any], directory: Path) -> None:
        need_arrow()
        self._source = ClusterSource(admin, settings)
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / CHECKPOINT).exists():
            raise ConfigError(f"{directory} is kept by a Spark job; choose another directory")
        self._lock: IO[str] | None = _locked(directory / _LOCK)
        cluster_id = admin.describe_cluster().cluster_id or ""
        self.progress = _read(directory / POSITIONS) or RecordingProgress(cluster_id)
        if self.progress.cluster_id != cluster_id:
            self.close()
            raise ConfigError(
                f"{directory} holds the history of cluster {self.progress.cluster_id}, "
                f"not of {cluster_id}"
            )
        self._remove_unfinished()
        recording_files.finish(directory)
        self._days = {(part, day) for part in _PARTS for day in _days(directory / part)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def round(self) -> int:
        """Keep what is new, and a sample of the ends; how many records that were."""
        total = 0
        waiting: list[pa.RecordBatch] = []
        for batch in self._source.records_after(self.progress.next_offsets):
            waiting.append(batch)
            total += batch.num_rows
            if sum(one.num_rows for one in waiting) >= ROWS_MAX:
                self._keep(waiting)
                waiting = []
        if waiting:
            self._keep(waiting)
        ends = self._source.ends()
        write_ends(self._directory, ends)
        if ends.num_rows:
            self._days.add((ENDS_DIRECTORY, day_of(ends.column("at")[0].value)))
        self._merge()
        return total

    def run(
        self,
        every_s: float,
        *,
        seen: Callable[[int], None],
        failed: Callable[[ShoalError], None],
        rounds: int | None = None,
    ) -> None:
        """Round after round, until interrupted.

        A cluster that is away is asked again in the next round; but the first must succeed.
        """
        for number in count() if rounds is None else range(rounds):
            if number:
                time.sleep(every_s)
            try:
                seen(self.round())
            except (RetriableError, ConnectionFailedError, RequestTimeoutError) as error:
                if not number:
                    raise
                failed(error)

    def _keep(self, batches: list[pa.RecordBatch]) -> None:
        """Write records, and then that they are written."""
        table = pa.Table.from_batches(batches, schema("records"))
        batch = self.progress.batch + 1
        for day, part in _by_day(table).items():
            path = self._batches(day) / f"batch={batch:09d}" / "part.parquet"
            self._days.add((RECORDS_DIRECTORY, day))
            durable_files.write_parquet(part, path)
        ends = table.group_by("partition").aggregate([("offset", "max")])
        reached = zip(*(ends.column(name).to_pylist() for name in _REACHED), strict=True)
        following = {partition: offset + 1 for partition, offset in reached}
        progress = self.progress._replace(
            batch=batch, next_offsets={**self.progress.next_offsets, **following}
        )
        durable_files.replace(self._directory / POSITIONS, json.dumps(progress._asdict()).encode())
        self.progress = progress

    def _merge(self) -> None:
        """Merge the small files of the days that were written to."""
        for part, day in sorted(self._days):
            recording_files.merge_day(self._directory, part, day)
        self._days.clear()

    def _batches(self, day: str) -> Path:
        return self._directory / RECORDS_DIRECTORY / f"day={day}"

    def _remove_unfinished(self) -> None:
        (self._directory / RECORDS_DIRECTORY).mkdir(exist_ok=True)
        (self._directory / ENDS_DIRECTORY).mkdir(exist_ok=True)
        for path in (self._directory / RECORDS_DIRECTORY).glob("day=*/batch=*"):
            if int(path.name.removeprefix("batch=")) > self.progress.batch:
                shutil.rmtree(path)


_REACHED: Final = ("partition", "offset_max")
_PARTS: Final = (RECORDS_DIRECTORY, ENDS_DIRECTORY)


def _days(part: Path) -> list[str]:
    return [one.name.removeprefix("day=") for one in part.glob("day=*")]


def _locked(path: Path) -> IO[str]:
    file = path.open("w", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(f"another recorder is at work in {path.parent}") from None
    return file


def _read(path: Path) -> RecordingProgress | None:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    offsets = {int(partition): offset for partition, offset in found["next_offsets"].items()}
    return RecordingProgress(found["cluster_id"], found["batch"], offsets)


def _by_day(table: pa.Table) -> dict[str, pa.Table]:
    days = np.asarray(table.column("timestamp").cast(pa.int64()), dtype=np.int64) // _US_PER_DAY
    return {
        day_of(int(day) * _US_PER_DAY): table.filter(pa.array(days == day))
        for day in np.unique(days)
    }


def day_of(at_us: int) -> str:
    """The UTC day of a time, as directories are named."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d")


def write_ends(directory: Path, ends: pa.Table) -> None:
    """Keep a sample; one that was taken is never repeated."""
    if not ends.num_rows:
        return
    at_us = ends.column("at")[0].value
    path = directory / ENDS_DIRECTORY / f"day={day_of(at_us)}" / f"{at_us}.parquet"
    durable_files.write_parquet(ends, path)
