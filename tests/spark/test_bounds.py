"""From options to offsets, and what is done about records that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.spark.admission import BatchAdmission
from shoal.spark.bounds import batch_ranges, check_present, resolve
from shoal.spark.options import Bound, parse_source
from shoal.spark.ranges import OffsetRange
from shoal.spark.record_store import DataLossError
from shoal.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@dataclass
class Shelf:
    """A stock in memory: first and next offset, and times of records, per partition."""

    log: dict[TopicPartition, tuple[int, int]]
    times: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    stable: dict[TopicPartition, int] = field(default_factory=dict)

    def partitions(self) -> list[TopicPartition]:
        return sorted(self.log)

    def earliest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.log[tp][0] for tp in tps}

    def latest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.stable.get(tp, self.log[tp][1]) for tp in tps}

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.log[tp][1] for tp in tps}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {
            tp: min((o for t, o in self.times.get(tp, {}).items() if t >= time), default=None)
            for tp, time in times_ms.items()
        }


@dataclass
class _Committed:
    offsets: dict[TopicPartition, int]

    def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.offsets[tp] for tp in tps if tp in self.offsets}


# Both answer only what is asked of a stock and of a group here.
Committed: Any = _Committed
SHELF: Any = Shelf({A0: (5, 50), A1: (0, 7)}, {A0: {100: 5, 200: 20}})
BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def test_the_ends_of_the_log() -> None:
    tps = SHELF.partitions()
    assert resolve(Bound("earliest"), tps, SHELF) == {A0: 5, A1: 0}
    assert resolve(Bound("latest"), tps, SHELF) == {A0: 50, A1: 7}


def test_given_offsets_may_name_the_ends() -> None:
    bound = Bound("offsets", {A0: -2, A1: -1})
    assert resolve(bound, SHELF.partitions(), SHELF) == {A0: 5, A1: 7}


def test_given_offsets_name_every_partition_and_no_other() -> None:
    with pytest.raises(ConfigError, match="leave out a-1"):
        resolve(Bound("offsets", {A0: 9}), SHELF.partitions(), SHELF)
    extra = Bound("offsets", {A0: 9, A1: 1, TopicPartition("x", 3): 0})
    with pytest.raises(ConfigError, match="name x-3"):
        resolve(extra, SHELF.partitions(), SHELF)


def test_a_group_starts_where_it_committed_and_else_at_the_first_record() -> None:
    start = resolve(Bound("group"), SHELF.partitions(), SHELF, group=Committed({A0: 33}))
    assert start == {A0: 33, A1: 0}


def test_a_time_after_the_last_record_is_an_error_or_the_end() -> None:
    bound = Bound("timestamp", timestamp_ms=150)
    with pytest.raises(ConfigError, match="no record at or after 150 ms in a-1"):
        resolve(bound, SHELF.partitions(), SHELF, missing_timestamp="error")
    assert resolve(bound, SHELF.partitions(), SHELF) == {A0: 20, A1: 7}


def test_a_batch_covers_what_lies_between() -> None:
    ranges = batch_ranges(parse_source(BASE, "batch"), SHELF)
    assert ranges == [OffsetRange("a", 0, 5, 50), OffsetRange("a", 1, 0, 7)]


def test_a_start_behind_the_end_is_refused() -> None:
    options = {
        **BASE,
        "startingOffsets": '{"a":{"0":30,"1":0}}',
        "endingOffsets": '{"a":{"0":20,"1":7}}',
    }
    with pytest.raises(ConfigError, match="a-0 from 30 to 20"):
        batch_ranges(parse_source(options, "batch"), SHELF)


def test_a_start_behind_the_end_of_the_log_is_data_lost_or_left_out() -> None:
    beyond = {**BASE, "startingOffsets": '{"a":{"0":60,"1":0}}'}
    with pytest.raises(DataLossError, match="a-0 ends at 50, before the start 60"):
        batch_ranges(parse_source(beyond, "batch"), SHELF)
    lenient = parse_source({**beyond, "failOnDataLoss": "false"}, "batch")
    assert batch_ranges(lenient, SHELF) == [OffsetRange("a", 1, 0, 7)]
    group = parse_source({**BASE, "startingOffsets": "group", "groupId": "g"}, "batch")
    with pytest.raises(DataLossError, match="a-1 ends at 7, before the start 8"):
        batch_ranges(group, SHELF, Committed({A0: 50, A1: 8}))


def test_a_start_at_the_end_of_the_log_is_nothing_new_and_nothing_lost() -> None:
    group = parse_source({**BASE, "startingOffsets": "group", "groupId": "g"}, "batch")
    assert batch_ranges(group, SHELF, Committed({A0: 50, A1: 7})) == []


def test_deleted_records_fail_the_query_by_range_or_are_left_out() -> None:
    wanted = [OffsetRange("a", 0, 0, 10), OffsetRange("b", 0, 0, 3), OffsetRange("a", 1, 0, 99)]
    with pytest.raises(DataLossError) as caught:
        check_present(wanted, {A0: 5, A1: 0}, {A0: 50, A1: 7}, fail_on_data_loss=True)
    text = str(caught.value)
    assert "a-0 offsets 0 to 4 were deleted" in text
    assert "b-0 does not exist" in text
    assert "a-1 ends at 7" in text
    kept = check_present(wanted, {A0: 5, A1: 0}, {A0: 50, A1: 7}, fail_on_data_loss=False)
    assert kept == [OffsetRange("a", 0, 5, 10), OffsetRange("a", 1, 0, 7)]


def test_a_minimum_waits_for_more_until_the_delay_is_over() -> None:
    admission = BatchAdmission(rows_min=100, delay_ms=1000)
    start, few, many = {A0: 0}, {A0: 10}, {A0: 100}
    assert admission.end(start, few, 0) == start
    assert admission.end(start, few, 999) == start
    assert admission.end(start, few, 1000) == few
    assert admission.end(few, {A0: 20}, 1500) == few
    assert admission.end(few, many, 1600) == few
    assert admission.end(few, {A0: 110}, 1700) == {A0: 110}


def test_a_minimum_does_not_hold_back_the_last_batch() -> None:
    admission = BatchAdmission(rows_min=100, delay_ms=1000)
    assert admission.end({A0: 0}, {A0: 3}, 0, finishing=True) == {A0: 3}


def test_bytes_limit_the_batch_too() -> None:
    admission = BatchAdmission(bytes_max=1000)
    end = admission.end({A0: 0}, {A0: 1000}, 0, row_bytes=lambda: {A0: 100.0})
    assert end == {A0: 10}


def test_a_batch_ends_where_an_open_transaction_begins_and_nothing_is_taken_for_lost() -> None:
    shelf: Any = Shelf({A0: (5, 50), A1: (0, 7)}, stable={A0: 30})
    assert batch_ranges(parse_source(BASE, "batch"), shelf) == [
        OffsetRange("a", 0, 5, 30),
        OffsetRange("a", 1, 0, 7),
    ]
    into_it = {
        "startingOffsets": '{"a":{"0":40,"1":0}}',
        "endingOffsets": '{"a":{"0":45,"1":7}}',
    }
    assert batch_ranges(parse_source(BASE | into_it, "batch"), shelf)[0] == ("a", 0, 40, 45)
    from_there = {"startingOffsets": '{"a":{"0":40,"1":0}}'}
    assert batch_ranges(parse_source(BASE | from_there, "batch"), shelf) == [("a", 1, 0, 7)]


def test_a_time_range_wants_times() -> None:
    from shoal.spark.time_range import _millis

    assert _millis("start", 17) == 17
    with pytest.raises(ConfigError, match="start='2026-11-16' is not a time; give a datetime"):
        _millis("start", "2026-11-16")  # type: ignore[arg-type]  # what people try first
