"""Threads in virtual time: of all of them, and the loop, one runs at a time, and a seed says which.

A blocking client is made of locks, conditions, queues and waits. Here these give the turn back to
the loop instead of to the operating system, and get it again when what they wait for is there; so
the real code of ``Consumer``, ``Engine.call``, ``Worker`` and ``Processing`` runs unchanged, and
the same seed gives the same run. Where a lock is taken, another thread may go first.

Rule: who waits for anything but a condition holds no lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

from shoal.client.engine import Engine
from shoal.testing.simulation.virtual_loop import _process

YIELDS = 0.3


class GoneError(BaseException):
    """The process of this thread is no more."""


class Stage:
    """Whose turn it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int) -> None:
        self.loop = loop
        self.dice = random.Random(seed)
        self.threads: list[StagedThread] = []
        self.failures: list[BaseException] = []

    @property
    def here(self) -> StagedThread | None:
        return next((one for one in self.threads if one.real is threading.current_thread()), None)

    def wait(self, future: asyncio.Future[Any], timeout_s: float | None = None) -> None:
        """In a staged thread: give the turn away until ``future`` is done, or time is up."""
        here = self.here
        assert here is not None, "the loop would wait for itself"
        assert not here.holds, "waits with a lock in its hands"
        timer = None
        if timeout_s is not None:
            timer = self.loop.call_later(max(0.0, timeout_s), settle, future)
        future.add_done_callback(here.resume)
        here.give_back()
        if timer is not None:
            timer.cancel()

    def sleep(self, seconds: float) -> None:
        self.wait(self.loop.create_future(), seconds)

    def end(self) -> None:
        """Let all threads that are left unwind."""
        for one in self.threads:
            one.is_gone = True
            if one.real.is_alive():
                one.go.release()
                one.real.join(10)

    @contextlib.contextmanager
    def set_up(self) -> Iterator[None]:
        """The blocking consumer's threads are those of this stage."""
        StagedThread.stage = self
        StagedEngine.stage = self
        threads = SimpleNamespace(
            Thread=StagedThread,
            Lock=lambda: StagedLock(self),
            Condition=lambda: StagedCondition(self),
            current_thread=lambda: self.here,
            TIMEOUT_MAX=threading.TIMEOUT_MAX,
        )
        clock = SimpleNamespace(monotonic=self.loop.time)
        queues = SimpleNamespace(SimpleQueue=lambda: StagedQueue(self))
        with contextlib.ExitStack() as patches:
            for place, stand_in in (
                ("engine.threading", threads),
                ("engine.queue", queues),
                ("engine.time", clock),
                ("processing.threading", threads),
                ("processing.time", clock),
                ("consumer.Engine", StagedEngine),
            ):
                patches.enter_context(patch(f"shoal.client.{place}", stand_in))
            try:
                yield
            finally:
                self.end()


def settle(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


class StagedThread:
    """A real thread that runs when it has the turn; lives and dies with its simulated process."""

    stage: ClassVar[Stage]

    def __init__(self, target: Callable[[], Any], name: str = "", *, daemon: bool = True) -> None:
        self.holds = 0
        self.is_gone = False
        self.go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._target = target
        self._context = copy_context()
        self._process = self._context.get(_process)
        self.ended: asyncio.Future[None] = self.stage.loop.create_future()
        self.real = threading.Thread(target=self._run, name=name, daemon=daemon)

    def start(self) -> None:
        self.stage.threads.append(self)
        self.real.start()
        self.stage.loop.call_soon(self.resume)

    def is_alive(self) -> bool:
        return not self.ended.done()

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            joined = self.stage.loop.create_future()
            self.ended.add_done_callback(lambda _: settle(joined))
            self.stage.wait(joined, timeout)

    def resume(self, _: object = None) -> None:
        """On the loop: it runs until it waits again, or ends. The dead do not."""
        process = self._process
        if self.is_gone or (process is not None and not process.is_alive):
            return
        if process is not None and process.is_paused:
            self.stage.loop.call_later(0.05, self.resume)
            return
        self.go.release()
        self._back.acquire()

    def give_back(self) -> None:
        """In this thread: the loop goes on, until ``resume``."""
        self._back.release()
        self.go.acquire()
        self.look()

    def look(self) -> None:
        if self.is_gone:
            raise GoneError

    def _run(self) -> None:
        self.go.acquire()
        try:
            if not self.is_gone:
                self._context.run(self._target)
        except GoneError:
            pass
        except BaseException as error:  # told by whoever looks at the stage
            self.stage.failures.append(error)
        finally:
            if not self.is_gone:
                settle(self.ended)
            self._back.release()


class StagedLock:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        here = self._stage.here
        if here is not None:
            here.look()
            if blocking and not here.holds and self._stage.dice.random() < YIELDS:
                self._stage.sleep(0)
        if self._is_taken:
            if not blocking:
                return False
            self._wait(timeout)
            if self._is_taken:
                return False
        self._is_taken = True
        return True

    def _wait(self, timeout: float) -> None:
        until = None if timeout < 0 else self._stage.loop.time() + timeout
        while self._is_taken and (until is None or self._stage.loop.time() < until):
            freed = self._stage.loop.create_future()
            self._waiting.append(freed)
            left = None if until is None else until - self._stage.loop.time()
            self._stage.wait(freed, left)

    def release(self) -> None:
        if not self._is_taken:
            raise RuntimeError("release unlocked lock")
        self._is_taken = False
        while self._waiting:
            settle(self._waiting.popleft())

    def locked(self) -> bool:
        return self._is_taken

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class StagedCondition:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._lock = StagedLock(stage)
        self._waiting: set[asyncio.Future[None]] = set()

    def __enter__(self) -> None:
        self._lock.acquire()
        here = self._stage.here
        assert here is not None
        here.holds += 1

    def __exit__(self, *_: object) -> None:
        here = self._stage.here
        assert here is not None
        if here.holds:  # not of one that is gone while it waits
            here.holds -= 1
            self._lock.release()

    def wait(self, timeout: float | None = None) -> None:
        told = self._stage.loop.create_future()
        self._waiting.add(told)
        self.__exit__()
        try:
            self._stage.wait(told, timeout)
        finally:
            self._waiting.discard(told)
        self.__enter__()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until = None if timeout is None else self._stage.loop.time() + timeout
        while not predicate():
            left = None if until is None else until - self._stage.loop.time()
            if left is not None and left <= 0:
                return False
            self.wait(left)
        return True

    def notify_all(self) -> None:
        for told in self._waiting:
            settle(told)


class StagedQueue:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._items: deque[Any] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting:
            settle(self._waiting.popleft())

    def get(self) -> Any:
        while not self._items:
            arrived = self._stage.loop.create_future()
            self._waiting.append(arrived)
            self._stage.wait(arrived)
        return self._items.popleft()


class StagedEngine(Engine):
    """An engine whose loop is the stage's; ``call`` and all that follows from it are the real."""

    stage: ClassVar[Stage]

    def __init__(self, name: str = "") -> None:
        self.loop = self.stage.loop
        self.is_stopped = False
        self._begins = StagedLock(self.stage)  # type: ignore[assignment]  # it stands in for one

    @property
    def is_running(self) -> bool:
        return not self.is_stopped

    @property
    def is_here(self) -> bool:
        return False

    def need_own_process(self) -> None:
        """There is no other."""

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        here = self.stage.here
        if here is not None and here.is_gone:
            coroutine.close()
            raise GoneError
        return super().call(coroutine)

    def stop(self) -> None:
        self.is_stopped = True
