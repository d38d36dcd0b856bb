"""What other clients' users get from each call: the same from our broker as from Apache Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.testing.broker import Broker
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from tests.differential.clients import aio_kafka, confluent, java_tools, kafka_python
from tests.differential.clients.accepted import accepted
from tests.differential.clients.outcomes import Outcomes, plain
from tests.differential.compare import differences
from tests.differential.place import Place
from tests.peers.cache import need
from tests.peers.clients import run_node
from tests.peers.kafka import ApacheKafka

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # Their sockets and threads are theirs.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    running = need(ApacheKafka)
    need(running.__enter__)
    _await_coordinator(running.port)
    yield running.bootstrap_servers
    running.__exit__(None, None, None)


@pytest.fixture(scope="module")
def shoal() -> Iterator[str]:
    with Broker() as running:
        yield running.bootstrap_servers


def _await_coordinator(port: int) -> None:
    """A new Apache Kafka has none before it has made the topic of offsets."""
    place = Place("Apache Kafka", port)
    for _ in range(600):
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
        if not place.ask(asked, 4).coordinators[0].error_code:
            break
        time.sleep(0.1)
    place.close()


def _compare(name: str, run: Callable[[str], Outcomes], kafka: str, shoal: str) -> None:
    theirs, ours = run(kafka), run(shoal)
    assert len(theirs) > 15
    assert theirs.get("consumed") != [], "two brokers that give nothing are alike"
    unknown = [str(one) for one in differences(theirs, ours) if not accepted(name, one)]
    assert not unknown, "\n".join(unknown)


def test_confluent_kafka(kafka: str, shoal: str) -> None:
    _compare("confluent-kafka", confluent.run, kafka, shoal)


def test_kafka_python(kafka: str, shoal: str) -> None:
    _compare("kafka-python", kafka_python.run, kafka, shoal)


def test_aiokafka(kafka: str, shoal: str) -> None:
    _compare("aiokafka", aio_kafka.run, kafka, shoal)


@pytest.mark.long
def test_kafkajs(kafka: str, shoal: str) -> None:
    script = Path(__file__).parent / "clients" / "kafkajs.js"

    def run(servers: str) -> Any:
        return plain(json.loads(run_node(script, servers, timeout=180)))

    _compare("kafkajs", run, kafka, shoal)


@pytest.mark.long
def test_the_java_tools(kafka: str, shoal: str) -> None:
    _compare("Java tools", java_tools.run, kafka, shoal)
