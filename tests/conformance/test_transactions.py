"""Other clients' transactional producers on our broker, and Apache Kafka's tools around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from tests.broker.raw_client import RawClient
from tests.broker.transactional import Transactional, committed_offset, end_offset, read
from tests.conformance.client import until
from tests.peers import need
from tests.peers.clients import npm_clients, run_node
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    # Their sockets and threads are theirs.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(scope="module", params=["os", "group"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(durability=request.param) as running:
        yield running


def confluent(servers: str, topic: str, group: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"confluent-{topic}"})
    producer.init_transactions(30)
    for value, commit in ((b"a", True), (b"b", False)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    producer.begin_transaction()
    producer.produce(topic, b"c", partition=0)
    offsets = [TopicPartition(topic, 0, 7)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    consumer.close()


def kafka_python(servers: str, topic: str, group: str) -> None:
    from kafka import KafkaProducer
    from kafka.structs import OffsetAndMetadata, TopicPartition

    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=f"kafka-python-{topic}")
    producer.init_transactions()
    for value, commit in ((b"a", True), (b"b", False)):
        producer.begin_transaction()
        producer.send(topic, value, partition=0).get(30)
        (producer.commit_transaction if commit else producer.abort_transaction)()
    producer.begin_transaction()
    producer.send(topic, b"c", partition=0)
    position = OffsetAndMetadata(7, "", -1)
    producer.send_offsets_to_transaction({TopicPartition(topic, 0): position}, group)
    producer.commit_transaction()
    producer.close()


def aiokafka(servers: str, topic: str, group: str) -> None:
    from aiokafka import AIOKafkaProducer, TopicPartition

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"aiokafka-{topic}")
        await producer.start()
        for value, commit in ((b"a", True), (b"b", False)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, partition=0)
            await (producer.commit_transaction if commit else producer.abort_transaction)()
        await producer.begin_transaction()
        await producer.send(topic, b"c", partition=0)
        await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 7}, group)
        await producer.commit_transaction()
        await producer.stop()

    asyncio.run(run())


def kafkajs(servers: str, topic: str, group: str) -> None:
    need(npm_clients)
    run_node(SCRIPTS / "kafkajs_transactions.js", servers, topic, group)


def shoal(servers: str, topic: str, group: str) -> None:
    from shoal import Consumer, OffsetAndMetadata, Producer, TopicPartition

    with Producer(bootstrap_servers=servers, transactional_id=f"shoal-{topic}") as producer:
        producer.init_transactions()
        for value, commit in ((b"a", True), (b"b", False)):
            producer.begin_transaction()
            producer.send(topic, value, partition=0).result(30)
            (producer.commit_transaction if commit else producer.abort_transaction)()
        producer.begin_transaction()
        producer.send(topic, b"c", partition=0)
        with Consumer(bootstrap_servers=servers, group_id=group) as consumer:
            offsets = {TopicPartition(topic, 0): OffsetAndMetadata(7)}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()


@pytest.mark.parametrize(
    "client",
    [confluent, kafka_python, aiokafka, kafkajs, shoal],
    ids=lambda client: client.__name__,
)
def test_commits_aborts_and_sends_offsets(
    broker: Broker, client: Callable[[str, str, str], None]
) -> None:
    topic = f"of-{client.__name__}"
    broker.create_topic(topic)
    client(broker.bootstrap_servers, topic, f"group-{topic}")
    with RawClient(broker.port) as raw:
        until(lambda: end_offset(raw, topic, committed=True) == 6, "three markers")
        assert read(raw, topic) == [b"a", b"c"]
        assert read(raw, topic, committed=False) == [b"a", b"b", b"c"]
        until(
            lambda: (
                committed_offset(raw, f"group-{topic}", topic, require_stable=True)
                == (7, ErrorCode.NONE)
            ),
            "stable offsets",
        )


@pytest.mark.kafka
def test_javas_copier_moves_every_record_once(broker: Broker) -> None:
    """Consume, transform, produce, with the flow of ``transaction.version`` 2."""
    need(java)
    need(kafka_jars)
    source, target = "copied-from", "copied-to"
    for name in (source, target):
        broker.create_topic(name)
    with RawClient(broker.port) as raw:
        one = Transactional(raw, "feeder")
        assert one.init() is ErrorCode.NONE
        one.write(source, *(b"%d" % n for n in range(50)))
        one.commit()
        one.write(source, b"aborted")
        one.abort()
        done = tool(
            "TransactionalMessageCopier",
            *("--broker-list", broker.bootstrap_servers, "--transactional-id", "copier"),
            *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
            *("--consumer-group", "copiers", "--max-messages", "50"),
            *("--transaction-size", "10", "--enable-random-aborts"),
            timeout=100,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert "ShutdownComplete" in done.stdout
        until(
            lambda: (
                end_offset(raw, target, committed=True) == end_offset(raw, target, committed=False)
            ),
            "the last marker",
        )
        assert read(raw, target) == [b"%d" % n for n in range(50)]


@pytest.mark.kafka
def test_kafka_transactions_lists_describes_and_aborts(broker: Broker) -> None:
    need(java)
    need(kafka_jars)
    broker.create_topic("looked-at")

    def ask(*arguments: str) -> str:
        done = tool(
            "TransactionsCommand", "--bootstrap-server", broker.bootstrap_servers, *arguments
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    with RawClient(broker.port) as raw:
        one = Transactional(raw, "looked-at")
        assert one.init() is ErrorCode.NONE
        one.write("looked-at", b"x")
        (row,) = [line for line in ask("list").splitlines() if line.startswith("looked-at")]
        assert row.split()[-1] == "Ongoing"
        described = ask("describe", "--transactional-id", "looked-at")
        assert str(one.producer_id) in described
        assert "looked-at-0" in described
        producers = ask("describe-producers", "--topic", "looked-at", "--partition", "0")
        assert str(one.producer_id) in producers
        ask(
            *("abort", "--topic", "looked-at", "--partition", "0"),
            *("--start-offset", "0"),
        )
        until(lambda: end_offset(raw, "looked-at", committed=True) == 2, "the marker")
        assert read(raw, "looked-at") == []
        assert one.end(commit=True) is ErrorCode.PRODUCER_FENCED


@pytest.mark.kafka
def test_kafka_features_describes_the_version_of_transactions(broker: Broker) -> None:
    need(java)
    need(kafka_jars)
    done = tool("FeatureCommand", "--bootstrap-server", broker.bootstrap_servers, "describe")
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = [line for line in done.stdout.splitlines() if "transaction.version" in line]
    assert "SupportedMaxVersion: 2" in row
    assert "FinalizedVersionLevel: 2" in row
