"""Other people's clients push their metrics to our broker (KIP-714), which shows them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal import Admin
from shoal.testing.broker import Broker
from tests.conformance.client import until
from tests.metrics.scraping import Samples, scrape
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import tool

pytestmark = [pytest.mark.slow]
RECORDS = 50


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(metrics=True, topics={"orders": 2}) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.alter_configs({"metrics": "*", "interval.ms": "200"}, client_metrics="all")
        yield running


def of_client(found: Samples, name: str, client_id: str) -> list[tuple[tuple[str, ...], float]]:
    return [(key, value) for key, value in found.get(name, {}).items() if key[0] == client_id]


@pytest.mark.peer
def test_librdkafka_pushes_its_metrics(broker: Broker) -> None:
    from confluent_kafka import Consumer, Producer

    settings = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**settings, "client.id": "writer"})
    for _ in range(RECORDS):
        producer.produce("orders", b"x")
    producer.flush()
    consumer = Consumer(
        {
            **settings,
            "client.id": "reader",
            "group.id": "billing",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    try:
        read = 0

        def reads() -> bool:
            nonlocal read
            read += len(consumer.consume(100, 0.1))
            return read >= RECORDS

        until(reads, "all records")

        def pushed() -> bool:
            consumer.poll(0.1)
            found = scrape(broker.metrics_url)
            name = "kafka_client_consumer_coordinator_assigned_partitions"
            assigned = of_client(found, name, "reader")
            writes = of_client(found, "kafka_client_producer_request_latency_max", "writer")
            return bool(writes) and assigned == [(("reader", "billing", "", "", ""), 2)]

        until(pushed, "what both of them push", 60)
    finally:
        consumer.close()
    assert broker.counters()["errors"] == {}


@pytest.mark.kafka
def test_java_pushes_its_metrics(broker: Broker) -> None:
    need(java)
    need(kafka_jars)
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    sent = "".join(f"{number}\n" for number in range(RECORDS))
    done = tool("ConsoleProducer", *servers, "--topic", "orders", stdin=sent, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    done = tool(
        "consumer.ConsoleConsumer",
        *servers,
        *("--topic", "orders", "--from-beginning", "--group", "billing"),
        # It waits so long for more, and pushes several times meanwhile; and once more at its end.
        *("--timeout-ms", "15000"),
        timeout=100,
    )
    assert done.stdout.count("\n") == RECORDS, done.stderr[-2000:]
    found = scrape(broker.metrics_url)
    assert broker.counters()["requests"]["PushTelemetry"] >= 3
    name = "kafka_client_consumer_fetch_manager_records_consumed_total"
    # In all, and of the topic.
    assert dict(of_client(found, name, "console-consumer")) == {
        ("console-consumer", "billing", "", "", ""): RECORDS,
        ("console-consumer", "billing", "orders", "", ""): RECORDS,
    }
    assert "UNKNOWN_SUBSCRIPTION_ID" not in broker.counters()["errors"]
