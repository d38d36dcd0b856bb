"""Offset ranges, Spark's offsets, and how ranges become tasks. Pure: values in, values out.

Rule: a range is half-open and never leaves the bounds it was planned with; what a task reads
depends on its ranges alone, so a retried or speculative task reads the same rows (S1).

Spark keeps a stream's offset as JSON text and compares two offsets *as text*: the same dictionary
in another order would be a new offset forever. ``to_json`` is therefore the only way out.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shoal.types import TopicPartition

Offsets = Mapping[TopicPartition, int]
"""Next offset to read, per partition."""

StreamOffset = dict[str, dict[str, int]]
"""Spark's form: ``{"orders": {"0": 23}}``, the same shape as Spark's own Kafka source."""

SPLIT_ROWS_MIN = 50_000
"""Below this many records a range is not worth a second task."""


class OffsetRange(NamedTuple):
    """Records ``start`` to ``end - 1`` of one partition. Plain, because Spark pickles it."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def to_json(offsets: Offsets) -> StreamOffset:
    """Spark's form of an offset, in the one order we ever write."""
    stream_offset: StreamOffset = {}
    for tp in sorted(offsets):
        stream_offset.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return stream_offset


def from_json(stream_offset: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse of ``to_json``; also reads what Spark's own Kafka source wrote."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in stream_offset.items()
        for partition, offset in partitions.items()
    }


def between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The non-empty ranges from one offset to another, in order.

    A partition that only ``end`` knows starts at 0 records: the caller must have put its first
    offset into ``start`` (see ``with_new_partitions``).
    """
    return [
        OffsetRange(tp.topic, tp.partition, start[tp], end[tp])
        for tp in sorted(end)
        if tp in start and end[tp] > start[tp]
    ]


def with_new_partitions(start: Offsets, earliest: Offsets) -> dict[TopicPartition, int]:
    """``start`` and, for partitions it does not know yet, their first offset (S6)."""
    return {**earliest, **start}


def available(start: Offsets, latest: Offsets) -> int:
    """How many records lie between."""
    return sum(max(0, latest[tp] - start.get(tp, latest[tp])) for tp in latest)


def limit_rows(start: Offsets, latest: Offsets, rows_max: int) -> dict[TopicPartition, int]:
    """An end that holds about ``rows_max`` records, shared out in proportion to the backlog.

    Every partition with a backlog advances by at least one record, as in Spark's own source:
    a small partition is never starved by a large one.
    """
    total = available(start, latest)
    if total <= rows_max:
        return dict(latest)
    end: dict[TopicPartition, int] = {}
    for tp, last in latest.items():
        first = start.get(tp, last)
        share = rows_max * max(0, last - first) / total
        rows = math.ceil(share) if share < 1 else math.floor(share)
        end[tp] = max(first, min(last, first + rows))
    return end


def limit_bytes(
    start: Offsets, latest: Offsets, row_bytes: Mapping[TopicPartition, float], bytes_max: int
) -> dict[TopicPartition, int]:
    """An end that holds about ``bytes_max`` bytes, given each partition's bytes per record."""
    total = sum(
        max(0, latest[tp] - start.get(tp, latest[tp])) * row_bytes.get(tp, 1.0) for tp in latest
    )
    if total <= bytes_max:
        return dict(latest)
    rows = available(start, latest)
    # Scaling the rows keeps the proportions; a partition with wide records gives as many of them.
    return limit_rows(start, latest, max(1, int(rows * bytes_max / total)))


def split(ranges: Iterable[OffsetRange], rows_max: int) -> list[OffsetRange]:
    """Cut ranges so that none holds more than ``rows_max`` records, evenly."""
    pieces: list[OffsetRange] = []
    for one in ranges:
        parts = max(1, -(-one.rows // rows_max))
        edges = [one.start + one.rows * index // parts for index in range(parts + 1)]
        pieces += [one._replace(start=a, end=b) for a, b in itertools.pairwise(edges)]
    return pieces


def plan_tasks(
    ranges: Iterable[OffsetRange],
    *,
    tasks_max: int,
    tasks_min: int = 1,
    rows_max: int | None = None,
) -> list[tuple[OffsetRange, ...]]:
    """Share ranges out to tasks: large ones split, small ones packed together.

    A Python task costs Spark milliseconds whatever it reads, so thousands of partitions go into
    as many tasks as there are cores (``tasks_max``). ``tasks_min`` (Spark's ``minPartitions``)
    and ``rows_max`` (``maxRecordsPerPartition``) may ask for more tasks than that and win.
    Longest first onto the least loaded task: within 4/3 of the best possible.
    """
    whole = [one for one in ranges if one.rows > 0]
    total = sum(one.rows for one in whole)
    if not total:
        return []
    even = -(-total // max(tasks_max, tasks_min))
    limit = even if tasks_min > 1 else max(even, SPLIT_ROWS_MIN)
    pieces = split(whole, max(1, min(limit, rows_max or limit)))
    count = max(tasks_max, tasks_min)
    if rows_max:
        count = max(count, -(-total // rows_max))
    loads = [(0, index) for index in range(min(count, len(pieces)))]
    bins: list[list[OffsetRange]] = [[] for _ in loads]
    for piece in sorted(pieces, key=lambda one: (-one.rows, one)):
        load, index = heapq.heappop(loads)
        bins[index].append(piece)
        heapq.heappush(loads, (load + piece.rows, index))
    return [tuple(sorted(pieces)) for pieces in bins]
