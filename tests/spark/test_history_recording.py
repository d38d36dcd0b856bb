"""The recorder as a Spark job, and what Spark reads of a recording while it is merged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shoal.errors import ConfigError
from shoal.fleet import recording_files
from shoal.testing.broker import Broker
from tests.fleet.test_recorder import cluster, commit, in_directory, in_topic
from tests.fleet.test_recording_files import (
    ALL,
    DAY,
    FILES,
    dying,
    few_files,
    recording_of_five,
)

pytest.importorskip("pyspark")

from shoal.spark.history import recording

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cluster", "few_files", "recording_of_five"]  # fixtures
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_spark_job_killed_between_its_write_and_sparks_commit_repeats_nothing(
    spark: SparkSession, cluster: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shoal.spark import history

    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}

    def run() -> None:
        history.record(spark, str(tmp_path), options, every=None).awaitTermination()

    commit(cluster, "a", 1)
    run()
    commit(cluster, "b", 2)
    with monkeypatch.context() as patch:
        # The records are written, and then the job fails: Spark will repeat the micro-batch.
        patch.setattr(recording, "_sample", lambda *_: 1 / 0)
        with pytest.raises(Exception, match="division by zero"):
            run()
    commit(cluster, "c", 3)
    run()
    assert in_directory(tmp_path) == in_topic(cluster)
    records, ends = history.recorded(spark, str(tmp_path))
    assert records.count() == len(in_topic(cluster))
    assert ends.select("topic", "partition").distinct().count() == 4
    late = history.lag(records, ends)
    assert {row.group for row in late.select("group").distinct().collect()} == {"a", "b", "c"}
    (tmp_path / "_positions.json").write_text("{}")
    with pytest.raises(ConfigError, match="kept by `shoal fleet record`"):
        history.record(spark, str(tmp_path), options)


@pytest.mark.parametrize("dies_at", [3, 4, 6, None])
def test_spark_sees_every_record_once_wherever_a_merge_stopped(
    spark: SparkSession,
    recording_of_five: Path,
    monkeypatch: pytest.MonkeyPatch,
    dies_at: int | None,
) -> None:
    """Before the new file, before it is valid, among the removals, and not at all."""
    with monkeypatch.context() as patch:
        if dies_at is not None:
            dying(patch, dies_at, after=False)
        try:
            recording_files.merge_day(recording_of_five, "records", DAY)
        except SystemExit:
            assert recording_files.under_way(recording_of_five) is not None
    for place in (str(recording_of_five), recording_of_five.as_uri()):
        records, ends = recording.recorded(spark, place)
        assert sorted(row.offset for row in records.select("offset").collect()) == ALL[0]
        assert ends.count() == FILES
