"""One record that cannot be deserialized, in a stream of good ones, with default settings.

The good ones before it come first, then every poll names it, until the user seeks past it.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest

from shoal import AsyncConsumer, Consumer, TopicPartition
from shoal.errors import RecordDeserializationError, WakeupError

# What is mended here once was a poll without end.
pytestmark = pytest.mark.timeout(60)

RECORDS = 10


def fill(producer, topic, bad, partition=0):
    for n in range(RECORDS):
        value = "{" if n in bad else json.dumps({"n": n})
        producer.send(topic, value, partition=partition)
    producer.flush(10)


def settings(servers):
    return {
        "bootstrap_servers": servers,
        "auto_offset_reset": "earliest",
        "value_deserializer": json.loads,
    }


def read_past(consumer, expected_errors, records):
    """Everything a program sees that skips what it cannot read."""
    seen: list[Any] = []
    errors: list[Any] = []
    positions = []
    until = time.monotonic() + 20
    while len(seen) + len(errors) < records:
        assert time.monotonic() < until, (seen, errors)
        try:
            seen += [(r.partition, r.value["n"]) for r in consumer.poll(1)]
        except RecordDeserializationError as error:
            tp, offset = error.topic_partition, error.offset
            errors.append((tp.partition, offset, error.part, type(error.__cause__)))
            positions.append((consumer.position(tp), offset))
            consumer.seek(tp, offset + 1)
    assert sorted(e[:2] for e in errors) == sorted(expected_errors)
    assert {e[2:] for e in errors} == {("value", json.JSONDecodeError)}
    assert all(position == offset for position, offset in positions), positions
    assert not consumer.poll(0.1)
    return seen


def poll_on(consumer, timeout=20):
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        consumer.poll(1)


@pytest.mark.parametrize(
    "bad", [{0}, {1}, {4}, {9}, {0, 9}, {3, 4, 5}, set(range(RECORDS))], ids=str
)
def test_good_records_come_then_the_bad_one_is_named_and_can_be_passed(
    servers, producer, topic, bad
):
    fill(producer, topic, bad)
    with Consumer(**settings(servers)) as one:
        one.assign([TopicPartition(topic, 0)])
        seen = read_past(one, [(0, n) for n in bad], RECORDS)
    assert seen == [(0, n) for n in range(RECORDS) if n not in bad]


def test_every_poll_names_the_bad_record_until_it_is_passed(servers, producer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, {4})
    with Consumer(**settings(servers)) as one:
        one.assign([tp])
        assert [r.offset for r in one.poll(10)] == [0, 1, 2, 3]
        for _ in range(3):
            with pytest.raises(RecordDeserializationError) as caught:
                one.poll(10)
            assert (caught.value.topic_partition, caught.value.offset) == (tp, 4)
            assert one.position(tp) == 4


def test_a_bad_key_is_named_as_the_key(servers, producer, topic):
    producer.send(topic, "v", key=b"\xff")
    producer.flush(10)
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", key_deserializer=bytes.decode
    ) as one:
        one.assign([TopicPartition(topic, 0)])
        with pytest.raises(RecordDeserializationError, match="the key of"):
            one.poll(10)


def test_a_bad_record_in_one_partition_does_not_stop_the_others(servers, producer, new_topic):
    topic = new_topic(3)
    fill(producer, topic, {0, 5}, partition=0)
    fill(producer, topic, {9}, partition=1)
    fill(producer, topic, set(), partition=2)
    with Consumer(**settings(servers)) as one:
        one.assign([TopicPartition(topic, n) for n in range(3)])
        seen: list[Any] = []
        errors = 0
        until = time.monotonic() + 20
        while len(seen) < RECORDS - 1 + RECORDS:
            assert time.monotonic() < until, seen
            try:
                seen += [(r.partition, r.value["n"]) for r in one.poll(1)]
            except RecordDeserializationError:
                errors += 1  # nobody passes it: the others go on all the same
        assert errors
        for partition, end in ((1, RECORDS - 1), (2, RECORDS)):
            assert [n for p, n in seen if p == partition] == list(range(end))


def test_bad_records_in_several_partitions_can_all_be_passed(servers, producer, new_topic):
    topic = new_topic(3)
    bad = {0: {0, 5}, 1: {9}, 2: {1}}
    for partition, offsets in bad.items():
        fill(producer, topic, offsets, partition)
    with Consumer(**settings(servers)) as one:
        one.assign([TopicPartition(topic, n) for n in range(3)])
        expected = [(p, n) for p, offsets in bad.items() for n in offsets]
        seen = read_past(one, expected, 3 * RECORDS)
    for partition, offsets in bad.items():
        good = [n for n in range(RECORDS) if n not in offsets]
        assert [n for p, n in seen if p == partition] == good


def test_a_member_of_a_group_commits_the_good_and_finds_the_bad_again(servers, producer, topic):
    fill(producer, topic, {4})
    group = f"g-{topic}"
    for _ in range(2):
        with Consumer(group_id=group, **settings(servers)) as one:
            one.subscribe([topic])
            with pytest.raises(RecordDeserializationError, match="offset 4"):
                poll_on(one)
    with Consumer(group_id=group, **settings(servers)) as one:
        tp = TopicPartition(topic, 0)
        stored = one.committed(tp)[tp]
        assert stored is not None
        assert stored.offset == 4


def test_a_loop_over_records_meets_it_too_and_goes_on_after_a_seek(servers, producer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, {0, 4})
    seen: list[Any] = []
    errors = []
    with Consumer(**settings(servers)) as one:
        one.assign([tp])
        while len(seen) < RECORDS - 2:
            try:
                for record in one:
                    seen.append(record.value["n"])
                    if len(seen) == RECORDS - 2:
                        break
            except RecordDeserializationError as error:
                errors.append(error.offset)
                one.seek(error.topic_partition, error.offset + 1)
    assert errors == [0, 4]
    assert seen == [1, 2, 3, 5, 6, 7, 8, 9]


def test_an_event_loop_runs_on_while_a_bad_record_is_met(servers, producer, topic):
    fill(producer, topic, {4})

    async def body():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        tp = TopicPartition(topic, 0)
        seen: list[Any] = []
        async with AsyncConsumer(**settings(servers)) as one:
            await one.assign([tp])
            while len(seen) < 4:
                seen += [r.value["n"] for r in await one.poll(10)]
            before = turns
            with pytest.raises(RecordDeserializationError, match="offset 4"):
                await one.poll(10)
            assert turns > before
            await one.seek(tp, 5)
            async for record in one:
                seen.append(record.value["n"])
                if len(seen) == RECORDS - 1:
                    break
        task.cancel()
        return seen

    assert asyncio.run(body()) == [n for n in range(RECORDS) if n != 4]


def test_a_poll_beside_a_bad_record_keeps_its_time_and_can_be_woken(servers, producer, topic):
    """A program that only logs the error, for a paused partition: nothing is there to be read."""
    tp = TopicPartition(topic, 0)
    fill(producer, topic, {4})
    with Consumer(**settings(servers)) as one:
        one.assign([tp])
        assert len(one.poll(10)) == 4
        with pytest.raises(RecordDeserializationError):
            one.poll(10)
        one.pause(tp)
        start = time.monotonic()
        assert not one.poll(0.3)
        assert 0.3 <= time.monotonic() - start < 5
        threading.Timer(0.2, one.wakeup).start()
        with pytest.raises(WakeupError):
            one.poll(30)
        assert time.monotonic() - start < 10
