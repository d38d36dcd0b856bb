"""The awaitable face of sending: the same behaviour, back-pressure and cancellation on a loop."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

import pytest

from shoal import AsyncConsumer, AsyncProducer, Consumer, OffsetAndMetadata, TopicPartition
from shoal.errors import (
    ConfigError,
    PartlySentError,
    RequestTimeoutError,
    ShoalError,
    TransactionFatalError,
)
from shoal.types import RecordMetadata
from tests.patience import PATIENCE_S

# So many turns of the loop a call is given before it is cancelled: each of its awaits is met.
TURNS = range(14)


@pytest.fixture
def settings(servers):
    return {"bootstrap_servers": servers, "linger_ms": 0}


@pytest.fixture
def transactional(settings):
    return {**settings, "transactional_id": f"txn-{uuid.uuid4().hex[:8]}"}


@pytest.fixture
def stored(consumer):
    """What stands in a topic of one partition, in its order."""

    def read(topic, **settings):
        one = consumer(group_id=None, **settings)
        tp = TopicPartition(topic, 0)
        one.assign([tp])
        end = one.end_offsets([tp])[tp]
        records = []
        while one.position(tp) < end:
            records += one.poll(0.2)
        return [record.value.decode() for record in records]

    return read


def clients_threads():
    return [one for one in threading.enumerate() if one.name.startswith("shoal-producer")]


async def until(come):
    """What the engine's thread will bring about."""
    async with asyncio.timeout(PATIENCE_S):
        while not come():  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.001)


