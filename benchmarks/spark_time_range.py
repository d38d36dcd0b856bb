"""One percent of a topic by its time, beside Spark's own connector with the same two times.

Ten million records of the last hundred minutes; one minute of them is read. Both find its offsets
by the broker's time index, so what differs is the read and what surrounds it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from tests.peers.cache import PeerMissingError
from tests.peers.jars import kafka_jars
from tests.peers.kafka import ApacheKafka

from benchmarks.measuring import Report, Row, json_argument
from benchmarks.spark_setting import CONNECTOR, PACKAGES, forms, in_turns, read, session
from shoal.client.admin import Admin
from shoal.client.producer import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10_000_000
PARTITIONS = 12
ROUNDS = 5
SPAN_MS = 100 * 60_000


def main(arguments: Sequence[str]) -> None:
    """Run it, if Apache Kafka can be had."""
    report = Report("spark_time_range", PACKAGES)
    try:
        kafka_jars()
    except PeerMissingError as missing:
        print(f"  not run: {missing}")
        return
    with ApacheKafka() as kafka:
        servers = kafka.bootstrap_servers
        first_ms = int(time.time() * 1000) - SPAN_MS
        fill(servers, first_ms)
        start_ms = first_ms + SPAN_MS // 2
        spark, has_connector = session()
        try:
            runs = {
                form: partial(run, spark, form, servers, start_ms) for form in forms(has_connector)
            }
            took = in_turns(runs, ROUNDS)
        finally:
            spark.stop()
    for unit, of in (("s", "wall_s"), ("s of CPU, all processes", "cpu_s")):
        spent = {form: getattr(one, of) for form, one in took.items()}
        report.add(
            Row(
                "1 % of a topic by its time, 12 partitions of Apache Kafka",
                unit,
                spent["shoal"],
                spent.get("kafka"),
                CONNECTOR,
                ">= 3x",
                higher_is_better=False,
            )
        )
    report.finish(json_argument(arguments))


def fill(servers: str, first_ms: int) -> None:
    """Every partition gets records of every time, in order."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic("times", partitions=PARTITIONS)
    each = ROWS // PARTITIONS
    stamps = first_ms + np.arange(each, dtype=np.int64) * SPAN_MS // each
    with Producer(bootstrap_servers=servers, acks="all") as producer:
        for partition in range(PARTITIONS):
            for start in range(0, each, 100_000):
                times = stamps[start : start + 100_000]
                rows = pa.RecordBatch.from_pydict(
                    {
                        "value": pa.array([b"v" * 100] * len(times), pa.binary()),
                        "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
                    }
                )
                producer.send_arrow("times", rows, partition=partition)
            producer.flush()


def run(spark: SparkSession, form: str, servers: str, start_ms: int) -> None:
    times = {
        "startingTimestamp": str(start_ms),
        "endingTimestamp": str(start_ms + SPAN_MS // 100),
    }
    frame = read(spark, form, servers, "times", **times)
    found = frame.selectExpr("count(value)", "min(timestamp)", "max(timestamp)").first()
    assert found is not None
    assert abs(found[0] - ROWS // 100) <= PARTITIONS, found


if __name__ == "__main__":
    main(sys.argv[1:])
