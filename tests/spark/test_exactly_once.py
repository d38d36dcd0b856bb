"""Exactly once out of Spark: one micro-batch, end to end; then everything that may go wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shoal.client.consumer import Consumer
from tests.peers import need
from tests.peers.jars import kafka_jars
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shoal.testing.broker import Broker


def committed(topics: Topics, topic: str) -> Counter[bytes | None]:
    """What a reader of committed records sees in all of a topic."""
    ends = topics.ends(topic)
    found: Counter[bytes | None] = Counter()
    with Consumer(
        bootstrap_servers=topics.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign(list(ends))
        stable = consumer.end_offsets(list(ends))
        while any(consumer.position(tp) < stable[tp] for tp in stable):
            found.update(record.value for record in consumer.poll(0.1))
    return found


def nothing_is_open(topics: Topics, topic: str) -> bool:
    """No transaction, and readers of committed records see up to the end."""
    ends = topics.ends(topic)
    producers = topics.admin.describe_producers(list(ends))
    if any(one.start_offset is not None for ones in producers.values() for one in ones):
        return False
    with Consumer(
        bootstrap_servers=topics.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        return consumer.end_offsets(list(ends)) == ends


def until(condition: Callable[[], bool]) -> None:
    """Apache Kafka writes markers after it has answered; and machines may be busy."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[str]:
    from tests.peers.kafka import ApacheKafka

    need(kafka_jars)
    with ApacheKafka(heap="512m") as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(
    params=["shoal", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])]
)
def made(request: pytest.FixtureRequest) -> Iterator[Topics]:
    if request.param == "kafka":
        servers = request.getfixturevalue("apache_kafka")
    else:
        broker: Broker = request.getfixturevalue("broker")
        servers = broker.bootstrap_servers
    with Topics(servers, request.node.name) as topics:
        yield topics


def stream(spark: SparkSession, topics: Topics, checkpoint: Path, **options: Any) -> None:
    given = {"exactlyOnce": "true", "topic": topics.name("out"), **options}
    frame = topics.stream(
        spark, subscribe=topics.name(), startingOffsets="earliest", maxOffsetsPerTrigger=40
    ).select("key", "value")
    query = (
        frame.writeStream.format("shoal")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .options(**given)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(150)


@pytest.mark.spark
@pytest.mark.slow
def test_a_stream_is_committed_micro_batch_by_micro_batch(
    spark: SparkSession, made: Topics, tmp_path: Path
) -> None:
    topic, out = made.create(partitions=3), made.create("out", partitions=2)
    made.write_numbers(topic, range(100))
    stream(spark, made, tmp_path)
    until(lambda: nothing_is_open(made, out))
    assert committed(made, out) == Counter(str(n).encode() for n in range(100))
    made.write_numbers(topic, range(100, 130))
    stream(spark, made, tmp_path)
    until(lambda: nothing_is_open(made, out))
    assert committed(made, out) == Counter(str(n).encode() for n in range(130))


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_write_is_there_as_a_whole_or_not_at_all(spark: SparkSession, made: Topics) -> None:
    out = made.create("out", partitions=2)
    frame = spark.range(100, numPartitions=4).selectExpr("CAST(id AS STRING) AS value")

    def save(rows: Any) -> None:
        rows.write.format("shoal").mode("append").options(
            topic=out, exactlyOnce="true", **{"kafka.bootstrap.servers": made.bootstrap_servers}
        ).save()

    save(frame)
    until(lambda: nothing_is_open(made, out))
    assert committed(made, out) == Counter(str(n).encode() for n in range(100))
    bad = spark.range(100, numPartitions=4).selectExpr(
        "CASE WHEN id = 99 THEN raise_error('bad row') ELSE CAST(id AS STRING) END AS value"
    )
    with pytest.raises(Exception, match="bad row"):
        save(bad)
    # Tasks that still ran leave nothing open either: it would hold readers up for 15 minutes.
    until(lambda: nothing_is_open(made, out))
    assert committed(made, out) == Counter(str(n).encode() for n in range(100))
