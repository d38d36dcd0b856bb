"""Members of several clients in one group, on our broker and on Apache Kafka's.

The first to join leads, and its assignor has to read what all the others write: so both Java and
our client come first once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from shoal import Admin
from shoal.testing.broker import Broker
from tests.conformance.client import Door, Member, until
from tests.conformance.java_member import java_member
from tests.conformance.own_client import Shoal
from tests.conformance.python_clients import PYTHON_CLIENTS
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import ApacheKafka

pytestmark = [
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
PATIENCE_S = 60
librdkafka, kafka_python = PYTHON_CLIENTS[:2]

Join = Callable[[ExitStack, str, str, str], Member]


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[str]:
    need(java)
    need(kafka_jars)
    with ApacheKafka(heap="512m") as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(params=["shoal", pytest.param("Apache Kafka", marks=pytest.mark.long)])
def broker(request: pytest.FixtureRequest) -> Door:
    need(java)
    need(kafka_jars)
    if request.param == "Apache Kafka":
        return Door(request.getfixturevalue("apache_kafka"))
    ours: Broker = request.getfixturevalue("conformance_broker")
    return Door(ours.bootstrap_servers)


def joined(client: str, stack: ExitStack, door: Door, topic: str, group: str, how: str) -> Member:
    """A new member; it leaves with the stack at the latest."""
    if client == "Java":
        return stack.enter_context(java_member(door, topic, group, strategy=how))
    kinds = {"librdkafka": librdkafka, "kafka-python": kafka_python, "shoal": Shoal()}
    member = kinds[client].member(door, topic, group, strategy=how, instance=None)
    stack.callback(member.stop)
    return member


def share(door: Door, strategy: str, clients: list[str]) -> None:
    """The first owns all, then each owns its part, all is read once, the first owns all again."""
    topic, group = f"mixed-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
    count = 2 * len(clients)
    everything = frozenset(range(count))
    with Admin(bootstrap_servers=door.servers) as admin:
        admin.create_topic(topic, partitions=count)
    with ExitStack() as stack:
        first = joined(clients[0], stack, door, topic, group, strategy)
        until(lambda: first.assignment == everything, f"{clients[0]} owns all", PATIENCE_S)
        with ExitStack() as others:
            rest = [joined(each, others, door, topic, group, strategy) for each in clients[1:]]
            members = [first, *rest]
            until(
                lambda: (
                    all(len(each.assignment) == 2 for each in members)
                    and frozenset().union(*(each.assignment for each in members)) == everything
                ),
                "each owns two partitions",
                PATIENCE_S,
            )
            sent = [f"{number:03}".encode() for number in range(20 * count)]
            librdkafka.produce(door, topic, sent, codec="none", idempotent=True)
            until(
                lambda: sum(len(each.values) for each in members) >= len(sent),
                "everything is read",
                PATIENCE_S,
            )
        until(lambda: first.assignment == everything, f"{clients[0]} takes over", PATIENCE_S)
    assert sorted(value for each in members for value in each.values) == sent


@pytest.mark.parametrize(
    "client",
    [
        "Java, librdkafka, kafka-python",
        pytest.param("Java, shoal, librdkafka, kafka-python", marks=pytest.mark.long),
        "shoal, Java, librdkafka, kafka-python",
    ],
)
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_form_one_group(client, strategy, broker):
    share(broker, strategy, client.split(", "))
