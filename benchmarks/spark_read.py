"""Reading topics into Spark, beside Spark's own Kafka connector: same Spark, same broker, same run.

100-byte values with keys, ``local[cores]``, warm. Batch reads to nowhere and into an aggregate,
with 2, 12 and 200 partitions. The broker is ours, which keeps no task of the connector waiting at
the end of its range; ``spark_read_kafka`` is the same with Apache Kafka, which does: goals for 12
and 200 partitions come from there. ``spark_files`` compares with our own read of segment files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.measuring import Report, Row, json_argument
from benchmarks.spark_setting import (
    CONNECTOR,
    PACKAGES,
    Spent,
    broker,
    fill,
    forms,
    in_turns,
    read,
    session,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Size(NamedTuple):
    """One topic, and how often it is read."""

    partitions: int
    rows: int
    warm_ups: int
    rounds: int
    goal: str


# A warm JVM needs some twenty million rows; later topics find it warm. Planning takes Spark two
# tenths of a second, so the rows of a read must be many for their rate to be that of rows.
SIZES = (
    Size(2, 12_000_000, 2, 3, ">= 3x and >= 4,000,000"),
    Size(12, 5_000_000, 1, 3, ""),
    Size(200, 2_000_000, 1, 2, ""),
)


def to_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def to_counts(frame: DataFrame) -> None:
    to_nowhere(frame.groupBy("key").agg({"offset": "max", "*": "count"}))


JOBS = (("noop", to_nowhere), ("groupBy key", to_counts))


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    report = Report("spark_read", PACKAGES)
    with broker() as (servers, _):
        compare(report, servers, SIZES, JOBS)
    report.finish(json_argument(arguments))


def compare(
    report: Report,
    servers: str,
    sizes: Sequence[Size],
    jobs: Sequence[tuple[str, Callable[[DataFrame], None]]],
    *,
    where: str = "",
) -> None:
    """Every job on every topic, with both sources in turns."""
    for size in sizes:
        fill(servers, f"t{size.partitions}", partitions=size.partitions, rows=size.rows)
    spark, has_connector = session()
    try:
        for size in sizes:
            for name, job in jobs:
                topic = f"t{size.partitions}"
                runs = {
                    form: partial(_run, job, spark, form, servers, topic)
                    for form in forms(has_connector)
                }
                took = in_turns(runs, size.rounds, warm_ups=size.warm_ups)
                what = f"batch to {name}, {size.partitions} partitions{where}"
                add_rows(report, what, size.rows, took, size.goal)
    finally:
        spark.stop()


def _run(
    job: Callable[[DataFrame], None], spark: SparkSession, form: str, servers: str, topic: str
) -> None:
    job(read(spark, form, servers, topic))


def add_rows(report: Report, what: str, rows: int, took: dict[str, Spent], goal: str) -> None:
    """Rows per second by the clock, and per second of CPU."""
    for unit, of in (("rows/s", "wall_s"), ("rows/CPU s, all processes", "cpu_s")):
        rates = {form: rows / getattr(one, of) for form, one in took.items()}
        peer = rates.get("kafka")
        report.add(
            Row(what, unit, rates["shoal"], peer, CONNECTOR, goal if unit == "rows/s" else "")
        )


if __name__ == "__main__":
    main(sys.argv[1:])
