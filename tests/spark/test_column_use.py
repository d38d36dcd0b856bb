"""Columns that a query reads for nothing are named, on a real session; used ones never are."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 150.0


def test_a_dataframe_knows_what_it_reads_for_nothing(spark: SparkSession, topics: Topics) -> None:
    from shoal.spark import unused_columns

    topic = topics.create(partitions=1)
    topics.write_numbers(topic, range(3))
    frame = topics.read(spark, subscribe=topic)
    rest = ["key", "topic", "partition", "timestamp", "timestampType"]
    assert unused_columns(frame.select("value").where("offset > 1")) == rest
    # What only a filter, a join or an aggregate looks at is used.
    other = frame.selectExpr("key as k", "partition as p")
    joined = frame.join(other, frame.key == other.k).groupBy("topic").agg({"offset": "max"})
    left = ["value", "partition", "timestamp", "timestampType"]
    assert sorted(unused_columns(joined)) == sorted([*left, *left, "topic", "offset"])
    assert unused_columns(frame) == []
    assert unused_columns(spark.range(3).selectExpr("id + 1")) == []
    builder = spark.read.format("shoal").schema("value binary, offset bigint")
    builder = builder.option("kafka.bootstrap.servers", topics.bootstrap_servers)
    named = builder.option("subscribe", topic).load()
    assert unused_columns(named.select("value").where("offset > 1")) == []


def test_the_listener_says_once_what_a_query_does_not_use(
    spark: SparkSession, topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from shoal.spark import QueryMetrics

    topic = topics.create(partitions=1)
    topics.write_numbers(topic, range(10))
    seen: list[int] = []
    with (
        caplog.at_level(logging.WARNING, "shoal.spark.query_metrics"),
        QueryMetrics(spark, lambda metrics: seen.append(metrics.rows)) as metrics,
    ):
        spark.streams.addListener(metrics)
        try:
            frame = topics.stream(
                spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5
            )
            writer = frame.select("value").writeStream.format("noop").queryName("narrow")
            query = writer.option("checkpointLocation", str(tmp_path)).start()
            deadline = time.monotonic() + PATIENCE_S
            while sum(seen) < 10:
                assert query.exception() is None
                assert time.monotonic() < deadline, "the metrics did not come"
                time.sleep(0.05)
            query.stop()
        finally:
            spark.streams.removeListener(metrics)
    told = [each.getMessage() for each in caplog.records if "nothing uses" in each.getMessage()]
    assert len(told) == 1
    assert "narrow" in told[0]
    assert "key, topic, partition, offset, timestamp, timestampType" in told[0]
