"""A fetch that waits ends when another request of its connection queues behind it.

Apache Kafka lets that request wait for the fetch. Here it must not cost the client anything: the
question is answered at once, the client fetches again once, and no record is missed or late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from shoal.testing.broker import Broker
from tests.conformance.client import Door
from tests.conformance.python_clients import ConfluentKafka, KafkaPython

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    # Their sockets and threads are theirs.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

WAIT_MS = 20_000
QUESTIONS = 20


def _fetches(broker: Broker) -> int:
    return int(broker.counters()["requests"].get("Fetch", 0))


def _check(
    broker: Broker,
    poll: Callable[[float], Sequence[bytes | None]],
    ask: Callable[[], object],
    send: object,
) -> None:
    assert callable(send)
    while not _fetches(broker):
        assert poll(0.2) == []
    before = _fetches(broker)
    began = time.monotonic()
    for _ in range(QUESTIONS):
        ask()
        assert poll(0.01) == []
    # Waiting for a fetch each time would take minutes.
    assert time.monotonic() - began < WAIT_MS / 1000
    assert _fetches(broker) - before <= 2 * QUESTIONS + 5
    send()
    began = time.monotonic()
    seen: Sequence[bytes | None] = []
    while not seen and time.monotonic() - began < WAIT_MS / 1000:
        seen = poll(0.2)
    assert seen == [b"at last"]


def test_confluent_kafka_asks_beside_a_fetch_that_waits() -> None:
    from confluent_kafka import Consumer, TopicPartition

    with Broker(topics=["quiet"]) as broker:
        door = Door(broker.bootstrap_servers)
        client = ConfluentKafka()
        settings = {"group.id": "g", "fetch.wait.max.ms": WAIT_MS, "socket.timeout.ms": 60_000}
        consumer = Consumer(client.settings(door, **settings))
        partition = TopicPartition("quiet", 0, 0)
        consumer.assign([partition])

        def poll(seconds: float) -> list[bytes | None]:
            message = consumer.poll(seconds)
            return [] if message is None or message.error() else [message.value()]

        _check(
            broker,
            poll,
            lambda: consumer.get_watermark_offsets(partition, timeout=WAIT_MS / 1000),
            lambda: client.produce(door, "quiet", [b"at last"], codec="none", idempotent=False),
        )
        consumer.close()


def test_kafka_python_asks_beside_a_fetch_that_waits() -> None:
    from kafka import KafkaConsumer, TopicPartition

    with Broker(topics=["quiet"]) as broker:
        door = Door(broker.bootstrap_servers)
        client = KafkaPython()
        consumer = KafkaConsumer(
            **client.settings(door),
            fetch_max_wait_ms=WAIT_MS,
            request_timeout_ms=60_000,
            auto_offset_reset="earliest",
        )
        partition = TopicPartition("quiet", 0)
        consumer.assign([partition])

        def poll(seconds: float) -> list[bytes | None]:
            found = consumer.poll(timeout_ms=int(seconds * 1000))
            return [record.value for records in found.values() for record in records]

        _check(
            broker,
            poll,
            lambda: consumer.end_offsets([partition]),
            lambda: client.produce(door, "quiet", [b"at last"], codec="none", idempotent=False),
        )
        consumer.close()
