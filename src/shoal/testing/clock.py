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

    __slots__ = ("_heap", "_sequence", "now_ms")

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._heap: list[tuple[int, int, Action, Any]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """When the next thing is due."""
        return self._heap[0][0] if self._heap else None

    def at(self, when_ms: int, action: Action, argument: Any = None) -> None:
        """Do ``action(argument)`` at ``when_ms``, or at once if that is past."""
        self._sequence += 1
        heappush(self._heap, (max(when_ms, self.now_ms), self._sequence, action, argument))

    def after(self, delay_ms: int, action: Action, argument: Any = None) -> None:
        self.at(self.now_ms + delay_ms, action, argument)

    def step(self) -> bool:
        """Do the next thing; False if there is none."""
        if not self._heap:
            return False
        self.now_ms, _, action, argument = heappop(self._heap)
        action(argument)
        return True

    def run_until(self, end_ms: int) -> int:
        """Do everything due before ``end_ms`` and go there; returns how much that was."""
        count = 0
        while self._heap and self._heap[0][0] < end_ms:
            self.step()
            count += 1
        self.now_ms = max(self.now_ms, end_ms)
        return count
