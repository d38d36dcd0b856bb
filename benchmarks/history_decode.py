"""How fast ``__consumer_offsets`` becomes tables, on one core and without Spark.

The peer is our own codec, record by record: what a reader without columns would do. Goal: a million
records per second and core, whatever the keys are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import pyarrow as pa

from benchmarks.history_fleet import Fleet, commit_batch
from benchmarks.measuring import Report, Row, json_argument, medians
from shoal.fleet.analysis import analyse, events_of
from shoal.fleet.decode import decode_commits
from shoal.fleet.group_records import read_groups
from shoal.fleet.lag import lag_table
from shoal.wire.offsets_topic import decode_key, decode_value

RECORDS = 400_000
ROWS = 10_000
"""What Spark hands to Python at a time."""
SAMPLE = 20_000


def by_codec(batch: pa.RecordBatch) -> list[object]:
    """The same by the codec."""
    pairs = zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    return [(name := decode_key(key), decode_value(name, value)) for key, value in pairs]  # type: ignore[arg-type]  # keys of commits only


def each(function: Callable[[pa.RecordBatch], object], batch: pa.RecordBatch) -> None:
    for start in range(0, batch.num_rows, ROWS):
        function(batch.slice(start, ROWS))


def measure(report: Report, what: str, batch: pa.RecordBatch, goal: str = "") -> None:
    part = batch.slice(0, SAMPLE)
    taken = medians({"ours": lambda: each(decode_commits, batch), "codec": lambda: by_codec(part)})
    ours, codec = batch.num_rows / taken["ours"], part.num_rows / taken["codec"]
    report.add(Row(what, "records/s", ours, codec, "codec, one by one", goal=goal))


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    report = Report("history_decode", ("pyarrow", "numpy"))
    for groups in (50, 5_000):
        what = f"commits of {groups:,} groups x 20 partitions"
        measure(report, what, commit_batch(groups, 20, RECORDS), ">= 1,000,000")
    measure(
        report,
        "commits with metadata of 40 characters",
        commit_batch(50, 20, RECORDS, metadata="x" * 40),
        ">= 1,000,000",
    )
    fleet = Fleet(groups=500, partitions=20, generations=5, commits=10)
    records, groups, ends = fleet.records(), fleet.group_records(), fleet.ends()
    events = events_of(records)
    commits = pa.Table.from_batches([decode_commits(records).commits])
    taken = medians(
        {
            "events": lambda: each(events_of, records),
            "groups": lambda: read_groups(groups),
            "analysis": lambda: analyse(events),
            "lag": lambda: lag_table(commits, ends),
        },
        rounds=3,
    )
    for what, unit, count, name in (
        ("commits and group records, one in 41", "records/s", records.num_rows, "events"),
        ("group records alone, four members", "records/s", groups.num_rows, "groups"),
        ("rebalances explained", "rebalances/s", groups.num_rows, "analysis"),
        ("lag in records and seconds", "rows/s", fleet.lag_rows, "lag"),
    ):
        report.add(Row(what, unit, count / taken[name]))
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
