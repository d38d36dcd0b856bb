"""Records whose values do not fit, put aside in a topic as they came.

A letter is the record itself: key, value, headers and timestamp; headers ``shoal.topic``,
``shoal.partition``, ``shoal.offset``, ``shoal.timestamp`` and ``shoal.error`` say where it was and
why it is here. Spark reads a batch again whenever it likes (a retried task, a second action on the
same frame), so a record that lies in the topic already is not buried a second time.

Rule: what is there is looked up, not remembered. A letter carries the timestamp of its record, so
it lies at or behind the first letter that is not older: only from there the topic is read, once
per process, and followed. Two attempts of one task at the same time are not told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shoal.client.offsets import EARLIEST, LATEST
from shoal.types import Header, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.spark.cluster import ClusterClient

PREFIX: Final = "shoal."
_NUMBERS: Final = ("partition", "offset", "timestamp")


class LetterOrigin(NamedTuple):
    """Which record a letter is; the timestamp tells a topic from another of the same name."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class DeadLetters:
    """One process's view of a dead-letter topic."""

    def __init__(self, connection: ClusterClient, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._buried: set[LetterOrigin] = set()
        self._next: dict[TopicPartition, int] = {}
        self._since_ms: int | None = None

    def bury(self, rows: pa.RecordBatch, reasons: Sequence[str]) -> None:
        """Put records aside, and wait until they are acknowledged."""
        self._connection.need_topic(self._topic)
        records = rows.to_pylist()
        origins = [_origin(record) for record in records]
        self._look(min(origin.timestamp_ms for origin in origins))
        letters = []
        for record, origin, reason in zip(records, origins, reasons, strict=True):
            if origin not in self._buried:
                headers = [(one["key"], one["value"]) for one in record["headers"] or ()]
                letters.append(
                    (record["key"], record["value"], [*headers, *_told(origin, reason)], origin)
                )
        self._connection.produce(
            self._topic,
            [(key, value, headers, origin.timestamp_ms) for key, value, headers, origin in letters],
        )
        self._buried.update(origin for *_, origin in letters)

    def _look(self, since_ms: int) -> None:
        """Know of every letter that is not older than a time."""
        tps = self._connection.partitions(self._topic)
        if self._since_ms is None or since_ms < self._since_ms:
            at = self._connection.offsets(dict.fromkeys(tps, max(0, since_ms)))
            start = {tp: offset for tp, offset in at.items() if offset is not None}
            self._since_ms = since_ms
        else:
            start = {tp: self._next.get(tp, 0) for tp in tps}
        first = self._connection.offsets(dict.fromkeys(tps, EARLIEST))
        end = self._connection.offsets(dict.fromkeys(tps, LATEST))
        ranges = {
            tp: (max(begin, first[tp] or 0), end[tp] or 0)
            for tp, begin in start.items()
            if max(begin, first[tp] or 0) < (end[tp] or 0)
        }
        for batch in self._connection.reader.read(ranges, columns=["headers"]):
            for headers in batch.column(0).to_pylist():
                told = {one["key"]: one["value"] for one in headers or ()}
                origin = _from_headers(told)
                if origin is not None:
                    self._buried.add(origin)
        self._next = {tp: end[tp] or 0 for tp in tps}


def _origin(record: dict[str, Any]) -> LetterOrigin:
    moment: datetime = record["timestamp"]
    timestamp_ms = round(moment.timestamp() * 1000)
    return LetterOrigin(record["topic"], record["partition"], record["offset"], timestamp_ms)


def _told(origin: LetterOrigin, reason: str) -> list[Header]:
    told = {
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(origin.offset),
        "timestamp": str(origin.timestamp_ms),
        "error": reason,
    }
    return [(f"{PREFIX}{name}", text.encode()) for name, text in told.items()]


def _from_headers(headers: dict[str, bytes | None]) -> LetterOrigin | None:
    try:
        topic, *numbers = (
            (headers[f"{PREFIX}{name}"] or b"").decode() for name in ("topic", *_NUMBERS)
        )
        return LetterOrigin(topic, *map(int, numbers))
    except (KeyError, ValueError):
        return None  # somebody else's record
