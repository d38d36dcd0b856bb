"""Streams beside Spark's own Kafka connector: throughput, and how long a micro-batch takes.

Throughput is measured twice: of a whole query, its start included (what a start costs has a row of
its own), and of the micro-batches of a running query that is behind, as streams which run for days
have it. A micro-batch is timed by Spark itself (``triggerExecution`` in its progress), median over
batches after a warm-up, each of the same number of new records. Same Spark, same broker, same run;
``spark_stream_kafka`` is the throughput with Apache Kafka as the broker.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

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

# Partitions and rows. Of 12 partitions no more: the connector's tasks have a cost of their own
# (half a second each with Apache Kafka), which longer ones would hide.
THROUGHPUT = ((2, 16_000_000), (12, 5_000_000))
# That cost is what the goal for 12 partitions is about: it is one of ``spark_stream_kafka``.
GOALS = {2: ">= 3x and >= 4,000,000"}
ROUNDS = 2
# So many micro-batches make up the same topics for a query that runs.
STEADY_BATCHES = 8
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
        fill_for_throughput(servers)
        for partitions, rows, batches, _ in LATENCY:
            fill(servers, f"m{partitions}", partitions=partitions, rows=rows * batches)
        spark, has_connector = session()
        try:
            throughput(report, spark, servers, forms(has_connector), GOALS)
            steady(report, spark, servers, forms(has_connector))
            latency(report, spark, servers, forms(has_connector))
            start(report, spark, servers, forms(has_connector))
        finally:
            spark.stop()
    report.finish(json_argument(arguments))


def fill_for_throughput(servers: str) -> None:
    for partitions, rows in THROUGHPUT:
        fill(servers, f"s{partitions}", partitions=partitions, rows=rows)


def throughput(
    report: Report,
    spark: SparkSession,
    servers: str,
    sources: Sequence[str],
    goals: Mapping[int, str],
    *,
    where: str = "",
) -> None:
    """Whole topics in one micro-batch each: the query with its start, and the micro-batch alone.

    The latter is what Spark itself reports as a stream's rate (``processedRowsPerSecond``).
    """
    for partitions, rows in THROUGHPUT:
        rates: dict[str, list[float]] = {form: [] for form in sources}

        def run(form: str, topic: str, rates: dict[str, list[float]]) -> None:
            batches = stream(spark, form, servers, topic, None)
            rates[form] += [one.rows / one.took_ms * 1000 for one in batches]

        runs = {form: partial(run, form, f"s{partitions}", rates) for form in sources}
        took = in_turns(runs, ROUNDS, warm_ups=2)
        goal = goals.get(partitions, "")
        what = f"stream to noop, AvailableNow, {partitions} partitions{where}"
        add_rows(report, what, rows, took, goal)
        alone = {form: statistics.median(found[-ROUNDS:]) for form, found in rates.items()}
        what = f"its micro-batch alone, {partitions} partitions{where}"
        report.add(Row(what, "rows/s", alone["shoal"], alone.get("kafka"), CONNECTOR, goal))


def steady(
    report: Report, spark: SparkSession, servers: str, sources: Sequence[str], *, where: str = ""
) -> None:
    """The same topics in micro-batches of a query that runs: without its start and first batch.

    Of each micro-batch Spark takes a tenth of a second for its checkpoint, whatever the source.
    """
    for partitions, rows in THROUGHPUT:
        each = rows // STEADY_BATCHES
        rates = {
            form: statistics.median(
                one.rows / one.took_ms * 1000
                for one in stream(spark, form, servers, f"s{partitions}", each)[1:]
            )
            for form in sources
        }
        what = f"running stream to noop, {each:,} rows over {partitions} partitions{where}"
        report.add(Row(what, "rows/s", rates["shoal"], rates.get("kafka"), CONNECTOR))


def latency(report: Report, spark: SparkSession, servers: str, sources: Sequence[str]) -> None:
    """Small micro-batches over few and many partitions."""
    for partitions, rows, _, goal in LATENCY:
        times = {form: median_ms(spark, form, servers, f"m{partitions}", rows) for form in sources}
        what = f"micro-batch of {rows:,} rows over {partitions} partitions"
        peer = times.get("kafka")
        report.add(Row(what, "ms", times["shoal"], peer, CONNECTOR, goal, higher_is_better=False))


def start(report: Report, spark: SparkSession, servers: str, sources: Sequence[str]) -> None:
    """A query of one small micro-batch from its start to its end: it starts a Python process."""
    runs = {form: partial(stream, spark, form, servers, "m2", None) for form in sources}
    took = in_turns(runs, 5)
    peer = took["kafka"].wall_s if "kafka" in took else None
    what = f"whole query of {LATENCY[-1][1] * LATENCY[-1][2]:,} rows, AvailableNow"
    report.add(Row(what, "s", took["shoal"].wall_s, peer, CONNECTOR, higher_is_better=False))


class MicroBatch(NamedTuple):
    """What Spark says of one."""

    rows: int
    took_ms: float


def stream(
    spark: SparkSession, form: str, servers: str, topic: str, rows_max: int | None
) -> list[MicroBatch]:
    """Everything in a topic once, in micro-batches."""
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
            MicroBatch(progress["numInputRows"], progress["durationMs"]["triggerExecution"])
            for progress in query.recentProgress
            if progress["numInputRows"]
        ]


def median_ms(spark: SparkSession, form: str, servers: str, topic: str, rows: int) -> float:
    """Of the micro-batches after the first third, which warms up."""
    batches = stream(spark, form, servers, topic, rows)
    return statistics.median(one.took_ms for one in batches[len(batches) // 3 :])


if __name__ == "__main__":
    main(sys.argv[1:])
