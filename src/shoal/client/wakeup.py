"""``wakeup``: one call from any thread ends one blocking call, once.

Which one is Kafka's rule: the call in progress raises. While user code runs inside a call (a
listener, the callback of a commit) that is whatever it calls in turn, and what it catches there
is over. If it calls nothing that blocks, the call around it raises as soon as it is back.

Rule: whoever raises ``WakeupError`` has taken the wakeup here, so no two calls raise it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from shoal.client.engine import callback_under_way
from shoal.errors import WakeupError

T = TypeVar("T")


def close_unstarted(*calls: Coroutine[Any, Any, Any]) -> None:
    """A call that was refused, because the client is closed or another's, never began its work."""
    for each in calls:
        if inspect.getcoroutinestate(each) == inspect.CORO_CREATED:
            each.close()


class Wakeups:
    """Rung from any thread, heard on the engine's loop."""

    def __init__(self, on_ring: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_ring = on_ring
        self._is_pending = False
        self._is_off = False
        self._calls: list[asyncio.Task[Any]] = []
        self._sleepers: set[asyncio.Future[None]] = set()

    @property
    def is_pending(self) -> bool:
        return self._is_pending

    def ring(self) -> None:
        """From any thread: the current or the next blocking call raises ``WakeupError``."""
        if self._is_off:
            return
        self._is_pending = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung)

    def turn_off(self) -> None:
        """From now on nothing is woken: what is being closed is to end in order."""
        self._is_off, self._is_pending = True, False

    def take(self) -> None:
        """Raise ``WakeupError`` if there was a wakeup that nobody has taken."""
        if self._is_pending:
            self._is_pending = False
            raise WakeupError("wakeup() was called")

    async def interruptible(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work``; ends early, with ``WakeupError``, on a wakeup."""
        try:
            self.take()
        except WakeupError:
            work.close()
            raise
        task = self._loop.create_task(work)
        self._calls.append(task)
        try:
            while not task.done():
                await self._sleep(task)
            return task.result()
        finally:
            self._calls.remove(task)
            self._rung()  # another call may be the innermost now
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _sleep(self, task: asyncio.Task[Any]) -> None:
        """Until ``task`` is done or something changed; raises if it is ours to raise."""
        callback = callback_under_way()
        if self._calls[-1] is task and callback is None:
            self.take()
        woken: asyncio.Future[None] = self._loop.create_future()
        waiting: set[asyncio.Future[Any]] = {task, woken}
        if self._is_pending and callback is not None:
            waiting.add(callback)
        self._sleepers.add(woken)
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._sleepers.discard(woken)

    def _rung(self) -> None:
        if not self._is_pending:
            return
        self._on_ring()
        for woken in self._sleepers:
            if not woken.done():
                woken.set_result(None)
