"""Which partitions are asked for together, and which of them must not wait for the others."""

from __future__ import annotations

import time
from typing import Any

import pytest

from shoal import Admin, Consumer, Producer, TopicPartition
from shoal.testing.broker import Broker
from tests.client.conftest import take

pytestmark = pytest.mark.slow

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
BATCH_BYTES = 16 * 1024
BATCHES = 40
LONG_S = 30


@pytest.fixture
def broker():
    with Broker() as broker:
        broker.create_topic("t", 2)
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            for partition in (0, 1):
                for _ in range(BATCHES):
                    producer.send("t", bytes(BATCH_BYTES - 200), partition=partition).result(10)
        yield broker


def reader(broker: Broker, **settings: Any) -> Consumer:
    one = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=BATCH_BYTES,
        **settings,
    )
    one.assign([FIRST, SECOND])
    return one


def test_a_partition_waits_for_a_round_that_is_back_soon_and_joins_the_next(broker):
    broker.delay("Fetch", 0.02, times=10_000)
    before = broker.counters()["connections_accepted"]
    with reader(broker) as one:
        take(one, 4)
        for _ in range(10):
            one.seek(SECOND, 0)
            take(one, 2)
        assert {record.partition for record in take(one, 20)} == {0, 1}
        after = broker.counters()["connections_accepted"]
    assert after - before == 2  # one for questions, one for all fetches


def test_a_partition_does_not_wait_behind_one_that_has_nothing_new(broker):
    with reader(broker, fetch_max_wait_ms=LONG_S * 1000) as one:
        one.pause(SECOND)
        take(one, BATCHES)
        assert not one.poll(0.2)  # the common round is at the broker now, and stays there
        began = time.monotonic()
        one.resume(SECOND)
        assert {record.partition for record in take(one, BATCHES)} == {1}
        assert time.monotonic() - began < LONG_S / 2


def test_what_is_paused_does_not_keep_the_others_out(broker):
    with reader(broker, fetch_buffer_bytes=1000) as one:
        one.pause(SECOND)
        take(one, 1)
        until = time.monotonic() + 10
        while not one._session.positions[FIRST].buffered_bytes:
            assert time.monotonic() < until
            one.poll(0.01, max_records=1)
        one.pause(FIRST)
        one.resume(SECOND)
        assert {record.partition for record in take(one, 4)} == {1}
        one.resume(FIRST)
        assert {record.partition for record in take(one, 8)} == {0, 1}


def test_a_topic_made_anew_is_waited_at_like_any_other(broker):
    servers = broker.bootstrap_servers
    with (
        Admin(bootstrap_servers=servers) as admin,
        reader(broker, allow_auto_create_topics=False) as one,
    ):
        take(one, 1)
        admin.delete_topics("t")
        admin.create_topic("t", partitions=2)
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"new", partition=0)
            producer.send("t", b"new", partition=1)
        new: list[Any] = []
        while len(new) < 2:
            new += [record for record in take(one, 1) if record.value == b"new"]
        before = broker.counters()["requests"]["Fetch"]
        one.poll(1)
        assert broker.counters()["requests"]["Fetch"] - before < 10
