"""Apache Kafka's own client and tools, from the published jars, against our broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.client import Door, until
from tests.conformance.java_member import java_member
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import tool

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
def test_describes_groups(client, door, topic):
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


@many_commands
@every
def test_deletes_groups(client, door, topic):
    group = f"g-{topic}"
    wanted = ("--group", group, "--topic", topic, "--reset-offsets")
    run(GROUPS, door, *wanted, "--to-latest", "--execute")
    assert group in run(GROUPS, door, "--list")
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


def share(door: Door, topic: str, strategy: str) -> None:
    group = f"g-{topic}"
    with java_member(door, topic, group, strategy=strategy) as first:
        until(lambda: len(first.assignment) == 4, "the first owns everything", 60)
        with java_member(door, topic, group, strategy=strategy) as second:
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
def test_shares_a_topic_by_range(client, door, topic):
    share(door, topic, "range")


@every
def test_shares_a_topic_by_roundrobin(client, door, topic):
    share(door, topic, "roundrobin")


@every
def test_shares_a_topic_by_sticky(client, door, topic):
    share(door, topic, "sticky")


@every
def test_shares_a_topic_cooperatively(client, door, topic):
    share(door, topic, "cooperative-sticky")


@every
def test_restarts_a_static_member_without_a_rebalance(client, door, topic, generation):
    group = f"g-{topic}"
    with java_member(door, topic, group, instance="b") as other:
        with java_member(door, topic, group, instance="a") as first:
            until(
                lambda: len(first.assignment) == len(other.assignment) == 2,
                "two partitions each",
                60,
            )
            before, owned = generation(group), first.assignment
        with java_member(door, topic, group, instance="a") as again:
            until(lambda: again.assignment == owned, "the same partitions come back", 60)
            assert generation(group) == before


@every
def test_produces_idempotently(client, door, topic, tmp_path):
    settings = tmp_path / "producer.properties"
    settings.write_text("enable.idempotence=true\nretries=10\n")
    wanted = ("--topic", topic, "--max-messages", "500", "--acks", "-1")
    shown = run("VerifiableProducer", door, *wanted, "--producer.config", str(settings))
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
