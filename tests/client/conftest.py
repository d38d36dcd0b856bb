"""Brokers for the client's behaviour suite: ours, and a real Apache Kafka where it can be had.

A test that takes ``servers`` runs against both. One broker of each kind serves the whole run, so
tests keep apart by topic and group names.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shoal import Admin, Consumer, Producer, Record
from shoal.testing.broker import Broker
from tests.patience import PATIENCE_S
from tests.peers import need
from tests.peers.jars import kafka_jars


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[str]:
    from tests.peers.kafka import ApacheKafka

    need(kafka_jars)
    with ApacheKafka(heap="512m") as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(
    params=["shoal", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])]
)
def servers(request: pytest.FixtureRequest) -> str:
    if request.param == "kafka":
        return request.getfixturevalue("apache_kafka")
    broker: Broker = request.getfixturevalue("shoal_broker_session")
    return broker.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as admin:
        yield admin


@pytest.fixture
def producer(servers: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        yield producer


@pytest.fixture
def new_topic(admin: Admin) -> Callable[..., str]:
    def create(partitions: int = 1, **configs: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        # Many records carry times of long ago: retention must not take them from a test that lasts.
        given = {"retention_ms": "-1", **configs}
        dotted = {key.replace("_", "."): str(value) for key, value in given.items()}
        admin.create_topic(name, partitions=partitions, configs=dotted)
        return name

    return create


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(1)


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def consumer(servers: str, group: str) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers of one group that start at the beginning; closes them afterwards."""
    made: list[Consumer] = []

    def make(**settings: object) -> Consumer:
        given: dict[str, Any] = {
            "bootstrap_servers": servers,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 50,
            **settings,
        }
        made.append(Consumer(**given))
        return made[-1]

    yield make
    for one in made:
        one.close(5)


def poll_until(consumer: Consumer, done: Callable[[], object], timeout: float = PATIENCE_S) -> None:
    """Poll, dropping records, until ``done``."""
    until = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < until, "it did not come to that"
        consumer.poll(0.05)


def take(consumer: Consumer, count: int, timeout: float = PATIENCE_S) -> list[Record]:
    """The next ``count`` records."""
    taken: list[Record] = []
    until = time.monotonic() + timeout
    while len(taken) < count:
        assert time.monotonic() < until, f"{len(taken)} of {count} records came"
        taken += consumer.poll(0.5, max_records=count - len(taken))
    return taken
