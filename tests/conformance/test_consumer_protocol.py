"""Real clients with ``group.protocol=consumer`` on our broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shoal.broker.config import BrokerConfig, GroupSettings
from shoal.testing.broker import Broker
from tests.conformance.client import until
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import tool

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = [pytest.mark.slow, pytest.mark.peer]


class Member:
    """A member of librdkafka's that polls in a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **settings: Any) -> None:
        self.owned: set[tuple[str, int]] = set()
        self.seen: list[bytes] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 2,
                **settings,
            }
        )
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _on_assign(self, consumer: Any, partitions: Any) -> None:
        consumer.incremental_assign(partitions)
        self.owned |= {(each.topic, each.partition) for each in partitions}

    def _on_revoke(self, consumer: Any, partitions: Any) -> None:
        try:
            consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
                self.errors.append(str(error))
        consumer.incremental_unassign(partitions)
        self.owned -= {(each.topic, each.partition) for each in partitions}

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is None:
                continue
            if message.error():
                self.errors.append(str(message.error()))
            else:
                self.seen.append(message.value())
        self._consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture
def join(conformance_broker: Broker) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def make(group: str, topics: list[str], **settings: Any) -> Member:
        members.append(Member(conformance_broker.bootstrap_servers, group, topics, **settings))
        return members[-1]

    yield make
    for member in members:
        member.close()


@contextmanager
def records(broker: Broker, topic: str, partitions: int, count: int) -> Iterator[None]:
    broker.create_topic(topic, partitions)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % partitions)
    producer.flush()
    yield


def names() -> tuple[str, str]:
    unique = uuid.uuid4().hex[:8]
    return f"t-{unique}", f"g-{unique}"


def test_two_members_of_librdkafka_share_a_topic(
    conformance_broker: Broker, join: Callable[..., Member]
) -> None:
    topic, group = names()
    with records(conformance_broker, topic, 6, 60):
        first = join(group, [topic])
        until(lambda: len(first.owned) == 6 and len(first.seen) == 60, "partitions are owned")
        second = join(group, [topic])
        until(lambda: len(first.owned) == len(second.owned) == 3, "partitions are owned")
        assert first.owned.isdisjoint(second.owned)
        client = admin.AdminClient({"bootstrap.servers": conformance_broker.bootstrap_servers})
        described = client.describe_consumer_groups([group])[group].result()
        assert described.type.name == "CONSUMER"
        assert described.state.name == "STABLE"
        assert len(described.members) == 2
        first.close()
        until(lambda: len(second.owned) == 6, "partitions are owned")
        assert not second.seen, "the first one committed before it gave them up"
        assert not first.errors
        assert not second.errors


def test_a_pattern_of_librdkafka_is_resolved_by_the_broker(
    conformance_broker: Broker, join: Callable[..., Member]
) -> None:
    topic, group = names()
    conformance_broker.create_topic(f"{topic}.a", 2)
    member = join(group, [f"^{topic}.*"])
    until(lambda: len(member.owned) == 2, "partitions are owned")


def test_a_static_member_of_librdkafka_finds_its_partitions_again(
    conformance_broker: Broker, join: Callable[..., Member]
) -> None:
    topic, group = names()
    conformance_broker.create_topic(topic, 4)
    static = join(group, [topic], **{"group.instance.id": "i"})
    other = join(group, [topic])
    until(lambda: len(static.owned) == len(other.owned) == 2, "partitions are owned")
    before = set(static.owned)
    static.close()
    back = join(group, [topic], **{"group.instance.id": "i"})
    until(lambda: back.owned == before, "partitions are owned")
    assert len(other.owned) == 2


def test_members_of_both_protocols_in_one_group(
    conformance_broker: Broker, join: Callable[..., Member]
) -> None:
    """Up and down again, while both run."""
    topic, group = names()
    conformance_broker.create_topic(topic, 4)
    classic = {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 300,
    }
    old = join(group, [topic], **classic)
    until(lambda: len(old.owned) == 4, "partitions are owned")
    new = join(group, [topic])
    until(lambda: len(old.owned) == len(new.owned) == 2, "partitions are owned")
    assert old.owned.isdisjoint(new.owned)
    new.close()
    until(lambda: len(old.owned) == 4, "partitions are owned")
    client = admin.AdminClient({"bootstrap.servers": conformance_broker.bootstrap_servers})
    described = client.describe_consumer_groups([group])[group].result()
    assert described.type.name == "CLASSIC"


