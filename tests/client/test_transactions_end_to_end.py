"""Transactions on a real coordinator: what readers see, who is fenced, and beside other clients.

On both brokers, and in both protocols: they serve either, whatever ``transaction.version`` they
publish, so the old one is spoken by not looking at it.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
import uuid
from typing import Any

import pyarrow as pa
import pytest

from shoal import Admin, AsyncConsumer, Consumer, OffsetAndMetadata, Producer, TopicPartition
from shoal.client.cluster import Cluster
from shoal.errors import (
    ErrorCode,
    ProducerFencedError,
    ShoalError,
    TransactionAbortableError,
    TransactionFatalError,
)
from tests.client.conftest import take
from tests.peers import need
from tests.peers.jars import kafka_jars
from tests.peers.kafka import ApacheKafka, tool_command

pytestmark = pytest.mark.slow


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def protocol(request, monkeypatch):
    if request.param == 1:
        monkeypatch.setattr(Cluster, "feature_level", lambda *_: 1)
    return request.param


@pytest.fixture
def name():
    return f"txn-{uuid.uuid4().hex[:8]}"


def begun(servers, name, **settings):
    producer = Producer(bootstrap_servers=servers, transactional_id=name, linger_ms=0, **settings)
    producer.init_transactions()
    return producer


@pytest.fixture
def producer(servers, name, protocol):
    with begun(servers, name) as producer:
        yield producer


def committed(servers, *tps, **settings):
    """A consumer of these partitions from their beginning, which reads what is committed."""
    one = Consumer(
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        **settings,
    )
    one.assign(tps)
    return one


def values(records):
    return [record.value for record in records]


def all_values(one):
    """Everything up to the end, as the consumer sees it."""
    found = []
    while any(one.position(tp) < end for tp, end in one.end_offsets(one.assignment()).items()):
        found += values(one.poll(0.2))
    return found


def test_the_protocol_is_the_one_the_cluster_is_at(producer, protocol):
    producer.begin_transaction()
    assert producer._transactions.core.is_v2 == (protocol == 2)
    producer.abort_transaction()


def test_committed_records_are_read_and_aborted_ones_are_not(servers, producer, topic):
    tp = TopicPartition(topic, 0)
    with committed(servers, tp) as one:
        for n in range(6):
            producer.begin_transaction()
            for m in range(3):
                producer.send(topic, f"{n}.{m}")
            producer.flush()
            assert one.poll(0.05) == [], "nothing of an open transaction"
            if n % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                found = take(one, 3)
                assert values(found) == [f"{n}.{m}".encode() for m in range(3)]
        assert one.poll(0.3) == []
        assert one.lag(tp) == 0
        assert one.position(tp) == one.end_offsets([tp])[tp] == 24
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as everything:
        everything.assign([tp])
        assert len(take(everything, 18)) == 18


def test_arrow_in_and_arrow_out(servers, producer, topic):
    rows = pa.table({"value": [f"{n}".encode() for n in range(1000)]})
    for n in range(4):
        producer.begin_transaction()
        producer.send_arrow(topic, rows, partition=0)
        producer.flush()  # so that what is aborted is in the log
        producer.abort_transaction() if n % 2 else producer.commit_transaction()
    found: list[Any] = []
    with committed(servers, TopicPartition(topic, 0)) as one:
        while len(found) < 2000:
            found += one.poll_arrow(5)["value"].to_pylist()
        assert one.poll_arrow(0.3).num_rows == 0
    assert found == [f"{n}".encode() for n in range(1000)] * 2


def test_an_async_consumer_reads_committed_records_too(servers, producer, topic):
    for outcome in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.send(topic, outcome.__name__).result(10)
        outcome()

    async def read():
        settings: dict[str, Any] = {
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
        }
        async with AsyncConsumer(bootstrap_servers=servers, **settings) as one:
            await one.assign([TopicPartition(topic, 0)])
            while not (found := await one.poll(1)):
                pass
            return found

    assert values(asyncio.run(read())) == [b"commit_transaction"]


def test_lag_and_ends_follow_the_last_stable_offset(servers, producer, topic):
    tp = TopicPartition(topic, 0)
    with producer.transaction():
        producer.send(topic, b"a")
    producer.begin_transaction()
    producer.send(topic, b"b").result(10)
    with committed(servers, tp) as one, Consumer(bootstrap_servers=servers) as other:
        assert values(take(one, 1)) == [b"a"]
        assert one.end_offsets([tp]) == {tp: 2}
        assert other.end_offsets([tp]) == {tp: 3}
        one.poll(0.1)
        assert one.lag(tp) == 0
        one.seek_to_end([tp])
        assert one.position(tp) == 2
        producer.commit_transaction()
        assert values(take(one, 1)) == [b"b"]


def test_consume_transform_produce_moves_offsets_with_results(
    servers, producer, new_topic, group, protocol
):
    source, sink = new_topic(2), new_topic(2)
    with Producer(bootstrap_servers=servers) as plain:
        for n in range(20):
            plain.send(source, str(n), key=str(n))
    settings = {
        "bootstrap_servers": servers,
        "group_id": group,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    done = 0
    is_first = True
    with Consumer(**settings) as one:
        one.subscribe([source])
        while done < 20:
            records = one.poll(5, max_records=7)
            if not records:
                continue
            producer.begin_transaction()
            for record in records:
                producer.send(sink, record.value * 2, key=record.key)
            offsets = {tp: OffsetAndMetadata(one.position(tp)) for tp in one.assignment()}
            producer.send_offsets_to_transaction(offsets, one.group_metadata())
            if is_first:
                producer.flush()
                producer.abort_transaction()  # and so the records come again
                is_first = False
                for tp, at in one.committed(one.assignment()).items():
                    assert at is None
                    one.seek_to_beginning([tp])
                continue
            producer.commit_transaction()
            done += len(records)
        after = one.committed(one.assignment())
        assert sum(at.offset for at in after.values() if at) == 20
    with committed(servers, *(TopicPartition(sink, n) for n in range(2))) as one:
        assert sorted(all_values(one)) == sorted((str(n) * 2).encode() for n in range(20))


def test_a_member_the_group_left_behind_cannot_commit_its_offsets(servers, producer, topic, group):
    tp = TopicPartition(topic, 0)
    settings = {"bootstrap_servers": servers, "group_id": group, "enable_auto_commit": False}
    with Consumer(**settings) as one:
        one.subscribe([topic])
        while not one.assignment():
            one.poll(0.2)
        old = one.group_metadata()
    with Consumer(**settings) as successor:
        successor.subscribe([topic])
        while not successor.assignment():
            successor.poll(0.2)
        producer.begin_transaction()
        producer.send(topic, b"x")
        with pytest.raises(TransactionAbortableError) as caught:
            producer.send_offsets_to_transaction({tp: OffsetAndMetadata(1)}, old)
        assert caught.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"y")
            producer.send_offsets_to_transaction(
                {tp: OffsetAndMetadata(1)}, successor.group_metadata()
            )
        assert successor.committed(tp)[tp] == OffsetAndMetadata(1)


def test_a_newer_producer_fences_the_older_and_aborts_what_it_left(servers, name, topic, protocol):
    with begun(servers, name) as old:
        old.begin_transaction()
        old.send(topic, b"of the old one").result(10)
        with begun(servers, name) as new:
            with new.transaction():
                new.send(topic, b"of the new one")
            with pytest.raises(ProducerFencedError, match="another producer has this"):
                old.commit_transaction()
            with pytest.raises(ProducerFencedError):
                old.begin_transaction()
            with new.transaction():
                new.send(topic, b"and another")
    with committed(servers, TopicPartition(topic, 0)) as one:
        assert all_values(one) == [b"of the new one", b"and another"]


def test_a_fenced_producer_that_sends_is_told_at_the_latest_at_its_end(
    servers, name, topic, protocol
):
    with begun(servers, name) as old, begun(servers, name):
        old.begin_transaction()
        assert isinstance(old.send(topic, b"x").exception(10), ShoalError)
        with pytest.raises(ProducerFencedError):
            old.abort_transaction()


def test_a_record_the_broker_refuses_leaves_the_rest_invisible(servers, producer, new_topic):
    small, topic = new_topic(1, max_message_bytes="1000"), new_topic(1)

    def send_too_much():
        with producer.transaction():
            producer.send(topic, b"before").result(10)
            producer.send(small, bytes(5000))

    with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
        send_too_much()
    for _ in range(3):
        with producer.transaction():
            producer.send(topic, b"after")
            producer.send(small, b"small")
    with committed(servers, TopicPartition(topic, 0), TopicPartition(small, 0)) as one:
        assert sorted(all_values(one)) == [b"after"] * 3 + [b"small"] * 3


def test_a_timeout_above_the_brokers_limit_is_fatal_at_once(servers, name):
    with (
        Producer(
            bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=10_000_000
        ) as producer,
        pytest.raises(
            TransactionFatalError,
            match=r"INVALID_TRANSACTION_TIMEOUT.*at most the broker's transaction.max.timeout.ms",
        ),
    ):
        producer.init_transactions()


def test_many_small_transactions_one_after_the_other(servers, producer, new_topic):
    topic = new_topic(3)
    for n in range(60):
        producer.begin_transaction()
        producer.send(topic, str(n))
        producer.abort_transaction() if n % 3 == 0 else producer.commit_transaction()
    with committed(servers, *(TopicPartition(topic, n) for n in range(3))) as one:
        assert sorted(all_values(one), key=int) == [str(n).encode() for n in range(60) if n % 3]


def test_two_producers_in_one_partition_at_once(servers, name, topic, protocol):
    """Their transactions overlap: one long, many short, every second of those aborted."""
    with begun(servers, f"{name}-a") as slow, begun(servers, f"{name}-b") as quick:
        slow.begin_transaction()
        slow.send(topic, b"slow").result(10)
        for n in range(10):
            quick.begin_transaction()
            quick.send(topic, str(n)).result(10)
            quick.abort_transaction() if n % 2 else quick.commit_transaction()
        with committed(servers, TopicPartition(topic, 0)) as one:
            assert one.poll(0.3) == [], "the oldest open transaction holds all the others up"
            slow.abort_transaction()
            assert values(take(one, 5)) == [b"0", b"2", b"4", b"6", b"8"]


# --- beside other clients ---


@pytest.mark.peer
def test_confluent_kafka_reads_what_we_commit_and_we_what_it_commits(servers, producer, topic):
    import confluent_kafka

    theirs = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": f"theirs-{topic}"}
    )
    theirs.init_transactions(30)
    for n in range(6):
        is_commit = n % 3 != 2
        if n % 2:
            producer.begin_transaction()
            producer.send(topic, f"ours {n}").result(10)
            producer.commit_transaction() if is_commit else producer.abort_transaction()
        else:
            theirs.begin_transaction()
            theirs.produce(topic, f"theirs {n}")
            theirs.flush(10)
            theirs.commit_transaction(30) if is_commit else theirs.abort_transaction(30)
    expected = [f"{'ours' if n % 2 else 'theirs'} {n}".encode() for n in range(6) if n % 3 != 2]
    with committed(servers, TopicPartition(topic, 0)) as one:
        assert all_values(one) == expected
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"g-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < len(expected):
        found += [message.value() for message in reader.consume(10, 1)]
    reader.close()
    assert found == expected


@pytest.mark.peer
def test_javas_console_consumer_reads_what_we_commit(servers, producer, topic):
    for n in range(4):
        producer.begin_transaction()
        producer.send(topic, f"{n}").result(10)
        producer.abort_transaction() if n % 2 else producer.commit_transaction()
    command = tool_command(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", servers, "--topic", topic, "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", "2"),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["0", "2"]


@pytest.mark.peer
def test_we_read_what_javas_transactional_producer_commits(servers, topic):
    command = tool_command(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "500", "--record-size", "20", "--throughput", "-1"),
        *("--transactional-id", f"java-{topic}", "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={servers}"),
    )
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    with committed(servers, TopicPartition(topic, 0)) as one:
        assert len(all_values(one)) == 500
        assert one.lag(TopicPartition(topic, 0)) == 0


# --- a coordinator that dies ---


class Mover(threading.Thread):
    """Writes each number to two partitions in one transaction, and notes what it was told."""

    def __init__(self, servers):
        super().__init__()
        self.servers = servers
        self.committed, self.aborted = [], []
        self.stop = threading.Event()

    def run(self):
        number = 0
        while not self.stop.is_set():
            try:
                with begun(self.servers, "mover", delivery_timeout_ms=20_000) as producer:
                    while not self.stop.is_set():
                        number += 1
                        self.move(producer, number)
            except (TransactionFatalError, TimeoutError, ConnectionError):
                continue  # what became of the last number is not known: it may be there or not

    def move(self, producer, number):
        try:
            with producer.transaction():
                for partition in range(2):
                    producer.send("t", str(number), partition=partition)
        except TransactionAbortableError:
            self.aborted.append(number)
        else:
            self.committed.append(number)

    def await_more(self, count):
        wanted, until = len(self.committed) + count, time.monotonic() + 200
        while len(self.committed) < wanted:
            assert time.monotonic() < until, f"{len(self.committed)} of {wanted} were committed"
            time.sleep(0.1)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_transaction_is_torn_when_its_coordinator_is_killed(protocol):
    settings = {"min.insync.replicas": "2", "default.replication.factor": "3"}
    need(kafka_jars)
    with ApacheKafka(nodes=3, heap="400m", settings=settings) as kafka:
        servers = kafka.bootstrap_servers
        mover = Mover(servers)
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic("t", partitions=2, replication_factor=3)
            mover.start()
            try:
                mover.await_more(10)
                before = admin.describe_transactions("mover")["mover"].coordinator_id
                kafka.kill(before)
                mover.await_more(10)
                assert admin.describe_transactions("mover")["mover"].coordinator_id != before
            finally:
                mover.stop.set()
                mover.join(120)
        found = []
        for partition in range(2):
            with committed(servers, TopicPartition("t", partition)) as one:
                found.append([int(value) for value in all_values(one)])
    assert found[0] == found[1], "a transaction is in both partitions or in none"
    assert len(set(found[0])) == len(found[0]), "and once"
    assert set(mover.committed) <= set(found[0])
    assert not set(mover.aborted) & set(found[0])
