"""Bugs that Apache Kafka's consumer had around positions, commits and closing, each as a test.

The number in a name is that of the issue in Kafka's tracker; those about the group are in
tests/group/test_history_member.py. They were races, so most run on virtual time, where an
answer is late by as much as a test says and the same things cross each time.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from shoal import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from shoal.client.config import ConsumerConfig
from shoal.client.consuming import ConsumerSession
from shoal.client.links import Links
from shoal.errors import ErrorCode, RequestTimeoutError, WakeupError
from shoal.wire.apis.api_versions import ApiVersionsResponse
from shoal.wire.apis.offset_fetch import OffsetFetchResponse
from shoal.wire.apis.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from shoal.wire.apis.registry import ApiKey
from tests.client.conftest import poll_until, take
from tests.client.scripted import RECORDS, ScriptedBroker
from tests.client.virtual import opener, run

T0 = TopicPartition("t", 0)
LATE_S = 5.0


class World(ScriptedBroker):
    """A broker whose answers to some APIs are late, and which remembers what was committed.

    Its log has had three leaders: epoch 0 ended at offset 5, epoch 1 at 10, epoch 2 is new.
    """

    ENDS: ClassVar = {0: 5, 1: RECORDS, 2: RECORDS}

    def __init__(self):
        super().__init__()
        self.late: set[str] = set()
        self.committed: list[int] = []
        self.has_commit: int | None = None
        self.asked_epochs: list[int] = []

    def delay_s(self, api):
        if api in self.late:
            return LATE_S
        return 0.5 if api == "Fetch" else 0.01

    def session(self, **settings):
        given = {
            "bootstrap_servers": self.servers,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **settings,
        }
        config = ConsumerConfig(**given)
        return ConsumerSession(config, Links(config, None, opener(self, self.delay_s)))

    def _message(self, key, request, code):
        match key:
            case ApiKey.OFFSET_FOR_LEADER_EPOCH:
                return self._epoch_end(request)
            case ApiKey.OFFSET_COMMIT:
                if not code:
                    self.committed.append(request.topics[0].partitions[0].committed_offset)
            case ApiKey.OFFSET_FETCH if self.has_commit is not None:
                part = OffsetFetchResponse.Partition(
                    partition_index=0, committed_offset=self.has_commit
                )
                return OffsetFetchResponse(
                    topics=[OffsetFetchResponse.Topic(name="t", partitions=[part])]
                )
        answer = super()._message(key, request, code)
        if key is ApiKey.API_VERSIONS:
            answer.api_keys.append(
                ApiVersionsResponse.ApiVersion(
                    api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, min_version=2, max_version=4
                )
            )
        return answer

    def _metadata(self, code):
        answer = super()._metadata(code)
        for partition in answer.topics[0].partitions:
            partition.leader_epoch = 2
        return answer

    def _epoch_end(self, request):
        epoch = request.topics[0].partitions[0].leader_epoch
        self.asked_epochs.append(epoch)
        end = OffsetForLeaderEpochResponse.EpochEndOffset(
            partition=0, leader_epoch=epoch, end_offset=self.ENDS[epoch]
        )
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic="t", partitions=[end])
            ]
        )


@pytest.fixture
def world():
    with World() as world:
        yield world


def at(offset):
    return {T0: OffsetAndMetadata(offset)}


async def read(one, timeout=4 * LATE_S):
    """The offsets of what the next poll returns."""
    await one.prepare(timeout)
    return [record.offset for record in one.reader.take(100)]


# --- commits ---


class Told(list):
    """Notes what callbacks of commits are told: the offset, or the error."""

    def __call__(self, offsets, error):
        self.append(error or offsets[T0].offset)


@pytest.mark.parametrize("coordinator", ["known", "unknown"])
def test_5730_callbacks_of_async_commits_run_before_a_later_sync_commit_returns(world, coordinator):
    """The synchronous one came back first, and who looked then thought the others lost."""
    told = Told()
    world.late = {"OffsetCommit", "FindCoordinator"}

    async def commits():
        one = world.session(group_id="g")
        await one.assign([T0])
        if coordinator == "known":
            await one.committed([T0], None)
        for offset in (1, 2, 3):
            await one.commit_async(at(offset), told)
        assert told == []
        await one.commit_sync(at(4), None)
        before = list(told)
        await one.close(30)
        return before

    before, _ = run(commits())
    assert before == told == [1, 2, 3]
    assert world.committed == [1, 2, 3, 4]


def test_5730_what_became_of_a_failed_async_commit_is_told_in_its_turn(world):
    told = Told()
    world.late = {"OffsetCommit"}

    async def commits():
        one = world.session(group_id="g")
        await one.assign([T0])
        world.fail("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for offset in (1, 2):
            await one.commit_async(at(offset), told)
        await one.commit_sync(at(3), None)
        before = list(told)
        await one.close(30)
        return before

    (first, second), _ = run(commits())
    assert first.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert second == 2
    assert world.committed == [2, 3]


@pytest.fixture
def five(shoal_broker):
    """A broker of its own with five records."""
    shoal_broker.create_topic("t", 1)
    with Producer(bootstrap_servers=shoal_broker.bootstrap_servers, linger_ms=0) as producer:
        for n in range(5):
            producer.send("t", str(n))
    return shoal_broker


def member_of_g(broker, **settings):
    """A consumer with automatic commits that has read all five and committed none."""
    one = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=20,
        **settings,
    )
    one.subscribe(["t"])
    take(one, 5)
    return one


def left_behind(broker):
    """What is committed, and whether anybody is still a member."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return admin.group_offsets("g", [T0])[T0], admin.describe_group("g").state


