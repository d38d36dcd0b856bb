"""Calls of the awaitable clients, cancelled wherever they can be: nothing lost, doubled or left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shoal import AsyncAdmin, AsyncConsumer, AsyncProducer, TopicPartition
from shoal.errors import BrokerError
from tests.simulation.cancelling import MOMENTS, SERVERS, T0, Run, cut_everywhere

pytestmark = pytest.mark.slow
RECORDS = [b"%d" % number for number in range(12)]


@pytest.fixture(params=MOMENTS)
def everywhere(request) -> Callable[[Callable[[Run], Awaitable[Any]]], int]:
    return lambda life: cut_everywhere(life, request.param)


def new_producer(**settings: Any) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers=SERVERS, request_timeout_ms=3_000, **settings)


def new_consumer(**settings: Any) -> AsyncConsumer:
    return AsyncConsumer(
        bootstrap_servers=SERVERS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )


# --- sending ---


def test_a_send_that_is_cancelled_is_stored_once_at_most_and_the_next_one_works(everywhere):
    async def life(run: Run) -> None:
        async with new_producer() as producer:
            sent = await run.cut(producer.send("t", b"cut"))
            await producer.send("t", b"next")
        assert run.stored[-1:] == [b"next"]
        assert run.stored.count(b"cut") <= 1
        assert sent.cancelled() or run.stored == [b"cut", b"next"]

    assert everywhere(life) >= 4


def test_a_record_whose_taking_was_cancelled_is_not_sent_and_any_other_is_once(everywhere):
    async def life(run: Run) -> None:
        async with new_producer() as producer:
            taken = await run.cut(producer.enqueue("t", b"cut"))
            await producer.send("t", b"next")
        assert run.stored == ([b"next"] if taken.cancelled() else [b"cut", b"next"])

    assert everywhere(life) >= 3


def test_who_waits_for_room_and_is_cancelled_has_sent_nothing_and_leaves_the_room(everywhere):
    async def life(run: Run) -> None:
        async with new_producer(buffer_memory=100, linger_ms=50) as producer:
            await producer.enqueue("t", b"a" * 150)
            taken = await run.cut(producer.enqueue("t", b"cut" * 50))
            await producer.send("t", b"next")
            assert not producer._turns
        wanted = [b"a" * 150, b"cut" * 50, b"next"]
        assert run.stored == ([wanted[0], wanted[2]] if taken.cancelled() else wanted)

    assert everywhere(life) >= 1


def test_of_a_list_that_is_cancelled_a_beginning_is_stored_and_each_of_it_once(everywhere):
    async def life(run: Run) -> None:
        async with new_producer(buffer_memory=300) as producer:
            sent = await run.cut(producer.send_many("t", RECORDS))
            await producer.send("t", b"next")
        *stored, last = run.stored
        assert last == b"next"
        assert stored == RECORDS[: len(stored)]
        assert sent.cancelled() or stored == RECORDS

    assert everywhere(life) >= 5


def test_a_flush_that_is_cancelled_loses_nothing(everywhere):
    async def life(run: Run) -> None:
        async with new_producer(linger_ms=100) as producer:
            futures = [await producer.enqueue("t", value) for value in RECORDS]
            await run.cut(producer.flush())
            await producer.flush()
            assert all(future.done() for future in futures)
        assert run.stored == RECORDS

    assert everywhere(life) >= 1


def test_a_flush_that_is_cancelled_leaves_lingering_as_it_was(everywhere):
    async def life(run: Run) -> None:
        async with new_producer(linger_ms=20_000) as producer:
            await producer.enqueue("t", b"flushed")
            await run.cut(producer.flush())
            await producer.flush()
            loop = asyncio.get_running_loop()
            began = loop.time()
            await producer.send("t", b"lingers")
            assert loop.time() - began >= 20

    assert everywhere(life) >= 1


def test_a_close_that_is_cancelled_stops_all_the_same_and_doubles_nothing(everywhere):
    async def life(run: Run) -> None:
        producer = new_producer(linger_ms=100)
        futures = [await producer.enqueue("t", value) for value in RECORDS]
        closed = await run.cut(producer.close())
        assert producer._engine.is_stopped
        await producer.close()
        await asyncio.gather(*futures, return_exceptions=True)
        assert run.stored == RECORDS[: len(run.stored)]
        assert closed.cancelled() or run.stored == RECORDS

    assert everywhere(life) >= 3


# --- transactions ---


def test_a_transaction_that_is_cancelled_is_whole_or_nothing_and_the_next_one_works(everywhere):
    async def life(run: Run) -> None:
        async with new_producer(transactional_id="x") as producer:
            await producer.init_transactions()

            async def work(*values: bytes) -> None:
                async with producer.transaction():
                    for value in values:
                        await producer.send("t", value)

            done = await run.cut(work(b"a", b"b"))
            await work(b"next")
        async with new_consumer(isolation_level="read_committed") as consumer:
            await consumer.assign([T0])
            seen: list[Any] = []
            while b"next" not in seen:
                seen += [record.value for record in await consumer.poll(1.0)]
        assert seen in ([b"next"], [b"a", b"b", b"next"])
        assert done.cancelled() or len(seen) == 3

    assert everywhere(life) >= 5


# --- administration ---


def test_a_call_of_an_admin_that_is_cancelled_leaves_it_usable(everywhere):
    async def life(run: Run) -> None:
        async with AsyncAdmin(bootstrap_servers=SERVERS) as admin:
            made = await run.cut(admin.create_topic("new", partitions=2))
            assert "t" in await admin.list_topics()
            if "new" in await admin.list_topics():  # asked for before the cut
                with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
                    await admin.create_topic("new", partitions=2)
            else:
                assert made.cancelled()
                await admin.create_topic("new", partitions=2)
            assert "new" in await admin.list_topics()

    assert everywhere(life) >= 3


def test_a_close_of_an_admin_that_is_cancelled_can_be_called_again(everywhere):
    async def life(run: Run) -> None:
        admin = AsyncAdmin(bootstrap_servers=SERVERS)
        await admin.list_topics()
        await run.cut(admin.close())
        await admin.close()

    assert everywhere(life) >= 1


# --- reading ---


async def fill() -> None:
    async with new_producer() as producer:
        await producer.send_many("t", RECORDS)


async def the_rest(consumer: AsyncConsumer, seen: list[Any]) -> None:
    """Read on until everything was there once."""
    while len(seen) < len(RECORDS):
        seen += [record.value for record in await consumer.poll(1.0, max_records=5)]


def test_a_poll_that_is_cancelled_has_lost_no_record(everywhere):
    async def life(run: Run) -> None:
        await fill()
        async with new_consumer() as consumer:
            await consumer.assign([T0])
            polled = await run.cut(consumer.poll(5.0, max_records=5))
            seen = [] if polled.cancelled() else [record.value for record in polled.result()]
            await the_rest(consumer, seen)
            assert seen == RECORDS

    assert everywhere(life) >= 4


def test_a_member_s_calls_may_be_cancelled_from_joining_to_committing(everywhere):
    """Whatever was not committed comes again, to whoever reads next; nothing else, and in order."""

    async def life(run: Run) -> None:
        await fill()
        seen: list[Any] = []
        committed = 0

        async def work(consumer: AsyncConsumer) -> None:
            nonlocal committed
            await consumer.subscribe(["t"])
            while len(seen) < 8:
                seen.extend([record.value for record in await consumer.poll(1.0, max_records=4)])
                await consumer.commit()
                committed = len(seen)

        async with new_consumer(group_id="g") as consumer:
            await run.cut(work(consumer))
            await consumer.subscribe(["t"])
            await the_rest(consumer, seen)
            assert seen == RECORDS
        async with new_consumer(group_id="g") as another:
            position = (await another.committed(T0))[T0]
            assert (position.offset if position else 0) in (committed, min(committed + 4, 8))

    assert everywhere(life) >= 8


def test_a_close_of_a_consumer_that_is_cancelled_leaves_the_group_to_others(everywhere):
    async def life(run: Run) -> None:
        await fill()
        consumer = new_consumer(group_id="g", session_timeout_ms=6_000)
        await consumer.subscribe(["t"])
        while not await consumer.poll(1.0):
            pass
        await run.cut(consumer.close())
        await consumer.close()
        async with new_consumer(group_id="g") as another:
            await another.subscribe(["t"])
            seen: list[Any] = []
            await asyncio.wait_for(the_rest(another, seen), 60)
            assert seen == RECORDS
            assert another.assignment() == {TopicPartition("t", 0)}

    assert everywhere(life) >= 2


def test_processing_that_is_cancelled_commits_what_is_done_and_skips_nothing(everywhere):
    async def life(run: Run) -> None:
        await fill()
        done: list[int] = []

        async def handle(record: Any) -> None:
            await asyncio.sleep(0.002 * (record.offset % 3))  # later ones end before earlier ones
            done.append(record.offset)
            if len(done) == len(RECORDS):
                consumer.wakeup()

        async def work() -> None:
            await consumer.subscribe(["t"])
            await consumer.process(handle, workers=3, order="none")

        async with new_consumer(group_id="g", auto_commit_interval_ms=5) as consumer:
            worked = await run.cut(work())
        async with new_consumer(group_id="g") as another:
            found = (await another.committed(T0))[T0]
            position = found.offset if found else 0
            assert set(range(position)) <= set(done), "committed before it was done"
            if not worked.cancelled():
                assert position == len(RECORDS)
            await another.subscribe(["t"])
            left: list[Any] = []
            while position + len(left) < len(RECORDS):
                left += [record.offset for record in await another.poll(1.0)]
            assert left == list(range(position, len(RECORDS)))

    assert everywhere(life) >= 10


def test_of_two_that_process_one_is_cancelled_and_the_other_does_what_is_not_committed(everywhere):
    """With a rebalance when the second joins, and handlers of which some fail at first."""
    every = set(range(len(RECORDS)))

    async def life(run: Run) -> None:
        await fill()
        done: list[int] = []
        failed: set[int] = set()
        consumers: list[AsyncConsumer] = []

        async def handle(record: Any) -> None:
            await asyncio.sleep(0.002 * (record.offset % 3))
            if record.offset % 4 == 1 and record.offset not in failed:
                failed.add(record.offset)
                raise LookupError("a handler that fails at first")
            done.append(record.offset)
            if every <= set(done):
                for consumer in consumers:
                    consumer.wakeup()

        async def work(consumer: AsyncConsumer) -> None:
            consumers.append(consumer)
            await consumer.subscribe(["t"])
            await consumer.process(
                handle, workers=2, order="partition", retries=1, retry_delay=0.01
            )

        settings = {"group_id": "g", "auto_commit_interval_ms": 5, "heartbeat_interval_ms": 100}
        async with new_consumer(**settings) as second:
            async with new_consumer(**settings) as first:
                beside = asyncio.create_task(work(second))
                await run.cut(work(first))
            async with new_consumer(group_id="g") as onlooker:
                found = (await onlooker.committed(T0))[T0]
            assert set(range(found.offset if found else 0)) <= set(done), "not done"
            await asyncio.wait_for(beside, 120)
        assert set(done) == every
        assert list(dict.fromkeys(done)) == sorted(every), "not in the order of the partition"

    assert everywhere(life) >= 10
