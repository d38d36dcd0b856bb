"""Typed JSON beside ``from_json`` on the rows of Spark's own connector, on Apache Kafka.

Documents of about 100 bytes with five fields, one of them nested; every field is looked at, so
that neither side can leave one out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

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

ROWS = 2_000_000
PARTITIONS = 2
ROUNDS = 3
SCHEMA = "id bigint, user string, price double, is_new boolean, place struct<city:string,zip:int>"


def main(arguments: Sequence[str]) -> None:
    """Run it, if Apache Kafka can be had."""
    report = Report("spark_json", PACKAGES)
    try:
        kafka_jars()
    except PeerMissingError as missing:
        print(f"  not run: {missing}")
        return
    with ApacheKafka() as kafka:
        servers = kafka.bootstrap_servers
        fill(servers)
        spark, has_connector = session()
        try:
            runs = {form: partial(run, spark, form, servers) for form in forms(has_connector)}
            took = in_turns(runs, ROUNDS)
        finally:
            spark.stop()
    for unit, of in (("rows/s", "wall_s"), ("rows/CPU s, all processes", "cpu_s")):
        rates = {form: ROWS / getattr(one, of) for form, one in took.items()}
        report.add(
            Row(
                "typed JSON, five fields, 2 partitions of Apache Kafka",
                unit,
                rates["shoal"],
                rates.get("kafka"),
                f"{CONNECTOR} and from_json",
                ">= 3x",
            )
        )
    report.finish(json_argument(arguments))


def fill(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic("json", partitions=PARTITIONS)
    with Producer(bootstrap_servers=servers, acks="all") as producer:
        for start in range(0, ROWS, 100_000):
            values = [
                b'{"id":%d,"user":"user-%06d","price":%d.25,"is_new":%s,'
                b'"place":{"city":"Constantinople","zip":%d}}'
                % (n, n % 1000, n % 977, (b"true", b"false")[n % 2], 10_000 + n % 90_000)
                for n in range(start, start + 100_000)
            ]
            rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
            producer.send_arrow("json", rows, partition=start // 100_000 % PARTITIONS)
        producer.flush()


def run(spark: SparkSession, form: str, servers: str) -> None:
    """The sum of something of every field: a wrong value would show, and none is left out."""
    from pyspark.sql import functions as f

    if form == "shoal":
        options = {"valueFormat": "json", "valueSchema": SCHEMA}
        frame = read(spark, form, servers, "json", startingOffsets="earliest", **options)
        documents = frame.select("value")
    else:
        frame = read(spark, form, servers, "json", startingOffsets="earliest")
        documents = frame.select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("value"))
    (found,) = documents.select(
        f.count("value.id"),
        f.sum("value.price"),
        f.max("value.user"),
        f.count_if("value.is_new"),
        f.max("value.place.city"),
        f.sum("value.place.zip"),
    ).collect()
    assert found[0] == ROWS, found
    assert found[3] == ROWS // 2, found


if __name__ == "__main__":
    main(sys.argv[1:])
