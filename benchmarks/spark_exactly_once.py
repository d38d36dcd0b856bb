"""Exactly once out of Spark beside the at-least-once sink of Spark's own connector.

Topic to topic through the same source, so that only the sinks differ: rows of a 10-byte key and a
100-byte value, in one large micro-batch, and in many of 10,000 rows as Spark times them. And the
source: a topic written in transactions, of which every tenth was aborted, with both isolation
levels. On Apache Kafka if it can be had, on our broker with ``--ours``. ``--rows N`` makes the
large ones smaller, ``--rounds N`` the run shorter.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.peers.cache import PeerMissingError
from tests.peers.jars import kafka_jars
from tests.peers.kafka import ApacheKafka

from benchmarks.measuring import Report, Row, json_argument
from benchmarks.spark_setting import (
    CONNECTOR,
    KEYS,
    PACKAGES,
    broker,
    fill,
    forms,
    in_turns,
    read,
    session,
)
from benchmarks.spark_stream import MicroBatch
from shoal.client.admin import Admin
from shoal.client.producer import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 4_000_000
ROUNDS = 3
PARTITIONS = 2
SMALL_ROWS, SMALL_BATCHES = 10_000, 15
TRANSACTION_ROWS = 20_000
EXACTLY_ONCE = {"exactlyOnce": "true"}


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    rows, rounds = given(arguments, "--rows", ROWS), given(arguments, "--rounds", ROUNDS)
    report = Report("spark_exactly_once", PACKAGES)
    with best_broker(ours="--ours" in arguments) as (servers, where):
        fill(servers, "large", partitions=PARTITIONS, rows=rows)
        fill(servers, "small", partitions=PARTITIONS, rows=SMALL_ROWS * SMALL_BATCHES)
        fill_in_transactions(servers, "transactional", rows)
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic("out", partitions=PARTITIONS)
        spark, has_connector = session()
        try:
            sinks = forms(has_connector)
            throughput(report, spark, servers, sinks, (rows, rounds), where)
            latency(report, spark, servers, sinks, where)
            committed(report, spark, servers, (rows, rounds), where)
        finally:
            spark.stop()
    report.finish(json_argument(arguments))


def given(arguments: Sequence[str], name: str, otherwise: int) -> int:
    return int(arguments[arguments.index(name) + 1]) if name in arguments else otherwise


@contextmanager
def best_broker(*, ours: bool) -> Iterator[tuple[str, str]]:
    """Apache Kafka, or else our broker; its address, and what to say of it."""
    if not ours:
        try:
            kafka_jars()
        except PeerMissingError as missing:
            print(f"  on our broker: {missing}")
            ours = True
    if ours:
        with broker() as (servers, _):
            yield servers, ""
    else:
        with ApacheKafka() as kafka:
            yield kafka.bootstrap_servers, " of Apache Kafka"


def fill_in_transactions(servers: str, topic: str, rows: int) -> None:
    """So many committed rows, and a ninth of that aborted."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    keys = [b"key-%06d" % (number % KEYS) for number in range(TRANSACTION_ROWS)]
    values = [b"v" * 100] * TRANSACTION_ROWS
    data = pa.RecordBatch.from_pydict({"key": pa.array(keys), "value": pa.array(values)})
    with Producer(bootstrap_servers=servers, transactional_id="fill") as producer:
        producer.init_transactions()
        for number in range(rows // TRANSACTION_ROWS):
            for is_committed in (True, False) if number % 9 == 0 else (True,):
                producer.begin_transaction()
                producer.send_arrow(topic, data)
                (producer.commit_transaction if is_committed else producer.abort_transaction)()


def throughput(
    report: Report,
    spark: SparkSession,
    servers: str,
    sinks: Sequence[str],
    size: tuple[int, int],
    where: str,
) -> None:
    rows, rounds = size
    runs = {sink: partial(copy, spark, sink, servers, "large", rows) for sink in sinks}
    took = in_turns(runs, rounds)
    for unit, of in (("rows/s", "wall_s"), ("rows/CPU s, all processes", "cpu_s")):
        rates = {sink: rows / getattr(one, of) for sink, one in took.items()}
        what = f"exactly-once sink, {PARTITIONS} partitions{where}"
        peer = rates.get("kafka")
        report.add(Row(what, unit, rates["shoal"], peer, f"{CONNECTOR}, at least once", ">= 1x"))


def latency(
    report: Report, spark: SparkSession, servers: str, sinks: Sequence[str], where: str
) -> None:
    times: dict[str, list[int]] = {sink: [] for sink in sinks}
    for is_warm in (False, True, True):
        for sink in sinks:
            batches = copy(spark, sink, servers, "small", SMALL_ROWS)
            if is_warm:
                times[sink] += [one.took_ms for one in batches[len(batches) // 3 :]]
    medians = {sink: statistics.median(found) for sink, found in times.items()}
    what = f"exactly-once micro-batch of {SMALL_ROWS:,} rows, {PARTITIONS} partitions{where}"
    report.add(
        Row(
            what,
            "ms",
            medians["shoal"],
            medians.get("kafka"),
            f"{CONNECTOR}, at least once",
            ">= 0.67x",  # 1.5 times its time
            higher_is_better=False,
        )
    )


def committed(
    report: Report, spark: SparkSession, servers: str, size: tuple[int, int], where: str
) -> None:
    rows, rounds = size

    def run(level: str) -> None:
        frame = read(spark, "shoal", servers, "transactional", **{"kafka.isolation.level": level})
        frame.write.format("noop").mode("overwrite").save()

    levels = ("read_committed", "read_uncommitted")
    took = in_turns({level: partial(run, level) for level in levels}, rounds)
    # Both fetch all records; the first leaves out a tenth of them.
    for unit, of in (("records/s", "wall_s"), ("records/CPU s, all processes", "cpu_s")):
        committed, every = (rows * 10 / 9 / getattr(took[level], of) for level in levels)
        what = f"source, read_committed, a tenth aborted, {PARTITIONS} partitions{where}"
        report.add(Row(what, unit, committed, every, "read_uncommitted", ">= 0.95x"))


def copy(
    spark: SparkSession, sink: str, servers: str, topic: str, rows_max: int
) -> list[MicroBatch]:
    """All of a topic to another one; the micro-batches as Spark tells them."""
    frame = (
        spark.readStream.format("shoal")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(rows_max))
        .schema("key binary, value binary")
        .load()
    )
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as checkpoint:
        query = (
            frame.writeStream.format(sink)
            .option("kafka.bootstrap.servers", servers)
            .option("topic", "out")
            .options(**(EXACTLY_ONCE if sink == "shoal" else {}))
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


if __name__ == "__main__":
    main(sys.argv[1:])
