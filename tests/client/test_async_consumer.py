"""The awaitable face: the same behaviour, on the caller's loop."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any

import pytest

from shoal import AsyncConsumer, OffsetAndMetadata, TopicPartition
from shoal.errors import WakeupError


@pytest.fixture
def settings(servers, group):
    return {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 50,
    }


def fill(producer, topic, count):
    for n in range(count):
        producer.send(topic, str(n))
    producer.flush(10)


async def take(one, count):
    records: list[Any] = []
    async with asyncio.timeout(15):
        while len(records) < count:
            records += await one.poll(1, max_records=count - len(records))
    return records


def test_subscribe_poll_commit_and_come_back(producer, topic, settings):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 5)

    async def run():
        async with AsyncConsumer(**settings) as one:
            await one.subscribe([topic])
            assert [r.offset for r in await take(one, 3)] == [0, 1, 2]
            assert await one.position(tp) == 3
            await one.commit()
            stored = (await one.committed(tp))[tp]
            assert stored is not None
            assert stored.offset == 3
            assert one.assignment() == {tp}
        async with AsyncConsumer(**settings) as two:
            await two.subscribe([topic])
            seen = []
            async for record in two:
                seen.append(record.offset)
                if len(seen) == 2:
                    break
            assert seen == [3, 4]

    asyncio.run(run())


def test_listeners_and_callbacks_may_be_coroutines(producer, topic, settings):
    fill(producer, topic, 2)
    notes = []

    async def run():
        loop = asyncio.get_running_loop()
        one = AsyncConsumer(**settings)

        class Listener:
            async def on_partitions_assigned(self, partitions):
                assert asyncio.get_running_loop() is loop
                await asyncio.sleep(0)
                await one.seek(partitions[0], 1)
                notes.append("assigned")

            def on_partitions_revoked(self, partitions):
                notes.append("revoked")

        async def committed(offsets, error):
            assert error is None
            notes.append("committed")

        async with one:
            await one.subscribe([topic], Listener())
            assert [r.offset for r in await take(one, 1)] == [1]
            await one.commit_async({TopicPartition(topic, 0): OffsetAndMetadata(2)}, committed)
            await one.commit({})

    asyncio.run(run())
    assert notes == ["assigned", "committed", "revoked"]


def test_the_loop_is_free_while_a_poll_waits(topic, settings):
    async def run():
        async with AsyncConsumer(**settings) as one:
            await one.assign([TopicPartition(topic, 0)])
            poll = asyncio.create_task(one.poll(30))
            ticks = 0
            for _ in range(20):
                await asyncio.sleep(0.001)
                ticks += 1
            assert not poll.done()
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            before = time.monotonic()
            assert not await one.poll(0.05)
            assert time.monotonic() - before < 10
            return ticks

    assert asyncio.run(run()) == 20


def test_a_poll_cancelled_in_a_listener_is_cancelled_and_the_listener_is_told_again(
    topic, settings
):
    told, is_told = [], asyncio.Event()

    class Listener:
        async def on_partitions_assigned(self, partitions):
            told.append(partitions)
            is_told.set()
            if len(told) == 1:
                await asyncio.Event().wait()

    async def poll_for_ever(one):
        while True:
            await one.poll(0.05)

    async def run():
        async with AsyncConsumer(**settings) as one:
            await one.subscribe([topic], Listener())
            polling = asyncio.create_task(poll_for_ever(one))
            await is_told.wait()
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            async with asyncio.timeout(15):
                while len(told) == 1:
                    await one.poll(0.05)

    asyncio.run(run())
    assert told == [[TopicPartition(topic, 0)]] * 2


def test_what_a_cancelled_listener_was_to_give_up_is_ours_when_it_is_told_again(topic, settings):
    owned, is_told = [], asyncio.Event()

    async def run():
        async with AsyncConsumer(**settings, assignors=["range"]) as one:

            class Listener:
                async def on_partitions_revoked(self, _):
                    owned.append(one.assignment())
                    is_told.set()
                    if len(owned) == 1:
                        await asyncio.Event().wait()

            async def poll_for_ever():
                while True:
                    await one.poll(0.05)

            await one.subscribe([topic], Listener())
            async with asyncio.timeout(15):
                while not one.assignment():
                    await one.poll(0.05)
                await one.enforce_rebalance()
                polling = asyncio.create_task(poll_for_ever())
                await is_told.wait()
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
                while len(owned) == 1:
                    await one.poll(0.05)

    asyncio.run(run())
    assert owned[:2] == [{TopicPartition(topic, 0)}] * 2


def test_a_wakeup_ends_an_awaited_poll(topic, settings):
    async def run():
        async with AsyncConsumer(**settings) as one:
            await one.assign([TopicPartition(topic, 0)])
            asyncio.get_running_loop().call_later(0.02, one.wakeup)
            with pytest.raises(WakeupError):
                await one.poll(30)

    asyncio.run(run())


def test_two_tasks_at_once_are_refused(topic, settings):
    async def run():
        async with AsyncConsumer(**settings) as one:
            await one.assign([TopicPartition(topic, 0)])
            poll = asyncio.create_task(one.poll(0.1))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="one task at a time"):
                await one.pause()
            await poll

    asyncio.run(run())


def test_columns_seek_pause_and_questions(producer, topic, settings):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 6)

    async def run():
        async with AsyncConsumer(**settings) as one:
            await one.assign([tp])
            assert (await one.poll_arrow(10)).column("offset").to_pylist() == [*range(6)]
            await one.seek_to_beginning(tp)
            assert await one.position(tp) == 0
            await one.pause(tp)
            assert one.paused() == {tp}
            assert not await one.poll(0.02)
            await one.resume(tp)
            assert await one.beginning_offsets([tp]) == {tp: 0}
            assert await one.end_offsets([tp]) == {tp: 6}
            assert await one.lag(tp) == 6
            first = (await one.offsets_for_times({tp: 0}))[tp]
            assert first is not None
            assert first.offset == 0
            assert len(await one.partitions_for(topic)) == 1
            assert topic in await one.list_topics()
            await one.seek_to_end(tp)
            assert await one.position(tp) == 6
            await one.unsubscribe()
            await one.subscribe(topic)
            await one.enforce_rebalance()
            assert one.subscription() == {topic}

    asyncio.run(run())


def test_an_interceptor_that_wants_to_be_awaited_is_logged_and_hurts_nobody(
    producer, topic, settings, caplog
):
    producer.send(topic, b"x").result(10)

    class Coroutines:
        async def on_consume(self, records):
            return []

        async def on_commit(self, offsets):
            raise AssertionError("never run")

    async def run():
        async with AsyncConsumer(**{**settings, "interceptors": [Coroutines()]}) as one:
            await one.assign([TopicPartition(topic, 0)])
            records: list[Any] = []
            while not records:
                records = await one.poll(5)
            await one.commit()
            return records

    assert [record.value for record in asyncio.run(run())] == [b"x"]
    assert caplog.text.count("plain functions, not coroutine functions") >= 2


def test_the_two_faces_have_the_same_methods_with_the_same_arguments():
    from shoal import Consumer

    def public(kind):
        return {
            {"commit": "commit_sync"}.get(name, name): method
            for name, method in vars(kind).items()
            if not name.startswith("_")
        }

    one, other = public(AsyncConsumer), public(Consumer)
    assert one.keys() == other.keys()
    for name, method in one.items():
        if name != "from_properties":
            assert inspect.signature(method) == inspect.signature(other[name]), name
    # What only looks at what is known needs no await.
    at_once = {name for name, method in one.items() if not inspect.iscoroutinefunction(method)}
    assert at_once == {
        *("assignment", "subscription", "group_metadata", "paused", "wakeup"),
        *("from_properties", "metrics"),
    }
