"""Bugs that Apache Kafka's consumer had around positions, each as a test.

As test_history.py: the number in a name is that of the issue in Kafka's tracker, and the races
run on virtual time.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.client.late_broker import LATE_S, T0, World, read
from tests.client.scripted import RECORDS
from tests.client.virtual import run


@pytest.fixture
def world():
    with World() as world:
        yield world


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
