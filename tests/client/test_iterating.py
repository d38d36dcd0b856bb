"""``for record in consumer``: a record counts as read when it was handed out, and no sooner.

Ten records are there and come in one answer. Whatever ends or interrupts the loop after three,
the consumer stands at 3: nothing behind is committed, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from typing import Any

import pytest

from shoal import AsyncConsumer, Consumer, Producer, RebalanceListener, TopicPartition
from shoal.errors import WakeupError
from tests.client.conftest import poll_until

pytestmark = pytest.mark.timeout(60)

RECORDS = 10


class Faces:
    """What a test does to a consumer, said once for the blocking and the awaiting one."""

    def __init__(self, is_async, settings):
        self.is_async = is_async
        self.settings = settings

    def run(self, body, **settings):
        """``body`` takes an ``AsyncConsumer``, or something that looks like one."""

        async def main():
            consumer: Any = AsyncConsumer(**{**self.settings, **settings})
            if not self.is_async:
                await consumer.close()
                consumer = Blocking(Consumer(**{**self.settings, **settings}))
            async with consumer:
                return await body(consumer)

        return asyncio.run(main())


class Blocking:
    """A ``Consumer`` with the methods of ``AsyncConsumer``; nothing is awaited, all is blocking."""

    def __init__(self, consumer):
        self._consumer = consumer

    def __getattr__(self, name):
        method = getattr(self._consumer, "commit_sync" if name == "commit" else name)
        if name in ("assignment", "wakeup"):
            return method

        async def call(*arguments, **named):
            return method(*arguments, **named)

        return call

    async def __aiter__(self):
        # Closed by whoever breaks, as the loop of a program would.
        for record in self._consumer:
            yield record

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        self._consumer.__exit__(*error)


@pytest.fixture(params=[False, True], ids=["for", "async for"])
def faces(request, servers):
    settings = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"}
    return Faces(request.param, settings)


@pytest.fixture
def ten(producer, topic):
    for n in range(RECORDS):
        producer.send(topic, str(n))
    producer.flush(10)
    return topic


async def three(consumer, count=3):
    offsets = []
    async for record in consumer:
        offsets.append(record.offset)
        if len(offsets) == count:
            break
    return offsets


async def rest(consumer, end=RECORDS):
    """What polls find, up to the end."""
    offsets: list[Any] = []
    until = time.monotonic() + 15
    while not offsets or offsets[-1] < end - 1:
        assert time.monotonic() < until, offsets
        offsets += [record.offset for record in await consumer.poll(1)]
    return offsets


def committed(servers, group, tp):
    with Consumer(bootstrap_servers=servers, group_id=group) as one:
        found = one.committed(tp)[tp]
        return None if found is None else found.offset


def test_a_second_loop_goes_on_where_the_first_was_left(faces, ten):
    async def body(consumer):
        await consumer.assign([TopicPartition(ten, 0)])
        assert await three(consumer) == [0, 1, 2]
        assert await consumer.position(TopicPartition(ten, 0)) == 3
        assert await three(consumer, 4) == [3, 4, 5, 6]
        assert await three(consumer) == [7, 8, 9]

    faces.run(body)


def test_a_poll_goes_on_where_a_loop_was_left(faces, ten):
    async def body(consumer):
        await consumer.assign([TopicPartition(ten, 0)])
        assert await three(consumer) == [0, 1, 2]
        assert [r.offset for r in await consumer.poll(10, max_records=2)] == [3, 4]
        assert await three(consumer) == [5, 6, 7]
        assert await rest(consumer) == [8, 9]

    faces.run(body)


def test_a_poll_of_columns_goes_on_where_a_loop_was_left(faces, ten):
    async def body(consumer):
        await consumer.assign([TopicPartition(ten, 0)])
        assert await three(consumer) == [0, 1, 2]
        columns = await consumer.poll_arrow(10, max_records=4)
        assert columns["offset"].to_pylist() == [3, 4, 5, 6]
        assert await three(consumer) == [7, 8, 9]

    faces.run(body)


def test_polls_in_the_body_share_the_records_with_the_loop(faces, ten):
    async def body(consumer):
        await consumer.assign([TopicPartition(ten, 0)])
        offsets = []
        async for record in consumer:
            offsets.append(record.offset)
            offsets += [r.offset for r in await consumer.poll(10, max_records=1)]
            if len(offsets) == RECORDS:
                break
        return offsets

    assert faces.run(body) == list(range(RECORDS))


def test_loops_inside_each_other_share_the_records(faces, ten):
    async def body(consumer):
        await consumer.assign([TopicPartition(ten, 0)])
        offsets = []
        async for record in consumer:
            offsets.append(record.offset)
            offsets += await three(consumer, 1)
            if len(offsets) == RECORDS:
                break
        return offsets

    assert faces.run(body) == list(range(RECORDS))


def test_a_commit_in_the_body_covers_what_was_handed_out(faces, ten, group):
    async def body(consumer):
        tp = TopicPartition(ten, 0)
        await consumer.assign([tp])
        seen = []
        async for record in consumer:
            await consumer.commit()
            seen.append((record.offset, (await consumer.committed(tp))[tp].offset))
            if len(seen) == RECORDS:
                break
        return seen

    seen = faces.run(body, group_id=group, enable_auto_commit=False)
    assert seen == [(n, n + 1) for n in range(RECORDS)]


def test_closing_commits_what_was_handed_out_and_no_more(faces, servers, ten, group):
    async def body(consumer):
        await consumer.subscribe([ten])
        assert await three(consumer) == [0, 1, 2]

    faces.run(body, group_id=group)
    assert committed(servers, group, TopicPartition(ten, 0)) == 3


def test_an_exception_in_the_body_does_not_commit_what_was_never_handed_out(
    faces, servers, ten, group
):
    async def body(consumer):
        await consumer.subscribe([ten])
        async for record in consumer:
            if record.offset == 2:
                raise LookupError("the third is too much")

    with pytest.raises(LookupError):
        faces.run(body, group_id=group)
    assert committed(servers, group, TopicPartition(ten, 0)) == 3


def test_the_next_member_goes_on_where_the_loop_was_left(faces, ten, group):
    async def body(consumer):
        await consumer.subscribe([ten])
        return await three(consumer)

    assert faces.run(body, group_id=group) == [0, 1, 2]
    assert faces.run(body, group_id=group) == [3, 4, 5]


def test_automatic_commits_of_a_loop_follow_the_records(faces, ten, group):
    """Long before the records of an answer are used up, and never beyond what was handed out."""

    async def body(consumer):
        tp = TopicPartition(ten, 0)
        await consumer.subscribe([ten])
        seen = []
        async for record in consumer:
            found = (await consumer.committed(tp))[tp]
            seen.append((record.offset, 0 if found is None else found.offset))
            await asyncio.sleep(0.1)
            if record.offset == RECORDS - 1:
                break
        return seen

    often = {"auto_commit_interval_ms": 100, "heartbeat_interval_ms": 150}
    seen = faces.run(body, group_id=group, **often)
    assert all(position <= offset for offset, position in seen), seen
    assert seen[-1][1] >= RECORDS // 2, seen


def test_automatic_commits_go_on_while_a_loop_calls_nothing(faces, servers, ten, group):
    async def body(consumer):
        await consumer.subscribe([ten])
        async for record in consumer:
            await asyncio.sleep(0.06)
            if record.offset == RECORDS - 1:
                break
        return committed(servers, group, TopicPartition(ten, 0))

    often = {"auto_commit_interval_ms": 50, "heartbeat_interval_ms": 90}
    assert 1 <= (faces.run(body, group_id=group, **often) or 0) < RECORDS


def test_a_seek_in_the_body_takes_effect_at_once(faces, ten):
    async def body(consumer):
        tp = TopicPartition(ten, 0)
        await consumer.assign([tp])
        offsets = []
        async for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 3:
                await consumer.seek(tp, 8)
            if len(offsets) == 5:
                break
        return offsets

    assert faces.run(body) == [0, 1, 2, 8, 9]


def test_nothing_of_a_paused_partition_is_handed_out_and_nothing_is_lost(faces, producer, ten):
    async def body(consumer):
        tp = TopicPartition(ten, 0)
        await consumer.assign([tp])
        offsets = []
        async for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 3:
                await consumer.pause(tp)
                break
        assert not await consumer.poll(0.3)
        assert await consumer.position(tp) == 3
        await consumer.resume(tp)
        return offsets + await rest(consumer)

    assert faces.run(body) == list(range(RECORDS))


def test_pausing_one_partition_in_the_body_leaves_the_others(faces, producer, new_topic):
    topic = new_topic(2)
    for n in range(2 * RECORDS):
        producer.send(topic, str(n), partition=n % 2)
    producer.flush(10)

    async def body(consumer):
        await consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        seen: dict[int, list[Any]] = {0: [], 1: []}
        paused = None
        async for record in consumer:
            assert record.partition != paused
            seen[record.partition].append(record.offset)
            if paused is None and len(seen[record.partition]) == 3:
                paused = record.partition
                await consumer.pause(TopicPartition(topic, paused))
            if paused is not None and len(seen[1 - paused]) == RECORDS:
                break
        assert paused is not None
        await consumer.resume(TopicPartition(topic, paused))
        while len(seen[paused]) < RECORDS:
            seen[paused] += [r.offset for r in await consumer.poll(1)]
        return seen

    assert faces.run(body) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}


def test_unsubscribing_in_the_body_ends_what_was_read(faces, servers, ten, group):
    async def body(consumer):
        await consumer.subscribe([ten])
        offsets = []

        async def loop():
            async for record in consumer:
                offsets.append(record.offset)
                if len(offsets) == 3:
                    await consumer.commit()
                    await consumer.unsubscribe()

        with pytest.raises(RuntimeError, match="subscribe"):
            await loop()
        return offsets

    assert faces.run(body, group_id=group) == [0, 1, 2]
    assert committed(servers, group, TopicPartition(ten, 0)) == 3


def test_a_wakeup_ends_a_loop_before_the_next_record(faces, ten):
    async def body(consumer):
        await consumer.assign([TopicPartition(ten, 0)])
        offsets = []

        async def loop():
            async for record in consumer:
                offsets.append(record.offset)
                if len(offsets) == 3:
                    threading.Thread(target=consumer.wakeup).start()
                    await asyncio.sleep(0.3)

        with pytest.raises(WakeupError):
            await loop()
        assert offsets == [0, 1, 2]
        return await rest(consumer)

    assert faces.run(body) == [3, 4, 5, 6, 7, 8, 9]


def test_interceptors_see_every_record_once_as_it_is_handed_out(faces, ten):
    class Watch:
        def __init__(self):
            self.seen = []

        def on_consume(self, records):
            self.seen += [record.offset for record in records]
            return [record for record in records if record.offset != 1]

    async def body(consumer):
        await consumer.assign([TopicPartition(ten, 0)])
        assert await three(consumer) == [0, 2, 3]
        assert watch.seen == [0, 1, 2, 3]
        assert await three(consumer) == [4, 5, 6]

    watch = Watch()
    faces.run(body, interceptors=[watch])
    assert watch.seen == [0, 1, 2, 3, 4, 5, 6]


def test_a_deserializer_is_called_once_per_record(faces, ten, group):
    calls = []

    async def body(consumer):
        await consumer.assign([TopicPartition(ten, 0)])
        values = []
        async for record in consumer:
            values.append(record.value)
            await consumer.commit()
            if len(values) == RECORDS:
                break
        return values

    def as_number(data):
        calls.append(data)
        return int(data)

    assert faces.run(body, group_id=group, value_deserializer=as_number) == list(range(RECORDS))
    assert calls == [str(n).encode() for n in range(RECORDS)]


def test_a_rebalance_in_the_middle_of_a_loop_loses_and_repeats_nothing(servers, producer, admin):
    """A second member comes while the first works through an answer, slowly, record by record."""
    topic, group = f"t-{uuid.uuid4().hex[:12]}", f"g-{uuid.uuid4().hex[:12]}"
    admin.create_topic(topic, partitions=2)
    for n in range(400):
        producer.send(topic, str(n), partition=n % 2)
    producer.flush(10)
    settings = {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 50,
    }
    seen: list[Any] = []
    lock = threading.Lock()
    over = threading.Event()

    def work(pause_s):
        with Consumer(**settings) as one, contextlib.suppress(WakeupError):
            one.subscribe([topic])
            ends.append(one.wakeup)
            for record in one:
                with lock:
                    seen.append((record.partition, record.offset))
                time.sleep(pause_s)
                if over.is_set():
                    break

    ends: list[Any] = []
    first = threading.Thread(target=work, args=(0.01,))
    first.start()
    until = time.monotonic() + 30
    while len(seen) < 20:
        assert time.monotonic() < until
        time.sleep(0.01)
    second = threading.Thread(target=work, args=(0.005,))
    second.start()
    while len(set(seen)) < 400:
        assert time.monotonic() < until, len(set(seen))
        time.sleep(0.05)
    over.set()
    for wakeup in ends:
        wakeup()
    first.join(20)
    second.join(20)
    assert len(seen) == len(set(seen)) == 400


def test_a_slow_loop_stays_in_its_group(servers, ten, group):
    class Losses(RebalanceListener):
        count = 0

        def on_partitions_lost(self, partitions):
            self.count += 1

    losses = Losses()
    with Consumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        max_poll_interval_ms=2_000,
    ) as one:
        one.subscribe([ten], losses)
        offsets = []
        for record in one:
            offsets.append(record.offset)
            time.sleep(0.4)  # all ten take twice the interval
            if len(offsets) == RECORDS:
                break
        poll_until(one, lambda: True)
    assert offsets == list(range(RECORDS))
    assert losses.count == 0


def test_a_loop_over_many_partitions_hands_out_everything_in_order(faces, producer, new_topic):
    topic = new_topic(4)
    for n in range(4000):
        producer.send(topic, str(n), partition=n % 4)
    producer.flush(10)

    async def body(consumer):
        await consumer.assign([TopicPartition(topic, n) for n in range(4)])
        seen: dict[int, list[Any]] = {n: [] for n in range(4)}
        count = 0
        async for record in consumer:
            seen[record.partition].append(record.offset)
            count += 1
            if count == 4000:
                break
        return seen, [await consumer.position(TopicPartition(topic, n)) for n in range(4)]

    seen, positions = faces.run(body)
    assert seen == {n: list(range(1000)) for n in range(4)}
    assert positions == [1000] * 4


def test_a_program_that_only_loops_reads_on_after_a_restart(servers, group):
    """With defaults, as a stranger would write it: half a topic in each of two runs."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    with Producer(bootstrap_servers=servers) as producer:
        for n in range(1000):
            producer.send(topic, str(n))
    seen = []
    for end in (500, 1000):
        with Consumer(
            bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
        ) as one:
            one.subscribe([topic])
            for record in one:
                seen.append(int(record.value))
                if len(seen) == end:
                    break
    assert sorted(seen) == list(range(1000))