def test_a_group_survives_a_restart_of_the_broker(join: Callable[..., Member]) -> None:
    topic, group = names()
    with Broker() as broker:
        broker.create_topic(topic, 2)
        member = Member(broker.bootstrap_servers, group, [topic])
        try:
            until(lambda: len(member.owned) == 2, "partitions are owned")
            broker.restart(kill=True)
            client = admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            described = client.describe_consumer_groups([group])[group].result()
            assert [len(each.assignment.topic_partitions) for each in described.members] == [2]
            broker.create_topic(f"{topic}-2", 1)
            assert len(member.owned) == 2
        finally:
            member.close()
        assert not [each for each in member.errors if "Fatal" in each or "fatal" in each]


@pytest.mark.kafka
def test_kafkas_own_tools_see_and_join_the_group(
    conformance_broker: Broker, join: Callable[..., Member]
) -> None:
    need(java)
    need(kafka_jars)
    topic, group = names()
    server = ("--bootstrap-server", conformance_broker.bootstrap_servers)
    with records(conformance_broker, topic, 3, 30):
        read = tool(
            "consumer.ConsoleConsumer",
            *server,
            *("--topic", topic, "--group", group, "--max-messages", "30", "--from-beginning"),
            *("--command-property", "group.protocol=consumer"),
            *("--timeout-ms", "30000"),
        )
        assert sorted(map(int, read.stdout.split())) == list(range(30)), read.stderr[-2_000:]
        member = join(group, [topic])
        until(lambda: len(member.owned) == 3, "partitions are owned")
        command = ("consumer.group.ConsumerGroupCommand", *server, "--group", group, "--describe")
        state = tool(*command, "--state").stdout
        assert "Stable" in state, state
        assert "uniform" in state, state
        members = tool(*command, "--members", "--verbose").stdout
        assert f"{topic}:0,1,2" in members, members
        offsets = tool(*command, "--offsets").stdout
        assert offsets.count(topic) == 3, offsets
        listed = tool("consumer.group.ConsumerGroupCommand", *server, "--list", "--type").stdout
        assert any(line.split() == [group, "Consumer"] for line in listed.splitlines()), listed


def test_members_of_librdkafka_choose_an_assignor_written_in_python() -> None:
    assignors = ["tests.broker.wayward_assignors:LastTakesAll", "drain"]
    members: list[Member] = []
    topic, group = names()
    with Broker(assignors=assignors) as broker:

        def joined(name: str, client_id: str) -> Member:
            settings = {"group.remote.assignor": name, "client.id": client_id}
            members.append(Member(broker.bootstrap_servers, group, [topic], **settings))
            return members[-1]

        try:
            with records(broker, topic, 6, 60):
                first = joined("drain", "one")
                until(lambda: len(first.owned) == 6 and len(first.seen) == 60, "all is read")
                second = joined("drain", "two")
                until(lambda: len(first.owned) == len(second.owned) == 3, "they share")
                client = admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
                resource = admin.ConfigResource(
                    admin.ResourceType.GROUP,
                    group,
                    incremental_configs=[
                        admin.ConfigEntry(
                            "consumer.member.weights",
                            "one=0",
                            incremental_operation=admin.AlterConfigOpType.SET,
                        )
                    ],
                )
                client.incremental_alter_configs([resource])[resource].result(10)
                until(lambda: len(second.owned) == 6 and not first.owned, "one is empty")
                described = client.describe_consumer_groups([group])[group].result()
                assert described.partition_assignor == "drain"
        finally:
            for member in members:
                member.close()
        assert [member.errors for member in members] == [[], []]


def test_members_of_librdkafka_read_on_while_an_assignor_hangs() -> None:
    groups = GroupSettings(consumer_assignor_timeout_ms=500)
    topic, group = names()
    members: list[Member] = []
    with Broker(
        config=BrokerConfig(groups=groups), assignors=["tests.broker.wayward_assignors:loner"]
    ) as broker:

        def joined() -> Member:
            asked = {"group.remote.assignor": "loner"}
            members.append(Member(broker.bootstrap_servers, group, [topic], **asked))
            return members[-1]

        def fault(live: Any) -> Any:
            return live.groups.runtime_of(group).machine.group(group).assignor_fault

        try:
            with records(broker, topic, 4, 20):
                first = joined()
                until(lambda: len(first.owned) == 4 and len(first.seen) == 20, "all is read")
                joined()
                until(lambda: broker.on_loop(fault) is not None, "the assignor was killed")
                producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
                for number in range(8):
                    producer.produce(topic, b"more", partition=number % 4)
                producer.flush()
                until(lambda: len(first.seen) == 28, "what comes is read")
                assert len(first.owned) == 4
        finally:
            for member in members:
                member.close()
        assert [member.errors for member in members] == [[], []]
