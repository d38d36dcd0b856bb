"""An awaitable client in virtual time, whose calls are cancelled at each of their awaits in turn.

The client is the real one, as users have it, and so is the broker; between them is the simulator's
network. Only the client's engine is ours: its loop is the user's, so that one clock moves both and
the same run comes out each time.

A call is *cut* at a number, which goes up until the call is over before that: its task is
cancelled as its wait of this number *begins*, or as that *ends*, when what was waited for is there
and the task has not gone on yet; or at the *turn* of the loop of this number, while others work for
it. Waits are those of the call itself and of its work on the engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from shoal.broker.catalogue import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topic
from shoal.client.engine import Engine
from shoal.log.partition import PartitionLog
from shoal.records.objects import decode_records
from shoal.testing.simulation import virtual_loop
from shoal.testing.simulation.broker_world import BrokerSimulation, BrokerWorld, repeatable
from shoal.testing.simulation.client_process import ClientProcess
from shoal.testing.simulation.simulated_broker import INTERNAL_PARTITIONS
from shoal.testing.simulation.simulated_wire import HOST, SENDING_PORT
from shoal.types import TopicPartition

SERVERS = f"{HOST}:{SENDING_PORT}"
T0 = TopicPartition("t", 0)
PATIENCE_MS = 200_000
CUTS_MAX = 400  # no call waits more often: one that does goes round in circles


@dataclass(frozen=True)
class QuietScenario:
    """A world in which nothing goes wrong but what the user does."""

    seed: int = 1
    duration_ms: int = 10**9
    topics: dict[str, int] = field(
        default_factory=lambda: {
            "t": 1,
            OFFSETS_TOPIC: INTERNAL_PARTITIONS,
            TRANSACTIONS_TOPIC: INTERNAL_PARTITIONS,
        }
    )
    configs: dict[str, str] = field(  # whose clock is the machine's sends from the far future
        default_factory=lambda: {"message.timestamp.after.max.ms": str(2**62)}
    )
    durability: str = "group"
    network_delay_ms: int = 4
    disk_delay_ms: int = 3


class QuietWorld(BrokerWorld):
    def is_new(self, client_id: str) -> bool:
        return True

    def look(self) -> None:
        """Whoever runs the simulation looks at the end."""

    def reopened(self, tp: TopicPartition, topic: Topic, log: PartitionLog | None) -> None:
        raise AssertionError("nobody stops the broker")


MOMENTS = ("begins", "ends", "turn")


class Scalpel:
    """Cancels ``task`` at the ``at``-th moment of this kind."""

    def __init__(self, at: int, moment: str) -> None:
        self.at = at
        self.moment = moment
        self.task: asyncio.Task[Any] | None = None
        self.count = 0

    @property
    def has_cut(self) -> bool:
        return self.count >= self.at

    def waiting(self, awaited: Any) -> None:
        if self.moment == "begins" and self._is_due():
            self._cut()
        elif self.moment == "ends" and awaited is not None and self._is_due():
            awaited.add_done_callback(self._cut)  # before the task that waits adds its own

    def turning(self) -> None:
        if self.moment == "turn" and self._is_due():
            self._cut()

    def _is_due(self) -> bool:
        if self.task is None:
            return False
        self.count += 1
        return self.count == self.at

    def _cut(self, _: object = None) -> None:
        if self.task is not None:
            self.task.cancel()


class _Watched:
    """A coroutine of which a scalpel is told each time it waits."""

    def __init__(self, work: Coroutine[Any, Any, Any], scalpel: Scalpel) -> None:
        self._work = work
        self._scalpel = scalpel

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            try:
                awaited = step()
            except StopIteration as done:
                return done.value
            self._scalpel.waiting(awaited)
            try:
                yield awaited
            except BaseException as error:
                step = partial(self._work.throw, error)
            else:
                step = partial(self._work.send, None)


async def _watched(work: Coroutine[Any, Any, Any], scalpel: Scalpel) -> Any:
    try:
        return await _Watched(work, scalpel)
    finally:
        work.close()


_engine: ContextVar[OneLoopEngine | None] = ContextVar("the engine a task belongs to", default=None)


class OneLoopEngine(Engine):
    """The engine of a client on the loop of its user."""

    scalpel: Scalpel
    made: list[OneLoopEngine]

    def __init__(self, name: str = "") -> None:
        self._begins = threading.Lock()
        self.loop = asyncio.get_running_loop()
        self.is_stopped = False
        self.tasks: set[asyncio.Task[Any]] = set()
        self.made.append(self)
        self._context = copy_context()
        self._context.run(_engine.set, self)

    @property
    def is_running(self) -> bool:
        return not self.is_stopped

    @property
    def is_here(self) -> bool:
        return False

    def need_own_process(self) -> None:
        """There is no other."""

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Of a constructor, which waits for nothing."""
        try:
            self._context.run(coroutine.send, None)
        except StopIteration as done:
            return done.value
        raise AssertionError(f"{coroutine} waits, and there is nobody to wait")

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._context.copy().run(super().post, function, *arguments)

    def stop(self) -> None:
        """What is left is cancelled, as it is when the loop of a real engine ends."""
        self.is_stopped = True
        for task in self.tasks:
            self.loop.call_soon(task.cancel)

    def _start(self, coroutine: Coroutine[Any, Any, Any], caller: Any) -> list[asyncio.Task[Any]]:
        if self.is_stopped:
            return super()._start(coroutine, caller)
        watched = _watched(coroutine, self.scalpel)
        return self._context.copy().run(super()._start, watched, caller)