async def cancelled_after(turns, work):
    """Let ``work`` run for some turns of the loop and cancel it; the task, which has ended."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=PATIENCE_S)
    assert task.done()
    return task


# --- sending ---


def test_send_returns_when_the_record_is_stored(settings, topic, consumer):
    async def run():
        async with AsyncProducer(**settings) as producer:
            return [
                await producer.send(
                    topic, f"v{n}", "k", partition=0, timestamp_ms=7, headers={"h": b"1"}
                )
                for n in range(3)
            ]

    done = asyncio.run(run())
    assert [(one.topic, one.partition, one.offset) for one in done] == [
        (topic, 0, n) for n in range(3)
    ]
    one = consumer(group_id=None)
    one.assign([TopicPartition(topic, 0)])
    record = one.poll(10)[0]
    assert (record.key, record.value, record.headers) == (b"k", b"v0", (("h", b"1"),))
    assert record.timestamp_ms == 7


def test_what_is_enqueued_can_be_awaited_later_and_flush_waits_for_it(settings, topic, stored):
    async def run():
        async with AsyncProducer(**{**settings, "linger_ms": 60_000}) as producer:
            taken = [await producer.enqueue(topic, str(n)) for n in range(100)]
            assert not any(one.done() for one in taken)
            await producer.flush(10)
            assert all(one.done() for one in taken)
            assert [(await one).offset for one in taken] == list(range(100))

    asyncio.run(run())
    assert stored(topic) == [str(n) for n in range(100)]


def test_lists_are_sent_by_one_call(settings, new_topic, stored):
    topic = new_topic(1)

    async def run():
        async with AsyncProducer(**settings) as producer:
            done = await producer.send_many(topic, ["a", "b", "c"], keys=["1", "2", None])
            assert [one.offset for one in done] == [0, 1, 2]
            assert await producer.send_many(topic, []) == []
            with pytest.raises(ValueError, match="2 values and 1 keys"):
                await producer.send_many(topic, ["a", "b"], ["1"])
            with pytest.raises(TypeError, match="a value must be bytes or str") as refused:
                await producer.send_many(topic, ["d", 4, "e"])
            assert refused.value.__notes__ == ["values[1] was refused; those before it are sent"]
            await producer.flush(10)

    asyncio.run(run())
    assert stored(topic) == ["a", "b", "c", "d"]


def test_lists_by_the_blocking_producer(producer, topic, stored):
    assert [f.result(10).offset for f in producer.send_many(topic, ["a", "b"], ["1", "2"])] == [
        0,
        1,
    ]
    with pytest.raises(TypeError) as refused:
        producer.send_many(topic, ["c", 4])
    assert refused.value.__notes__ == ["values[1] was refused; those before it are sent"]
    producer.flush(10)
    assert stored(topic) == ["a", "b", "c"]


def test_a_list_of_which_some_are_refused_says_which(settings, new_topic, stored):
    topic = new_topic(1, max_message_bytes="2000")
    large = bytes(5000)

    async def run():
        async with AsyncProducer(**settings) as producer:
            with pytest.raises(PartlySentError, match=r"1 of 3 records.*number 1") as partly:
                await producer.send_many(topic, ["a", large, "c"])
            first, second, third = partly.value.outcomes
            assert isinstance(first, RecordMetadata)
            assert isinstance(second, ShoalError)
            assert isinstance(third, RecordMetadata)
            assert (first.offset, third.offset) == (0, 1)

    asyncio.run(run())
    assert stored(topic) == ["a", "c"]


def test_records_are_taken_in_the_order_of_the_calls_also_when_they_have_to_wait(
    settings, topic, stored
):
    async def run():
        tight = {**settings, "buffer_memory": 1000, "batch_size": 300, "max_block_ms": 5000}
        async with AsyncProducer(**tight) as producer:
            await asyncio.gather(*(producer.send(topic, f"{n:050}") for n in range(200)))

    asyncio.run(run())
    assert [int(value) for value in stored(topic)] == list(range(200))


def test_who_calls_later_does_not_overtake_who_waits(settings, topic):
    async def run():
        async with AsyncProducer(**settings) as producer:
            first = asyncio.create_task(producer.send(topic, "first"))
            await asyncio.sleep(0)  # it waits for its turn
            await asyncio.sleep(0)  # it has asked for the topic
            # What it waits for is there, but it has not been told yet: the loop does not run.
            over = time.monotonic() + 10
            while topic not in producer._producer._partition_counts:
                assert time.monotonic() < over
                time.sleep(0.001)  # noqa: ASYNC251
            second = await producer.send(topic, "second")
            assert ((await first).offset, second.offset) == (0, 1)

    asyncio.run(run())


def test_the_errors_are_those_of_the_producer(settings, topic):
    async def run():
        async with AsyncProducer(**settings, max_request_size=1000) as producer:
            with pytest.raises(ValueError, match="has partitions 0 to 0, not 7"):
                await producer.send(topic, "x", partition=7)
            with pytest.raises(ValueError, match="larger than max_request_size"):
                await producer.send(topic, bytes(2000))
            wrong: Any = ["t"]
            with pytest.raises(TypeError, match="topic must be a string"):
                await producer.send(wrong, "x")
            with pytest.raises(ConfigError, match="transactional_id"):
                await producer.begin_transaction()
            assert len(await producer.partitions_for(topic)) == 1

    asyncio.run(run())


def test_a_topic_that_grew_is_written_to(settings, new_topic, admin):
    topic = new_topic(1)

    async def run():
        async with AsyncProducer(**settings) as producer:
            await producer.send(topic, "x")
            admin.create_partitions({topic: 3})
            assert (await producer.send(topic, "x", partition=2)).partition == 2

    asyncio.run(run())


# --- a slow broker (ours alone) ---


@pytest.fixture
def broker(shoal_broker):
    shoal_broker.create_topic("t", 1)
    return shoal_broker


def of(broker, **settings):
    given = {"bootstrap_servers": broker.bootstrap_servers, "linger_ms": 0, **settings}
    return AsyncProducer(**given)


def test_a_full_buffer_makes_senders_wait_and_nobody_else(broker):
    async def run():
        block_ms = int(PATIENCE_S * 1000)
        async with of(broker, buffer_memory=1000, max_block_ms=block_ms) as producer:
            await producer.send("t", "first")
            broker.delay("Produce", 60, times=1000)
            taken = []

            async def fill():
                while True:
                    taken.append(await producer.enqueue("t", bytes(150)))

            filling = asyncio.create_task(fill())
            try:
                await until(lambda: producer._wants_room or filling.done())
                assert not filling.done()
                await asyncio.sleep(0.05)  # a sender that did not wait would go on
                assert len(taken) < 10
            finally:
                broker.clear_faults()
                broker.cut_connections()
            await until(lambda: len(taken) >= 20)
            filling.cancel()
            await asyncio.wait([filling])

    asyncio.run(run())


def test_a_buffer_that_stays_full_is_an_error_after_max_block_ms(broker):
    async def run():
        async with of(broker, buffer_memory=200, max_block_ms=50) as producer:
            await producer.send("t", "first")
            broker.delay("Produce", 60, times=1000)
            await producer.enqueue("t", bytes(300))
            with pytest.raises(RequestTimeoutError, match="stayed full"):
                await producer.send("t", "x")
            await producer.close(0)

    asyncio.run(run())


def test_the_loop_goes_on_while_somebody_sends_without_ever_waiting(broker):
    async def run():
        async with of(broker) as producer:
            await producer.send("t", "x")
            turns = 0

            async def count():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count())
            for _ in range(1000):
                await producer.enqueue("t", "x")
            assert turns > 5
            counting.cancel()
            await asyncio.wait([counting])

    asyncio.run(run())


def test_a_flush_that_takes_too_long_is_an_error(broker):
    async def run():
        async with of(broker) as producer:
            await producer.send("t", "x")
            broker.delay("Produce", 60, times=1000)
            await producer.enqueue("t", "x")
            with pytest.raises(RequestTimeoutError, match=r"batches unsent after 0\.05 s: 1"):
                await producer.flush(0.05)
            await producer.close(0)

    asyncio.run(run())


# --- cancelled ---


def test_a_record_whose_taking_was_cancelled_is_not_sent_and_any_other_is_once(broker):
    """Cancelled at each await: without metadata at first, and then without room."""

    async def run():
        present: list[Any] = []
        absent: list[Any] = []
        async with of(broker, buffer_memory=300, batch_size=150) as producer:
            for number, turns in enumerate([*TURNS, *TURNS, *TURNS]):
                if number % 14 == 0:
                    producer._producer._partition_counts.clear()
                name = f"{number:0100}"
                await producer.enqueue("t", bytes(100))
                task = await cancelled_after(turns, producer.enqueue("t", name))
                (absent if task.cancelled() else present).append(name)
            await producer.flush(10)
        return present, absent

    present, absent = asyncio.run(run())
    assert present
    assert absent
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as one:
        tp = TopicPartition("t", 0)
        one.assign([tp])
        one.seek(tp, 0)
        found = []
        while one.position(tp) < one.end_offsets([tp])[tp]:
            found += [record.value.decode() for record in one.poll(1)]
    assert [value for value in found if value != "\0" * 100] == present


@pytest.mark.parametrize("turns", TURNS)
def test_a_send_that_is_cancelled_doubles_nothing_and_leaves_nothing(broker, turns):
    async def run():
        async with of(broker) as producer:
            task = await cancelled_after(turns, producer.send("t", "x"))
            assert task.cancelled() or task.result().offset == 0
            await producer.flush(10)
            after = await producer.send("t", "y")
            assert after.offset in (0, 1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert clients_threads() == []


@pytest.mark.parametrize("turns", TURNS)
def test_a_flush_that_is_cancelled_leaves_lingering_as_it_was(broker, turns):
    async def run():
        async with of(broker, linger_ms=60_000) as producer:
            await producer.enqueue("t", "x")
            await cancelled_after(turns, producer.flush())
            await until(lambda: not producer._producer._accumulator._flushing)
            late = await producer.enqueue("t", "y")
            await asyncio.sleep(0.02)
            assert not late.done()

    asyncio.run(run())


@pytest.mark.parametrize("turns", TURNS)
def test_a_close_that_is_cancelled_stops_all_the_same(broker, turns):
    async def run():
        producer = of(broker)
        await producer.send("t", "x")
        broker.delay("Produce", 60, times=1000)
        taken = await producer.enqueue("t", "y")
        await cancelled_after(turns, producer.close())
        if not turns:  # it had not begun
            await producer.close(0)
        with pytest.raises(ShoalError):
            await taken
        assert asyncio.all_tasks() == {asyncio.current_task()}
        with pytest.raises(RuntimeError, match="this client is closed"):
            await producer.send("t", "z")

    asyncio.run(run())
    broker.clear_faults()
    assert clients_threads() == []


# --- transactions ---


def test_a_transaction_is_visible_as_a_whole_or_not_at_all(transactional, topic, stored):
    async def run():
        async with AsyncProducer(**transactional) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send_many(topic, ["a", "b"])
            with suppress(KeyError):
                async with producer.transaction():
                    await producer.send(topic, "c")
                    raise KeyError("c")
            async with producer.transaction() as within:
                await within.enqueue(topic, "d")

    asyncio.run(run())
    assert stored(topic, isolation_level="read_committed") == ["a", "b", "d"]
    assert [value for value in stored(topic) if value] == ["a", "b", "c", "d"]


def test_offsets_are_committed_with_a_transaction_only(transactional, topic, group, servers):
    tp = TopicPartition(topic, 0)

    async def run():
        async with (
            AsyncProducer(**transactional) as producer,
            AsyncConsumer(bootstrap_servers=servers, group_id=group) as consumer,
        ):
            await producer.init_transactions()
            who = consumer.group_metadata()
            with suppress(KeyError):
                async with producer.transaction():
                    await producer.send(topic, "a")
                    await producer.send_offsets_to_transaction({tp: OffsetAndMetadata(5)}, who)
                    raise KeyError
            assert (await consumer.committed(tp))[tp] is None
            async with producer.transaction():
                await producer.send_offsets_to_transaction({tp: OffsetAndMetadata(7)}, who)
            stored_at = (await consumer.committed(tp))[tp]
            assert stored_at is not None
            assert stored_at.offset == 7

    asyncio.run(run())


def test_a_producer_that_was_fenced_says_so(transactional, topic):
    async def run():
        async with AsyncProducer(**transactional) as old:
            await old.init_transactions()
            await old.begin_transaction()
            async with AsyncProducer(**transactional) as new:
                await new.init_transactions()
                with suppress(ShoalError):
                    await old.send(topic, "x")
                with pytest.raises(TransactionFatalError):
                    await old.abort_transaction()

    asyncio.run(run())


@pytest.mark.parametrize("turns", [*TURNS, 40, 100])
def test_a_transaction_cancelled_anywhere_is_whole_or_nothing_and_the_next_one_works(broker, turns):
    async def run():
        async with of(broker, transactional_id="billing") as producer:
            await producer.init_transactions()

            async def work():
                async with producer.transaction():
                    await producer.enqueue("t", "a")
                    await producer.send("t", "b")

            await cancelled_after(turns, work())
            async with producer.transaction():
                await producer.send("t", "c")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    assert clients_threads() == []
    found = []
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as one:
        tp = TopicPartition("t", 0)
        one.assign([tp])
        while one.position(tp) < one.end_offsets([tp])[tp]:
            found += [record.value.decode() for record in one.poll(1)]
    assert found in (["c"], ["a", "b", "c"])


@pytest.mark.parametrize("turns", TURNS)
def test_a_begin_that_is_cancelled_has_not_begun(broker, turns):
    async def run():
        async with of(broker, transactional_id="billing") as producer:
            await producer.init_transactions()
            task = await cancelled_after(turns, producer.begin_transaction())
            if not task.cancelled():
                await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()

    asyncio.run(run())


def test_offsets_whose_sending_was_cancelled_were_sent(broker):
    tp = TopicPartition("t", 0)

    async def run():
        async with (
            of(broker, transactional_id="billing") as producer,
            AsyncConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer,
        ):
            await producer.init_transactions()
            await producer.begin_transaction()
            offsets = {tp: OffsetAndMetadata(7)}
            await cancelled_after(
                3, producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            )
            await producer.commit_transaction()
            stored_at = (await consumer.committed(tp))[tp]
            assert stored_at is not None
            assert stored_at.offset == 7

    asyncio.run(run())


# --- the end ---


def test_closing_sends_what_was_taken_and_leaves_no_thread(settings, topic, stored):
    async def run():
        producer = AsyncProducer(**{**settings, "linger_ms": 60_000})
        async with producer:
            taken = await producer.enqueue(topic, "x")
        assert (await taken).offset == 0
        await producer.close()

    asyncio.run(run())
    assert stored(topic) == ["x"]
    assert all("producer" not in one.name or not one.is_alive() for one in clients_threads())


def test_who_waits_for_room_when_it_is_closed_is_refused(broker):
    async def run():
        producer = of(broker, buffer_memory=200)
        await producer.send("t", "first")
        broker.delay("Produce", 60, times=1000)
        await producer.enqueue("t", bytes(300))
        waiting = [asyncio.create_task(producer.enqueue("t", "x")) for _ in range(3)]
        await until(lambda: producer._wants_room)
        closing = asyncio.create_task(producer.close())
        # At once, not when the records before them are given up.
        async with asyncio.timeout(PATIENCE_S):
            for one in waiting:
                with pytest.raises(RuntimeError, match="this client is closed"):
                    await one
        assert not closing.done()
        broker.clear_faults()
        broker.cut_connections()
        await closing

    asyncio.run(run())


def test_it_belongs_to_the_loop_it_was_first_used_in(broker):
    producer = of(broker)
    asyncio.run(producer.flush())
    with pytest.raises(RuntimeError, match="the event loop it was first used in"):
        asyncio.run(producer.flush())
    producer._producer.close(0)


def test_a_loop_that_ends_before_a_record_is_stored_is_no_error(broker):
    producer = of(broker, linger_ms=50)

    async def run():
        await producer.enqueue("t", "x")

    asyncio.run(run())
    producer._producer.flush(10)
    producer._producer.close()


def test_names_of_other_clients_are_answered_with_ours(broker):
    producer = of(broker)
    with pytest.raises(AttributeError, match=r"has no send_and_wait; here it is send\(\)"):
        _ = producer.send_and_wait
    with pytest.raises(AttributeError, match="ready when it is made"):
        _ = producer.start
    asyncio.run(producer.close())
