"""A histogram that is added to: how many values were at most each bound. Pure."""

from __future__ import annotations

from bisect import bisect_left

from shoal.metrics.exposition import Buckets


class Histogram:
    """Counts of values by fixed bounds, and their sum. Not for several threads at once."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """One value, or so many that are alike."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def buckets(self) -> Buckets:
        """A copy to show."""
        return Buckets(self.bounds, tuple(self.counts), self.total)
