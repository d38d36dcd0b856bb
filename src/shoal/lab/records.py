"""The records of a scenario: how many there are, which were processed, and how often.

Records have no content; of each only its offset matters. Logs grow evenly with time, so nobody
has to write them.

Rule: a record counts as lost only if the group's offsets say it is done and nobody ever did it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.simulated_cluster import SimulatedTopics
from shoal.types import TopicPartition

_stored: Final = dict.get
"""What a dict holds, whatever a subclass makes of it: every look for records asks."""


class _Ends(dict[TopicPartition, int]):
    """Log ends that follow the clock; the stored value is when the partition was made."""

    def __init__(self, clock: VirtualClock, per_second: float) -> None:
        super().__init__()
        self._clock = clock
        self._per_ms = per_second / 1_000

    def __setitem__(self, tp: TopicPartition, _: int) -> None:
        super().__setitem__(tp, self._clock.now_ms)

    def __getitem__(self, tp: TopicPartition) -> int:
        return int((self._clock.now_ms - super().__getitem__(tp)) * self._per_ms)

    def get(self, tp: TopicPartition, default: Any = None) -> Any:
        made_ms = _stored(self, tp)
        return default if made_ms is None else int((self._clock.now_ms - made_ms) * self._per_ms)


class GrowingTopics(SimulatedTopics):
    """Topics whose partitions get ``per_second`` records each."""

    def __init__(self, counts: Mapping[str, int], clock: VirtualClock, per_second: float) -> None:
        super().__init__({})
        self.ends = _Ends(clock, per_second)
        for topic, partitions in counts.items():
            self.create(topic, partitions)


class RecordBook:
    """Which records were processed, as intervals; almost always there is one per partition."""

    def __init__(self) -> None:
        self.processed = 0
        self.twice = 0
        self._done: dict[TopicPartition, list[list[int]]] = {}

    def process(self, tp: TopicPartition, start: int, end: int) -> None:
        """Somebody processed [start, end)."""
        if end <= start:
            return
        self.processed += end - start
        done = self._done.get(tp)
        if done is None:
            self._done[tp] = [[start, end]]
        elif done[-1][1] == start:
            done[-1][1] = end
        else:
            self.twice += _merge(done, start, end)

    def missing(self, tp: TopicPartition, end: int) -> int:
        """How many of [0, end) nobody processed."""
        return end - sum(max(0, min(stop, end) - start) for start, stop in self._done.get(tp, ()))


def _merge(done: list[list[int]], start: int, end: int) -> int:
    """Add [start, end) to sorted, separate intervals; returns how much of it was there."""
    first = max(bisect_right(done, [start]) - 1, 0)
    if done[first][1] < start:
        first += 1
    overlap = 0
    last = first
    left, right = start, end
    while last < len(done) and done[last][0] <= end:
        overlap += max(0, min(end, done[last][1]) - max(start, done[last][0]))
        left, right = min(left, done[last][0]), max(right, done[last][1])
        last += 1
    done[first:last] = [[left, right]]
    return overlap
