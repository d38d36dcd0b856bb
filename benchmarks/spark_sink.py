"""Writing from Spark to topics, beside Spark's own Kafka connector: same Spark, same broker.

Rows of a 10-byte key and a 100-byte value, made by Spark itself, so that nothing is read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measuring import Report, Row, json_argument
from benchmarks.spark_setting import CONNECTOR, PACKAGES, broker, forms, in_turns, session
from shoal.client.admin import Admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 4_000_000
ROUNDS = 3


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    report = Report("spark_sink", PACKAGES)
    with broker() as (servers, _):
        with Admin(bootstrap_servers=servers) as admin:
            for partitions in (2, 12):
                admin.create_topic(f"o{partitions}", partitions=partitions)
        spark, has_connector = session()
        try:
            for partitions in (2, 12):
                runs = {
                    form: partial(write, spark, form, servers, f"o{partitions}")
                    for form in forms(has_connector)
                }
                took = in_turns(runs, ROUNDS)
                for unit, of in (("rows/s", "wall_s"), ("rows/CPU s, all processes", "cpu_s")):
                    rates = {form: ROWS / getattr(one, of) for form, one in took.items()}
                    report.add(
                        Row(
                            f"batch write, keyed, {partitions} partitions",
                            unit,
                            rates["shoal"],
                            rates.get("kafka"),
                            CONNECTOR,
                            ">= 1,000,000" if unit == "rows/s" else "",
                        )
                    )
        finally:
            spark.stop()
    report.finish(json_argument(arguments))


def write(spark: SparkSession, form: str, servers: str, topic: str) -> None:
    rows = spark.range(ROWS).selectExpr(
        "concat('key-', 100000 + id % 1000) as key", "repeat('v', 100) as value"
    )
    writer = rows.write.format(form).mode("append")
    writer.option("kafka.bootstrap.servers", servers).option("topic", topic).save()


if __name__ == "__main__":
    main(sys.argv[1:])
