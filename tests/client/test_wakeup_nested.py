"""A wakeup while user code runs inside a call: what that code calls raises, or the call around it.

Kafka's rule: the blocking call in progress raises, and here that is the innermost one.
"""

from __future__ import annotations

import asyncio
import threading

import pytest

from shoal import AsyncConsumer, Consumer, OffsetAndMetadata, TopicPartition
from shoal.errors import ErrorCode, WakeupError
from tests.client.conftest import poll_until, take
from tests.client.late_broker import LATE_S, T0, World, at
from tests.client.virtual import run


class Asking:
    """A listener that is woken and then asks for what is committed."""

    def __init__(self, swallows):
        self.swallows = swallows
        self.calls = []

    def use(self, consumer, topic):
        self._consumer = consumer
        consumer.subscribe([topic], self)

    def on_partitions_assigned(self, partitions):
        self.calls.append(("assigned", partitions))
        if len(self.calls) > 1:
            return
        self._consumer.wakeup()
        try:
            self._consumer.committed(*partitions)
        except WakeupError:
            self.calls.append("woken")
            if not self.swallows:
                raise


def test_a_callback_that_catches_the_wakeup_of_its_own_call_ends_it_there(
    producer, consumer, topic
):
    producer.send(topic, "v").result(10)
    one, listener = consumer(), Asking(swallows=True)
    listener.use(one, topic)
    assert [record.value for record in take(one, 1)] == [b"v"], "no poll raises it"
    assert listener.calls == [("assigned", [TopicPartition(topic, 0)]), "woken"]
    assert one.committed(TopicPartition(topic, 0)) == {TopicPartition(topic, 0): None}


def test_a_wakeup_let_through_by_a_callback_ends_the_poll_and_the_callback_runs_again(
    producer, consumer, topic
):
    producer.send(topic, "v").result(10)
    one, listener = consumer(), Asking(swallows=False)
    listener.use(one, topic)
    with pytest.raises(WakeupError):
        poll_until(one, lambda: len(listener.calls) > 1)
    told = ("assigned", [TopicPartition(topic, 0)])
    assert listener.calls == [told, "woken"]
    assert [record.value for record in take(one, 1)] == [b"v"]
    assert listener.calls == [told, "woken", told]


def test_a_callback_that_calls_nothing_leaves_the_wakeup_to_its_poll(consumer, topic):
    one = consumer()

    class Waking:
        def on_partitions_assigned(self, partitions):
            one.wakeup()

    one.subscribe([topic], Waking())
    with pytest.raises(WakeupError):
        one.poll(20)
    assert one.assignment() == {TopicPartition(topic, 0)}, "what the callback did stands"
    assert not one.poll(0.01)


def test_the_commit_of_a_listener_is_not_woken_while_closing(consumer, admin, topic, group):
    """As what closes cannot be called again, nothing of it is cut short."""
    one, tp, raised = consumer(), TopicPartition(topic, 0), []

    class Committing:
        def on_partitions_revoked(self, partitions):
            one.wakeup()
            try:
                one.commit_sync({tp: OffsetAndMetadata(0, metadata="closing")})
            except WakeupError as error:
                raised.append(error)

    one.subscribe([topic], Committing())
    poll_until(one, one.assignment)
    one.close()
    assert raised == []
    assert admin.group_offsets(group)[tp].metadata == "closing"


def test_an_awaiting_listener_is_woken_in_its_own_call_too(servers, group, topic):
    seen = []

    async def read():
        async with AsyncConsumer(bootstrap_servers=servers, group_id=group) as one:

            class Asking:
                async def on_partitions_assigned(self, partitions):
                    one.wakeup()
                    try:
                        await one.committed(*partitions)
                    except WakeupError:
                        seen.append("woken")

            await one.subscribe([topic], Asking())
            while not seen:
                await one.poll(1)
            await one.poll(0.05)

    asyncio.run(read())
    assert seen == ["woken"]


# --- a call whose answer is late, and a wakeup from another thread ---


@pytest.fixture
def world():
    with World() as world:
        yield world


def later(function):
    timer = threading.Timer(0.05, function)
    timer.start()
    return timer


def test_a_wakeup_ends_the_call_of_a_callback_and_not_the_call_around_it(world):
    """The callback of an async commit runs inside a sync one, and waits for what never comes."""
    world.fail("ListOffsets", ErrorCode.LEADER_NOT_AVAILABLE, times=1000)  # and so asked again
    told = []
    with Consumer(bootstrap_servers=world.servers, group_id="g", enable_auto_commit=False) as one:
        one.assign([T0])

        def asks(offsets, error):
            timer = later(one.wakeup)
            try:
                one.end_offsets([T0], timeout=20)
            except WakeupError:
                told.append("woken")
            timer.join()

        one.commit_async(at(1), asks)
        one.commit_sync(at(2))
    assert told == ["woken"]
    assert world.committed == [1, 2]


def test_after_the_call_of_a_callback_the_one_around_it_can_still_be_woken(world):
    world.late = {"OffsetCommit"}
    times = []

    async def commits():
        one = world.session(group_id="g")
        await one.assign([T0])

        async def asks(offsets, error):
            times.append(one._loop.time())
            await one.wakeups.interruptible(one.queries.partitions_for("t", None))
            one._loop.call_later(1, one.wakeups.ring)

        await one.commit_async(at(1), asks)
        with pytest.raises(WakeupError):
            await one.wakeups.interruptible(one.commit_sync(at(2), None))
        times.append(one._loop.time())
        await one.close(30)

    run(commits())
    assert times[1] - times[0] < LATE_S, "it did not wait for its own answer"


def test_a_wakeup_is_the_innermost_call_s_even_if_the_outer_one_hears_of_it_first(world):
    """The wakeup comes while the callback computes; the call that it makes then raises."""
    seen = []
    with Consumer(bootstrap_servers=world.servers, group_id="g", enable_auto_commit=False) as one:
        one.assign([T0])

        def asks(offsets, error):
            one.wakeup()
            one.pause(T0)  # does not block and so does not raise, but the engine has heard by now
            try:
                one.committed(T0)
            except WakeupError:
                seen.append("woken")

        one.commit_async(at(1), asks)
        one.commit_sync(at(2))
        one.commit_sync(at(3))
    assert seen == ["woken"]
    assert world.committed == [1, 2, 3]
