"""How long requests take: measured when a reply is handed out, for the metrics port only.

Rule: a request costs one look at the clock and a few additions, in lists by the number of its API,
without a call of anything else of ours. Without a metrics port nothing here is made and nothing is
measured.
"""

from __future__ import annotations

from bisect import bisect_left
from time import perf_counter
from typing import TYPE_CHECKING, Final

from shoal.metrics.exposition import Buckets
from shoal.wire.apis.registry import API

if TYPE_CHECKING:
    from shoal.broker.connection import Exchange

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
WINDOW_S: Final = 60.0
"""The slowest request is that of the last one or two of these."""
# One place for each API, and one more: -1, what came before a header, is the last.
_PLACES: Final = max(API) + 2


class RequestTimings:
    """Answers by API, from the moment a request was there to the moment its reply was; and how long
    producers waited for the disk."""

    __slots__ = (
        "_ack_counts",
        "_ack_total",
        "_before",
        "_counts",
        "_now",
        "_totals",
        "_turned_s",
        "is_durable",
    )

    def __init__(self, *, is_durable: bool) -> None:
        self.is_durable = is_durable
        """Whether a reply to a producer says that its records are on the disk."""
        self._counts = [[0] * (len(SECONDS) + 1) for _ in range(_PLACES)]
        self._totals = [0.0] * _PLACES
        self._ack_counts = [0] * (len(SECONDS) + 1)
        self._ack_total = 0.0
        # The slowest of this window and of the one before.
        self._now = [0.0] * _PLACES
        self._before = [0.0] * _PLACES
        self._turned_s = perf_counter()

    def answered(self, exchange: Exchange) -> None:
        """A reply goes out."""
        seconds = perf_counter() - exchange.started
        api_key = exchange.api_key
        bucket = bisect_left(SECONDS, seconds)
        try:
            self._counts[api_key][bucket] += 1
        except IndexError:
            return  # served by nobody
        self._totals[api_key] += seconds
        if seconds > self._now[api_key]:
            self._now[api_key] = seconds
        if exchange.is_stored and self.is_durable:
            self._ack_counts[bucket] += 1
            self._ack_total += seconds

    def took(self, api_key: int, seconds: float, count: int) -> None:
        """So many requests that were answered together."""
        self._counts[api_key][bisect_left(SECONDS, seconds)] += count
        self._totals[api_key] += seconds * count
        if seconds > self._now[api_key]:
            self._now[api_key] = seconds

    def answers(self) -> dict[int, Buckets]:
        """By API, of those that were asked."""
        return {
            key: Buckets(SECONDS, tuple(counts), self._totals[key])
            for key in API
            if any(counts := self._counts[key])
        }

    def acks(self) -> Buckets:
        """Of acknowledgements that waited for the disk."""
        return Buckets(SECONDS, tuple(self._ack_counts), self._ack_total)

    def slowest(self, now_s: float | None = None) -> dict[int, float]:
        """The slowest answer by API, of the last minute or two. ``now_s``: by ``perf_counter``."""
        now_s = perf_counter() if now_s is None else now_s
        both = [max(pair) for pair in zip(self._now, self._before, strict=True)]
        if now_s - self._turned_s >= WINDOW_S:
            self._before, self._now, self._turned_s = self._now, [0.0] * _PLACES, now_s
        return {key: both[key] for key in API if both[key]}
