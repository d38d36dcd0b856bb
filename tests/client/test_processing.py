"""``process``: handlers in several threads or tasks, on a real consumer in a real group."""

from __future__ import annotations

import asyncio
import collections
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from shoal import AsyncConsumer, Consumer, OffsetAndMetadata, TopicPartition
from shoal.errors import ConfigError, ProcessingError
from tests.client.conftest import take
from tests.patience import PATIENCE_S


@pytest.fixture
def settings(servers, group) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 50,
        "auto_commit_interval_ms": 100,
    }


@pytest.fixture(params=["threads", "tasks"])
def process(request, settings):
    """Run ``process`` in a consumer of its own; the handler gets the record and ``stop``."""

    def threads(topic, handler, options, more):
        with Consumer(**settings, **more) as one:
            one.subscribe([topic])
            one.process(lambda record: handler(record, one.wakeup), **options)

    async def tasks(topic, handler, options, more):
        async with AsyncConsumer(**settings, **more) as one:
            await one.subscribe([topic])

            async def work(record):
                await asyncio.sleep(0.002)
                handler(record, one.wakeup)

            await one.process(work, **options)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def run(topic, handler, more=(), **options):
        given = dict(more)
        if request.param == "threads":
            threads(topic, handler, options, given)
        else:
            asyncio.run(tasks(topic, handler, options, given))

    yield run
    # Not before: a test may have another consumer, which ends a little later.
    assert not [one for one in threading.enumerate() if one.name.startswith("shoal-process")]


def fill(producer, topic, count, keys=5):
    sent = [producer.send(topic, str(n), f"k{n % keys}") for n in range(count)]
    for one in sent:
        one.result(20)


def committed(admin, group, topic):
    found = admin.group_offsets(group)
    return {tp.partition: one.offset for tp, one in found.items() if tp.topic == topic and one}


def test_every_record_is_worked_on_in_the_order_of_its_key_and_committed(
    process, producer, new_topic, admin, group
):
    topic = new_topic(2)
    fill(producer, topic, 200)
    seen, lock = collections.defaultdict(list), threading.Lock()
    busy: collections.Counter[Any] = collections.Counter()
    most: collections.Counter[Any] = collections.Counter()

    def handle(record, stop):
        with lock:
            busy[record.key] += 1
            most[record.key] = max(most[record.key], busy[record.key])
        time.sleep(0.0005)
        with lock:
            busy[record.key] -= 1
            seen[record.key].append(int(record.value))
            if sum(map(len, seen.values())) == 200:
                stop()

    process(topic, handle, workers=8, order="key")
    assert all(found == sorted(found) for found in seen.values())
    assert sum(map(len, seen.values())) == 200
    assert set(most.values()) == {1}
    ends = admin.list_offsets({TopicPartition(topic, n): "latest" for n in range(2)})
    assert committed(admin, group, topic) == {tp.partition: one.offset for tp, one in ends.items()}


def test_a_record_that_fails_is_tried_again_after_a_while(process, producer, topic, admin, group):
    fill(producer, topic, 3, keys=1)
    tries = []

    def handle(record, stop):
        tries.append((int(record.value), time.monotonic()))
        if len(tries) < 3:
            raise ValueError("not yet")
        if record.value == b"2":
            stop()

    process(topic, handle, retries=2, retry_delay=0.1)
    assert [n for n, _ in tries] == [0, 0, 0, 1, 2]
    assert tries[1][1] - tries[0][1] >= 0.1
    assert tries[2][1] - tries[1][1] >= 0.2
    assert committed(admin, group, topic) == {0: 3}


def test_a_record_that_failed_for_good_lies_in_the_dead_letter_topic_with_the_reason(
    process, producer, new_topic, admin, group, consumer
):
    topic, dead = new_topic(1), new_topic(1)
    producer.send(topic, "0", "k", headers={"mine": b"1"}).result(10)
    producer.send(topic, "not a number", "k").result(10)
    producer.send(topic, "2", "k").result(10)
    seen = []

    def handle(record, stop):
        seen.append(record.value)
        if record.value == 0:
            raise KeyError("zero")
        stop()

    more: dict[str, Any] = {"value_deserializer": int}
    process(topic, handle, more, retries=1, retry_delay=0.0, dead_letter_topic=dead)
    assert seen == [0, 0, 2]
    assert committed(admin, group, topic) == {0: 3}
    one = consumer(group_id=None)
    one.assign([TopicPartition(dead, 0)])
    first, second = take(one, 2)
    headers = dict(first.headers)
    assert (first.key, first.value, headers["mine"]) == (b"k", b"0", b"1")
    told = {name: headers[f"shoal.{name}"] for name in ("topic", "partition", "offset")}
    assert told == {"topic": topic.encode(), "partition": b"0", "offset": b"0"}
    assert headers["shoal.error"] == b"KeyError: 'zero'"
    assert headers["shoal.attempts"] == b"2"
    assert headers["shoal.group"] == group.encode()
    assert second.value == b"not a number"
    assert "invalid literal for int" in str(dict(second.headers)["shoal.error"])
    assert dict(second.headers)["shoal.attempts"] == b"1"


