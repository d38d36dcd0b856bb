"""Our consumer in one group with librdkafka's and kafka-python's, on both brokers."""

from __future__ import annotations

import threading
import time
from typing import Any

import confluent_kafka
import kafka
import pytest

from shoal import TopicPartition
from tests.client.conftest import poll_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]


class Librdkafka:
    """confluent-kafka in a thread."""

    def __init__(self, servers, group, topic, assignor):
        self.owned = set()
        self.seen = []
        self._stop = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": assignor,
                "heartbeat.interval.ms": 100,
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.seen.append((message.partition(), message.offset()))
            self.owned = {tp.partition for tp in self._consumer.assignment()}
        self._consumer.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(20)


class KafkaPython(Librdkafka):
    """kafka-python in a thread."""

    def __init__(self, servers, group, topic, assignor):
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        known = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
        self.owned = set()
        self.seen = []
        self._stop = threading.Event()
        self._consumer: Any = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[known[assignor]],
            heartbeat_interval_ms=100,
            enable_auto_commit=False,
        )
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.is_set():
            for records in self._consumer.poll(50).values():
                self.seen += [(record.partition, record.offset) for record in records]
            self.owned = {tp.partition for tp in self._consumer.assignment()}
        self._consumer.close()


@pytest.mark.parametrize(
    ("other", "assignor"),
    [
        (Librdkafka, "range"),
        (Librdkafka, "roundrobin"),
        (Librdkafka, "cooperative-sticky"),
        (KafkaPython, "range"),
        (KafkaPython, "roundrobin"),
    ],
)
def test_two_kinds_of_clients_share_a_topic(
    producer, consumer, servers, new_topic, group, other, assignor
):
    topic = new_topic(4)
    ours = consumer(assignors=[assignor])
    ours.subscribe([topic])
    poll_until(ours, lambda: len(ours.assignment()) == 4)
    seen: list[Any] = []
    with other(servers, group, topic, assignor) as theirs:
        mine = lambda: {tp.partition for tp in ours.assignment()}  # noqa: E731 - a name for what is waited for
        poll_until(
            ours,
            lambda: len(mine()) == len(theirs.owned) == 2 and mine() | theirs.owned == {0, 1, 2, 3},
            timeout=30,
        )
        for n in range(40):
            producer.send(topic, str(n), partition=n % 4)
        producer.flush(10)
        until = time.monotonic() + 15
        while len(seen) + len(theirs.seen) < 40:
            assert time.monotonic() < until
            seen += [(r.partition, r.offset) for r in ours.poll(0.05)]
        assert sorted(seen + theirs.seen) == sorted((p, o) for p in range(4) for o in range(10))
    poll_until(ours, lambda: len(ours.assignment()) == 4, timeout=30)
    assert ours.assignment() == {TopicPartition(topic, n) for n in range(4)}
