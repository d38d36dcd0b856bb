"""Tables and views of a catalog: what SQL reads and writes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shoal.errors import ConfigError
from tests.spark.topics import Topics, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own, whose tables are gone afterwards."""
    own = spark.newSession()
    yield own
    for table in own.catalog.listTables():
        kind = "VIEW" if table.isTemporary else "TABLE"
        own.sql(f"DROP {kind} IF EXISTS {table.name}")


def test_a_table_is_created_filled_and_read(sql: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    sql.sql(f"""
        CREATE TABLE orders USING shoal COMMENT 'all orders' TBLPROPERTIES ('team' = 'billing')
        OPTIONS ('kafka.bootstrap.servers' = '{topics.bootstrap_servers}', topic '{topic}')
    """)
    sql.sql("INSERT INTO orders (key, value) VALUES (binary('k'), binary('v'))")
    sql.sql("INSERT INTO orders (value) VALUES (binary(''))")
    sql.sql(
        "INSERT INTO orders (value) SELECT concat(value, binary('2')) FROM orders WHERE offset = 0"
    )
    read = sql.sql("SELECT key, value, offset FROM orders ORDER BY offset").collect()
    assert [(row.key and bytes(row.key), bytes(row.value), row.offset) for row in read] == [
        (b"k", b"v", 0),
        (None, b"", 1),
        (None, b"v2", 2),
    ]
    assert sql.table("orders").where("offset > 0").count() == 2
    query = (
        sql.readStream.table("orders")
        .writeStream.format("memory")
        .queryName("orders_seen")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)


def test_a_view_is_read_and_written(sql: SparkSession, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    sql.sql(f"""
        CREATE TEMPORARY VIEW clicks USING shoal OPTIONS (
            'kafka.bootstrap.servers' = '{topics.bootstrap_servers}',
            subscribe '{topic}', topic '{topic}'
        )
    """)
    sql.sql("INSERT INTO clicks (value, partition) VALUES (binary('v'), 1)")
    assert [(row.partition, row.value) for row in rows_of(sql.table("clicks"))] == [(1, b"v")]


def test_what_sql_cannot_do_is_said_in_the_first_line(sql: SparkSession, topics: Topics) -> None:
    from pyspark.errors import PySparkException

    topic = topics.create()
    options = f"'kafka.bootstrap.servers' = '{topics.bootstrap_servers}', topic '{topic}'"
    sql.sql(f"CREATE TABLE events USING shoal OPTIONS ({options})")
    sql.sql(f"CREATE TABLE listed (key string, value string) USING shoal OPTIONS ({options})")

    def refusal(statement: str) -> str:
        with pytest.raises(PySparkException) as refused:
            sql.sql(statement).collect()
        return str(refused.value).partition("Traceback (most recent")[0]

    assert "column 'offset' is not part of a record" in refusal(
        "INSERT INTO events (value, offset) VALUES (binary('v'), 3)"
    )
    assert "column 'offset' is the broker's to decide" in refusal(
        "INSERT INTO events (value, offset) SELECT binary('v'), nullif(id, 0) FROM range(1, 2)"
    )
    assert "a topic cannot be overwritten" in refusal(
        "INSERT OVERWRITE events (value) VALUES (binary('v'))"
    )
    assert "leave the columns out of CREATE TABLE" in refusal("SELECT * FROM listed")
    assert "would be kept in the catalog" in refusal(
        f"CREATE TABLE secret USING shoal OPTIONS ({options}, 'kafka.sasl.password' 'x')"
    )
    sql.sql(f"INSERT INTO listed WITH ({options.replace('topic ', 'topic=')}) VALUES ('k', 'v')")
    assert sum(topics.ends(topic).values()) == 1


def test_a_stream_creates_its_topic_or_fails_within_a_second(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    from shoal.broker.config import BrokerConfig, TopicDefaults
    from shoal.spark.cluster import ClusterClient, sink_config
    from shoal.testing.broker import Broker

    source = topics.create()
    topics.write_numbers(source, range(5))
    frame = topics.stream(spark, subscribe=source, startingOffsets="earliest")

    def run(bootstrap_servers: str, topic: str) -> None:
        query = (
            frame.select("value")
            .writeStream.format("shoal")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / topic))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    run(topics.bootstrap_servers, topics.name("created"))
    assert sum(topics.ends(topics.name("created")).values()) == 5
    strict = BrokerConfig(topics=TopicDefaults(auto_create=False))
    with Broker(config=strict) as broker:
        advice = "create it first: shoal topic create never"
        with pytest.raises(StreamingQueryException, match=advice):
            run(broker.bootstrap_servers, "never")
        client = ClusterClient(sink_config({"bootstrap.servers": broker.bootstrap_servers}))
        start = time.monotonic()
        with pytest.raises(ConfigError, match=advice):
            client.need_topic("never")
        took_s = time.monotonic() - start
        client.close()
    assert took_s < 2
