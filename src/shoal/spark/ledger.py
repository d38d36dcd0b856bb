"""What streaming sinks remember of their tasks: the compacted topic ``__shoal_sink``.

One key per query and task; its last record says which micro-batch the task wrote last, and where
to find what it wrote: per attempt the producer id and, per partition it wrote to, the offsets
between which its records lie. ``replay.py`` decides with it; this file reads and writes it.

    key    ["<query id>", <task>]
    value  {"batch": 7, "attempts": [{"producer": 12, "spans": {"orders": {"0": [5, 9]}}}]}

A span without an end (``[5, null]``) belongs to an attempt that was not finished. The producer id
of the last attempt is not in the value: it is the one in the header of the record's own batch,
because ledger and data are written by the same producer. So it is known for certain, and before
the first row is sent.

With ``exactlyOnce`` the same topic holds the claims and decisions of ``sink_decisions.py``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from shoal.client.admin import Admin
from shoal.client.batch_append import append_batch
from shoal.client.offsets import LATEST
from shoal.errors import BrokerError, ErrorCode, ShoalError
from shoal.records.batch import iter_headers
from shoal.spark.cluster import ClusterGroup
from shoal.spark.sink_decisions import JournalKey, QueryJournal
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.client.producer import Producer
    from shoal.spark.cluster import ClusterClient

TOPIC: Final = "__shoal_sink"
CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Small: what is no longer needed goes soon, and a worker may have to read all that is left.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
ACKNOWLEDGED_S: Final = 60.0
PARTITIONS: Final = 16
"""Of a ledger that is made now; one of an older version has one, which does as well."""
GROUP_PREFIX: Final = "shoal-sink."
logger = logging.getLogger(__name__)

Span = tuple[int, int | None]


class TaskKey(NamedTuple):
    """Who writes: one task of one streaming query."""

    query_id: str
    task: int

    def encode(self) -> bytes:
        return json.dumps(list(self)).encode()


@dataclass(slots=True)
class TaskAttempt:
    """One try of a task: whose records, and between which offsets they lie."""

    producer_id: int | None
    spans: dict[TopicPartition, Span] = field(default_factory=dict)


@dataclass(slots=True)
class LedgerEntry:
    """The last micro-batch of a task."""

    batch_id: int
    attempts: list[TaskAttempt]

    def encode(self) -> bytes:
        attempts = [
            {"producer": one.producer_id, "spans": _nested(one.spans)} for one in self.attempts
        ]
        return json.dumps({"batch": self.batch_id, "attempts": attempts}).encode()

    @classmethod
    def decode(cls, value: bytes) -> LedgerEntry:
        document = json.loads(value)
        attempts = [
            TaskAttempt(one["producer"], _flat(one["spans"])) for one in document["attempts"]
        ]
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


class Bookmark(NamedTuple):
    """Everything the ledger says of a query's last micro-batch lies at or behind this place."""

    query_id: str
    topic_partition: TopicPartition
    offset: int


@dataclass(slots=True)
class _Page:
    """What a process knows of one query."""

    topic_partition: TopicPartition
    next_offset: int
    journal: QueryJournal
    last: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)


