"""The thread behind every client, with its own event loop, and the way into it and back.

A face calls ``Engine.call(coroutine)`` (blocking) or ``await engine.call_async(coroutine)``. The
coroutine runs on the engine's loop, beside heartbeats and fetches which go on when no call is
under way. User code must not run there: a coroutine which needs a callback of the user's says
``await in_caller(function, ...)``, and the function runs in the thread (or on the loop) of whoever
made the call, between the call and its return.

Rule: this is the only module of the client that knows threads; everything else is coroutines on
one loop and would run as well on a simulated one. Threads are its own and never an executor's:
those refuse work as soon as the main thread has ended, while other threads of a program go on.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

# So often somebody who waits for a worker looks whether it is still there.
_LOOK_S: Final = 1.0
# A name server may be silent for much longer than anybody wants to wait for the end.
_LOOKUPS_END_S: Final = 1.0
# Threads do not follow into a forked process.
_ELSEWHERE: Final = "this client works in the process it was made in; make one after the fork"


class _Caller(Protocol):
    """Someone who waits for a call and runs the callbacks it needs."""

    outcome: asyncio.Future[Any] | None
    """Of the callback it runs now."""

    def post(self, step: _Step, /) -> None: ...


_caller: ContextVar[_Caller | None] = ContextVar("shoal_caller", default=None)


class _Step:
    """One thing the caller has to do: run a function, or take the result and go."""

    __slots__ = ("arguments", "error", "function", "loop", "outcome", "result")

    def __init__(self, function: Callable[..., Any] | None, *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments
        self.outcome: asyncio.Future[Any] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def done(self, result: Any, error: BaseException | None) -> None:
        """Called by the caller when ``function`` has run: back to the engine."""
        assert self.loop is not None
        try:
            self.loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:  # the loop was closed meanwhile; nobody waits any more
            return

    def _settle(self, result: Any, error: BaseException | None) -> None:
        assert self.outcome is not None
        _settle(self.outcome, result, error)


def _settle(outcome: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)


async def in_caller(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run user code where the user is, and wait for it.

    On a loop without an engine around it (a simulation), that is right here.
    """
    caller = _caller.get()
    if caller is None:
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result
    step = _Step(function, *arguments)
    step.loop = asyncio.get_running_loop()
    step.outcome = caller.outcome = step.loop.create_future()
    caller.post(step)
    try:
        return await step.outcome
    finally:
        caller.outcome = None


def callback_under_way() -> asyncio.Future[Any] | None:
    """On the loop, within a call: its callback that user code is in now, if there is one."""
    caller = _caller.get()
    return None if caller is None else caller.outcome


class Arrival:
    """Tells one waiting thread that something came, as an Event does, but in one step of C each.

    Several times per answer of a broker one thread tells the other; ``threading.Event`` takes two
    dozen calls of Python for that.
    """

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        if self._gate.locked():
            with suppress(RuntimeError):  # another thread was faster
                self._gate.release()

    def clear(self) -> None:
        self._gate.acquire(blocking=False)

    def wait(self, timeout_s: float) -> None:
        """Until something comes, or came since the last ``clear`` or ``wait``."""
        self._gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))


class _BlockingCaller:
    """The thread that called: waits on a queue for the next step."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Any] | None = None
        self._steps: queue.SimpleQueue[_Step] = queue.SimpleQueue()
        self.post = self._steps.put

    def wait(self) -> Any:
        while True:
            step = self._steps.get()
            if step.function is None:
                if step.error is not None:
                    raise step.error
                return step.result
            try:
                result = step.function(*step.arguments)
                if inspect.iscoroutine(result):
                    result.close()
                    raise TypeError(
                        f"{step.function!r} is a coroutine function; use it with AsyncConsumer"
                    )
            except Exception as error:  # noqa: BLE001 - carried to the engine, raised there
                step.done(None, error)
            else:
                step.done(result, None)


class _AwaitingCaller:
    """A task on the user's loop: awaits the next step."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[Any] | None = None
        self._loop = asyncio.get_running_loop()
        self._steps: asyncio.Queue[_Step] = asyncio.Queue()

    def post(self, step: _Step) -> None:
        try:
            self._loop.call_soon_threadsafe(self._steps.put_nowait, step)
        except RuntimeError:  # the user's loop ended without waiting for us
            step.done(None, asyncio.CancelledError())

    async def wait(self) -> Any:
        while True:
            step = await self._steps.get()
            if step.function is None:
                if step.error is not None:
                    raise step.error
                return step.result
            try:
                result = step.function(*step.arguments)
                if inspect.isawaitable(result):
                    result = await result
            except Exception as error:  # noqa: BLE001 - carried to the engine, raised there
                step.done(None, error)
            else:
                step.done(result, None)


