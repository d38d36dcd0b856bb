"""What a stream carries from one micro-batch to the next, bucket by bucket.

Rule: a step takes what was carried and what is new, both as Arrow, and gives back rows and the next
carry. It does not know Spark; ``frames.py`` puts it into a stateful operator.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from shoal.fleet.analysis import analyse, move_table, rebalance_table
from shoal.fleet.lag import lag_table, last_of_series
from shoal.fleet.tables import schema
from shoal.spark.history.packing import from_bytes, to_bytes

SETTLE_US: Final = 10_000_000
"""How long a sample waits for commits that were made before it."""
_CELLS: Final = 8
"""Samples kept grow sparser with age: about so many for each e-fold of seconds."""


class StreamStep(NamedTuple):
    """Rows to give out, and what the next step needs."""

    rows: pa.Table
    carry: bytes


def rebalance_step(payloads: dict[str, list[bytes]], carried: bytes | None) -> StreamStep:
    """Rebalances among new events."""
    done = _analysed(payloads, carried)
    return StreamStep(rebalance_table(done.rebalances), to_bytes(done.carry))


def move_step(payloads: dict[str, list[bytes]], carried: bytes | None) -> StreamStep:
    """Partitions that moved, among new events."""
    done = _analysed(payloads, carried)
    return StreamStep(move_table(done.rebalances), to_bytes(done.carry))


def _analysed(payloads: dict[str, list[bytes]], carried: bytes | None) -> Any:
    before = from_bytes([carried], "events") if carried else None
    return analyse(from_bytes(payloads.get("events", ()), "events"), before)


def lag_step(payloads: dict[str, list[bytes]], carried: bytes | None) -> StreamStep:
    """Lag at the samples that have settled: nothing older than them is expected any more."""
    old = _Carried.of(carried)
    commits = pa.concat_tables([old.commits, from_bytes(payloads.get("commits", ()), "commits")])
    ends = pa.concat_tables([old.ends, from_bytes(payloads.get("ends", ()), "ends")])
    horizon = max(_latest(commits, "log_time"), _latest(ends, "at")) - SETTLE_US
    at = _us(ends.column("at"))
    due = (at > old.horizon) & (at <= horizon)
    # Older samples tell since when a group is behind; they have been given out before.
    rows = lag_table(commits, ends.filter(pa.array(at <= horizon)))
    rows = rows.filter(pa.array(_us(rows.column("at")) > old.horizon)) if due.any() else rows[:0]
    kept = _Carried(last_of_series(commits, horizon), _thinned(ends, horizon), horizon)
    return StreamStep(rows, kept.to_bytes())


class _Carried(NamedTuple):
    commits: pa.Table
    ends: pa.Table
    horizon: int

    @classmethod
    def of(cls, carried: bytes | None) -> _Carried:
        if carried is None:
            return cls(schema("commits").empty_table(), schema("ends").empty_table(), 0)

        source = pa.BufferReader(carried)
        commits = pa.ipc.open_stream(source).read_all()
        ends = pa.ipc.open_stream(source).read_all()
        return cls(commits, ends, int(ends.schema.metadata[b"horizon"]))

    def to_bytes(self) -> bytes:
        stamped = self.ends.replace_schema_metadata({b"horizon": str(self.horizon).encode()})
        return to_bytes(self.commits) + to_bytes(stamped)


def _thinned(ends: pa.Table, horizon: int) -> pa.Table:
    """All samples of late, and of older ones the first of each stretch of time."""
    at = _us(ends.column("at"))
    age_s = np.maximum(horizon - at, 0) / 1e6
    cell = np.where(at > horizon, -1 - np.arange(len(at)), (_CELLS * np.log1p(age_s)).astype(int))
    keyed = ends.select(["topic", "partition"]).append_column("cell", pa.array(cell))
    keyed = keyed.append_column("at", pa.array(at)).append_column(
        "row", pa.array(np.arange(len(at)))
    )
    keyed = keyed.sort_by([("at", "ascending")])
    first = keyed.group_by(["topic", "partition", "cell"], use_threads=False)
    rows = first.aggregate([("row", "first")]).column("row_first")
    return ends.take(rows).replace_schema_metadata(None)


def _latest(table: pa.Table, column: str) -> int:
    return int(_us(table.column(column)).max(initial=0))


def _us(column: Any) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(column.cast(pa.int64()), dtype=np.int64)
