"""Deadlines and back-off, on the running loop's clock so that a simulated loop can own the time.

Rule: every wait in the client is bounded by a ``Deadline`` that came from the caller or from a
setting; nothing here reads a clock of its own.
"""

from __future__ import annotations

import asyncio
import math
import random


class Deadline:
    """A moment on the loop's clock. Made from a timeout; ``None`` never passes."""

    __slots__ = ("_at", "_made_at", "timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self._made_at = _now()
        self._at = math.inf if timeout_s is None else self._made_at + timeout_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._at - _now())

    @property
    def spent_s(self) -> float:
        """Since it was made."""
        return _now() - self._made_at

    @property
    def has_passed(self) -> bool:
        return _now() >= self._at

    def limit(self, timeout_s: float) -> float:
        """``timeout_s``, or what is left if that is less."""
        return min(timeout_s, self.left_s)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(self.limit(seconds))


class RetryBackoff:
    """Growing pauses with jitter: first, twice that, ... up to the longest, each +-20 %."""

    __slots__ = ("_failures", "_first_ms", "_longest_ms")

    def __init__(self, first_ms: int, longest_ms: int) -> None:
        self._first_ms = first_ms
        self._longest_ms = max(first_ms, longest_ms)
        self._failures = 0

    def next_s(self) -> float:
        pause_ms = min(self._first_ms * 2.0 ** min(self._failures, 30), self._longest_ms)
        self._failures += 1
        return pause_ms * random.uniform(0.8, 1.2) / 1000

    def reset(self) -> None:
        self._failures = 0


def _now() -> float:
    return asyncio.get_running_loop().time()