class Worker:
    """One background thread that runs functions, in the order they are posted, until ``close``."""

    def __init__(self, name: str) -> None:
        """Start the thread.

        Raises:
            RuntimeError: the interpreter is ending and starts no more threads.
        """
        self._work: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether this is the worker's own thread, which cannot wait for itself."""
        return threading.current_thread() is self._thread

    def post(self, function: Callable[[], Any]) -> None:
        self._work.put(function)

    def wait(self, timeout_s: float | None) -> bool:
        """Until all that was posted before has run, or the thread has ended; whether in time."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        done = threading.Event()
        self._work.put(done.set)
        while self._thread.is_alive():
            left_s = _LOOK_S if until is None else min(_LOOK_S, until - time.monotonic())
            if done.wait(max(0.0, left_s)):
                return True
            if until is not None and time.monotonic() >= until:
                return False
        return True

    def close(self, *, wait: bool = True) -> None:
        """Run what was posted, then end the thread; waits for that, save within it."""
        self._work.put(None)
        if wait and not self.is_here:
            self._thread.join()

    def _run(self) -> None:
        while (function := self._work.get()) is not None:
            function()


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that looks names up in threads of its own, which end with it.

    One for each lookup: a name server that does not answer must hold up nobody else.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lookups: set[threading.Thread] = set()

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the name is asyncio's
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        wanted = (host, port, family, type, proto, flags)
        outcome: asyncio.Future[list[Any]] = self.create_future()

        def look_up() -> None:
            try:
                found = socket.getaddrinfo(*wanted)
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                settled = partial(_settle, outcome, None, error)
            else:
                settled = partial(_settle, outcome, found, None)
            with suppress(RuntimeError):  # the loop was closed meanwhile; nobody waits any more
                self.call_soon_threadsafe(settled)

        thread = threading.Thread(target=look_up, name="shoal-lookup", daemon=True)
        self._lookups = {one for one in self._lookups if one.is_alive()}
        try:
            thread.start()
        except RuntimeError:
            # The interpreter is ending and starts no more threads: atexit may still flush.
            return socket.getaddrinfo(*wanted)
        self._lookups.add(thread)
        return await outcome

    def close(self) -> None:
        until = time.monotonic() + _LOOKUPS_END_S
        for thread in self._lookups:
            thread.join(max(0.0, until - time.monotonic()))
        super().close()


class Engine:
    """One background thread running one event loop, from construction to ``stop``."""

    STOP_TIMEOUT_S: Final = 5.0

    def __init__(self, name: str = "shoal") -> None:
        self.loop: asyncio.AbstractEventLoop = _Loop()
        self._process_id = os.getpid()
        # A daemon: a program which forgets close() must still be able to end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.is_stopped = False
        # Calls begin before the loop is told to stop, or are refused: one that begins while it
        # stops would never end.
        self._begins = threading.Lock()
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return not self.is_stopped and self._thread.is_alive()

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is the engine's own: a blocking call would wait for itself."""
        return threading.current_thread() is self._thread

    def need_own_process(self) -> None:
        """Refuse what needs no thread, and therefore would work on in a forked process.

        Raises:
            RuntimeError: this is not the process the engine was made in.
        """
        if os.getpid() != self._process_id:
            raise RuntimeError(_ELSEWHERE)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` on the engine, callbacks here, and return its result."""
        if self.is_here:
            coroutine.close()
            raise RuntimeError("a blocking client call inside the client's own thread")
        caller = _BlockingCaller()
        task = self._start(coroutine, caller)
        try:
            result: T = caller.wait()
        except BaseException:
            # A KeyboardInterrupt while waiting, or while a callback ran (raised on the engine it
            # would end its thread): the engine must not go on with a call whose caller has left.
            # Harmless when the task itself raised.
            self._cancel(task)
            raise
        return result

    async def call_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The same for a caller on another event loop; cancelling it cancels the coroutine."""
        caller = _AwaitingCaller()
        task = self._start(coroutine, caller)
        try:
            result: T = await caller.wait()
        except BaseException:
            self._cancel(task)
            raise
        return result

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run a short function on the loop soon; nothing comes back."""
        if self.is_running:
            self.loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """End the loop and the thread. Tasks still running are cancelled."""
        with self._begins:
            if self.is_stopped:
                return
            self.is_stopped = True
            self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_here:
            self._thread.join(self.STOP_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self.loop.close()

    def _start(self, coroutine: Coroutine[Any, Any, T], caller: _Caller) -> list[asyncio.Task[T]]:
        context = copy_context()
        context.run(_caller.set, caller)
        holder: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self.loop.create_task(coroutine, context=context)
            holder.append(task)
            task.add_done_callback(lambda task: _finish(task, caller))

        with self._begins:
            if self.is_running:
                self.loop.call_soon_threadsafe(start)
                return holder
        coroutine.close()
        raise RuntimeError("this client is closed" if self.is_stopped else _ELSEWHERE)

    def _cancel(self, holder: list[asyncio.Task[Any]]) -> None:
        def cancel() -> None:
            for task in holder:
                task.cancel()

        if self.is_running:
            self.loop.call_soon_threadsafe(cancel)


def _finish(task: asyncio.Task[Any], caller: _Caller) -> None:
    step = _Step(None)
    if task.cancelled():
        # By ``stop``, or because the caller has left and does not read this.
        step.error = RuntimeError("this client is closed")
    else:
        step.error = task.exception()
        if step.error is None:
            step.result = task.result()
    caller.post(step)