def test_a_record_that_failed_for_good_ends_it_and_nothing_behind_it_is_committed(
    process, producer, topic, admin, group
):
    fill(producer, topic, 50, keys=50)

    def handle(record, stop):
        if record.value == b"20":
            time.sleep(0.01)
            raise ValueError("no twenty")

    with pytest.raises(ProcessingError, match=rf"{topic}-0 offset 20: ValueError: no twenty") as e:
        process(topic, handle, workers=4)
    ((record, error),) = e.value.failures
    assert (record.offset, str(error)) == (20, "no twenty")
    assert committed(admin, group, topic) == {0: 20}


def test_a_dead_letter_that_cannot_be_sent_leaves_its_record_undone(
    process, producer, topic, admin, group
):
    fill(producer, topic, 2, keys=1)

    def handle(record, stop):
        raise ValueError("no")

    with pytest.raises(ProcessingError):
        process(topic, handle, dead_letter_topic="not a name of a topic")
    assert committed(admin, group, topic) == {}


def test_a_handler_that_takes_long_does_not_cost_the_membership(
    settings, producer, new_topic, admin, group
):
    topic = new_topic(1)
    fill(producer, topic, 2, keys=1)
    more: dict[str, Any] = {"max_poll_interval_ms": 1000, "session_timeout_ms": 6000}
    told = []

    class Listener:
        def on_partitions_lost(self, partitions):
            told.append("lost")

    with Consumer(**settings, **more) as one:
        one.subscribe([topic], Listener())

        def handle(record):
            time.sleep(2.5)
            if record.value == b"1":
                one.wakeup()

        one.process(handle)
        assert one.assignment() == {TopicPartition(topic, 0)}
    assert told == []
    assert committed(admin, group, topic) == {0: 2}


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_what_is_under_way_when_partitions_go_is_done_and_committed_first(
    process, settings, producer, new_topic, admin, group, assignor
):
    """A second member takes half of the work over: no record twice, none skipped, order kept."""
    topic = new_topic(4)
    fill(producer, topic, 400, keys=40)
    seen, lock = collections.defaultdict(list), threading.Lock()
    more: dict[str, Any] = {"assignors": [assignor], "max_poll_records": 20}
    stops = []
    joined: list[Any] = []
    begun = threading.Event()

    def work(name, record, stop):
        # Slowly, until there is somebody to take over: so there is always something under way.
        time.sleep(0.001 if joined or not begun.is_set() else 0.02)
        with lock:
            seen[record.key].append((int(record.value), name))
            if stop not in stops:
                stops.append(stop)
            if name == "second":
                joined.append(name)
            if sum(map(len, seen.values())) == 50:
                begun.set()
            if sum(map(len, seen.values())) >= 400:
                for one in stops:
                    one()

    def second():
        begun.wait(20)
        with Consumer(**settings, **more) as one:
            one.subscribe([topic])
            stops.append(one.wakeup)
            one.process(lambda record: work("second", record, one.wakeup), workers=2)

    other = threading.Thread(target=second, daemon=True)
    other.start()
    process(topic, lambda record, stop: work("first", record, stop), more, workers=2)
    other.join(30)
    assert not other.is_alive()
    for found in seen.values():
        numbers = [n for n, _ in found]
        assert numbers == sorted(set(numbers))
    assert sum(map(len, seen.values())) == 400
    assert sum(committed(admin, group, topic).values()) == 400


def test_what_is_under_way_at_the_end_is_done_and_committed(process, producer, topic, admin, group):
    fill(producer, topic, 1)

    def handle(record, stop):
        stop()
        time.sleep(0.5)

    process(topic, handle)
    assert committed(admin, group, topic) == {0: 1}


def test_a_handler_that_does_not_end_is_not_waited_for_for_ever(settings, producer, topic):
    fill(producer, topic, 1)
    over = threading.Event()
    with Consumer(**settings) as one:
        one.subscribe([topic])

        def handle(record):
            one.wakeup()
            over.wait(30)

        before = time.monotonic()
        one.process(handle, drain_timeout=0.3)
        assert time.monotonic() - before < 20
        assert one.committed(TopicPartition(topic, 0)) == {TopicPartition(topic, 0): None}
        over.set()
    for thread in threading.enumerate():
        if thread.name.startswith("shoal-process"):
            thread.join(10)