def test_7540_what_was_read_is_committed_before_close_whatever_the_coordinator_does(five):
    """Closing sent its commit without waiting: a coordinator that had moved never got it."""
    one = member_of_g(five, retry_backoff_ms=5)
    five.fail("OffsetCommit", ErrorCode.NOT_COORDINATOR)
    five.fail("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2)
    five.fail("OffsetCommit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    five.drop("OffsetCommit")
    one.close()
    committed, state = left_behind(five)
    assert committed.offset == 5
    assert state == "Empty"


def test_7540_a_coordinator_found_only_for_the_last_commit_is_told_that_we_leave(five):
    """Heartbeats have lost it and rest before they look again; the others must not wait for us."""
    one = member_of_g(five, retry_backoff_ms=1000)
    five.fail("Heartbeat", ErrorCode.NOT_COORDINATOR)
    five.fail("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    poll_until(one, lambda: five.on_loop(lambda live: live.dispatch.faults.is_empty))
    one.close()
    committed, state = left_behind(five)
    assert committed.offset == 5
    assert state == "Empty"


def test_7540_a_coordinator_that_never_comes_back_holds_close_up_only_so_long(world, caplog):
    async def closing():
        one = world.session(group_id="g", enable_auto_commit=True)
        await one.assign([T0])
        assert await read(one) == [*range(RECORDS)]
        for api in ("OffsetCommit", "FindCoordinator"):
            world.fail(api, ErrorCode.COORDINATOR_NOT_AVAILABLE, times=1000)
        before = one._loop.time()
        await one.close(7)
        return one._loop.time() - before

    took_s, _ = run(closing())
    assert 3 < took_s <= 7.1
    assert "the final commit failed" in caplog.text
    assert world.committed == []


def test_10337_callbacks_run_before_a_sync_commit_of_nothing_returns(world):
    """Without offsets there was nothing to send, and so nothing was waited for."""
    told = Told()
    world.late = {"OffsetCommit"}

    async def commits():
        one = world.session(group_id="g")
        await one.assign([T0])
        await one.commit_async(at(1), told)
        await one.commit_async(at(2), told)
        await one.commit_sync({}, None)
        before = list(told)
        await one.close(30)
        return before

    before, _ = run(commits())
    assert before == told == [1, 2]
    assert world.asked["OffsetCommit"] == 2


def test_10337_a_sync_commit_of_nothing_says_so_when_callbacks_do_not_come_in_time(world):
    told = Told()
    world.late = {"OffsetCommit"}

    async def commits():
        one = world.session(group_id="g")
        await one.assign([T0])
        await one.commit_async(at(1), told)
        with pytest.raises(RequestTimeoutError, match="1 s"):
            await one.commit_sync({}, 1.0)
        assert told == []
        await one.commit_sync({}, None)
        assert told == [1]
        await one.close(30)

    run(commits())


def test_10337_callbacks_run_before_close_returns_and_in_order(world):
    told = Told()
    world.late = {"OffsetCommit", "FindCoordinator"}

    async def commits():
        one = world.session(group_id="g")
        await one.assign([T0])
        for offset in (3, 2, 1):
            await one.commit_async(at(offset), told)
        await one.close(30)

    run(commits())
    assert told == [3, 2, 1]


# --- wakeup ---


def test_14208_a_wakeup_is_not_raised_by_an_async_commit_and_does_not_end_it(world):
    """Looking for the coordinator raised it, in a call that does not block."""
    told = Told()
    world.late = {"FindCoordinator"}

    async def commits():
        one = world.session(group_id="g")
        await one.assign([T0])
        one.wakeup()
        await one.commit_async(at(1), told)
        with pytest.raises(WakeupError):
            await one.prepare(60)
        await one.commit_async(at(2), told)
        while len(told) < 2:
            await one.prepare(1)  # raised once
        await one.close(30)

    run(commits())
    assert told == [1, 2]
    assert world.committed == [1, 2]


@pytest.mark.parametrize("late", ["FindCoordinator", "OffsetCommit"])
def test_14208_a_wakeup_ends_a_sync_commit_and_not_the_async_ones_before_it(world, late):
    told = Told()
    world.late = {late}

    async def commits():
        one = world.session(group_id="g")
        await one.assign([T0])
        await one.commit_async(at(1), told)
        one._loop.call_later(1, one.wakeup)
        with pytest.raises(WakeupError):
            await one.interruptible(one.commit_sync(at(2), None))
        assert told == []
        await one.interruptible(one.commit_sync(at(3), None))
        assert told == [1]
        await one.close(30)

    run(commits())
    assert world.committed == [1, 3]


def test_14208_a_sync_commit_that_was_woken_leaves_neither_its_turn_nor_its_answer_behind(world):
    """Once while the coordinator is looked for, once while the answer is on its way."""

    async def commits():
        one, told = world.session(group_id="g"), Told()
        await one.assign([T0])
        for offset, late in ((1, "FindCoordinator"), (2, "OffsetCommit")):
            world.late = {late}
            one._loop.call_later(1, one.wakeup)
            with pytest.raises(WakeupError):
                await one.interruptible(one.commit_sync(at(offset), None))
            await asyncio.sleep(LATE_S)
        world.late = set()
        world.fail("OffsetCommit", ErrorCode.OFFSET_METADATA_TOO_LARGE)
        await one.commit_async(at(7), told)
        await one.interruptible(one.commit_sync(at(8), None))
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        names = [task.get_coro().__qualname__ for task in tasks]
        await one.close(30)
        return told, [name for name in names if "commit_" in name]

    (told, left), _ = run(commits())
    assert [error.code for error in told] == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.committed == [2, 8], "the first was never sent; the second was, and counts"
    assert left == []


def test_14208_automatic_commits_go_on_under_wakeups(world):
    async def polls():
        one = world.session(group_id="g", enable_auto_commit=True, auto_commit_interval_ms=1000)
        await one.assign([T0])
        seen = await read(one)
        world.fail("OffsetCommit", ErrorCode.NOT_COORDINATOR)
        world.late = {"FindCoordinator"}
        while world.asked["FindCoordinator"] < 2:
            await one.prepare(0.1)
        until = one._loop.time() + 2 * LATE_S
        while one._loop.time() < until:
            one._loop.call_later(0.3, one.wakeup)
            with pytest.raises(WakeupError):
                await one.prepare(60)
        committed = list(world.committed)
        await one.close(30)
        return seen, committed

    (seen, committed), _ = run(polls())
    assert seen == [*range(RECORDS)]
    assert committed, "one second, a lookup of five, and five more to spare"
    assert set(committed) == {RECORDS}


# --- positions ---


@pytest.mark.parametrize("late", ["OffsetFetch", "ListOffsets"])
@pytest.mark.parametrize("where", ["end", "4"])
def test_7703_a_late_answer_does_not_overwrite_where_the_user_went_meanwhile(world, late, where):
    """Poll was resetting to the beginning, then seek_to_end: position said the beginning."""
    world.late = {late}
    world.has_commit = 2 if late == "OffsetFetch" else None

    async def moves():
        one = world.session(group_id="g")
        await one.assign([T0])
        await one.prepare(1)
        assert world.asked[late] == 1, "the lookup is under way"
        if where == "end":
            await one.seek_to_end([T0], beginning=False)
        else:
            await one.seek(T0, int(where), None)
        found = await one.position(T0, 60)
        await one.prepare(2 * LATE_S)  # the late answer has come by the end of it
        left = [record.offset for record in one.reader.take(100)]
        after = await one.position(T0, 60)
        await one.close(5)
        return found, left, after

    expected = RECORDS if where == "end" else int(where)
    (found, left, after), _ = run(moves())
    assert found == expected
    assert left == [*range(expected, RECORDS)]
    assert after == RECORDS


@pytest.mark.parametrize("late", ["OffsetFetch", "ListOffsets"])
def test_7703_a_late_answer_for_what_is_no_longer_assigned_is_ignored(world, late):
    world.late = {late}
    world.has_commit = 2 if late == "OffsetFetch" else None

    async def moves():
        one = world.session(group_id="g")
        await one.assign([T0])
        await one.prepare(1)
        assert world.asked[late] == 1
        await one.assign([])
        assert not one.positions.partitions()
        await asyncio.sleep(2 * LATE_S)
        assert not one.positions.partitions()
        # And once more, with the partition back before the answer to what was asked before.
        await one.assign([T0])
        await one.prepare(1)
        await one.assign([])
        await one.assign([T0])
        await one.seek(T0, 7, None)
        await asyncio.sleep(2 * LATE_S)
        position = await one.position(T0, 60)
        seen = await read(one)
        await one.close(5)
        return position, seen

    (position, seen), _ = run(moves())
    assert world.asked[late] == 2
    assert position == 7
    assert seen == [7, 8, 9]


@pytest.mark.parametrize(
    ("first", "then", "expected", "epochs"),
    [
        pytest.param((8, 0), (8, 1), 8, [0, 1], id="cut, but not for the new position"),
        # The third is about offset 5, where the second said to go on.
        pytest.param((8, 1), (8, 0), 5, [1, 0, 0], id="not cut, but for the new position"),
        pytest.param((8, 0), (3, None), 3, [0], id="nothing is known of the new position"),
    ],
)
def test_8429_an_answer_about_a_position_says_nothing_of_the_one_sought_meanwhile(
    world, first, then, expected, epochs
):
    """Whether the log was cut was judged for another position than the one asked about."""
    world.late = {"OffsetForLeaderEpoch"}

    async def moves():
        one = world.session()
        await one.assign([T0])
        await one.seek(T0, *first)
        await one.prepare(1)
        assert world.asked_epochs == [first[1]], "the question is under way"
        await one.seek(T0, *then)
        seen = await read(one)
        await one.prepare(2 * LATE_S)
        position = await one.position(T0, 60)
        await one.close(5)
        return seen, position

    (seen, position), _ = run(moves())
    assert seen == [*range(expected, RECORDS)]
    assert position == RECORDS
    assert world.asked_epochs == epochs


def test_10123_what_awaits_a_reset_has_no_position_whatever_metadata_comes_meanwhile(world):
    """New metadata took it for validated: it was fetched from nowhere and the poll broke."""
    world.late = {"ListOffsets", "Metadata"}

    async def moves():
        one = world.session(group_id="g", auto_offset_reset="latest", enable_auto_commit=True)
        heard = []
        one._cluster.on_update.append(
            lambda *_: heard.append((world.asked["ListOffsets"], one.positions[T0].position))
        )
        await one.assign([T0])
        await one.prepare(LATE_S * 1.5)
        # The second, which came while the reset was under way, found no position to go by.
        assert heard[-1] == (1, None)
        assert world.asked["Fetch"] == 0
        await one.commit_sync(None, 1)
        seen = await read(one)
        position = await one.position(T0, 60)
        before = list(world.committed)
        await one.close(30)
        return seen, position, before

    (seen, position, before), _ = run(moves())
    assert seen == []
    assert position == RECORDS
    assert set(before) <= {RECORDS}, "no position, nothing to commit"
