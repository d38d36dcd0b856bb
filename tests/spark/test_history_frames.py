"""The history as Spark tables, in batches and streams: the same rows as without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.fleet.analysis import analyse, events_of, move_table, rebalance_table
from shoal.fleet.decode import decode_commits
from shoal.fleet.group_records import (
    assignment_table,
    generation_table,
    member_table,
    read_groups,
)
from shoal.fleet.lag import lag_table
from shoal.fleet.tables import schema
from tests.fleet.consumer_offsets import START_MS, Journal, tps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GROUPS = 40


def busy() -> Journal:
    """Forty groups that commit, join, leave and expire for a minute, in the order of time."""
    journal = Journal()
    for second in range(41):
        for number in range(GROUPS):
            ours = tps(f"topic-{number}", 0, 1, 2, 3)
            group, topics = f"group-{number}", [f"topic-{number}"]
            # Every second group's second member is not heard of again.
            alive = ours if number % 2 or second < 10 else ours[:2]
            if second in (0, 10, 40):
                now = {"a": ours} if second != 10 else {"a": ours[:2], "b": ours[2:]}
                generation = {0: 1, 10: 2, 40: 3}[second]
                journal.generation(
                    group, generation, now, second, topics=topics, began_s=second - 0.1
                )
                continue
            for tp in ours if second < 15 else alive:
                journal.commit(group, tp, second * 10, second)
    return journal


def samples() -> pa.Table:
    rows = [
        {
            "topic": f"topic-{number}",
            "partition": partition,
            "end_offset": 11 * second,
            "at": (START_MS + second * 1000) * 1000,
        }
        for second in range(0, 60, 5)
        for number in range(GROUPS)
        for partition in range(4)
    ]
    return pa.Table.from_pylist(rows, schema("ends"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records and samples as Parquet: three files of each, twenty seconds in a file."""
    root = tmp_path_factory.mktemp("history")
    records, ends = pa.Table.from_batches([busy().records()]), samples()
    for name, table, time in (("records", records, "timestamp"), ("ends", ends, "at")):
        (root / name).mkdir()
        seconds = np.asarray(table.column(time).cast(pa.int64())) // 1_000_000 - START_MS // 1000
        for part in range(3):
            chosen = table.filter(pa.array(np.minimum(seconds // 20, 2) == part))
            path = root / name / f"{part}.parquet"
            pq.write_table(chosen, path)
            # A stream takes files in the order of these, and three may be written in a millisecond.
            os.utime(path, (START_MS // 1000 + part, START_MS // 1000 + part))
    return root


def rows_of(frame: DataFrame | pa.Table) -> list[str]:
    table = frame if isinstance(frame, pa.Table) else frame.toArrow()
    return sorted(map(str, table.to_pylist()))


def test_every_table_is_the_same_as_without_spark(spark: SparkSession, directory: Path) -> None:
    from shoal.spark import history

    records = spark.read.parquet(str(directory / "records"))
    ends = spark.read.parquet(str(directory / "ends"))
    batch = busy().records()
    events, _ = read_groups(batch)
    done = analyse(events_of(batch)).rebalances
    commits = pa.Table.from_batches([decode_commits(batch).commits])
    expected = {
        "commits": commits,
        "generations": pa.Table.from_batches([generation_table(events)]),
        "members": pa.Table.from_batches([member_table(events)]),
        "assignments": pa.Table.from_batches([assignment_table(events)]),
        "rebalances": rebalance_table(done),
        "moves": move_table(done),
    }
    assert len(done) == 3 * GROUPS
    for name, table in expected.items():
        assert rows_of(getattr(history, name)(records)) == rows_of(table), name
    assert rows_of(history.lag(records, ends)) == rows_of(lag_table(commits, samples()))
    assert history.unreadable(records).count() == 0


def test_causes_are_there_for_every_group(spark: SparkSession, directory: Path) -> None:
    from shoal.spark import history

    found = history.rebalances(spark.read.parquet(str(directory / "records")))
    counted = {row["cause"]: row["count"] for row in found.groupBy("cause").count().collect()}
    assert counted == {
        "group started": GROUPS,
        "member joined": GROUPS,
        "member left": GROUPS // 2,
        "member expired": GROUPS // 2,
    }


def stream(spark: SparkSession, directory: Path, name: str) -> DataFrame:
    """The files one by one, as a stream."""
    kind = spark.read.parquet(str(directory / name)).schema
    reader = spark.readStream.schema(kind).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory / name))


def streamed(frame: DataFrame, name: str, tmp_path: Path) -> DataFrame:
    query = (
        frame.writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sum(p["numInputRows"] > 0 for p in query.recentProgress) >= 3
    return frame.sparkSession.table(name)


def without(rows: DataFrame, column: str) -> pa.Table:
    return rows.drop(column).toArrow()


def test_a_stream_explains_the_same_rebalances(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    from shoal.spark import history

    found = streamed(history.rebalances(stream(spark, directory, "records")), "seen", tmp_path)
    batch = history.rebalances(spark.read.parquet(str(directory / "records")))
    assert rows_of(without(found, "pause_ms")) == rows_of(without(batch, "pause_ms"))


def test_a_stream_gives_out_the_same_lag_as_soon_as_a_sample_has_settled(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    from shoal.spark import history

    lags = history.lag(stream(spark, directory, "records"), stream(spark, directory, "ends"))
    found = streamed(lags, "late", tmp_path)
    records = spark.read.parquet(str(directory / "records"))
    batch = history.lag(records, spark.read.parquet(str(directory / "ends")))
    settled = f"unix_millis(at) <= {START_MS + 45_000}"
    assert rows_of(found.toArrow()) == rows_of(batch.where(settled).toArrow())
    by_group = history.group_lag(batch).where("`group` = 'group-1'").orderBy("at").collect()
    late: list[Any] = [(row.lag, row.partitions) for row in by_group]
    assert late[-1] == (4 * (55 * 11 - 390), 4)
