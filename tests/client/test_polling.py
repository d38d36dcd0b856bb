"""How polls and loops over records get along with time, with other tasks and with the end."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from shoal import AsyncConsumer, Consumer, Producer, RebalanceListener, TopicPartition

T0 = TopicPartition("t", 0)
RECORDS = 200


@pytest.fixture
def settings(shoal_broker):
    shoal_broker.create_topic("t", 1)
    with Producer(bootstrap_servers=shoal_broker.bootstrap_servers) as producer:
        for n in range(RECORDS):
            producer.send("t", str(n))
    return {"bootstrap_servers": shoal_broker.bootstrap_servers, "auto_offset_reset": "earliest"}


class Losses(RebalanceListener):
    def __init__(self):
        self.count = 0

    def on_partitions_lost(self, partitions):
        self.count += 1


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [0.01, 1.5], ids=["many short polls", "one long poll"])
def test_who_polls_is_in_the_group_however_short_the_poll_interval(settings, timeout):
    losses = Losses()
    interval_ms = 300  # much less than the interval of heartbeats
    with Consumer(group_id="g", max_poll_interval_ms=interval_ms, **settings) as one:
        one.subscribe(["t"], losses)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            one.poll(timeout, max_records=1)
    assert losses.count == 0


def test_a_loop_over_records_ends_when_its_body_closes_the_consumer(settings):
    one = Consumer(**settings)
    one.assign([T0])
    seen = []
    for record in one:
        seen.append(record.offset)
        one.close()
    assert seen == [0]


def test_an_awaiting_loop_over_records_ends_there_too(settings):
    async def body():
        one = AsyncConsumer(**settings)
        await one.assign([T0])
        seen = []
        async for record in one:
            seen.append(record.offset)
            await one.close()
        return seen

    assert asyncio.run(body()) == [0]


def test_other_tasks_run_between_polls_that_find_everything_buffered(settings):
    async def body():
        async with AsyncConsumer(**settings, heartbeat_interval_ms=9000) as one:
            await one.assign([T0])
            offsets = [record.offset for record in await one.poll(10, max_records=1)]
            turns = 0

            async def other():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            while len(offsets) < RECORDS:
                offsets += [record.offset for record in await one.poll(10, max_records=1)]
            task.cancel()
            assert offsets == [*range(RECORDS)]
            return turns

    assert asyncio.run(body()) >= RECORDS - 1


def test_a_poll_cancelled_where_the_others_run_loses_no_record(settings):
    async def body():
        async with AsyncConsumer(**settings) as one:
            await one.assign([T0])
            offsets: list[Any] = []
            while len(offsets) < RECORDS:
                poll = asyncio.ensure_future(one.poll(10, max_records=3))
                if len(offsets) % 2:
                    await asyncio.sleep(0)
                    poll.cancel()
                found = (await asyncio.gather(poll, return_exceptions=True))[0]
                if isinstance(found, list):
                    offsets += [record.offset for record in found]
                else:
                    offsets += [record.offset for record in await one.poll(10, max_records=2)]
            return offsets

    assert asyncio.run(body()) == [*range(RECORDS)]
