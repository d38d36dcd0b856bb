"""Bugs that Apache Kafka's consumer had around commits, closing and wakeups, each as a test.

The number in a name is that of the issue in Kafka's tracker; those about positions are in
test_history_positions.py, those about the group in tests/group/test_history_member.py. They were
races, so most run on virtual time, where an answer is late by as much as a test says and the same
things cross each time.
"""

from __future__ import annotations

import asyncio

import pytest

from shoal import Admin, Consumer, Producer
from shoal.errors import ErrorCode, RequestTimeoutError, WakeupError
from tests.client.conftest import poll_until, take
from tests.client.late_broker import LATE_S, T0, World, at, read
from tests.client.scripted import RECORDS
from tests.client.virtual import run


@pytest.fixture
def world():
    with World() as world:
        yield world


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


@pytest.mark.slow
def test_members_that_close_together_log_no_traceback(five, caplog):
    """The leaving of one is a rebalance to the last commit of another."""
    one = member_of_g(five)
    five.fail("OffsetCommit", ErrorCode.REBALANCE_IN_PROGRESS, times=1000)
    one.close()
    (said,) = [record for record in caplog.records if "final commit" in record.message]
    assert "REBALANCE_IN_PROGRESS" in said.message or "rebalanc" in said.message
    assert said.exc_info is None


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
        one.wakeups.ring()
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
        one._loop.call_later(1, one.wakeups.ring)
        with pytest.raises(WakeupError):
            await one.wakeups.interruptible(one.commit_sync(at(2), None))
        assert told == []
        await one.wakeups.interruptible(one.commit_sync(at(3), None))
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
            one._loop.call_later(1, one.wakeups.ring)
            with pytest.raises(WakeupError):
                await one.wakeups.interruptible(one.commit_sync(at(offset), None))
            await asyncio.sleep(LATE_S)
        world.late = set()
        world.fail("OffsetCommit", ErrorCode.OFFSET_METADATA_TOO_LARGE)
        await one.commit_async(at(7), told)
        await one.wakeups.interruptible(one.commit_sync(at(8), None))
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        names = [getattr(task.get_coro(), "__qualname__", "") for task in tasks]
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
            one._loop.call_later(0.3, one.wakeups.ring)
            with pytest.raises(WakeupError):
                await one.prepare(60)
        committed = list(world.committed)
        await one.close(30)
        return seen, committed

    (seen, committed), _ = run(polls())
    assert seen == [*range(RECORDS)]
    assert committed, "one second, a lookup of five, and five more to spare"
    assert set(committed) == {RECORDS}
