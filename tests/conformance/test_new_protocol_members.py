"""Our consumer, librdkafka's and Java's as members of one group of the new protocol (KIP-848).

On our broker and on Apache Kafka's: the first owns everything, each owns its part, all is read
once, classic members share too, and the one that stays owns everything again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from shoal import Admin, Consumer, Producer
from shoal.broker.config import BrokerConfig, GroupSettings
from shoal.testing.broker import Broker
from tests.conformance.client import Door, Member, until
from tests.conformance.java_member import VerifiableMember
from tests.conformance.test_consumer_protocol import Member as LibrdkafkaMember
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import ApacheKafka

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.peer]
PATIENCE_S = 60


class Librdkafka:
    """confluent-kafka with ``group.protocol=consumer``."""

    def __init__(self, servers: str, topic: str, group: str) -> None:
        self._member = LibrdkafkaMember(servers, group, [topic])

    @property
    def values(self) -> list[bytes]:
        return self._member.seen

    @property
    def assignment(self) -> frozenset[int]:
        return frozenset(number for _, number in self._member.owned)

    def stop(self) -> None:
        self._member.close()
        assert not self._member.errors


class Ours:
    """A consumer of ours in a thread."""

    def __init__(self, servers: str, topic: str, group: str, protocol: str = "consumer") -> None:
        self.values: list[bytes] = []
        self.assignment: frozenset[int] = frozenset()
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._consumer = Consumer(
            bootstrap_servers=servers,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._consumer as consumer:
                while not self._stop.is_set():
                    self.values += [record.value for record in consumer.poll(0.05)]
                    self.assignment = frozenset(tp.partition for tp in consumer.assignment())
        except Exception as error:
            self._failure = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert self._failure is None, self._failure


def joined(kind: str, stack: ExitStack, servers: str, topic: str, group: str) -> Member:
    member: Member
    match kind:
        case "shoal":
            member = Ours(servers, topic, group)
        case "shoal auto":
            member = Ours(servers, topic, group, "auto")
        case "shoal classic":
            member = Ours(servers, topic, group, "classic")
        case "librdkafka":
            member = Librdkafka(servers, topic, group)
        case _:
            new = ("--group-protocol", "consumer")
            member = VerifiableMember(Door(servers), topic, group, *new)
    stack.callback(member.stop)
    return member


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[str]:
    quick = {
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "500",
    }
    with ApacheKafka(heap="512m", settings=quick) as kafka:
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def our_broker() -> Iterator[str]:
    groups = GroupSettings(consumer_heartbeat_interval_ms=500)
    with Broker(config=BrokerConfig(groups=groups)) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["our_broker", "apache_kafka"])
def servers(request: pytest.FixtureRequest) -> str:
    need(java)
    need(kafka_jars)
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def group_of(servers: str) -> Callable[[int], tuple[str, str]]:
    def make(partitions: int) -> tuple[str, str]:
        unique = uuid.uuid4().hex[:8]
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic(f"t-{unique}", partitions=partitions)
        return f"t-{unique}", f"g-{unique}"

    return make


@pytest.mark.parametrize(
    "order",
    ["shoal, librdkafka, Java", "Java, shoal, librdkafka", "shoal classic, shoal auto, librdkafka"],
)
def test_members_of_several_clients_share_a_group(
    order: str, servers: str, group_of: Callable[[int], tuple[str, str]]
) -> None:
    kinds = order.split(", ")
    count = 2 * len(kinds)
    everything = frozenset(range(count))
    topic, group = group_of(count)
    with ExitStack() as stack:
        first = joined(kinds[0], stack, servers, topic, group)
        until(lambda: first.assignment == everything, f"{kinds[0]} owns all", PATIENCE_S)
        with ExitStack() as others:
            rest = [joined(kind, others, servers, topic, group) for kind in kinds[1:]]
            members = [first, *rest]
            until(
                lambda: (
                    all(len(each.assignment) == 2 for each in members)
                    and frozenset().union(*(each.assignment for each in members)) == everything
                ),
                "each owns two partitions",
                PATIENCE_S,
            )
            with Admin(bootstrap_servers=servers) as admin:
                described = admin.describe_group(group)
            assert described.protocol == "consumer"
            assert len(described.members) == len(kinds)
            sent = [f"{number:03}".encode() for number in range(20 * count)]
            with Producer(bootstrap_servers=servers) as producer:
                for number, value in enumerate(sent):
                    producer.send(topic, value, partition=number % count)
            until(
                lambda: sum(len(each.values) for each in members) >= len(sent),
                "everything is read",
                PATIENCE_S,
            )
        until(lambda: first.assignment == everything, f"{kinds[0]} takes over", PATIENCE_S)
    seen = sorted(value for each in members for value in each.values)
    if "classic" in order:
        # A group that becomes a classic one again takes the generation of its last epoch, also
        # from a member that had not reached it: what that one did not commit it reads again.
        seen = sorted(set(seen))
    assert seen == sent
