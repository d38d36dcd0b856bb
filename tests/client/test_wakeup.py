"""Other threads: wakeup and close always come through, anything else is refused."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from shoal import Consumer, TopicPartition
from shoal.errors import WakeupError
from tests.client.conftest import poll_until, take


def later(function, seconds=0.05):
    timer = threading.Timer(seconds, function)
    timer.start()
    return timer


def test_a_wakeup_ends_the_poll_under_way_once(consumer, topic):
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    poll_until(one, lambda: one.position(TopicPartition(topic, 0)) == 0)
    timer = later(one.wakeup)
    before = time.monotonic()
    with pytest.raises(WakeupError):
        one.poll(20)
    assert time.monotonic() - before < 5
    timer.join()
    assert not one.poll(0.01)


def test_a_wakeup_before_the_call_counts(consumer, topic):
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    one.wakeup()
    with pytest.raises(WakeupError):
        one.poll(20)
    one.wakeup()
    with pytest.raises(WakeupError):
        one.committed(TopicPartition(topic, 0))
    assert one.committed(TopicPartition(topic, 0)) == {TopicPartition(topic, 0): None}


def test_a_wakeup_ends_other_blocking_calls_too():
    with Consumer(bootstrap_servers="127.0.0.1:9", group_id="g") as one:
        tp = TopicPartition("t", 0)
        one.assign([tp])
        for call in (
            lambda: one.position(tp),
            lambda: one.committed(tp),
            lambda: one.end_offsets([tp]),
            lambda: one.partitions_for("t"),
        ):
            timer = later(one.wakeup)
            before = time.monotonic()
            with pytest.raises(WakeupError):
                call()
            assert time.monotonic() - before < 5
            timer.join()


def test_a_wakeup_does_not_disturb_closing(admin, producer, consumer, topic):
    producer.send(topic, "read").result(10)
    left = []

    class Listener:
        def on_partitions_revoked(self, partitions):
            left.append({tp: at.offset for tp, at in one.committed(*partitions).items()})

    one = consumer(enable_auto_commit=True, auto_commit_interval_ms=3_600_000)
    one.subscribe([topic], Listener())
    assert len(take(one, 1)) == 1
    (tp,) = one.assignment()
    group = one.group_metadata().group_id
    assert one.committed(tp) == {tp: None}
    one.wakeup()
    one.close()
    # In order, as without a wakeup: what was read is committed, given up, and the group left.
    assert left == [{tp: 1}]
    assert admin.group_offsets(group)[tp].offset == 1
    assert admin.describe_group(group).members == ()


def test_two_threads_at_once_are_refused(consumer, topic):
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    inside, seen = threading.Event(), []

    class Slow:
        def on_consume(self, records):
            return records

    def intrude():
        inside.wait(5)
        for call in (lambda: one.poll(0), one.close, lambda: one.pause()):
            try:
                call()
            except RuntimeError as error:
                seen.append(str(error))
        one.wakeup()

    thread = threading.Thread(target=intrude)
    thread.start()
    later(inside.set)
    with pytest.raises(WakeupError):
        one.poll(20)
    thread.join()
    assert len(seen) == 3
    assert all("one thread at a time" in text for text in seen)


def test_records_before_a_wakeup_are_not_lost(producer, consumer, topic):
    for n in range(10):
        producer.send(topic, str(n))
    producer.flush(10)
    one = consumer(max_poll_records=3)
    one.assign([TopicPartition(topic, 0)])
    offsets: list[Any] = []
    while len(offsets) < 10:
        one.wakeup()
        with pytest.raises(WakeupError):
            one.poll(1)
        offsets += [record.offset for record in take(one, min(3, 10 - len(offsets)))]
    assert offsets == [*range(10)]


def test_a_consumer_may_be_closed_from_another_thread_when_nobody_uses_it(
    consumer, admin, topic, group
):
    one = consumer()
    one.subscribe([topic])
    poll_until(one, one.assignment)
    thread = threading.Thread(target=one.close)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert admin.describe_group(group).state == "Empty"
    with pytest.raises(RuntimeError, match="closed"):
        one.poll(0)


def test_a_poll_for_ever_is_ended_by_wakeup_and_closed_by_who_polls(consumer, admin, topic, group):
    one, ended = consumer(), []

    def run():
        try:
            one.subscribe([topic])
            for _ in one:
                pass
        except WakeupError as error:
            ended.append(error)
        finally:
            one.close()

    thread = threading.Thread(target=run)
    thread.start()
    until = time.monotonic() + 20
    while not one.assignment():
        assert time.monotonic() < until
        threading.Event().wait(0.01)
    one.wakeup()
    thread.join(20)
    assert not thread.is_alive()
    assert len(ended) == 1
    assert admin.describe_group(group).state == "Empty"


@pytest.mark.slow
def test_closing_with_a_broker_that_is_gone_ends_in_time(shoal_broker):
    shoal_broker.create_topic("t", 1)
    one = Consumer(
        bootstrap_servers=shoal_broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    one.subscribe(["t"])
    poll_until(one, one.assignment)
    shoal_broker.kill()
    before = time.monotonic()
    one.close(0.5)
    assert time.monotonic() - before < 10
    shoal_broker.start()
