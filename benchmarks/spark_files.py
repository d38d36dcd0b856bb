"""The same topic from its segment files and over the network, both by ``format("shoal")``.

First the reader alone, in two processes as Spark would have them: that is all the two differ in.
Then whole Spark jobs, most of which is Spark's conversion of Arrow batches to rows, the same for
both: per row of all columns it takes twice the CPU of the network read, so that such a job cannot
gain more than a fifth.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

from benchmarks.measuring import Report, Row, json_argument
from benchmarks.spark_read import to_nowhere
from benchmarks.spark_setting import PACKAGES, broker, fill, in_turns, session
from shoal.spark import process_cache
from shoal.spark.columns import TYPES
from shoal.spark.options import parse_source
from shoal.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 8_000_000
ALL = [name for name in TYPES if name != "headers"]
COLUMNS = {"all columns": ALL, "offset and timestamp": ["offset", "timestamp"]}


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    report = Report("spark_files", PACKAGES)
    with broker() as (servers, directory):
        fill(servers, "t2", partitions=2, rows=ROWS)
        settings = {
            "files": {"logDir": directory},
            "wire": {"kafka.bootstrap.servers": servers},
        }
        with ProcessPoolExecutor(2, get_context("spawn")) as workers:
            for name, columns in COLUMNS.items():
                runs = {
                    place: partial(_read_alone, workers, options, columns)
                    for place, options in settings.items()
                }
                _compare(report, f"log directory, reader alone, {name}", runs)
        spark, _ = session()
        try:
            for name, columns in COLUMNS.items():
                runs = {
                    place: partial(_read_in_spark, spark, options, columns)
                    for place, options in settings.items()
                }
                _compare(report, f"log directory to noop, 2 partitions, {name}", runs)
        finally:
            spark.stop()
    report.finish(json_argument(arguments))


def _compare(report: Report, what: str, runs: Mapping[str, Callable[[], None]]) -> None:
    took = in_turns(runs, 3, warm_ups=2)
    for unit, of in (("rows/s", "wall_s"), ("rows/CPU s, all processes", "cpu_s")):
        rates = {place: ROWS / getattr(one, of) for place, one in took.items()}
        goal = ">= 1.5x" if unit == "rows/s" else ""
        report.add(Row(what, unit, rates["files"], rates["wire"], "our network read", goal))


def _read_alone(
    workers: ProcessPoolExecutor, options: Mapping[str, str], columns: Sequence[str]
) -> None:
    counts = [workers.submit(_read_partition, options, columns, number) for number in range(2)]
    assert sum(count.result() for count in counts) == ROWS


def _read_partition(options: Mapping[str, str], columns: Sequence[str], number: int) -> int:
    stock = process_cache.stock(parse_source({**options, "subscribe": "t2"}, "batch"))
    whole = OffsetRange("t2", number, 0, ROWS // 2)
    return sum(one.num_rows for one in stock.read([whole], columns, fail_on_data_loss=True))


def _read_in_spark(spark: SparkSession, options: Mapping[str, str], columns: Sequence[str]) -> None:
    schema = ", ".join(f"{name} {TYPES[name]}" for name in columns)
    frame: DataFrame = (
        spark.read.format("shoal").option("subscribe", "t2").options(**options).schema(schema)
    ).load()
    to_nowhere(frame)


if __name__ == "__main__":
    main(sys.argv[1:])
