"""What streaming sinks remember of their tasks: the compacted topic ``__shoal_sink``.

One key per query and task; its last record says which micro-batch the task wrote last, and where
to find what it wrote: per attempt the producer id and, per partition, the offsets between which
its records lie. ``replay.py`` decides with it; this file reads and writes it.

    key    ["<query id>", <task>]
    value  {"batch": 7, "attempts": [{"producer": 12, "spans": {"orders": {"0": [5, 9]}}}]}

A span without an end (``[5, null]``) belongs to an attempt that was not finished. The producer id
of the last attempt is not in the value: it is the one in the header of the record's own batch,
because ledger and data are written by the same producer. So it is known for certain, and before
the first row is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.client.admin import Admin
from shoal.client.offsets import LATEST
from shoal.errors import BrokerError, ErrorCode
from shoal.records.batch import iter_headers
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.client.producer import Producer
    from shoal.spark.cluster import Connection

TOPIC: Final = "__shoal_sink"
CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Small: a new worker reads the topic from its start.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
ACKNOWLEDGED_S: Final = 60.0
_PARTITION: Final = TopicPartition(TOPIC, 0)

Span = tuple[int, int | None]


class TaskKey(NamedTuple):
    """Who writes: one task of one streaming query."""

    query_id: str
    task: int

    def encode(self) -> bytes:
        return json.dumps(list(self)).encode()


@dataclass(slots=True)
class Attempt:
    """One try of a task: whose records, and between which offsets they lie."""

    producer_id: int | None
    spans: dict[TopicPartition, Span] = field(default_factory=dict)


@dataclass(slots=True)
class Entry:
    """The last micro-batch of a task."""

    batch_id: int
    attempts: list[Attempt]

    def encode(self) -> bytes:
        attempts = [
            {"producer": one.producer_id, "spans": _nested(one.spans)} for one in self.attempts
        ]
        return json.dumps({"batch": self.batch_id, "attempts": attempts}).encode()

    @classmethod
    def decode(cls, value: bytes) -> Entry:
        document = json.loads(value)
        attempts = [Attempt(one["producer"], _flat(one["spans"])) for one in document["attempts"]]
        return cls(document["batch"], attempts)


def _nested(spans: Mapping[TopicPartition, Span]) -> dict[str, dict[str, Span]]:
    nested: dict[str, dict[str, Span]] = {}
    for tp, span in spans.items():
        nested.setdefault(tp.topic, {})[str(tp.partition)] = span
    return nested


def _flat(nested: Mapping[str, Mapping[str, list[int | None]]]) -> dict[TopicPartition, Span]:
    return {
        TopicPartition(topic, int(number)): (start or 0, end)
        for topic, numbers in nested.items()
        for number, (start, end) in numbers.items()
    }


class Ledger:
    """One process's view of the topic; follows it from where it was at the last look."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._create()
        self._next_offset = 0
        self._last: dict[bytes, tuple[int, bytes]] = {}

    def _create(self) -> None:
        with Admin(self.connection.admin_config) as admin:
            if TOPIC in admin.list_topics():
                return
            try:
                admin.create_topic(TOPIC, partitions=1, configs=CONFIGS)
            except BrokerError as error:
                # Another worker was faster.
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    def find(self, key: TaskKey) -> Entry | None:
        """What the task wrote last, the producer id of every attempt filled in."""
        self._follow()
        found = self._last.get(key.encode())
        if found is None:
            return None
        offset, value = found
        entry = Entry.decode(value)
        entry.attempts[-1].producer_id = self._producer_of(offset)
        return entry

    def _follow(self) -> None:
        end = self.connection.offsets({_PARTITION: LATEST})[_PARTITION] or 0
        if end < self._next_offset:
            # The topic was made anew.
            self._next_offset = 0
            self._last.clear()
        if end == self._next_offset:
            return
        ranges = {_PARTITION: (self._next_offset, end)}
        for batch in self.connection.reader.read(ranges, columns=["key", "value", "offset"]):
            keys, values, offsets = (column.to_pylist() for column in batch.columns)
            for key, value, offset in zip(keys, values, offsets, strict=True):
                self._last[key] = (offset, value)
        self._next_offset = end

    def _producer_of(self, offset: int) -> int:
        """The producer id in the header of the batch at this offset."""
        for chunks in self.connection.reader.read_chunks({_PARTITION: (offset, offset + 1)}):
            for _, _, data, *_ in chunks:
                for _, header in iter_headers(data):
                    if header.base_offset <= offset <= header.last_offset:
                        return header.producer_id
        raise AssertionError(f"{_PARTITION} offset {offset} was read a moment ago")

    def write(self, producer: Producer, key: TaskKey, entry: Entry) -> None:
        """Write an entry and wait until it is acknowledged."""
        sent = producer.send(TOPIC, entry.encode(), key.encode(), partition=0)
        producer.flush(ACKNOWLEDGED_S)
        sent.result(0)

    def close(self) -> None:
        self.connection.close()
