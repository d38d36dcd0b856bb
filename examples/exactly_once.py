"""Consume, transform, produce: every record's result is in the output once, whatever dies when.

The results and the offsets of what they were made of are one transaction: both count, or neither.
A process that is killed leaves an open transaction; the next one with the same transactional id
fences it, its results are seen by nobody who reads committed records, and its records come again.

    python examples/exactly_once.py localhost:9092 orders bills billing-1
"""

from __future__ import annotations

import sys

from shoal import Consumer, OffsetAndMetadata, Producer
from shoal.errors import TransactionAbortableError


def step(consumer: Consumer, producer: Producer, sink: str, timeout: float) -> int:
    """One poll as one transaction; how many records it was."""
    if not (records := consumer.poll(timeout)):
        return 0
    try:
        with producer.transaction():
            for record in records:
                producer.send(sink, key=record.key, value=record.value.upper())
            next_offsets = {
                tp: OffsetAndMetadata(part[-1].offset + 1)
                for tp, part in records.by_partition().items()
            }
            producer.send_offsets_to_transaction(next_offsets, consumer.group_metadata())
    except TransactionAbortableError:
        for tp, part in records.by_partition().items():  # it was aborted: read them again
            if tp in consumer.assignment():
                consumer.seek(tp, part[0].offset)
        return 0
    return len(records)


def main(servers: str, source: str, sink: str, transactional_id: str) -> None:
    with (
        Consumer(
            bootstrap_servers=servers,
            group_id=f"{source}-to-{sink}",
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer,
        Producer(bootstrap_servers=servers, transactional_id=transactional_id) as producer,
    ):
        consumer.subscribe([source])
        producer.init_transactions()
        while True:
            step(consumer, producer, sink, timeout=1.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
