"""Long requests in slices, so that none holds the loop: other clients' heartbeats are due, too.

A handler that walks through what may be thousands is a generator and pauses (a bare ``yield``)
after each; dispatch lets it run on until its slice is used up, and then everybody else has a turn.
An ``async`` handler does the same with ``Turns``.

Rule: between two pauses stands work of bounded size, well below a millisecond.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

# A tenth of the time after which the loop counts as stalled.
SLICE_SECONDS: Final = 0.005


class Turns:
    """For coroutines: ``await turns.pause()`` gives the loop away when the slice is used up."""

    __slots__ = ("_until", "taken")

    def __init__(self) -> None:
        self._until = perf_counter() + SLICE_SECONDS
        self.taken = 0

    async def pause(self) -> None:
        if perf_counter() >= self._until:
            self.taken += 1
            await asyncio.sleep(0)
            self._until = perf_counter() + SLICE_SECONDS
