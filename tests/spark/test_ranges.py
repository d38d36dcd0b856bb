"""Offsets in and out of Spark's form, limits, and the sharing out of ranges to tasks."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from shoal.spark.ranges import (
    OffsetRange,
    available,
    between,
    from_json,
    limit_bytes,
    limit_rows,
    plan_tasks,
    split,
    to_json,
    with_new_partitions,
)
from shoal.types import TopicPartition

partitions = st.builds(
    TopicPartition, st.sampled_from(["a", "b", "orders", "z.9"]), st.integers(0, 120)
)
offsets = st.dictionaries(partitions, st.integers(0, 1 << 40), max_size=40)


@given(offsets)
def test_an_offset_survives_sparks_form(value: dict[TopicPartition, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


@given(offsets, st.randoms())
def test_equal_offsets_are_equal_text(value: dict[TopicPartition, int], chance: object) -> None:
    items = list(value.items())
    chance.shuffle(items)  # type: ignore[attr-defined]  # hypothesis' random
    assert json.dumps(to_json(dict(items))) == json.dumps(to_json(value))


def test_partitions_are_ordered_as_numbers_not_as_text() -> None:
    value = {TopicPartition("t", number): 0 for number in (10, 9, 100)}
    assert list(to_json(value)["t"]) == ["9", "10", "100"]


@st.composite
def start_and_latest(
    draw: st.DrawFn,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    start = draw(offsets)
    return start, {tp: first + draw(st.integers(0, 200_000)) for tp, first in start.items()}


@given(start_and_latest(), st.integers(1, 1 << 20))
def test_a_row_limit_is_kept_and_starves_no_partition(
    pair: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], rows_max: int
) -> None:
    start, latest = pair
    end = limit_rows(start, latest, rows_max)
    assert end.keys() == latest.keys()
    for tp in latest:
        assert start[tp] <= end[tp] <= latest[tp]
        if latest[tp] > start[tp]:
            assert end[tp] > start[tp]
    assert available(start, end) <= max(rows_max, len(latest)) + len(latest)
    if available(start, latest) <= rows_max:
        assert end == latest


def test_a_byte_limit_counts_wide_records_as_wide() -> None:
    tp = TopicPartition("t", 0)
    assert limit_bytes({tp: 0}, {tp: 1000}, {tp: 100.0}, 10_000) == {tp: 100}
    assert limit_bytes({tp: 0}, {tp: 1000}, {tp: 1.0}, 10_000) == {tp: 1000}


def test_a_new_partition_starts_at_its_first_offset() -> None:
    old, new = TopicPartition("t", 0), TopicPartition("t", 1)
    start = with_new_partitions({old: 50}, {old: 10, new: 7})
    assert start == {old: 50, new: 7}
    assert between(start, {old: 50, new: 9}) == [OffsetRange("t", 1, 7, 9)]


ranges = st.lists(
    st.builds(
        lambda tp, start, count: OffsetRange(tp.topic, tp.partition, start, start + count),
        partitions,
        st.integers(0, 1 << 40),
        st.integers(0, 300_000),
    ),
    max_size=60,
    unique_by=lambda one: one.topic_partition,
)


def joined(pieces: list[OffsetRange]) -> list[OffsetRange]:
    merged: list[OffsetRange] = []
    for piece in sorted(pieces):
        if merged and merged[-1].topic_partition == piece.topic_partition:
            assert merged[-1].end == piece.start, "pieces overlap or leave a gap"
            merged[-1] = merged[-1]._replace(end=piece.end)
        else:
            merged.append(piece)
    return merged


@given(ranges, st.integers(1, 16), st.integers(1, 40), st.none() | st.integers(1000, 90_000))
def test_tasks_hold_every_record_once_within_the_bounds(
    whole: list[OffsetRange], tasks_max: int, tasks_min: int, rows_max: int | None
) -> None:
    tasks = plan_tasks(whole, tasks_max=tasks_max, tasks_min=tasks_min, rows_max=rows_max)
    pieces = [piece for task in tasks for piece in task]
    assert joined(pieces) == sorted(one for one in whole if one.rows)
    assert all(task for task in tasks)
    if rows_max is None:
        assert len(tasks) <= max(tasks_max, tasks_min)
    else:
        assert all(piece.rows <= rows_max for piece in pieces)


def test_thousands_of_partitions_fit_into_as_many_tasks_as_cores() -> None:
    whole = [OffsetRange("t", number, 0, 10) for number in range(5000)]
    tasks = plan_tasks(whole, tasks_max=2)
    assert [sum(one.rows for one in task) for task in tasks] == [25_000, 25_000]


def test_one_large_partition_is_shared_between_the_cores() -> None:
    tasks = plan_tasks([OffsetRange("t", 0, 0, 1_000_000)], tasks_max=4)
    assert sorted(task[0].rows for task in tasks) == [250_000] * 4


def test_minimum_partitions_splits_small_ranges_too() -> None:
    tasks = plan_tasks([OffsetRange("t", 0, 0, 100)], tasks_max=2, tasks_min=10)
    assert len(tasks) == 10


def test_splitting_is_even() -> None:
    assert [one.rows for one in split([OffsetRange("t", 0, 5, 15)], 4)] == [3, 3, 4]
