"""Deadlines by name, cheap to push back.

A member's session deadline moves with every heartbeat, so moving it must cost no more than a
dict write. The heap therefore holds *at most one* entry per name, and an entry may be early: when
it comes to the top, it is put back at the deadline that counts.

Rule: a timer is data. Nothing here knows what a name means or what happens when it is due.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """Names are due in the order of their deadlines; equal ones in the order of arming."""

    __slots__ = ("_deadlines", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._queued: dict[K, int] = {}
        """The deadline under which a name stands in the heap."""
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def arm(self, name: K, deadline_ms: int) -> None:
        """Set or move a deadline."""
        self._deadlines[name] = deadline_ms
        queued = self._queued.get(name)
        if queued is None or deadline_ms < queued:
            self._push(name, deadline_ms)

    def cancel(self, name: K) -> None:
        self._deadlines.pop(name, None)

    def deadline(self, name: K) -> int | None:
        return self._deadlines.get(name)

    def next_deadline(self) -> int | None:
        """The earliest deadline that counts."""
        heap = self._heap
        while heap:
            queued, sequence, name = heap[0]
            deadline = self._deadlines.get(name)
            if deadline == queued and self._queued[name] == queued:
                return deadline
            if self._queued.get(name) != queued:
                heappop(heap)  # A shorter deadline was queued after this one.
            elif deadline is None:
                heappop(heap)
                del self._queued[name]
            else:
                heapreplace(heap, (deadline, sequence, name))
                self._queued[name] = deadline
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Take one name whose deadline has come, the most overdue first."""
        deadline = self.next_deadline()
        if deadline is None or deadline > now_ms:
            return None
        _, _, name = heappop(self._heap)
        del self._queued[name], self._deadlines[name]
        return name

    def _push(self, name: K, deadline_ms: int) -> None:
        self._sequence += 1
        self._queued[name] = deadline_ms
        heappush(self._heap, (deadline_ms, self._sequence, name))
