"""Rebalances as they happen, with their causes, from what coordinators write.

Rule: the end of the topic at the first look is where counting begins. What was written shortly
before is read too, because it says how the groups stood, but what happened then is not counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from shoal.client.admin import Admin
from shoal.fleet.analysis import analyse, take
from shoal.fleet.causes import Rebalance
from shoal.fleet.sources import ClusterSource
from shoal.fleet.tables import TOPIC, schema
from shoal.metrics.exposition import Buckets
from shoal.types import TopicPartition

TAIL_RECORDS: Final = 4_000
"""How much of each partition is read at the first look."""
_ROWS_AT_ONCE: Final = 10_000
_BYTES_AT_ONCE: Final = 1 << 20
"""With eight times as much at once 11 MB more are resident."""
DURATIONS_S: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0)


class RebalanceWatch:
    """Counts the rebalances of all groups of a cluster."""

    def __init__(self, admin: Admin, settings: Mapping[str, Any]) -> None:
        self._source = ClusterSource(admin, settings)
        self._carry: pa.Table | None = None
        self._next: dict[int, int] = {}
        self._topics: dict[bytes, str] = {}
        self.by_group: Counter[tuple[str, str]] = Counter()
        """How often, by group and cause."""
        self.earlier: list[Rebalance] = []
        """What the first look found: it happened before, as far as the records tell."""
        self.revised: list[Rebalance] = []
        """What the last look added to rebalances that were told before."""
        self._durations: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def look(
        self, ends: Mapping[TopicPartition, int], topics: Mapping[bytes, str] | None = None
    ) -> list[Rebalance]:
        """What happened since the last look. ``ends``: of the topic's partitions, by a survey;
        ``topics``: names by id, by the same."""
        self._topics |= topics or {}  # a deleted topic keeps its name in what was
        is_first = self._carry is None
        if is_first:
            tails = {tp.partition: end for tp, end in ends.items() if tp.topic == TOPIC}
            self._next = {number: max(0, end - TAIL_RECORDS) for number, end in tails.items()}
        found = analyse(self._new_events(), self._carry, self._topics)
        self._carry, self.revised = found.carry, found.revised
        # Looks are far apart: what they needed is not kept for the next one.
        pa.default_memory_pool().release_unused()
        if is_first:
            self.earlier = found.rebalances
            return []
        happened = [one for one in found.rebalances if one.is_rebalance]
        for one in happened:
            self._count(one)
        return happened

    def _new_events(self) -> pa.Table:
        """What was written since the last look."""
        events = [schema("events").empty_table()]
        for batch in self._source.records_after(
            self._next, max_rows=_ROWS_AT_ONCE, fetch_max_bytes=_BYTES_AT_ONCE
        ):
            self._reached(batch)
            events.append(take(batch).events)
        return pa.concat_tables(events)

    def durations(self) -> dict[str, Buckets]:
        """How long rebalances took, by cause, where that is known."""
        return {
            cause: Buckets(DURATIONS_S, tuple(counts), self._seconds[cause])
            for cause, counts in self._durations.items()
        }

    def _reached(self, batch: pa.RecordBatch) -> None:
        # Not group_by: it loads Arrow's datasets, 45 MB that nothing else here needs.
        numbers, offsets = (np.asarray(batch.column(name)) for name in ("partition", "offset"))
        for number in np.unique(numbers).tolist():
            self._next[number] = int(offsets[numbers == number].max()) + 1

    def _count(self, one: Rebalance) -> None:
        cause = cause_label(one)
        self.by_group[one.now.group, cause] += 1
        if one.duration_us is None:
            return
        seconds = one.duration_us / 1e6
        counts = self._durations.setdefault(cause, [0] * (len(DURATIONS_S) + 1))
        counts[bisect_left(DURATIONS_S, seconds)] += 1
        self._seconds[cause] = self._seconds.get(cause, 0.0) + seconds


def cause_label(one: Rebalance) -> str:
    """The cause in a word or two; the one to worry about, if there are several."""
    departures = one.departures
    if departures.expired:
        return "expired"
    if departures.gone:
        return "left_or_expired"
    if departures.left:
        return "left"
    if one.restarted:
        return "restarted"
    if one.joined:
        return "joined"
    return one.cause.split(" and ")[0].replace(" ", "_")
