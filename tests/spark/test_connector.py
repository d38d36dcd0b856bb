"""Beside Spark's own Kafka connector: the same rows for the same options, on both brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.peers import need
from tests.peers.jars import kafka_jars, spark_connector_jars
from tests.peers.kafka import ApacheKafka
from tests.spark.test_source import ODD_RECORDS
from tests.spark.topics import START_MS, Row, Topics, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from shoal.testing.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[ApacheKafka]:
    need(kafka_jars)
    with ApacheKafka() as kafka:
        yield kafka


@pytest.fixture(params=["shoal", "apache kafka"])
def filled(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Topics]:
    """A topic of odd records in all codecs, on our broker and on Apache Kafka."""
    need(spark_connector_jars)
    if request.param == "shoal":
        servers = broker.bootstrap_servers
    else:
        servers = request.getfixturevalue("apache_kafka").bootstrap_servers
    with Topics(servers, f"{request.node.name}") as topics:
        topic = topics.create(partitions=3)
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            topics.write(topic, ODD_RECORDS, partition=number % 3, codec=codec)
            topics.write_numbers(topic, range(100), codec=codec)
        yield topics


def frame_of(spark: SparkSession, form: str, topics: Topics, options: dict[str, Any]) -> DataFrame:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", topics.bootstrap_servers)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def nullable(schema: StructType) -> StructType:
    """The same with nulls allowed: ours says where there are none, the connector's does not."""
    from pyspark.sql.types import StructField, StructType

    never = {field.name for field in schema if not field.nullable}
    assert never == {"topic", "partition", "offset", "timestamp", "timestampType"}
    return StructType([StructField(field.name, field.dataType) for field in schema])


def test_batches_are_equal_for_every_option_both_have(spark: SparkSession, filled: Topics) -> None:
    topic = filled.name()
    offsets = {"0": 3, "1": -2, "2": 5}
    cases: list[dict[str, Any]] = [
        {"subscribe": topic, "includeHeaders": True},
        {"subscribePattern": topic.replace(".", r"\.")},
        {"assign": json.dumps({topic: [0, 2]})},
        {"subscribe": topic, "startingOffsets": json.dumps({topic: offsets})},
        {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 9, "1": -1, "2": 20}})},
        {"subscribe": topic, "startingTimestamp": START_MS + 50},
        {"subscribe": topic, "endingTimestamp": START_MS + 50},
        {
            "subscribe": topic,
            "startingOffsetsByTimestamp": json.dumps({topic: dict.fromkeys("012", START_MS + 7)}),
            "endingOffsetsByTimestamp": json.dumps({topic: dict.fromkeys("012", START_MS + 70)}),
        },
        {"subscribe": topic, "minPartitions": 11, "failOnDataLoss": False},
        {"subscribe": topic, "maxRecordsPerPartition": 17},
        {"subscribe": topic, "kafka.fetch.max.bytes": 4096, "groupIdPrefix": "old-"},
    ]
    for options in cases:
        ours = frame_of(spark, "shoal", filled, options)
        theirs = frame_of(spark, "kafka", filled, options)
        assert nullable(ours.schema) == theirs.schema, options
        assert rows_of(ours) == rows_of(theirs), options


def test_streams_are_equal_and_end_at_the_same_offset(
    spark: SparkSession, filled: Topics, tmp_path: Path
) -> None:
    topic = filled.name()
    shown: dict[str, list[Row]] = {}
    ends: dict[str, Any] = {}
    for form in ("shoal", "kafka"):
        frame = (
            spark.readStream.format(form)
            .option("kafka.bootstrap.servers", filled.bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "120")
            .option("includeHeaders", "true")
            .load()
        )
        table = f"{form}_{tmp_path.name.replace('-', '_')}"
        query = (
            frame.writeStream.format("memory")
            .queryName(table)
            .option("checkpointLocation", str(tmp_path / form))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        shown[form] = rows_of(spark.table(table))
        last = max(int(p.name) for p in (tmp_path / form / "offsets").iterdir() if p.name.isdigit())
        ends[form] = json.loads(
            (tmp_path / form / "offsets" / str(last)).read_text().splitlines()[-1]
        )
    assert shown["shoal"] == shown["kafka"]
    assert ends["shoal"] == ends["kafka"]


def test_a_checkpoint_of_the_connector_is_carried_on(
    spark: SparkSession, filled: Topics, tmp_path: Path
) -> None:
    """Changing the format name is the whole migration: the stream goes on where it stood."""
    topic = filled.name()

    def run(form: str) -> int:
        frame = (
            spark.readStream.format(form)
            .option("kafka.bootstrap.servers", filled.bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(tmp_path / "table"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return int(spark.read.parquet(str(tmp_path / "table")).count())

    before = run("kafka")
    filled.write_numbers(topic, range(37))
    assert run("shoal") == before + 37
    filled.write_numbers(topic, range(5))
    assert run("kafka") == before + 42


def test_state_of_the_connector_is_carried_on(
    spark: SparkSession, filled: Topics, tmp_path: Path
) -> None:
    """Ours calls columns never null which the state kept so far may hold nulls of."""
    topic = filled.name()

    def run(form: str, table: str) -> int:
        frame = (
            spark.readStream.format(form)
            .option("kafka.bootstrap.servers", filled.bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            frame.groupBy("topic", "partition", window("timestamp", "1 hour"), "timestampType")
            .agg(count("*").alias("rows"), max_of("offset"))
            .writeStream.format("memory")
            .queryName(table)
            .outputMode("complete")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return sum(row.rows for row in spark.table(table).collect())

    from pyspark.sql.functions import count, window
    from pyspark.sql.functions import max as max_of

    name = f"state_{tmp_path.name.replace('-', '_')}"
    before = run("kafka", f"{name}_1")
    filled.write_numbers(topic, range(37))
    assert run("shoal", f"{name}_2") == before + 37
    filled.write_numbers(topic, range(5))
    assert run("kafka", f"{name}_3") == before + 42


def test_the_group_committer_shows_the_progress_of_sparks_own_connector(
    spark: SparkSession, filled: Topics, tmp_path: Path
) -> None:
    from shoal.spark import GroupCommitter

    topic, group = filled.name(), filled.name("group")
    committer = GroupCommitter(filled.bootstrap_servers, group)
    spark.streams.addListener(committer)
    try:
        query = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", filled.bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "150")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        # Listeners are told by a bus of their own; emptying it is how Spark's own tests wait.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[union-attr]  # Java's side is not typed
        assert filled.committed(group) == filled.ends(topic)
        assert filled.admin.describe_group(group).members == ()
    finally:
        spark.streams.removeListener(committer)
