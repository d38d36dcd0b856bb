"""Where partitions ended, and when: so that lag can be told in seconds. Pure.

How long a group is behind in a partition is how long ago the partition ended where the group stands
now. That lies on a straight line between two samples. A group that stands before the first sample
is behind at least since then.

Rule: bounded. Of a partition at most ``SAMPLES_MAX`` are kept; old ones are thinned out, so what is
longer ago is known less exactly, never less far back.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Mapping
from typing import Final

from shoal.types import TopicPartition

SAMPLES_MAX: Final = 24


class _Partition:
    """Samples of one partition: end offsets grow, and so do times."""

    __slots__ = ("ends", "times")

    def __init__(self) -> None:
        self.ends = array("q")
        self.times = array("d")

    def add(self, end: int, at_s: float) -> None:
        ends, times = self.ends, self.times
        if ends and end < ends[-1]:
            del ends[:], times[:]  # deleted and created again: what was before is of another topic
        if len(ends) > 1 and ends[-1] == ends[-2] == end:
            times[-1] = at_s  # nothing was written since: two samples hold the whole quiet time
            return
        ends.append(end)
        times.append(at_s)
        if len(ends) > SAMPLES_MAX:
            # The first stays, it says how far back we know; and the newer half is left as it is.
            half = SAMPLES_MAX // 2
            del ends[1:half:2], times[1:half:2]

    def behind_s(self, committed: int, now_s: float) -> float | None:
        ends, times = self.ends, self.times
        if not ends:
            return None
        if committed >= ends[-1]:
            return 0.0
        after = bisect_right(ends, committed)
        if after == 0:
            return now_s - times[0]
        before = after - 1
        share = (committed - ends[before]) / (ends[after] - ends[before])
        written_s = times[before] + share * (times[after] - times[before])
        return max(0.0, now_s - written_s)


class EndSamples:
    """Samples of many partitions."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}

    def add(self, ends: Mapping[TopicPartition, int], at_s: float) -> None:
        """One look at the ends; partitions that are not in it are not looked at any more."""
        self._forget(ends.keys())
        for tp, end in ends.items():
            known = self._partitions.get(tp)
            if known is None:
                known = self._partitions[tp] = _Partition()
            known.add(end, at_s)

    def behind_s(self, tp: TopicPartition, committed: int, now_s: float) -> float | None:
        """For how many seconds what follows ``committed`` has been there; 0 at the end, ``None``
        if the partition was never looked at."""
        known = self._partitions.get(tp)
        return None if known is None else known.behind_s(committed, now_s)

    def knows(self, tp: TopicPartition, committed: int) -> bool:
        """Whether ``behind_s`` is exact; if not, it is at least so long."""
        known = self._partitions.get(tp)
        return known is not None and bool(known.ends) and committed >= known.ends[0]

    def _forget(self, left: Collection[TopicPartition]) -> None:
        for tp in [one for one in self._partitions if one not in left]:
            del self._partitions[tp]
