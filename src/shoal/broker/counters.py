"""Numbers about a running broker: counters, the slowest requests, the lag of the event loop.

Rule: counting must cost less than what is counted. Plain attributes and dictionaries, changed
only on the broker's loop; ``snapshot`` makes a copy for whoever asks (a signal, a test).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from time import perf_counter
from typing import Any, Final

# A request that holds the loop longer than this delays everybody's heartbeats.
STALL_SECONDS: Final = 0.050
_PROBE_SECONDS: Final = 0.050
_COMPLAINT_INTERVAL_MS: Final = 10_000
# Upper edges of the histogram of loop lag, in seconds.
LAG_EDGES: Final = (0.001, 0.002, 0.005, 0.010, 0.020, 0.050, 0.100, 0.250, 1.0, float("inf"))


class Counters:
    """Everything the broker counts about itself."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        # Behind the end of requests, by API: ignored, but a sign of a client that counts wrongly.
        self.surplus_bytes: Counter[str] = Counter()
        self.slowest_seconds: dict[str, float] = {}
        self.stalls: Counter[str] = Counter()
        self.slices: Counter[str] = Counter()
        self.connections_accepted = 0
        self.connections_open = 0
        self.denied = 0
        self.throttled = 0
        self.throttled_seconds = 0.0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.records_bytes_appended = 0
        self.batches_appended = 0
        self.fetches_waiting = 0
        self.lag_counts = [0] * len(LAG_EDGES)
        self.lag_max_seconds = 0.0
        self.lag_total_seconds = 0.0
        self._next_complaint_ms = 0

    def may_complain(self, now_ms: int) -> bool:
        """Whether to log that the disk fails: not at every retry of every producer."""
        if now_ms < self._next_complaint_ms:
            return False
        self._next_complaint_ms = now_ms + _COMPLAINT_INTERVAL_MS
        return True

    def request_took(self, api: str, seconds: float, count: int = 1) -> None:
        """A request, or so many that were handled together."""
        self.requests[api] += count
        if seconds > self.slowest_seconds.get(api, 0.0):
            self.loop_held(api, seconds)
        elif seconds > STALL_SECONDS:
            self.stalls[api] += 1

    def loop_held(self, api: str, seconds: float) -> None:
        """A request, or a slice of one, kept everybody else waiting for so long."""
        if seconds > self.slowest_seconds.get(api, 0.0):
            self.slowest_seconds[api] = seconds
        if seconds > STALL_SECONDS:
            self.stalls[api] += 1

    def lagged(self, seconds: float) -> None:
        self.lag_max_seconds = max(self.lag_max_seconds, seconds)
        self.lag_total_seconds += seconds
        for index, edge in enumerate(LAG_EDGES):
            if seconds <= edge:
                self.lag_counts[index] += 1
                return

    def lag_quantile_seconds(self, quantile: float) -> float:
        """The smallest bucket edge that covers ``quantile`` of all probes."""
        total = sum(self.lag_counts)
        if not total:
            return 0.0
        seen = 0
        for edge, count in zip(LAG_EDGES, self.lag_counts, strict=True):
            seen += count
            if seen >= quantile * total:
                return min(edge, self.lag_max_seconds)
        return self.lag_max_seconds

    def snapshot(self) -> dict[str, Any]:
        """A copy that can be printed as JSON."""
        return {
            "requests": dict(self.requests),
            "errors": dict(self.errors),
            "refused": dict(self.refused),
            "surplus_bytes": dict(self.surplus_bytes),
            "denied": self.denied,
            "throttled": self.throttled,
            "throttled_seconds": round(self.throttled_seconds, 3),
            "slowest_request_ms": {k: round(v * 1e3, 3) for k, v in self.slowest_seconds.items()},
            "stalls_over_50_ms": dict(self.stalls),
            "slices": dict(self.slices),
            "connections_accepted": self.connections_accepted,
            "connections_open": self.connections_open,
            "received_bytes": self.received_bytes,
            "sent_bytes": self.sent_bytes,
            "records_bytes_appended": self.records_bytes_appended,
            "batches_appended": self.batches_appended,
            "fetches_waiting": self.fetches_waiting,
            "loop_lag_ms": {
                "p50": round(self.lag_quantile_seconds(0.5) * 1e3, 3),
                "p99": round(self.lag_quantile_seconds(0.99) * 1e3, 3),
                "p999": round(self.lag_quantile_seconds(0.999) * 1e3, 3),
                "max": round(self.lag_max_seconds * 1e3, 3),
            },
        }


class LagProbe:
    """A timer that measures how late it is called: the lag everybody else sees, too."""

    def __init__(self, loop: asyncio.AbstractEventLoop, counters: Counters) -> None:
        self._loop = loop
        self._counters = counters
        self._due = perf_counter() + _PROBE_SECONDS
        self._handle = loop.call_later(_PROBE_SECONDS, self._fire)

    def _fire(self) -> None:
        now = perf_counter()
        self._counters.lagged(max(0.0, now - self._due))
        self._due = now + _PROBE_SECONDS
        self._handle = self._loop.call_later(_PROBE_SECONDS, self._fire)

    def stop(self) -> None:
        self._handle.cancel()
