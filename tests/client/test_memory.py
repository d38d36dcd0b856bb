"""Fetching ahead stays within its bound, however far behind the consumer is."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from shoal import Consumer, Producer, TopicPartition

MIB = 1024 * 1024


@pytest.mark.slow
def test_what_is_fetched_ahead_is_bounded_and_everything_comes(servers, new_topic):
    topic = new_topic(3)
    rows = 120_000
    with Producer(bootstrap_servers=servers) as producer:
        for partition in range(3):
            table = pa.table({"value": [bytes(200)] * (rows // 3)})
            producer.send_arrow(topic, table, partition=partition)
        producer.flush(60)
    with Consumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        fetch_buffer_bytes=4 * MIB,
        max_partition_fetch_bytes=MIB,
        max_poll_records=1000,
    ) as one:
        one.assign([TopicPartition(topic, n) for n in range(3)])
        seen, most = 0, 0
        while seen < rows:
            seen += len(one.poll(5))
            if seen % 10_000 == 0:
                threading.Event().wait(0.01)  # a slow reader: time to run ahead
            most = max(most, sum(state.buffered_bytes for state in one._session.positions))
    assert seen == rows
    # Beyond the bound only what was under way when it was reached: one answer.
    assert MIB < most <= 8 * MIB
