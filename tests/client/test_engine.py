"""The engine: calls in, callbacks out, interruptions."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from shoal.client.engine import Arrival, Engine, in_caller


@pytest.fixture
def engine():
    engine = Engine()
    yield engine
    engine.stop()


def test_a_call_runs_on_the_engine_and_its_callbacks_in_the_caller(engine):
    seen = []

    def called(x):
        seen.append(threading.current_thread())
        return x

    async def work():
        seen.append(threading.current_thread())
        return await in_caller(called, 7) + 1

    assert engine.call(work()) == 8
    assert seen[0] is not threading.current_thread()
    assert seen[1] is threading.current_thread()


def test_an_exception_of_a_callback_reaches_the_coroutine_and_one_of_it_the_caller(engine):
    async def work():
        with pytest.raises(KeyError):
            await in_caller({}.__getitem__, "x")
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        engine.call(work())


def test_a_callback_may_call_the_engine_again(engine):
    async def inner():
        return 5

    async def outer():
        return await in_caller(lambda: engine.call(inner()))

    assert engine.call(outer()) == 5


def test_the_engine_goes_on_while_a_callback_runs(engine):
    ticks = threading.Event()

    async def work():
        asyncio.get_running_loop().call_later(0.001, ticks.set)
        return await in_caller(ticks.wait, 5)

    assert engine.call(work()) is True


def test_an_async_caller_may_have_coroutine_callbacks(engine):
    async def user():
        mine = asyncio.get_running_loop()

        async def callback():
            assert asyncio.get_running_loop() is mine
            return 3

        async def work():
            assert asyncio.get_running_loop() is not mine
            return await in_caller(callback)

        return await engine.call_async(work())

    assert asyncio.run(user()) == 3


def test_cancelling_an_async_caller_cancels_the_work(engine):
    cancelled = threading.Event()

    async def work():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def user():
        task = asyncio.create_task(engine.call_async(work()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(user())
    assert cancelled.wait(5)


def test_a_blocking_caller_refuses_a_coroutine_function(engine):
    async def callback(): ...

    async def work():
        await in_caller(callback)

    with pytest.raises(TypeError, match="AsyncConsumer"):
        engine.call(work())


def test_a_stopped_engine_refuses_calls_and_stops_twice():
    engine = Engine()
    engine.stop()
    engine.stop()
    assert not engine.is_running

    async def work(): ...

    with pytest.raises(RuntimeError, match="closed"):
        engine.call(work())


def test_a_call_that_begins_while_the_engine_stops_ends_with_it(monkeypatch):
    engine = Engine()
    closing = threading.Thread(target=engine.stop)
    schedule = engine.loop.call_soon_threadsafe

    def schedule_late(function, *arguments):
        if function != engine.loop.stop and not closing.ident:
            closing.start()
            closing.join(0.1)
        return schedule(function, *arguments)

    monkeypatch.setattr(engine.loop, "call_soon_threadsafe", schedule_late)
    with pytest.raises(RuntimeError, match="this client is closed"):
        engine.call(asyncio.sleep(3600))
    closing.join()


def test_without_an_engine_a_callback_runs_in_place():
    async def user():
        return await in_caller(lambda: 4)

    assert asyncio.run(user()) == 4


def test_an_arrival_is_kept_for_who_waits_later_and_once_only():
    arrival = Arrival()
    arrival.set()
    arrival.set()
    arrival.wait(60)
    began = time.monotonic()
    arrival.wait(0.01)  # nothing came since
    assert time.monotonic() - began >= 0.005
    arrival.set()
    arrival.clear()
    began = time.monotonic()
    arrival.wait(0.01)
    assert time.monotonic() - began >= 0.005


def test_an_arrival_ends_the_wait_of_another_thread():
    arrival, passed = Arrival(), threading.Event()

    def waiting() -> None:
        arrival.wait(threading.TIMEOUT_MAX * 2)
        passed.set()

    thread = threading.Thread(target=waiting)
    thread.start()
    arrival.set()
    assert passed.wait(10)
    thread.join()
