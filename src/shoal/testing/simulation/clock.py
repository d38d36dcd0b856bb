"""Virtual time: what is due next happens now.

Rule: nobody waits. Whoever wants something to happen later puts it here, and time jumps from one
entry to the next. Entries of the same time happen in the order they were put, so a run depends on
nothing but what was put.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

Action: TypeAlias = Callable[[Any], None]


class VirtualClock:
    """A clock and its list of things to do.

    >>> clock = VirtualClock()
    >>> clock.at(250, print, "a quarter of a second later")
    >>> clock.step()
    a quarter of a second later
    True
    >>> clock.now_ms
    250
    """

    __slots__ = ("_due", "_times", "now_ms")

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        # Entries by time and the times in a heap: many entries share one, and numbers are
        # compared faster than entries.
        self._due: dict[int, list[tuple[Action, Any]]] = {}
        self._times: list[int] = []

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    @property
    def next_ms(self) -> int | None:
        """When the next thing is due."""
        return self._times[0] if self._times else None

    def at(self, when_ms: int, action: Action, argument: Any = None) -> None:
        """Do ``action(argument)`` at ``when_ms``, or at once if that is past."""
        if when_ms < self.now_ms:
            when_ms = self.now_ms
        entries = self._due.get(when_ms)
        if entries is None:
            self._due[when_ms] = [(action, argument)]
            heappush(self._times, when_ms)
        else:
            entries.append((action, argument))

    def after(self, delay_ms: int, action: Action, argument: Any = None) -> None:
        self.at(self.now_ms + delay_ms, action, argument)

    def step(self) -> bool:
        """Do the next thing; False if there is none."""
        if not self._times:
            return False
        self.now_ms = self._times[0]
        action, argument = self._due[self.now_ms][0]
        self._drop(1)
        action(argument)
        return True

    def run_until(self, end_ms: int) -> int:
        """Do everything due before ``end_ms`` and go there; returns how much that was."""
        count = 0
        times, due = self._times, self._due
        while times and times[0] < end_ms:
            self.now_ms = times[0]
            done = 0
            try:
                # What is put for this very time meanwhile is done in the same turn.
                for action, argument in due[self.now_ms]:
                    done += 1
                    action(argument)
            except BaseException:
                self._drop(done)
                raise
            del due[heappop(times)]
            count += done
        self.now_ms = max(self.now_ms, end_ms)
        return count

    def _drop(self, count: int) -> None:
        """The first entries of the earliest time are done."""
        entries = self._due[self._times[0]]
        del entries[:count]
        if not entries:
            del self._due[heappop(self._times)]
