"""Values of the last minute: how many, how much, the largest, as Kafka's clients count them.

Time is cut into samples of 30 seconds, and a value lies in the sample of its moment. What is told
of "now" is of the samples that had a value within the last 60 seconds, so it is of half a minute
at least and of a minute and a half at most. A rate takes half a minute for granted: what happened
once, a second ago, is not a rate of one per second. That is Java's rule (``Rate``,
``SampledStat``), and its numbers are ours.

Rule: ``record`` is called per batch, request or poll, never per record, and by one thread. Any
thread may read; it may see a sum without the last value, and nothing worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

WINDOW_S: Final = 30.0
HOUR_S: Final = 3600.0
SAMPLES: Final = 2
_KEPT: Final = SAMPLES + 1  # the oldest may reach into the time that counts


class TimedSample(Protocol):
    """What was recorded within half a minute."""

    began: float
    last: float
    """When the last value came."""


S = TypeVar("S", bound=TimedSample)


class TimeWindows(Generic[S]):
    """The samples of one thing that is measured."""

    __slots__ = ("_current", "_ends", "_make", "_samples", "_window_s")

    def __init__(self, make: Callable[[float], S], window_s: float = WINDOW_S) -> None:
        self._make = make
        self._window_s = window_s
        self._samples: tuple[S, ...] = ()
        self._current: S | None = None
        self._ends = -math.inf

    def at(self, now: float) -> S:
        """The sample that a value of this moment belongs to."""
        if now < self._ends and self._current is not None:
            return self._current
        return self._next(now)

    def _next(self, now: float) -> S:
        self._current = sample = self._make(now)
        self._samples = (*self._samples, sample)[-_KEPT:]
        self._ends = now + self._window_s
        return sample

    def recent(self, now: float) -> list[S]:
        """Those that count now."""
        return [one for one in self._samples if now - one.last < SAMPLES * self._window_s]


def elapsed_s(samples: list[S], now: float, window_s: float = WINDOW_S) -> float:
    """The time a rate is about: of the oldest sample on, and one window at least."""
    began = min((one.began for one in samples), default=now)
    whole = int((now - began) / window_s)
    missing = max(0, SAMPLES - 1 - whole)
    return max(now - began + missing * window_s, 0.001)


class _Values:
    """How many values came, and what they come to."""

    __slots__ = ("began", "count", "largest", "last", "least", "sum")

    def __init__(self, now: float) -> None:
        self.began = self.last = now
        self.count = 0
        self.sum = 0.0
        self.largest = -math.inf
        self.least = math.inf


class Sensor:
    """One thing that is measured."""

    __slots__ = ("_windows", "count", "total")

    def __init__(self) -> None:
        self._windows = TimeWindows(_Values)
        self.count = 0
        """Of all values ever."""
        self.total = 0.0
        """Their sum."""

    def record(self, value: float, now: float) -> None:
        sample = self._windows.at(now)
        sample.last = now
        sample.count += 1
        sample.sum += value
        if value > sample.largest:
            sample.largest = value
        if value < sample.least:
            sample.least = value
        self.count += 1
        self.total += value

    def average(self, now: float) -> float:
        """Of the values that count now; not a number if there are none."""
        samples = self._windows.recent(now)
        count = sum(one.count for one in samples)
        return sum(one.sum for one in samples) / count if count else math.nan

    def largest(self, now: float) -> float:
        return max((one.largest for one in self._windows.recent(now)), default=math.nan)

    def least(self, now: float) -> float:
        return min((one.least for one in self._windows.recent(now)), default=math.nan)

    def rate(self, now: float) -> float:
        """What the values come to, per second."""
        samples = self._windows.recent(now)
        return sum(one.sum for one in samples) / elapsed_s(samples, now)

    def count_rate(self, now: float) -> float:
        """How many values came, per second."""
        samples = self._windows.recent(now)
        return sum(one.count for one in samples) / elapsed_s(samples, now)


class _Events:
    """How many times something happened."""

    __slots__ = ("began", "count", "last")

    def __init__(self, now: float) -> None:
        self.began = self.last = now
        self.count = 0


class HourlySensor:
    """Something that happens seldom: its samples are of an hour each."""

    __slots__ = ("_windows", "count")

    def __init__(self) -> None:
        self._windows = TimeWindows(_Events, HOUR_S)
        self.count = 0

    def record(self, now: float) -> None:
        sample = self._windows.at(now)
        sample.last = now
        sample.count += 1
        self.count += 1

    def rate_per_hour(self, now: float) -> float:
        samples = self._windows.recent(now)
        return sum(one.count for one in samples) / elapsed_s(samples, now, HOUR_S) * HOUR_S
