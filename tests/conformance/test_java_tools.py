"""Apache Kafka's own client and tools, from the published jars, against our broker."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.python_clients import PYTHON_CLIENTS, Door, until
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import tool, tool_command

pytestmark = [pytest.mark.slow, pytest.mark.kafka]
# A JVM start per command: minutes in sum.
many_commands = pytest.mark.long
every = pytest.mark.parametrize("client", ["Java 4.3"])
GROUPS = "consumer.group.ConsumerGroupCommand"
CONSOLE = "consumer.ConsoleConsumer"


@pytest.fixture(autouse=True)
def _needs_java() -> None:
    need(java)
    need(kafka_jars)


def run(name: str, door: Door, *arguments: str, stdin: str | None = None) -> str:
    done = tool(name, "--bootstrap-server", door.servers, *arguments, stdin=stdin, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


class VerifiableMember:
    """Kafka's verifiable consumer: a member that tells what it owns and reads, as JSON lines."""

    def __init__(self, door: Door, topic: str, group: str, *arguments: str) -> None:
        self.values: list[str] = []
        self._assignment: frozenset[int] = frozenset()
        self._process = subprocess.Popen(
            tool_command(
                "VerifiableConsumer",
                *("--bootstrap-server", door.servers, "--topic", topic, "--group-id", group),
                *("--session-timeout", "6000", "--reset-policy", "earliest", "--verbose"),
                *arguments,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def assignment(self) -> frozenset[int]:
        assert self._process.poll() is None, "the verifiable consumer ended"
        return self._assignment

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            match event.get("name"):
                case "partitions_assigned":
                    added = frozenset(tp["partition"] for tp in event["partitions"])
                    self._assignment = self._assignment | added
                case "partitions_revoked":
                    gone = frozenset(tp["partition"] for tp in event["partitions"])
                    self._assignment = self._assignment - gone
                case "record_data":
                    self.values.append(event["value"])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._thread.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def java_member(door: Door, topic: str, group: str, *arguments: str) -> Iterator[VerifiableMember]:
    member = VerifiableMember(door, topic, group, *arguments)
    try:
        yield member
    finally:
        member.stop()


@many_commands
@every
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produces_and_consumes(client, codec, door, topic):
    sent = "".join(f"value-{n:03}\n" for n in range(100))
    run(
        "ConsoleProducer",
        door,
        *("--topic", topic, "--compression-codec", codec),
        stdin=sent,
    )
    read = run(
        CONSOLE,
        door,
        *("--topic", topic, "--from-beginning", "--max-messages", "100", "--timeout-ms", "20000"),
    )
    assert sorted(read.split()) == sent.split()


@many_commands
@every
def test_commits_and_resumes(client, door, topic):
    group = f"g-{topic}"

    def consume(count: int) -> list[str]:
        arguments = ("--topic", topic, "--group", group, "--max-messages", str(count))
        reset = ("--command-property", "auto.offset.reset=earliest", "--timeout-ms", "20000")
        return sorted(run(CONSOLE, door, *arguments, *reset).split())

    run("ConsoleProducer", door, "--topic", topic, stdin="a\nb\nc\n")
    assert consume(3) == ["a", "b", "c"]
    run("ConsoleProducer", door, "--topic", topic, stdin="d\n")
    assert consume(1) == ["d"]


@many_commands
@every
def test_describes_and_deletes_groups(client, door, topic):
    group = f"g-{topic}"
    with java_member(door, topic, group) as member:
        until(lambda: len(member.assignment) == 4, "it owns everything", 60)
        shown = run(GROUPS, door, "--describe", "--group", group, "--state")
        assert "Stable" in shown
        assert group in run(GROUPS, door, "--list", "--state", "Stable")
        described = run(GROUPS, door, "--describe", "--group", group, "--members", "--verbose")
        assert "range" in described or topic in described
    until(
        lambda: "Empty" in run(GROUPS, door, "--describe", "--group", group, "--state"),
        "the group is empty",
    )
    run(GROUPS, door, "--delete", "--group", group)
    assert group not in run(GROUPS, door, "--list")


@many_commands
@every
def test_resets_offsets(client, door, topic):
    group = f"g-{topic}"
    run("ConsoleProducer", door, "--topic", topic, stdin="a\nb\nc\n")
    wanted = ("--group", group, "--topic", topic, "--reset-offsets")
    run(GROUPS, door, *wanted, "--to-latest", "--execute")
    assert _committed(door, group) == 3
    run(GROUPS, door, *wanted, "--shift-by", "-1", "--execute")
    run(GROUPS, door, *wanted, "--to-datetime", "2001-01-01T00:00:00.000", "--execute")
    assert _committed(door, group) == 0
    run(GROUPS, door, "--delete-offsets", "--group", group, "--topic", topic)


def _committed(door: Door, group: str) -> int:
    lines = run(GROUPS, door, "--describe", "--group", group).splitlines()
    return sum(int(line.split()[3]) for line in lines if line.startswith(group))


@every
@pytest.mark.parametrize(
    "assignor",
    ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"],
)
def test_shares_a_topic(client, assignor, door, topic):
    group = f"g-{topic}"
    strategy = ("--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}")
    with java_member(door, topic, group, *strategy) as first:
        until(lambda: len(first.assignment) == 4, "the first owns everything", 60)
        with java_member(door, topic, group, *strategy) as second:
            until(
                lambda: (
                    len(first.assignment) == len(second.assignment) == 2
                    and not first.assignment & second.assignment
                ),
                "two partitions each",
                60,
            )
        until(lambda: len(first.assignment) == 4, "the first takes over", 60)


@every
def test_produces_with_the_verifiable_producer(client, door, topic):
    shown = run(
        "VerifiableProducer", door, *("--topic", topic, "--max-messages", "500", "--acks", "-1")
    )
    last = json.loads(shown.strip().splitlines()[-1])
    assert (last["sent"], last["acked"]) == (500, 500)


@many_commands
@every
def test_manages_topics_and_configurations(client, door, topic):
    name = f"{topic}-managed"
    run("TopicCommand", door, "--create", "--topic", name, "--partitions", "2")
    run("TopicCommand", door, "--alter", "--topic", name, "--partitions", "5")
    assert "PartitionCount: 5" in run("TopicCommand", door, "--describe", "--topic", name)
    entity = ("--entity-type", "topics", "--entity-name", name)
    run("kafka.admin.ConfigCommand", door, *entity, "--alter", "--add-config", "retention.ms=7777")
    assert "retention.ms=7777" in run("kafka.admin.ConfigCommand", door, *entity, "--describe")
    run("kafka.admin.ConfigCommand", door, *entity, "--alter", "--delete-config", "retention.ms")
    run("TopicCommand", door, "--delete", "--topic", name)
    assert name not in run("TopicCommand", door, "--list").split()


@many_commands
@every
def test_deletes_records_and_shows_offsets_and_directories(client, door, topic, tmp_path):
    run("ConsoleProducer", door, "--topic", topic, stdin="a\nb\nc\n")
    wanted = tmp_path / "delete.json"
    partitions = [{"topic": topic, "partition": p, "offset": -1} for p in range(4)]
    wanted.write_text(json.dumps({"partitions": partitions, "version": 1}))
    run("DeleteRecordsCommand", door, "--offset-json-file", str(wanted))
    earliest = run("GetOffsetShell", door, "--topic", topic, "--time", "-2")
    assert sum(int(line.rsplit(":", 1)[1]) for line in earliest.split()) == 3
    assert topic in run("LogDirsCommand", door, "--describe", "--topic-list", topic)


@every
def test_uses_tls_and_scram(client, guarded_door, topic, tmp_path):
    settings = tmp_path / "client.properties"
    settings.write_text(_properties(guarded_door))
    config = ("--command-config", str(settings))
    run("ConsoleProducer", guarded_door, "--topic", topic, *config, stdin="a\nb\n")
    arguments = ("--topic", topic, "--from-beginning", "--max-messages", "2")
    read = run(CONSOLE, guarded_door, *arguments, "--timeout-ms", "20000", *config)
    assert sorted(read.split()) == ["a", "b"]


def _properties(door: Door) -> str:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return "\n".join(
        [
            "security.protocol=SASL_SSL",
            f"ssl.truststore.location={Path(str(door.ca_file))}",
            "ssl.truststore.type=PEM",
            f"sasl.mechanism={door.mechanism}",
            f'sasl.jaas.config={login} required username="{door.user}" password="{door.password}";',
        ]
    )


MIXED = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


@pytest.mark.parametrize("client", ["Java, librdkafka, kafka-python"])
@pytest.mark.parametrize("strategy", sorted(MIXED))
def test_members_of_three_clients_form_one_group(client, strategy, door, topic):
    group = f"g-{topic}"
    java_strategy = f"org.apache.kafka.clients.consumer.{MIXED[strategy]}"
    librdkafka, kafka_python = PYTHON_CLIENTS[:2]
    with java_member(door, topic, group, "--assignment-strategy", java_strategy) as first:
        until(lambda: len(first.assignment) == 4, "Java owns everything", 60)
        others = [
            each.member(door, topic, group, strategy=strategy, instance=None)
            for each in (librdkafka, kafka_python)
        ]
        members = [first, *others]
        until(
            lambda: (
                all(m.assignment for m in members)
                and sum(len(m.assignment) for m in members) == 4
                and frozenset().union(*(m.assignment for m in members)) == frozenset(range(4))
            ),
            "three members own all four partitions",
            60,
        )
        sent = [f"{n:03}".encode() for n in range(60)]
        librdkafka.produce(door, topic, sent, codec="none", idempotent=True)
        until(lambda: sum(len(m.values) for m in members) >= 60, "everything is read", 60)
        for member in others:
            member.stop()
        until(lambda: len(first.assignment) == 4, "Java takes over", 60)
    read = sorted(v if isinstance(v, bytes) else v.encode() for m in members for v in m.values)
    assert read == sent
