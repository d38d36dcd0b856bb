"""How far behind a group was, and when: what sparklines and the lag chart are drawn from. Pure.

Rule: bounded. A series has at most ``POINTS_MAX`` points; older ones are thinned out, so what is
longer ago is known less exactly, never less far back. Times are seconds since 1970.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

POINTS_MAX: Final = 360
SPARK_POINTS: Final = 24
SPARK_SPAN_S: Final = 1800.0
SPARK_SPAN_MIN_S: Final = 120.0
TREND_S: Final = 60.0
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class LagSeries:
    """Lag over time, in records and in seconds."""

    __slots__ = ("behind_s", "lags", "times")

    def __init__(self) -> None:
        self.times = array("d")
        self.lags = array("q")
        self.behind_s = array("f")

    def add(self, at_s: float, lag: int, behind_s: float) -> None:
        """One more point; one that is not later than the last is left out."""
        if self.times and at_s <= self.times[-1]:
            return
        self.times.append(at_s)
        self.lags.append(lag)
        self.behind_s.append(behind_s)
        if len(self.times) > POINTS_MAX:
            half = POINTS_MAX // 2
            for column in (self.times, self.lags, self.behind_s):
                del column[1:half:2]

    def spark(self, now_s: float) -> str:
        """Seconds behind in the last half hour, a character a step: 0 is none, z the most.

        A point is where nothing is known.
        """
        times, values = self.times, self.behind_s
        if not times:
            return "." * SPARK_POINTS
        span_s = min(SPARK_SPAN_S, max(SPARK_SPAN_MIN_S, now_s - times[0]))
        step_s = span_s / SPARK_POINTS
        first = bisect_left(times, now_s - span_s)
        most = max(values[first:], default=0.0)
        shown = []
        last = "."
        for number in range(SPARK_POINTS):
            begin_s = now_s - span_s + number * step_s
            low, high = bisect_left(times, begin_s), bisect_left(times, begin_s + step_s)
            if number == SPARK_POINTS - 1:
                high = len(times)
            if low < high:
                value = max(values[low:high])
                last = _DIGITS[round(35 * value / most)] if most > 0 else "0"
            shown.append(last)
        return "".join(shown)

    def trend(self, now_s: float) -> str:
        """Whether it grows: rising, falling, steady, or nothing if that is not known."""
        first = bisect_left(self.times, now_s - TREND_S)
        if len(self.times) - first < 2:
            return ""
        before, now = self.lags[first], self.lags[-1]
        if abs(now - before) <= max(10, before // 20):
            return "steady"
        return "rising" if now > before else "falling"


class GroupLags:
    """The series of one group: as a whole and, if it reads several topics, of each."""

    __slots__ = ("_topics", "_whole")

    def __init__(self) -> None:
        self._whole = LagSeries()
        self._topics: dict[str, LagSeries] = {}

    def add(self, at_s: float, by_topic: Iterable[tuple[str, int, float]]) -> None:
        """One look: lag and seconds behind, topic by topic."""
        rows = list(by_topic)
        if not rows:
            return
        lag, behind_s = sum(row[1] for row in rows), max(row[2] for row in rows)
        self._whole.add(at_s, lag, behind_s)
        for topic, topic_lag, topic_behind_s in rows:
            if topic not in self._topics:
                self._topics[topic] = self._whole if len(rows) == 1 else LagSeries()
            elif len(rows) > 1 and self._topics[topic] is self._whole:
                self._topics[topic] = LagSeries()  # it reads another one now
            if self._topics[topic] is not self._whole:
                self._topics[topic].add(at_s, topic_lag, topic_behind_s)

    @property
    def whole(self) -> LagSeries:
        return self._whole

    @property
    def topics(self) -> dict[str, LagSeries]:
        return self._topics