def test_who_cancels_stops_the_handlers_and_commits_what_is_done(
    settings, producer, topic, admin, group
):
    fill(producer, topic, 3, keys=1)

    async def run():
        reached, released = asyncio.Event(), asyncio.Event()

        async def handle(record):
            if record.value == b"1":
                reached.set()
                await released.wait()

        async with AsyncConsumer(**settings) as one:
            await one.subscribe([topic])
            task = asyncio.create_task(one.process(handle))
            await reached.wait()
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            released.set()
            assert done, "it waits for the handler"
            assert task.cancelled()
            assert not others

    asyncio.run(run())
    assert committed(admin, group, topic) == {0: 1}


def test_afterwards_the_consumer_polls_as_before(settings, producer, topic):
    fill(producer, topic, 2, keys=1)
    tp = TopicPartition(topic, 0)
    with Consumer(**settings, value_deserializer=int) as one:
        one.subscribe([topic])
        one.process(lambda record: one.wakeup(), workers=1)
        one.seek(tp, 0)
        assert [record.value for record in take(one, 2)] == [0, 1]
        one.commit_sync({tp: OffsetAndMetadata(1)})


@pytest.mark.parametrize(
    ("change", "options", "error", "message"),
    [
        ({"enable_auto_commit": True}, {}, ConfigError, "enable_auto_commit=False"),
        ({"group_id": None}, {}, ConfigError, "needs a group_id"),
        ({}, {"order": "x"}, ValueError, "order='x'"),
    ],
)
def test_what_cannot_be_processed_is_refused_at_once(settings, change, options, error, message):
    with Consumer(**{**settings, **change}) as one, pytest.raises(error, match=message):
        one.process(print, **options)


def test_a_coroutine_function_is_for_the_other_consumer(settings, producer, topic):
    fill(producer, topic, 1)

    async def handle(record):
        pass

    with Consumer(**settings) as one:
        one.subscribe([topic])
        with pytest.raises(ProcessingError, match=r"use it with AsyncConsumer\.process"):
            one.process(handle)


MEMBER = """
import sys, time
from shoal import Consumer
servers, group, topic, path = sys.argv[1:]
with Consumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest",
              enable_auto_commit=False, heartbeat_interval_ms=50, session_timeout_ms=6000,
              auto_commit_interval_ms=20, max_poll_records=50) as consumer:
    consumer.subscribe([topic])
    log = open(path, "a", buffering=1)
    def handle(record):
        time.sleep(0.002)
        log.write(f"{record.key.decode()} {record.value.decode()}\\n")
    consumer.process(handle, workers=4)
"""


@pytest.mark.slow
def test_members_that_are_killed_in_mid_work_lose_nothing(
    servers, group, producer, new_topic, admin, tmp_path
):
    """Real processes, killed again and again: every record is worked on, each key in its order."""
    topic, count = new_topic(3), 600
    fill(producer, topic, count, keys=20)
    lives: list[Any] = []

    def start():
        path = tmp_path / f"life-{len(lives)}"
        path.touch()
        command = [sys.executable, "-c", MEMBER, servers, group, topic, str(path)]
        lives.append((subprocess.Popen(command), path))

    def worked_on():
        return [line for _, path in lives for line in path.read_text().splitlines()]

    start()
    start()
    try:
        until = time.monotonic() + 200
        kills = 0
        while len(set(worked_on())) < count:
            assert time.monotonic() < until, f"{len(set(worked_on()))} of {count} after {kills}"
            life, path = lives[-1]
            if kills < 3 and len(path.read_text().splitlines()) > 40:
                life.send_signal(signal.SIGKILL)
                life.wait(20)
                kills += 1
                start()
            time.sleep(0.02)
        assert kills
    finally:
        for life, _ in lives:
            life.kill()
            life.wait(20)
    for _, path in lives:
        seen = collections.defaultdict(list)
        for line in path.read_text().splitlines():
            key, number = line.split()
            seen[key].append(int(number))
        for numbers in seen.values():
            # Within one life a key's records come in order; after a rebalance some come again.
            fresh = [n for at, n in enumerate(numbers) if n not in numbers[:at]]
            assert fresh == sorted(fresh)
    assert len(set(worked_on())) == count
    ends = admin.list_offsets({TopicPartition(topic, n): "latest" for n in range(3)})
    for tp, held in admin.group_offsets(group).items():
        assert held.offset <= ends[tp].offset
