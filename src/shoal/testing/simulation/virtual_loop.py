"""An event loop whose time is virtual, on which several processes live that can stand still.

Real asyncio code runs on it unchanged: when every task waits, time jumps to whatever is due next,
a timer of the loop or an entry of the ``VirtualClock``. A connection is made by a function of the
simulation instead of the operating system, so neither threads nor sockets nor clocks are involved,
and the same calls give the same run.

Rule: whoever belongs to a process says so through its context, which every task and timer it
starts inherits. A paused process runs nothing until it goes on, a dead one nothing ever again;
nobody else notices.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeAlias

from shoal.testing.simulation.clock import VirtualClock


class SimulatedProcess:
    """Something that can be paused and killed: whatever runs in its context."""

    def __init__(self, name: str, clock: VirtualClock) -> None:
        self.name = name
        self.is_alive = True
        self.paused_until_ms = 0
        self.paused_ms = 0
        """How long it has stood still, in all."""
        self._clock = clock
        self.context = copy_context()
        self.context.run(_process.set, self)

    @property
    def is_paused(self) -> bool:
        return self._clock.now_ms < self.paused_until_ms

    def pause(self, pause_ms: int) -> None:
        now_ms = self._clock.now_ms
        until_ms = max(self.paused_until_ms, now_ms + pause_ms)
        self.paused_ms += until_ms - max(self.paused_until_ms, now_ms)
        self.paused_until_ms = until_ms

    def enter(self, call: tuple[Callable[..., Any], tuple[Any, ...]]) -> None:
        """From outside, such as from the network: call something in here, when it runs again."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._clock.at(self.paused_until_ms, self.enter, call)
            return
        function, arguments = call
        self.context.run(function, *arguments)


_process: ContextVar[SimulatedProcess | None] = ContextVar("shoal_simulated_process", default=None)

Connect: TypeAlias = Callable[
    [SimulatedProcess, Callable[[], asyncio.BaseProtocol], str, int],
    Awaitable[tuple[asyncio.Transport, asyncio.BaseProtocol]],
]


class _Jumping(selectors.BaseSelector):
    """Waits by moving the time; of files it knows nothing."""

    def __init__(self, clock: VirtualClock) -> None:
        self.now_s = clock.now_ms / 1000
        self._clock = clock
        self.events = 0
        self.steps = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.steps += 1
        if timeout is not None and timeout <= 0:
            return []
        due_ms = self._clock.next_ms
        until_s = None if timeout is None else self.now_s + timeout
        if due_ms is not None and (until_s is None or due_ms / 1000 <= until_s):
            self.now_s = max(self.now_s, due_ms / 1000)
            self.events += 1
            self._clock.step()
        else:
            assert until_s is not None, "nothing will ever happen again"
            self.now_s = until_s
            self._clock.now_ms = max(self._clock.now_ms, int(until_s * 1000 + 1e-6))
        return []

    # The loop wants to be woken by a socket of its own, which is never needed here.

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. ``connect`` is asked for every connection a process opens."""

    def __init__(self, clock: VirtualClock, connect: Connect) -> None:
        self._jumping = _Jumping(clock)
        self._virtual_clock = clock
        self._connect = connect
        self.work_ms: Callable[[], int] = lambda: 1
        """How long what is given to an executor takes; it runs at the end of that, here."""
        super().__init__(self._jumping)

    @property
    def events(self) -> int:
        """How many entries of the clock were due so far."""
        return self._jumping.events

    @property
    def steps(self) -> int:
        """How often it went round: who spins shows here, time does not pass for them."""
        return self._jumping.steps

    def time(self) -> float:
        return self._jumping.now_s

    def call_at(  # type: ignore[override]  # without the type variables of asyncio
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        process = context.get(_process)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        timer = _Timer(self, process, callback, args, context)
        timer.handle = super().call_at(when, timer.fire, context=context)
        return timer.handle

    def plain_call_at(self, when: float, callback: Callable[..., object], context: Context) -> None:
        super().call_at(when, callback, context=context)

    async def create_connection(  # type: ignore[override]  # only what our client uses
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        process = _process.get()
        assert process is not None, "only a process has connections"
        return await self._connect(process, protocol_factory, host, port)

    def run_in_executor(  # type: ignore[override]  # without the type variables of asyncio
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        assert executor is None, "there are no threads here"
        done = self.create_future()
        self._virtual_clock.after(self.work_ms(), self._work, (done, func, args))
        return done

    def _work(self, job: tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]) -> None:
        done, function, arguments = job
        if done.cancelled():
            return
        try:
            result = function(*arguments)
        except Exception as error:  # noqa: BLE001 - carried to whoever waits, as an executor does
            done.set_exception(error)
        else:
            done.set_result(result)

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody has to be woken."""


class SimulationStage:
    """A virtual loop that runs for a while and stops at the first thing that must not be."""

    def __init__(self, clock: VirtualClock, connect: Connect) -> None:
        self._clock = clock
        self.loop = VirtualLoop(clock, connect)
        self.loop.set_exception_handler(self._on_loop_error)
        self._failure: BaseException | None = None
        self._stop: asyncio.Future[None] | None = None

    def run_until(self, end_ms: int) -> int:
        """How many entries of the clock were due until then. Raises what ``fail`` was told."""
        before = self.loop.events
        self._stop = self.loop.create_future()
        self._clock.at(end_ms, self._stop_now, self._stop)
        self.loop.run_until_complete(self._stop)
        self._stop = None
        if self._failure is not None:
            raise self._failure
        return self.loop.events - before

    def _stop_now(self, stop: asyncio.Future[None]) -> None:
        if not stop.done():
            stop.set_result(None)

    def fail(self, failure: BaseException) -> None:
        """Something was seen that must not be; the first one counts."""
        if self._failure is None:
            self._failure = failure
        if self._stop is not None:
            self._stop_now(self._stop)

    def _on_loop_error(self, _: Any, context: dict[str, Any]) -> None:
        self.fail(context.get("exception") or AssertionError(context["message"]))

    def end(self) -> None:
        """Throw away what is left, also of processes that died in the middle of something."""
        self.loop.set_exception_handler(lambda *_: None)
        while left := asyncio.all_tasks(self.loop):  # who is cancelled may start something
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.loop.close()


class _Timer:
    """A timer of a process, which fires late if the process stands still when it is due."""

    __slots__ = ("_arguments", "_callback", "_context", "_loop", "_process", "handle")

    def __init__(
        self,
        loop: VirtualLoop,
        process: SimulatedProcess,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context,
    ) -> None:
        self._loop = loop
        self._process = process
        self._callback = callback
        self._arguments = arguments
        self._context = context
        self.handle: asyncio.TimerHandle | None = None

    def fire(self) -> None:
        assert self.handle is not None
        if self.handle.cancelled() or not self._process.is_alive:
            return
        if self._process.is_paused:
            self._loop.plain_call_at(self._process.paused_until_ms / 1000, self.fire, self._context)
            return
        self._callback(*self._arguments)
