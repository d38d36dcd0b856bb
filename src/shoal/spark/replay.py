"""A streaming sink that adds no record when Spark repeats a micro-batch.

Spark repeats a failed task, and after a restart the whole of the last micro-batch. A repeated task
asks the ledger (``ledger.py``) what it wrote before, reads those records back, and writes only
the rows that are not among them.

Rule: rows are compared by content, as a multiset, and only with what *the same task of the same
micro-batch* wrote. So a row is left out at most as often as it is there already: whatever happens,
nothing is lost. Where the repeated task has the same rows, nothing is added either. It may
have other rows if the job is not deterministic, or was restarted with another number of tasks;
then those that the task did not write itself are written, and may be there twice.

Not covered, because nothing can be read back yet: two attempts of a task at the same time (Spark's
speculative execution, off by default).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from shoal.client.key_hashes import murmur2_column
from shoal.client.offsets import EARLIEST, LATEST
from shoal.records.batch import decode_batch, iter_headers
from shoal.spark.ledger import Bookmark, LedgerEntry, SinkLedger, TaskAttempt, TaskKey
from shoal.types import Header, TopicPartition

if TYPE_CHECKING:
    from shoal.client.producer import Producer

SETTLE_S: Final = 0.5
"""How long after an unfinished attempt its last requests may still reach the broker."""


class Identity(NamedTuple):
    """When two records are the same to a sink. ``partition`` only where the row asks for one."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class Replay:
    """One attempt of one task of one micro-batch."""

    def __init__(self, ledger: SinkLedger, producer: Producer, key: TaskKey, batch_id: int) -> None:
        self._ledger = ledger
        self._producer = producer
        self._key = key
        entry = ledger.find(key)
        earlier = entry.attempts if entry is not None and entry.batch_id == batch_id else []
        self._attempt = TaskAttempt(None)
        self._entry = LedgerEntry(batch_id, [*earlier, self._attempt])
        self._present: dict[str, dict[TopicPartition, Counter[Identity]]] = {}
        self._turn = crc32(key.encode()) + batch_id
        self.bookmark: Bookmark | None = None
        """Where the ledger was first told of this attempt; nothing if it wrote nothing."""
        if any(end is None for one in earlier for _, end in one.spans.values()):
            time.sleep(SETTLE_S)

    def to_send(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not in the topic yet, with the partitions they go to.

        Where they will lie is noted first: the ledger names the partitions that are written to,
        and no other.
        """
        new = self.missing(topic, rows)
        if not new.num_rows:
            return new
        tps = self._ledger.connection.partitions(topic)
        if "partition" not in new.schema.names:
            if self._producer.config.partitioner != "sticky":
                self._note(tps)  # it decides when they are sent
                return new
            new = _placed(new, len(tps), self._turn)
            self._turn += 1
        numbers = set(new.column("partition").to_numpy(zero_copy_only=False).tolist())
        self._note([tp for tp in tps if tp.partition in numbers])
        return new

    def _note(self, tps: Sequence[TopicPartition]) -> None:
        unnoted = [tp for tp in tps if tp not in self._attempt.spans]
        if not unnoted:
            return
        ends = self._ledger.connection.offsets(dict.fromkeys(unnoted, LATEST))
        self._attempt.spans.update({tp: (ends[tp] or 0, None) for tp in unnoted})
        offset = self._ledger.write(self._producer, self._key, self._entry)
        if self.bookmark is None:
            self.bookmark = self._ledger.bookmark(self._key.query_id, offset)

    def finish(self) -> None:
        """All rows are acknowledged: note where they end; what comes later is not theirs."""
        spans = self._attempt.spans
        if not spans:
            return
        ends = self._ledger.connection.offsets(dict.fromkeys(spans, LATEST))
        for tp, (start, _) in spans.items():
            spans[tp] = (start, ends[tp] or 0)
        self._ledger.write(self._producer, self._key, self._entry)

    def missing(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that are not in the topic yet."""
        if topic not in self._present:
            self._present[topic] = self._read_back(topic)
        present = self._present[topic]
        if not any(present.values()):
            return rows

        return rows.filter(pa.array([not _take(present, one) for one in identities(rows)]))

    def _read_back(self, topic: str) -> dict[TopicPartition, Counter[Identity]]:
        """What earlier attempts wrote to a topic."""
        found: dict[TopicPartition, Counter[Identity]] = {}
        for attempt in self._entry.attempts[:-1]:
            spans = {tp: span for tp, span in attempt.spans.items() if tp.topic == topic}
            for tp, identity in self._records(attempt.producer_id, spans):
                found.setdefault(tp, Counter())[identity] += 1
        return found

    def _records(
        self, producer_id: int | None, spans: Mapping[TopicPartition, tuple[int, int | None]]
    ) -> Iterator[tuple[TopicPartition, Identity]]:
        connection = self._ledger.connection
        first = connection.offsets(dict.fromkeys(spans, EARLIEST))
        last = connection.offsets(dict.fromkeys(spans, LATEST))
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for tp, (start, end) in spans.items():
            # What retention has taken was there, and cannot be compared any more.
            start = max(start, first[tp] or 0)
            end = min(last[tp] or 0, last[tp] or 0 if end is None else end)
            if start < end:
                ranges[tp] = (start, end)
        for chunks in connection.reader.read_chunks(ranges):
            for topic, partition, data, start, end, *_ in chunks:
                tp = TopicPartition(topic, partition)
                for position, header in iter_headers(data):
                    if header.producer_id != producer_id or header.is_control:
                        continue
                    for record in decode_batch(data, position):
                        if start <= record.offset and (end is None or record.offset < end):
                            headers = tuple((name, value) for name, value in record.headers)
                            yield tp, Identity(None, record.key, record.value, headers)


def _placed(rows: pa.RecordBatch, count: int, turn: int) -> pa.RecordBatch:
    """The rows with a column ``partition``: by key as every client does it, or all in one."""
    numbers = np.full(rows.num_rows, turn % count, dtype=np.int32)
    if "key" in rows.schema.names:
        keys = rows.column("key")
        by_key = (murmur2_column(keys) & 0x7FFFFFFF) % count
        numbers = np.where(np.asarray(keys.is_valid()), by_key, numbers).astype(np.int32)
    return rows.append_column("partition", pa.array(numbers, pa.int32()))


def _take(present: dict[TopicPartition, Counter[Identity]], wanted: Identity) -> bool:
    """Is the row there? Then it counts once less for the next one."""
    plain = wanted._replace(partition=None)
    for tp, counter in present.items():
        if wanted.partition in (None, tp.partition) and counter[plain] > 0:
            counter[plain] -= 1
            return True
    return False


def identities(rows: pa.RecordBatch) -> Iterator[Identity]:
    """The rows of a batch as they would be records."""
    names = rows.schema.names
    nothing: Sequence[Any] = [None] * rows.num_rows

    def column(name: str) -> Sequence[Any]:
        return rows.column(name).to_pylist() if name in names else nothing

    for partition, key, value, headers in zip(
        column("partition"), column("key"), column("value"), column("headers"), strict=True
    ):
        yield Identity(
            partition,
            _as_bytes(key),
            _as_bytes(value),
            tuple((one["key"], one["value"]) for one in headers or ()),
        )


def _as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