class Run:
    """One life of a client, in which one call is cut."""

    def __init__(self, at: int, moment: str, scenario: QuietScenario | None = None) -> None:
        self.scalpel = Scalpel(at, moment)
        self._simulation = BrokerSimulation()
        self._simulation.world = self.world = QuietWorld(
            self._simulation.clock,
            self._simulation.stage,
            scenario or QuietScenario(),
            self._simulation.note,
        )
        self._process = ClientProcess(self.world, "client")
        self._tasks: set[asyncio.Task[Any]] = set()
        self.engines: list[OneLoopEngine] = []

    async def cut(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do ``work``, and cut it; returns when its task has ended."""

        async def begin() -> Any:
            self.scalpel.task = asyncio.current_task()
            return await _watched(work, self.scalpel)

        done = asyncio.create_task(begin())
        await asyncio.wait([done])
        self.scalpel.task = None
        return done

    def play(self, life: Callable[[Run], Awaitable[Any]]) -> Any:
        """Raises what ``life`` raises, or what must not be left at its end."""
        stage, loop = self._simulation.stage, self._simulation.stage.loop
        kind = type("ThisEngine", (OneLoopEngine,), {"scalpel": self.scalpel, "made": self.engines})
        for place in ("producer", "admin", "async_consumer"):
            patch(f"shoal.client.{place}.Engine", kind).start()
        patch("shoal.client.polling.time", SimpleNamespace(monotonic=loop.time)).start()
        try:
            with repeatable(1, loop):
                loop.set_task_factory(self._remember)
                select = loop._jumping.select

                def turn(timeout: float | None = None) -> Any:
                    self.scalpel.turning()
                    return select(timeout)

                patch.object(loop._jumping, "select", turn).start()
                main = loop.create_task(self._guarded(life), context=self._process.context)
                main.add_done_callback(lambda _: stage.loop.call_later(5, self._halt))
                with suppress(_AllIsWellError):
                    stage.run_until(PATIENCE_MS)
                assert main.done(), f"cut at {self.scalpel.at}: it hangs\n{main.get_stack()}"
                result = main.result()
            self._check(main)
            return result
        finally:
            patch.stopall()
            stage.end()

    async def _guarded(self, life: Callable[[Run], Awaitable[Any]]) -> Any:
        return await life(self)

    def _halt(self) -> None:
        self._simulation.stage.fail(_AllIsWellError())

    def _remember(self, loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        context = options.get("context") or copy_context()
        if context.get(virtual_loop._process) is self._process:
            self._tasks.add(task)
            engine = context.get(_engine)
            if engine is not None:
                engine.tasks.add(task)
        return task

    def _check(self, main: asyncio.Task[Any]) -> None:
        """Nobody works on for a caller who has left, and nothing runs on after the end."""
        assert all(engine.is_stopped for engine in self.engines), "it was not closed"
        late = [task for task in self._tasks if not task.done() and task is not main]
        assert not late, f"left running: {[task.get_coro() for task in late]}"

    @property
    def stored(self) -> list[bytes | None]:
        """The values in the log of ``T0``, in their order, of whatever transactions."""
        log = self.world.broker.directory.partitions.get(T0)
        if log is None:
            return []
        data = log.read(0, 10**6).read_bytes()
        return [fields[3] for fields in decode_records(("t", 0, data, 0, None))]


class _AllIsWellError(AssertionError):
    """The run is over, and all is well."""


def cut_everywhere(life: Callable[[Run], Awaitable[Any]], moment: str) -> int:
    """Play ``life`` again and again, cut one moment later each time; how many moments."""
    for at in range(1, CUTS_MAX):
        run = Run(at, moment)
        try:
            run.play(life)
        except BaseException as error:
            error.add_note(f"cut at moment {at} of kind {moment!r}")
            raise
        if not run.scalpel.has_cut:
            return at - 1
    raise AssertionError("a call that waits without end")
