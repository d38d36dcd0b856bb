"""A real cluster of three nodes, and the death of one of them."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import pytest

from shoal import Admin, Consumer, Producer, TopicPartition
from tests.peers import need
from tests.peers.jars import kafka_jars

pytestmark = [pytest.mark.kafka, pytest.mark.long]


@pytest.fixture(scope="module")
def three_nodes():
    from tests.peers.kafka import ApacheKafka

    settings = {"min.insync.replicas": "2", "default.replication.factor": "3"}
    need(kafka_jars)
    with ApacheKafka(nodes=3, heap="400m", settings=settings) as kafka:
        yield kafka


def test_a_killed_leader_loses_no_acknowledged_record_and_no_group(three_nodes):
    servers = three_nodes.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic("survivor", partitions=3, replication_factor=3, timeout=60)
        leader = admin.describe_topics("survivor")["survivor"].partitions[0].leader
    assert leader is not None
    acknowledged: list[Any] = []
    failed: list[Any] = []
    seen: list[Any] = []
    done = threading.Event()

    def read():
        with Consumer(
            bootstrap_servers=servers,
            group_id="survivors",
            auto_offset_reset="earliest",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
        ) as consumer:
            consumer.subscribe(["survivor"])
            while not (done.is_set() and len(set(seen)) >= len(acknowledged)):
                seen.extend(int(record.value) for record in consumer.poll(0.2))
                if done.is_set() and time.monotonic() > limit:
                    return

    limit = time.monotonic() + 150
    reader = threading.Thread(target=read)
    reader.start()
    with Producer(bootstrap_servers=servers, linger_ms=1, request_timeout_ms=10_000) as producer:

        def note(future, number):
            (failed if future.exception() else acknowledged).append(number)

        killed = False
        for number in range(6000):
            future = producer.send("survivor", str(number), partition=number % 3)
            future.add_done_callback(partial(note, number=number))
            if number % 20 == 0:
                threading.Event().wait(0.005)
            if number == 2000:
                three_nodes.kill(leader.id)
                killed = True
        producer.flush(100)
    assert killed
    with Consumer(bootstrap_servers=servers) as asking:
        found = asking.partitions_for("survivor")
    for info in found:
        assert {node.id for node in info.replicas} == {1, 2, 3}
        assert [node.id for node in info.offline_replicas] == [leader.id]
        assert leader.id not in {node.id for node in info.in_sync_replicas}
        assert info.leader is not None
        assert info.leader.id != leader.id
    done.set()
    reader.join(120)
    assert not reader.is_alive()
    assert failed == []
    assert len(acknowledged) == 6000
    assert set(seen) >= set(acknowledged), "lost"
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as check:
        partitions = [TopicPartition("survivor", n) for n in range(3)]
        ends = check.end_offsets(partitions, timeout=60)
    assert sum(ends.values()) == 6000, "an idempotent producer wrote something twice"
    three_nodes.start(leader.id)
