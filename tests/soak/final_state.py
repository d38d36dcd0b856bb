"""What a fresh client finds in the end, and the judgement about it."""

from __future__ import annotations

import time

from tests.soak.history import History, Value

PARTITIONS = 4
"""Of every topic in a soak run."""


def final_state(
    servers: str, topic: str, group: str
) -> tuple[dict[int, dict[int, Value]], dict[int, int]]:
    """The whole log, and the committed offsets, as a fresh client reads them."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
    )
    everything = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)]
    ends = {
        p: consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1]
        for p in range(PARTITIONS)
    }
    committed = {
        tp.partition: tp.offset for tp in consumer.committed(everything, 10) if tp.offset >= 0
    }
    consumer.assign(everything)
    log: dict[int, dict[int, Value]] = {p: {} for p in range(PARTITIONS)}
    positions = dict.fromkeys(range(PARTITIONS), 0)
    deadline = time.monotonic() + 120
    while any(positions[p] < ends[p] for p in ends):
        assert time.monotonic() < deadline, "the log cannot be read to its end"
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            value = (message.value() or b"").replace(b".", b"-")
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            log[partition][offset] = value
            positions[partition] = offset + 1
    consumer.close()
    return log, committed


def judged(
    history: History, log: dict[int, dict[int, Value]], committed: dict[int, int]
) -> tuple[list[str], dict[str, int]]:
    counts = {
        "acknowledged": len(history.acknowledged),
        "read": sum(len(seen) for seen in history.read.values()),
        "commits": len(history.committed),
        "log": sum(len(records) for records in log.values()),
    }
    return history.anomalies(log, committed), counts