class SinkLedger:
    """One process's view of the topic; follows it from where it was at the last look.

    All a query has to say is in one partition, chosen by its id. A process that has not heard of a
    query begins at the query's bookmark: an offset committed for the group ``shoal-sink.<query
    id>``, which nobody ever joins. Without one (it expires, and a group may be forbidden) it begins
    at the start.
    """

    def __init__(self, connection: ClusterClient) -> None:
        self.connection = connection
        self._create()
        self._pages: dict[str, _Page] = {}

    def _create(self) -> None:
        with Admin(self.connection.admin_config) as admin:
            if TOPIC in admin.list_topics():
                return
            try:
                admin.create_topic(TOPIC, partitions=PARTITIONS, configs=CONFIGS)
            except BrokerError as error:
                # Another worker was faster.
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    def find(self, key: TaskKey) -> LedgerEntry | None:
        """What the task wrote last, the producer id of every attempt filled in."""
        page = self._page(key.query_id)
        self._follow(page)
        found = page.last.get(key.encode())
        if found is None:
            return None
        offset, value = found
        entry = LedgerEntry.decode(value)
        entry.attempts[-1].producer_id = self._producer_of(page.topic_partition, offset)
        return entry

    def journal(self, query_id: str) -> QueryJournal:
        """What has been decided about a query, up to this moment (``sink_decisions.py``)."""
        page = self._page(query_id)
        self._follow(page)
        return page.journal

    def has_plain_rows(self, query_id: str, batch_id: int) -> bool:
        """Whether a micro-batch was written, or begun, without transactions; as last looked."""
        return any(
            json.loads(key)[0] == query_id and LedgerEntry.decode(value).batch_id == batch_id
            for key, (_, value) in self._page(query_id).last.items()
        )

    def append(self, query_id: str, batch: bytes) -> int | None:
        """Append a batch to the query's partition; where it lies, if it was not there before."""
        tp = self._page(query_id).topic_partition
        return self.connection.ask(
            lambda cluster, deadline: append_batch(cluster, tp, batch, deadline)
        )

    def _page(self, query_id: str) -> _Page:
        if query_id not in self._pages:
            tp = self._partition(query_id)
            try:
                marked = self._group(query_id).committed([tp]).get(tp, 0)
            except ShoalError as error:
                logger.warning("the sink's ledger is read from its start: %s", error)
                marked = 0
            self._pages[query_id] = _Page(tp, marked, QueryJournal(query_id))
        return self._pages[query_id]

    def _partition(self, query_id: str) -> TopicPartition:
        tps = self.connection.partitions(TOPIC)
        return tps[crc32(query_id.encode()) % len(tps)]

    def _group(self, query_id: str) -> ClusterGroup:
        return ClusterGroup(self.connection, f"{GROUP_PREFIX}{query_id}")

    def keep(self, bookmark: Bookmark) -> None:
        """Note where processes that have not heard of the query may begin."""
        try:
            self._group(bookmark.query_id).commit({bookmark.topic_partition: bookmark.offset})
        except ShoalError as error:
            logger.warning("the sink's ledger has no new bookmark: %s", error)

    def _follow(self, page: _Page) -> None:
        tp = page.topic_partition
        end = self.connection.offsets({tp: LATEST})[tp] or 0
        if end < page.next_offset:
            # The topic was made anew.
            page.next_offset = 0
            page.journal = QueryJournal(page.journal.query_id)
            page.last.clear()
        if end == page.next_offset:
            return
        ranges = {tp: (page.next_offset, end)}
        for batch in self.connection.reader.read(ranges, columns=["key", "value", "offset"]):
            keys, values, offsets = (column.to_pylist() for column in batch.columns)
            for key, value, offset in zip(keys, values, offsets, strict=True):
                named = JournalKey.decode(key)
                if named is not None:
                    page.journal.replay(named, value)
                else:
                    page.last[key] = (offset, value)
        page.next_offset = end

    def _producer_of(self, tp: TopicPartition, offset: int) -> int:
        """The producer id in the header of the batch at this offset."""
        for chunks in self.connection.reader.read_chunks({tp: (offset, offset + 1)}):
            for _, _, data, *_ in chunks:
                for _, header in iter_headers(data):
                    if header.base_offset <= offset <= header.last_offset:
                        return header.producer_id
        raise AssertionError(f"{tp} offset {offset} was read a moment ago")

    def write(self, producer: Producer, key: TaskKey, entry: LedgerEntry) -> int:
        """Write an entry and wait until it is acknowledged; where it lies."""
        partition = self._page(key.query_id).topic_partition.partition
        sent = producer.send(TOPIC, entry.encode(), key.encode(), partition=partition)
        producer.flush(ACKNOWLEDGED_S)
        offset = sent.result(0).offset
        assert offset is not None, "it was acknowledged"
        return offset

    def bookmark(self, query_id: str, offset: int) -> Bookmark:
        """What lies at this offset is the first that a micro-batch of the query has to say."""
        return Bookmark(query_id, self._page(query_id).topic_partition, offset)

    def close(self) -> None:
        self.connection.close()
