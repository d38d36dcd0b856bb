"""Streams beside Spark's own Kafka connector: throughput, and how long a micro-batch takes.

A micro-batch is timed by Spark itself (``triggerExecution`` in its progress), median over batches
after a warm-up, each of the same number of new records. Same Spark, same broker, same run.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measuring import Report, Row, json_argument
from benchmarks.spark_read import add_rows
from benchmarks.spark_setting import (
    CONNECTOR,
    PACKAGES,
    broker,
    fill,
    forms,
    in_turns,
    session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THROUGHPUT = ((2, 8_000_000, ">= 3x and >= 4,000,000"), (12, 5_000_000, ">= 5x"))
# Partitions, rows in a micro-batch, micro-batches, goal.
LATENCY = (
    (12, 50_000, 25, ">= 1x"),
    (200, 20_000, 12, ">= 3x"),
    (1000, 10_000, 8, ">= 10x"),
    (2, 200, 40, "<= 150"),
)


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    report = Report("spark_stream", PACKAGES)
    with broker() as (servers, _):
        for partitions, rows, _ in THROUGHPUT:
            fill(servers, f"s{partitions}", partitions=partitions, rows=rows)
        for partitions, rows, batches, _ in LATENCY:
            topic = f"m{partitions}"
            fill(servers, topic, partitions=partitions, rows=rows * batches)
        spark, has_connector = session()
        try:
            for partitions, rows, goal in THROUGHPUT:
                runs = {
                    form: partial(stream, spark, form, servers, f"s{partitions}", None)
                    for form in forms(has_connector)
                }
                took = in_turns(runs, 3)
                what = f"stream to noop, AvailableNow, {partitions} partitions"
                add_rows(report, what, rows, took, goal)
            for partitions, rows, _, goal in LATENCY:
                times = {
                    form: median_ms(spark, form, servers, f"m{partitions}", rows)
                    for form in forms(has_connector)
                }
                report.add(
                    Row(
                        f"micro-batch of {rows:,} rows over {partitions} partitions",
                        "ms",
                        times["shoal"],
                        times.get("kafka"),
                        CONNECTOR,
                        goal,
                        higher_is_better=False,
                    )
                )
        finally:
            spark.stop()
    report.finish(json_argument(arguments))


def stream(
    spark: SparkSession, form: str, servers: str, topic: str, rows_max: int | None
) -> list[float]:
    """Everything in a topic once; how long each micro-batch took, in milliseconds."""
    reader = (
        spark.readStream.format(form)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if rows_max is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(rows_max))
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as checkpoint:
        query = (
            reader.load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [
            progress["durationMs"]["triggerExecution"]
            for progress in query.recentProgress
            if progress["numInputRows"]
        ]


def median_ms(spark: SparkSession, form: str, servers: str, topic: str, rows: int) -> float:
    """Of the micro-batches after the first third, which warms up."""
    times = stream(spark, form, servers, topic, rows)
    return statistics.median(times[len(times) // 3 :])


if __name__ == "__main__":
    main(sys.argv[1:])
