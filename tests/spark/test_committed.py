"""Only what is committed: ``kafka.isolation.level=read_committed`` of batches and streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shoal.client.producer import Producer
from shoal.spark.cluster import ClusterClient, ClusterStock, source_config
from shoal.spark.options import parse_source
from shoal.types import TopicPartition
from tests.peers import PeerMissingError, need
from tests.peers.jars import kafka_jars, spark_connector_jars
from tests.spark.test_connector import frame_of
from tests.spark.test_stream import Stream
from tests.spark.topics import Topics, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from shoal.testing.broker import Broker

COMMITTED = {"kafka.isolation.level": "read_committed"}


class Transactional:
    """A topic that transactional producers write to."""

    def __init__(self, topics: Topics, *, partitions: int = 2) -> None:
        self.topics = topics
        self.topic = topics.create(partitions=partitions)
        self.tps = [TopicPartition(self.topic, number) for number in range(partitions)]
        self._made: list[Producer] = []

    def producer(self) -> Producer:
        made = Producer(
            bootstrap_servers=self.topics.bootstrap_servers,
            transactional_id=f"{self.topic}-{len(self._made)}",
            linger_ms=0,
        )
        made.init_transactions()
        self._made.append(made)
        return made

    def open(self, *numbers: int) -> Producer:
        """A transaction with a record for each number, in every partition, and not ended."""
        producer = self.producer()
        producer.begin_transaction()
        for number in numbers:
            for tp in self.tps:
                producer.send(self.topic, str(number).encode(), partition=tp.partition).result(10)
        return producer

    def fill(self) -> set[str]:
        """Several of them at once, half of them aborted; what is committed of it."""
        held = self.open(100)
        for first, commit in ((0, True), (10, False), (20, True), (30, False)):
            self.end(self.open(*range(first, first + 5)), commit=commit)
        self.topics.write_numbers(self.topic, range(200, 210))
        self.end(held, commit=False)
        return {str(n) for n in (*range(5), *range(20, 25), *range(200, 210))}

    def end(self, producer: Producer, *, commit: bool) -> None:
        """Ended, and the markers written: Apache Kafka answers before that."""
        before = self.topics.ends(self.topic)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        while self.topics.ends(self.topic) == before:
            time.sleep(0.01)

    def until_stable(self) -> None:
        while self.stable() != self.topics.ends(self.topic):
            time.sleep(0.01)

    def stable(self) -> dict[TopicPartition, int]:
        found = self.topics.admin.list_offsets(
            dict.fromkeys(self.tps, "latest"), isolation_level="read_committed"
        )
        return {tp: one.offset for tp, one in found.items() if one is not None}

    def close(self) -> None:
        for producer in self._made:
            producer.close()


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[str]:
    from tests.peers.kafka import ApacheKafka

    need(kafka_jars)
    with ApacheKafka(heap="512m") as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(
    params=["shoal", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])]
)
def made(request: pytest.FixtureRequest) -> Iterator[Transactional]:
    if request.param == "kafka":
        servers = request.getfixturevalue("apache_kafka")
    else:
        broker: Broker = request.getfixturevalue("broker")
        servers = broker.bootstrap_servers
    with Topics(servers, request.node.name) as topics:
        transactional = Transactional(topics)
        yield transactional
        transactional.close()


@pytest.fixture
def stock(made: Transactional) -> Iterator[Callable[..., ClusterStock]]:
    clients: list[ClusterClient] = []

    def of(**more: str) -> ClusterStock:
        given = {
            "kafka.bootstrap.servers": made.topics.bootstrap_servers,
            "subscribe": made.topic,
            **COMMITTED,
            **more,
        }
        options = parse_source(given, "batch")
        clients.append(ClusterClient(source_config(options.properties)))
        return ClusterStock(clients[-1], options)

    yield of
    for client in clients:
        client.close()


# --- without Spark ---


def test_the_end_is_where_the_oldest_open_transaction_begins(
    made: Transactional, stock: Callable[..., ClusterStock]
) -> None:
    made.fill()
    made.until_stable()
    before = made.topics.ends(made.topic)
    producer = made.open(1)
    made.topics.write_numbers(made.topic, range(20))
    committed = stock()
    assert committed.latest(made.tps) == before == made.stable()
    assert committed.log_ends(made.tps) == made.topics.ends(made.topic) != before
    assert stock(**{"kafka.isolation.level": "read_uncommitted"}).latest(made.tps) != before
    soon = dict.fromkeys(made.tps, int(time.time() * 1000) + 60_000)
    made.topics.write_numbers(made.topic, range(20), start_ms=soon[made.tps[0]])
    assert committed.at_times(soon) == dict.fromkeys(made.tps), "it is behind what is open"
    producer.abort_transaction()
    made.until_stable()
    assert committed.latest(made.tps) == committed.log_ends(made.tps)


# --- with Spark ---


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row["value"]).decode() for row in frame.collect())


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_shows_what_is_committed_as_sparks_own_source_does(
    spark: SparkSession, made: Transactional
) -> None:
    committed = made.fill()
    producer = made.open(900)
    options = {"subscribe": made.topic, "startingOffsets": "earliest", **COMMITTED}
    shown = made.topics.read(spark, **options)
    assert set(values(shown)) == committed
    assert len(rows_of(shown)) == 2 * 10 + 10
    everything = made.topics.read(spark, subscribe=made.topic, startingOffsets="earliest")
    assert "900" in values(everything)
    try:
        need(spark_connector_jars)
        theirs = frame_of(spark, "kafka", made.topics, options)
        assert rows_of(theirs) == rows_of(shown)
    except PeerMissingError:
        pass
    producer.commit_transaction()
    made.until_stable()
    again = made.topics.read(spark, **options)
    assert set(values(again)) == {*committed, "900"}


@pytest.mark.spark
@pytest.mark.slow
def test_a_stream_goes_as_far_as_is_committed_and_on_when_more_is(
    spark: SparkSession, made: Transactional, tmp_path: Path
) -> None:
    committed = made.fill()
    producer = made.open(900)
    options: dict[str, Any] = {
        "subscribe": made.topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 7,
        "groupId": made.topic,
        **COMMITTED,
    }
    first = Stream(made.topics.stream(spark, **options), tmp_path)
    assert {row.value.decode() for row in first.rows() if row.value} == committed
    assert len(first.rows()) == 2 * 10 + 10
    assert first.checkpointed() == made.stable()
    producer.abort_transaction()
    made.until_stable()
    made.end(made.open(901), commit=True)
    made.until_stable()
    second = Stream(made.topics.stream(spark, **options), tmp_path)
    assert {row.value for row in second.rows()} == {b"901"}
    assert second.checkpointed() == made.topics.ends(made.topic)
    assert made.topics.committed(made.topic) == second.checkpointed(), "markers are no lag"


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_that_read_uncommitted_records_goes_on_without_them(
    spark: SparkSession, made: Transactional, tmp_path: Path
) -> None:
    producer = made.open(1, 2)
    options: dict[str, Any] = {"subscribe": made.topic, "startingOffsets": "earliest"}
    before = Stream(made.topics.stream(spark, **options), tmp_path)
    assert len(before.rows()) == 4
    stands = Stream(made.topics.stream(spark, **options, **COMMITTED), tmp_path)
    assert stands.rows() == []
    producer.send(made.topic, b"3", partition=0).result(10)
    made.end(producer, commit=True)
    made.until_stable()
    after = Stream(made.topics.stream(spark, **options, **COMMITTED), tmp_path)
    assert {row.value for row in after.rows()} == {b"3"}
