"""Writing from Spark to topics, beside Spark's own Kafka connector: same Spark, same broker.

Rows of a 10-byte key and a 100-byte value, made by Spark itself, so that nothing is read. A third
sink, in Python, drops every row: no other Python sink can be faster. Each run has a topic of its
own and the one before is deleted, so that none writes behind what the others have left.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from benchmarks.measuring import Report, Row, json_argument
from benchmarks.spark_setting import CONNECTOR, PACKAGES, broker, forms, in_turns, session
from shoal.client.admin import Admin

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROWS = 4_000_000
ROUNDS = 3
DROP = "drop"


def main(arguments: Sequence[str]) -> None:
    """Run it."""
    report = Report("spark_sink", PACKAGES)
    with broker() as (servers, _):
        spark, has_connector = session()
        spark.dataSource.register(dropping_source())
        topics = Topics(servers)
        try:
            for partitions in (2, 12):
                runs = {
                    form: partial(write, spark, form, servers, topics, partitions)
                    for form in (*forms(has_connector), DROP)
                }
                took = in_turns(runs, ROUNDS)
                for unit, of in (("rows/s", "wall_s"), ("rows/CPU s, all processes", "cpu_s")):
                    rates = {form: ROWS / getattr(one, of) for form, one in took.items()}
                    peer = rates.get("kafka"), CONNECTOR
                    report.add(
                        Row(
                            f"batch write, keyed, {partitions} partitions",
                            unit,
                            rates["shoal"],
                            *peer,
                            ">= 3x and >= 1,000,000" if unit == "rows/s" else "",
                        )
                    )
                    what = f"a Python sink that drops every row, beside {partitions} partitions"
                    report.add(Row(what, unit, rates[DROP], *peer))
        finally:
            topics.close()
            spark.stop()
    report.finish(json_argument(arguments))


class Topics:
    """One after the other."""

    def __init__(self, servers: str) -> None:
        self._admin = Admin(bootstrap_servers=servers)
        self._numbers = count()

    def next(self, partitions: int) -> str:
        number = next(self._numbers)
        if number:
            self._admin.delete_topics(f"o{number - 1}")
        at_once = {"file.delete.delay.ms": "0"}
        self._admin.create_topic(f"o{number}", partitions=partitions, configs=at_once)
        return f"o{number}"

    def close(self) -> None:
        self._admin.close()


def write(spark: SparkSession, form: str, servers: str, topics: Topics, partitions: int) -> None:
    rows = spark.range(ROWS).selectExpr(
        "concat('key-', 100000 + id % 1000) as key", "repeat('v', 100) as value"
    )
    writer = rows.write.format(form).mode("append")
    if form != DROP:
        topic = topics.next(partitions)
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", topic)
    writer.save()


def dropping_source() -> type[DataSource]:
    """Made here, so that Spark sends the workers the classes and not where to import them."""

    class DroppingWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            for _ in iterator:
                pass
            return WriterCommitMessage()

    class Dropping(DataSource):  # type: ignore[misc]  # pyspark is not typed for us
        @classmethod
        def name(cls) -> str:
            return DROP

        def schema(self) -> str:
            return "key string, value string"

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            return DroppingWriter()

    return Dropping


if __name__ == "__main__":
    main(sys.argv[1:])
