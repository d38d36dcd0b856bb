"""The same topic from its segment files and over the network, both by ``format("shoal")``.

With all columns Spark's own conversion to rows is most of the work of either; with few columns
what is measured is the way of the records to Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.measuring import Report, Row, json_argument
from benchmarks.spark_read import to_nowhere
from benchmarks.spark_setting import PACKAGES, broker, fill, in_turns, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 8_000_000
COLUMNS = (("all columns", None), ("offset and timestamp", "offset long, timestamp timestamp"))


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    report = Report("spark_files", PACKAGES)
    with broker() as (servers, directory):
        fill(servers, "t2", partitions=2, rows=ROWS)
        spark, _ = session()
        places = {
            "files": {"logDir": directory},
            "wire": {"kafka.bootstrap.servers": servers},
        }
        try:
            for name, schema in COLUMNS:
                runs = {
                    place: lambda options=options, schema=schema: to_nowhere(
                        _read(spark, options, schema)
                    )
                    for place, options in places.items()
                }
                took = in_turns(runs, 3, warm_ups=2)
                rates = {place: ROWS / one.wall_s for place, one in took.items()}
                what = f"log directory to noop, 2 partitions, {name}"
                wire = "our network read"
                report.add(Row(what, "rows/s", rates["files"], rates["wire"], wire, ">= 1.5x"))
        finally:
            spark.stop()
    report.finish(json_argument(arguments))


def _read(spark: SparkSession, options: dict[str, str], schema: str | None) -> DataFrame:
    reader = spark.read.format("shoal").option("subscribe", "t2").options(**options)
    return (reader if schema is None else reader.schema(schema)).load()


if __name__ == "__main__":
    main(sys.argv[1:])
