"""``shoal transaction``, and what other commands say about transactions, on both brokers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from shoal import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from shoal.testing.broker import Broker
from tests.cli.conftest import Run
from tests.peers.kafka import ApacheKafka

pytestmark = pytest.mark.slow


@pytest.fixture
def servers(broker: Broker | ApacheKafka) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(name, partitions=1)
    return name


@pytest.fixture
def producer(servers: str, topic: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=servers, transactional_id=f"id-{topic}") as producer:
        producer.init_transactions()
        yield producer


def test_a_transaction_is_listed_described_and_aborted(
    shoal: Run, producer: Producer, topic: str
) -> None:
    producer.begin_transaction()
    producer.send(topic, b"open").result(10)
    listed = shoal("transaction", "list", "--pattern", f"id-{topic}")
    assert f"id-{topic}" in listed.stdout
    assert "Ongoing" in listed.stdout
    (one,) = json.loads(
        shoal(
            "transaction", "list", "--json", "--state", "Ongoing", "--pattern", f".*{topic}"
        ).stdout
    )
    assert one["transactional_id"] == f"id-{topic}"
    told = shoal(
        "transaction", "list", "--longer-than", "3600", "--json", "--pattern", f".*{topic}"
    )
    assert json.loads(told.stdout) == []
    described = shoal("transaction", "describe", f"id-{topic}")
    assert f"{topic} 0" in described.stdout
    assert "timeout" in described.stdout
    details = json.loads(shoal("transaction", "describe", f"id-{topic}", "--json").stdout)
    assert details["partitions"] == [f"{topic}-0"]
    asked = shoal("transaction", "abort", f"id-{topic}")
    assert asked.returncode != 0, "a pipe is no answer"
    assert shoal("transaction", "abort", f"id-{topic}", "--yes").returncode == 0
    state = json.loads(shoal("transaction", "describe", f"id-{topic}", "--json").stdout)["state"]
    assert state in ("PrepareAbort", "CompleteAbort", "Empty")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("abort", "--yes"), "give transactional ids, or --partition"),
        (("abort", "x", "--partition", "t-0", "--yes"), "give transactional ids, or --partition"),
        (("abort", "--partition", "t-0", "--yes"), "--partition needs --start-offset"),
        (("abort", "--partition", "t", "--start-offset", "0", "--yes"), "not TOPIC-N"),
        (("abort", "nobody", "--yes"), "TRANSACTIONAL_ID_NOT_FOUND"),
        (("describe", "nobody"), "TRANSACTIONAL_ID_NOT_FOUND"),
        (("list", "--state", "Asleep"), "there are no states Asleep"),
    ],
)
def test_mistakes_are_one_line(shoal: Run, arguments: tuple[str, ...], words: str) -> None:
    done = shoal("transaction", *arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_one_partition_is_freed_by_its_offset(shoal: Run, producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    producer.send(topic, b"open").result(10)
    where = ("--partition", f"{topic}-0", "--start-offset")
    refused = shoal("transaction", "abort", *where, "9", "--yes")
    assert "there are at 0" in refused.stderr
    assert shoal("transaction", "abort", *where, "0", "--yes").returncode == 0
    after = shoal("transaction", "abort", *where, "0", "--yes")
    assert "there is none" in after.stderr


def test_nothing_hangs(shoal: Run, topic: str) -> None:
    done = shoal("transaction", "find-hanging", topic, "--idle", "0")
    assert (done.returncode, done.stdout.split()[0]) == (0, "partition")
    assert len(done.stdout.splitlines()) == 1
    assert json.loads(shoal("transaction", "find-hanging", topic, "--json").stdout) == []


def test_lines_are_written_in_one_transaction_and_read_when_it_is_committed(
    shoal: Run, producer: Producer, topic: str
) -> None:
    done = shoal("produce", topic, "--transactional-id", f"cli-{topic}", stdin="a\nb\n")
    assert done.returncode == 0, done.stderr
    producer.begin_transaction()
    producer.send(topic, b"open").result(10)
    committed = shoal("consume", topic, "--isolation", "read_committed")
    assert committed.stdout.split() == ["a", "b"]
    assert shoal("consume", topic).stdout.split() == ["a", "b", "open"]
    refused = shoal("consume", topic, "--isolation", "serializable")
    assert "'serializable' is not one of read_uncommitted, read_committed" in refused.stderr


def test_lines_of_a_command_that_fails_are_seen_by_nobody(shoal: Run, topic: str) -> None:
    arguments = ("produce", topic, "--transactional-id", f"cli-{topic}", "-k", ":")
    done = shoal(*arguments, "--rate", "100", stdin="k:a\nk:b\nno separator\n")
    assert done.returncode == 1
    assert shoal("consume", topic, "--isolation", "read_committed").stdout == ""


def test_why_names_the_transaction_a_group_waits_for(
    shoal: Run, servers: str, producer: Producer, topic: str
) -> None:
    with producer.transaction():
        producer.send(topic, b"committed")
    producer.begin_transaction()
    producer.send(topic, b"open").result(10)
    settings = {"group_id": f"g-{topic}", "isolation_level": "read_committed"}
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **settings) as one:  # type: ignore[arg-type]  # strings all of them
        one.subscribe([topic])
        while not one.poll(0.5):
            pass
        one.commit_sync()
        done = shoal("why", f"g-{topic}", "--seconds", "0.5")
    assert f"{topic}-0 ends at offset 2 for readers of committed records" in done.stdout
    assert f"the transaction of 'id-{topic}'" in done.stdout
    assert f"shoal transaction abort id-{topic}" in done.stdout
    assert "no progress" not in done.stdout


def test_why_names_the_transaction_that_is_about_to_commit_offsets_of_a_group(
    shoal: Run, servers: str, producer: Producer, topic: str
) -> None:
    tp, group = TopicPartition(topic, 0), f"g-{topic}"
    with producer.transaction():
        producer.send(topic, b"one")
    with Consumer(bootstrap_servers=servers, group_id=group) as one:
        one.assign([tp])
        one.commit_sync({tp: OffsetAndMetadata(0)})
        assert "about to be committed" not in shoal("why", group, "--seconds", "0.5").stdout
        producer.begin_transaction()
        producer.send_offsets_to_transaction({tp: OffsetAndMetadata(1)}, one.group_metadata())
        done = shoal("why", group, "--seconds", "0.5")
    assert f"about to be committed in a transaction of 'id-{topic}', open for" in done.stdout
    assert f"(1 partition, the first is {tp})" in done.stdout
    assert f"shoal transaction abort id-{topic}" in done.stdout
