"""Answers that come when their question has lost its meaning, on virtual time.

Between a fetch and its answer the user seeks, unassigns, or the log is cut; between a commit and
the next a coordinator moves. Whatever crosses, no record is lost or returned from elsewhere.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from shoal import OffsetAndMetadata
from shoal.client.broker_links import Links
from shoal.client.cluster import Cluster
from shoal.client.config import ConsumerConfig
from shoal.errors import ConnectionFailedError, CorruptDataError, ErrorCode
from shoal.records.batch import encode_batch
from shoal.wire.apis.metadata import MetadataRequest
from tests.client.late_broker import LATE_S, T0, World, at, read
from tests.client.scripted import RECORDS
from tests.client.virtual import opener, run


class Log(World):
    """Ten records, each a batch of its own, written under epoch 1: a fetch gets what it asks for.

    ``epoch`` is the leader's; that of the records ended at offset 5 for every later one.
    """

    ENDS: ClassVar = {1: 5}

    def __init__(self):
        super().__init__()
        self.epoch = 1
        self.batches = [
            encode_batch([(None, b"v", (), 0)], base_offset=n, leader_epoch=1)
            for n in range(RECORDS)
        ]

    def _fetch(self, request, code):
        answer = super()._fetch(request, code)
        (part,) = answer.responses[0].partitions
        if part.records:
            wanted = request.topics[0].partitions[0].fetch_offset
            part.records = b"".join(self.batches[wanted:])
        return answer

    def _metadata(self, code):
        answer = super()._metadata(code)
        for partition in answer.topics[0].partitions:
            partition.leader_epoch = self.epoch
        return answer


@pytest.fixture
def log():
    with Log() as log:
        yield log


async def offsets(one, count):
    """Of what the next polls return."""
    seen: list[Any] = []
    until = one._loop.time() + 20 * LATE_S
    while len(seen) < count and one._loop.time() < until:
        seen += await read(one, LATE_S)
    return seen


async def seek_back(one):
    await one.seek(T0, 2, None)


async def seek_to_beginning(one):
    await one.seek_to_end([T0], beginning=True)


async def assign_anew(one):
    await one.assign([])
    await one.assign([T0])
    await one.seek(T0, 2, None)


# --- fetches ---


@pytest.mark.parametrize(
    ("move", "first"), [(seek_back, 2), (seek_to_beginning, 0), (assign_anew, 2)]
)
def test_an_answer_to_a_fetch_of_where_the_user_was_before_is_dropped(log, move, first):
    log.late = {"Fetch"}

    async def moves():
        one = log.session()
        await one.assign([T0])
        await one.seek(T0, 7, None)
        await one.prepare(1)
        assert log.asked["Fetch"] == 1, "the fetch of offset 7 is under way"
        await move(one)
        seen = await offsets(one, RECORDS - first)
        await one.close(5)
        return seen

    assert run(moves())[0] == [*range(first, RECORDS)]


@pytest.mark.parametrize(
    "code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
)
@pytest.mark.parametrize("when", ["under way", "kept"])
def test_a_late_error_says_nothing_about_where_the_user_went_meanwhile(log, code, when):
    log.late = {"Fetch"}

    async def moves():
        one = log.session(auto_offset_reset="none")
        await one.assign([T0])
        log.fail("Fetch", code)
        await one.seek(T0, 7, None)
        await asyncio.sleep(1)
        assert log.asked["Fetch"] == 1
        if when == "kept":
            await asyncio.sleep(LATE_S)  # it is there, and the next poll would raise it
        await one.seek(T0, 2, None)
        seen = await offsets(one, RECORDS - 2)
        await one.close(5)
        return seen

    assert run(moves())[0] == [*range(2, RECORDS)]


def test_what_is_unread_comes_before_the_reset_of_a_position_outside_the_log(log):
    """The log was cut or aged away behind us; what we fetched before that is still the user's."""

    async def reads():
        one = log.session()
        await one.assign([T0])
        await one.seek(T0, 4, None)
        await one.prepare(LATE_S)
        first = [record.offset for record in one.reader.take(3)]
        log.fail("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE, times=3)
        await asyncio.sleep(2)
        assert log.asked["Fetch"] > 3
        seen = first + [record.offset for record in one.reader.take(100)]
        await one.close(5)
        return seen

    assert run(reads())[0] == [*range(4, RECORDS)]


def test_what_is_buffered_is_gone_while_the_end_is_looked_for(log):
    log.late = {"ListOffsets"}

    async def reads():
        one = log.session()
        await one.assign([T0])
        await one.seek(T0, 0, None)
        await one.prepare(LATE_S)
        assert one.buffer.has_ready
        await one.seek_to_end([T0], beginning=False)
        await one.prepare(1)
        seen = [record.offset for record in one.reader.take(100)]
        position = await one.position(T0, 60)
        await one.close(5)
        return seen, position

    assert run(reads())[0] == ([], RECORDS)


def test_what_is_unread_comes_before_the_damage_behind_it_is_named(log):
    bad = bytearray(log.batches[5])
    bad[16] = 77  # the magic
    log.batches[5] = bytes(bad)

    async def reads():
        one = log.session()
        await one.assign([T0])
        await one.seek(T0, 0, None)
        await one.prepare(LATE_S)
        seen = [record.offset for record in one.reader.take(2)]
        await asyncio.sleep(3)  # what comes next was fetched, and is bad
        seen += await offsets(one, 3)
        with pytest.raises(CorruptDataError, match="t-0 at offset 5"):
            await one.prepare(LATE_S)
        await one.close(5)
        return seen

    assert run(reads())[0] == [*range(5)]


def test_a_topic_that_is_not_there_yet_is_looked_for_until_it_is(log):
    log.fail("Metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=5)

    async def watches():
        config = ConsumerConfig(bootstrap_servers=log.servers)
        cluster = Cluster(config, links_to(log, 0.01)[0])
        cluster.watch(["t"])
        cluster.mark_stale()
        await asyncio.sleep(30)
        await cluster.close()
        return list(cluster.metadata.topics)

    assert run(watches())[0] == ["t"]


# --- a log that was cut ---


def test_nothing_that_may_be_cut_off_is_returned_before_the_new_leader_was_asked(log):
    async def reads():
        one = log.session()
        await one.assign([T0])
        await one.seek(T0, 0, None)
        await one.prepare(LATE_S)
        first = [record.offset for record in one.reader.take(2)]
        log.epoch, log.late = 2, {"OffsetForLeaderEpoch"}
        await one._cluster.refresh({"t"})
        await one.prepare(1)
        doubtful = [record.offset for record in one.reader.take(100)]
        seen = first + await offsets(one, RECORDS - 2)
        await one.close(5)
        return doubtful, seen

    assert run(reads())[0] == ([], [*range(RECORDS)])


def test_a_cut_that_was_found_says_nothing_about_where_the_user_went_since(log):
    log.epoch = 2

    async def moves():
        one = log.session()
        await one.assign([T0])
        await one.seek(T0, 8, 1)
        await asyncio.sleep(LATE_S)
        assert log.asked_epochs == [1], "it ended at offset 5: the next poll would go there"
        await one.seek(T0, 7, None)
        seen = await read(one)
        await one.close(5)
        return seen

    assert run(moves())[0] == [7, 8, 9]


# --- commits ---


def test_a_commit_is_not_overtaken_while_its_coordinator_is_looked_for(log):
    async def commits():
        one = log.session(group_id="g")
        await one.assign([T0])
        await one.seek(T0, 0, None)
        assert not log.asked["FindCoordinator"]
        log.fail("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for offset in (1, 2):
            await one.commit_async(at(offset), None)
        await one.commit_sync({}, None)
        await one.close(5)

    run(commits())
    assert log.committed == [1, 2]


def test_what_was_given_to_commit_may_be_changed_afterwards(log):
    told = []

    async def commits():
        one = log.session(group_id="g")
        await one.assign([T0])
        offsets = at(3)
        await one.commit_async(offsets, lambda given, _: told.append(given[T0].offset))
        offsets[T0] = OffsetAndMetadata(9)
        await one.commit_sync({}, None)
        await one.close(5)

    run(commits())
    assert log.committed == told == [3]


def test_an_automatic_commit_that_failed_does_not_wait_for_the_next_interval(log):
    hour_ms = 3_600_000
    log.fail("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)

    async def polls():
        one = log.session(group_id="g", enable_auto_commit=True, auto_commit_interval_ms=hour_ms)
        await one.assign([T0])
        seen = await offsets(one, RECORDS)
        while not log.asked["OffsetCommit"]:
            await one.prepare(60)
        for _ in range(10):
            await one.prepare(1)
        committed = list(log.committed)
        await one.close(5)
        return len(seen), committed

    assert run(polls())[0] == (RECORDS, [RECORDS])


# --- connections ---


def test_requests_of_a_connection_that_is_cut_fail_at_once(log):
    log.spoil("Metadata", lambda _: None)

    async def asks():
        links, address = links_to(log, 1.0)
        connection = await links.to(address).connection()
        answers = [connection.send(MetadataRequest(topics=[])) for _ in range(2)]
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        links.close()
        return outcomes

    outcomes, took_s = run(asks())
    assert [type(outcome) for outcome in outcomes] == [ConnectionFailedError] * 2
    assert took_s < 5


def links_to(broker, delay_s, **settings):
    config = ConsumerConfig(bootstrap_servers=broker.servers, **settings)
    return Links(config, None, opener(broker, delay_s)), config.addresses()[0]


def test_who_gives_up_waiting_does_not_take_the_connection_from_the_others(log):
    async def opens():
        links, address = links_to(log, 1.0)
        tasks = [asyncio.create_task(links.to(address).connection()) for _ in range(2)]
        await asyncio.sleep(0.5)
        tasks[0].cancel()
        answers: Any = await asyncio.gather(tasks[1], return_exceptions=True)
        links.close()
        return answers[0]

    found, took_s = run(opens())
    assert not isinstance(found, BaseException)
    assert took_s == pytest.approx(1.0)


def test_a_broker_that_drops_every_connection_is_tried_about_once_a_second(log):
    for _ in range(1000):
        log.spoil("ApiVersions", lambda _: None)

    async def tries():
        links, address = links_to(log, 0.01)
        loop = asyncio.get_running_loop()
        while loop.time() < 60 and log.asked["ApiVersions"] < 1000:
            with pytest.raises(ConnectionFailedError):
                await links.to(address).connection()
        links.close()

    run(tries())
    assert 50 <= log.asked["ApiVersions"] <= 90


def test_a_connection_that_waits_for_an_answer_is_not_idle(log):
    async def waits():
        links, address = links_to(log, lambda api: 10.0 * (api == "Metadata"))
        links._config = ConsumerConfig(connections_max_idle_ms=1000)
        connection = await links.to(address).connection()
        answer = connection.send(MetadataRequest(topics=[]))
        await asyncio.sleep(5)
        links.close_idle()
        await answer
        links.close_idle()
        was_closed = not connection.is_open
        links.close()
        return was_closed

    assert run(waits())[0], "nothing was asked for ten seconds, and nothing is owed now"
