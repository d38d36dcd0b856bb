"""Reading topics into Spark, beside Spark's own Kafka connector: same Spark, same broker, same run.

100-byte values with keys, ``local[cores]``, warm. Batch reads to nowhere and into an aggregate,
with 2, 12 and 200 partitions; and the same topic from its segment files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

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

# Partitions, rows, rounds, goal. Spark's connector needs half a second per task: one round at 200.
SIZES = ((2, 4_000_000, 3, "3x, 4 M"), (12, 3_000_000, 3, "5x"), (200, 1_000_000, 1, "50x"))


def to_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def to_counts(frame: DataFrame) -> None:
    to_nowhere(frame.groupBy("key").agg({"offset": "max", "*": "count"}))


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    report = Report("spark_read", PACKAGES)
    with broker() as (servers, directory):
        for partitions, rows, _, _ in SIZES:
            fill(servers, f"t{partitions}", partitions=partitions, rows=rows)
        spark, has_connector = session()
        try:
            for partitions, rows, rounds, goal in SIZES:
                for name, job in (("noop", to_nowhere), ("groupBy key", to_counts)):
                    runs = {
                        form: partial(_run, job, spark, form, servers, f"t{partitions}")
                        for form in forms(has_connector)
                    }
                    took = in_turns(runs, rounds)
                    add_rows(report, f"batch to {name}, {partitions} partitions", rows, took, goal)
            files = partial(_run_files, spark, directory, "t2")
            wire = partial(_run, to_nowhere, spark, "shoal", servers, "t2")
            took = in_turns({"files": files, "wire": wire}, SIZES[0][2])
            rows = SIZES[0][1]
            report.add(
                Row(
                    "log directory to noop, 2 partitions",
                    "rows/s",
                    rows / took["files"].wall_s,
                    rows / took["wire"].wall_s,
                    "our network read",
                    "1.5x",
                )
            )
        finally:
            spark.stop()
    report.finish(json_argument(arguments))


def _run(
    job: Callable[[DataFrame], None], spark: SparkSession, form: str, servers: str, topic: str
) -> None:
    job(read(spark, form, servers, topic))


def _run_files(spark: SparkSession, directory: str, topic: str) -> None:
    to_nowhere(
        spark.read.format("shoal").option("logDir", directory).option("subscribe", topic).load()
    )


def add_rows(report: Report, what: str, rows: int, took: dict[str, Spent], goal: str) -> None:
    """Rows per second by the clock, and per second of CPU."""
    for unit, of in (("rows/s", "wall_s"), ("rows/CPU s", "cpu_s")):
        rates = {form: rows / getattr(one, of) for form, one in took.items()}
        peer = rates.get("kafka")
        report.add(
            Row(what, unit, rates["shoal"], peer, CONNECTOR, goal if unit == "rows/s" else "")
        )


if __name__ == "__main__":
    main(sys.argv[1:])
