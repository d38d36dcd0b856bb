"""A fleet's future as a Spark job: the same rows as without Spark."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.fleet.analysis import events_of, take
from shoal.fleet.lag import lag_table
from shoal.fleet.rehearse import BrokerOffer, read_rehearsals, rehearse_events
from shoal.fleet.tables import schema
from tests.cli.conftest import PROGRAM
from tests.fleet.consumer_offsets import START_MS, Journal
from tests.fleet.past import Past, rolling_restart
from tests.fleet.test_causes import consumer_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GROUPS = 30


def fleet() -> Journal:
    """Groups of every kind, restarted, expired and grown; one of the new protocol."""
    journal = Journal()
    kinds = ("range", "cooperative-sticky", "sticky", "mine")
    for number in range(GROUPS):
        names = [f"m{one}" for one in range(2 + number % 5)]
        past = Past(6 + number % 7, journal=journal, group=f"g{number}", assignor=kinds[number % 4])
        past.members(*names)
        rolling_restart(past, names, away_s=20 + number)
        past.expires(*names[1:])
        past.grows(20)
    for epoch in range(1, 5):
        shares = {f"n{one}": list(range(one, 8, epoch)) for one in range(epoch)}
        consumer_group(journal, epoch, shares, 100.0 * epoch)
    return journal


def ends() -> pa.Table:
    rows = [
        {
            "topic": "t",
            "partition": partition,
            "end_offset": 3 * second,
            "at": (START_MS + second * 1000) * 1000,
        }
        for second in range(0, 2_000, 400)
        for partition in range(20)
    ]
    return pa.Table.from_pylist(rows, schema("ends"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording, its records in three files."""
    root = tmp_path_factory.mktemp("rehearsals")
    records = pa.Table.from_batches([fleet().records()])
    part = records.num_rows // 3 + 1
    for number in range(3):
        place = root / "records" / "day=2026-11-16" / f"batch={number}"
        place.mkdir(parents=True)
        pq.write_table(records.slice(number * part, part), place / "part.parquet")
    place = root / "ends" / "day=2026-11-16"
    place.mkdir(parents=True)
    pq.write_table(ends(), place / "1.parquet")
    return root


def test_a_spark_job_gives_the_same_rows(spark: SparkSession, directory: Path) -> None:
    from shoal.spark import history

    offer = BrokerOffer({"group.consumer.max.size": "4"}, True)
    records, samples = history.recorded(spark, str(directory))
    found = history.rehearsals(records, history.lag(records, samples), offer=offer).toArrow()
    batch = fleet().records()
    lags = lag_table(pa.Table.from_batches([take(batch).commits]), ends())
    expected = rehearse_events(events_of(batch), lags, offer=offer)
    rows = {(row.group, row.scheme): row for row in read_rehearsals(found)}
    assert len(rows) == found.num_rows == 5 * (GROUPS + 1)
    for row in (row for part in expected for row in part):
        assert rows.pop((row.group, row.scheme)) == row
    assert rows == {}


def test_without_lags_nobody_knows_how_fast_groups_catch_up(
    spark: SparkSession, directory: Path
) -> None:
    from shoal.spark import history

    records, _ = history.recorded(spark, str(directory))
    found = history.rehearsals(records, buckets=3)
    assert found.where("catch_up_then is not null").count() == 0
    assert found.where("scheme = 'eager' and protocol = 'consumer'").count() == 1


def test_a_stream_has_no_past_to_replay(spark: SparkSession, directory: Path) -> None:
    from shoal.spark import history

    kind = spark.read.parquet(str(directory / "records")).schema
    stream = spark.readStream.schema(kind).parquet(str(directory / "records"))
    with pytest.raises(ValueError, match="the whole past"):
        history.rehearsals(stream)


def told(*arguments: str) -> object:
    """In a process of its own: the command stops its session, which is not ours to stop."""
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_gives_the_same_with_and_without_spark(directory: Path) -> None:
    command = ["fleet", "what-if", str(directory), "--json", "--group", "g1*"]
    here = told(*command)
    assert told(*command, "--spark") == here
    assert isinstance(here, dict)
    assert here["groups"] == 11
