"""Code that waits by blocking, as Spark's tasks do, on a loop whose time is virtual.

It runs in a thread of its own, but never beside the loop: while it works the loop stands still,
and while it waits the loop works for it. So a run with it repeats as any other.

Rule: one of the two runs at a time. The thread only takes turns; it never touches the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class ProcessEndedError(BaseException):
    """Here the process died; nothing in it may go on."""


class BlockingCaller:
    """One thread, and what it waits for."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._answers: SimpleQueue[tuple[bool, Any]] = SimpleQueue()
        self._is_over = False

    async def run(self, function: Callable[[], T]) -> T:
        """On the loop: what the function returns, which may ``ask`` meanwhile."""
        thread = Thread(target=self._work, args=(function,), daemon=True)
        thread.start()
        while True:
            kind, payload = self._asked.get()  # the loop stands still until then
            if kind == "asks":
                try:
                    self._answers.put((True, await payload()))
                except asyncio.CancelledError:
                    self._is_over = True
                    self._answers.put((False, ProcessEndedError()))
                    thread.join()
                    raise
                except Exception as error:  # noqa: BLE001 - raised where it was asked for
                    self._answers.put((False, error))
                continue
            thread.join()
            if kind == "raised":
                raise payload
            result: T = payload
            return result

    def _work(self, function: Callable[[], Any]) -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits for it
            self._asked.put(("raised", error))
        else:
            self._asked.put(("returned", result))

    def ask(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """In the thread: run a coroutine on the loop and wait for it."""
        if self._is_over:
            raise ProcessEndedError
        self._asked.put(("asks", work))
        succeeded, answer = self._answers.get()
        if not succeeded:
            raise answer
        result: T = answer
        return result
