"""What may be worked on and committed: lanes, positions and retries, without a consumer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.processing_progress import ProcessOptions, Progress
from shoal.types import Record, TimestampType, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record(offset, key=None, partition=0, epoch=None):
    return Record(
        "t", partition, offset, 0, TimestampType.CREATE_TIME, key, b"v", (), leader_epoch=epoch
    )


def progress(order="key", retries=0, delay=1.0, letters=None):
    return Progress(ProcessOptions(4, order, retries, delay, letters, 30.0))


def taken(one, now=0.0):
    jobs = []
    while (job := one.take(now)) is not None:
        jobs.append(job)
    return jobs


def offsets(jobs):
    return [job.record.offset for job in jobs]


def position(one, tp=T0):
    return {tp: held.offset for tp, held in one.positions().items()}.get(tp)


def test_records_of_one_key_are_worked_on_one_after_the_other():
    one = progress("key")
    one.add([record(0, b"a"), record(1, b"b"), record(2, b"a"), record(3), record(4)])
    first = taken(one)
    assert offsets(first) == [0, 1, 3, 4]
    one.done(first[1])
    assert taken(one) == []
    one.done(first[0])
    assert offsets(taken(one)) == [2]


def test_records_of_one_partition_are_worked_on_one_after_the_other():
    one = progress("partition")
    one.add([record(0, b"a"), record(1, b"b"), record(0, b"a", partition=1)])
    first = taken(one)
    assert [(job.record.partition, job.record.offset) for job in first] == [(0, 0), (1, 0)]
    one.done(first[0])
    assert offsets(taken(one)) == [1]


def test_without_order_everything_is_worked_on_at_once():
    one = progress("none")
    one.add([record(n, b"a") for n in range(5)])
    assert offsets(taken(one)) == [0, 1, 2, 3, 4]


def test_the_same_key_in_two_partitions_is_two_lanes():
    one = progress("key")
    one.add([record(0, b"a"), record(0, b"a", partition=1)])
    assert len(taken(one)) == 2


def test_the_position_is_the_first_record_that_is_not_done():
    one = progress("none")
    one.add([record(5, epoch=3), record(6, epoch=3), record(9, epoch=4)])
    jobs = taken(one)
    assert position(one) is None
    one.done(jobs[1])
    assert position(one) is None
    one.done(jobs[0])
    assert one.positions()[T0].offset == 9
    assert one.positions()[T0].leader_epoch == 3
    one.done(jobs[2])
    assert one.positions()[T0].offset == 10
    assert one.positions()[T0].leader_epoch == 4
    one.committed(one.positions())
    assert one.positions() == {}
    assert one.pending == 0


def test_only_partitions_that_were_asked_for_are_told():
    one = progress("none")
    one.add([record(0), record(0, partition=1)])
    for job in taken(one):
        one.done(job)
    assert set(one.positions([T1])) == {T1}
    assert set(one.positions()) == {T0, T1}


def test_a_record_that_failed_keeps_its_lane_closed_until_it_is_tried_again():
    one = progress("key", retries=2, delay=10.0)
    one.add([record(0, b"a"), record(1, b"a"), record(2, b"b")])
    first, other = taken(one)
    assert one.failed(first, ValueError(), 0.0) is False
    one.done(other)
    assert taken(one, 9.9) == []
    assert one.next_due() == 10.0
    (again,) = taken(one, 10.0)
    assert (again.record.offset, again.attempts) == (0, 2)
    assert one.failed(again, ValueError(), 10.0) is False
    assert one.next_due() == 30.0  # twice as long
    (again,) = taken(one, 30.0)
    assert one.failed(again, ValueError("no"), 30.0) is False
    assert [(failed.offset, str(error)) for failed, error in one.failures] == [(0, "no")]
    assert one.is_stopping
    assert position(one) is None
    assert one.running() == 0


def test_a_delay_does_not_grow_for_ever():
    one = progress("key", retries=100, delay=10.0)
    one.add([record(0)])
    now = 0.0
    for _ in range(50):
        (job,) = taken(one, now)
        one.failed(job, ValueError(), now)
        assert one.next_due() - now <= 60.0
        now = one.next_due()


def test_a_record_that_is_put_aside_is_done_when_it_lies_there():
    one = progress("key", letters="dead")
    one.add([record(0, b"a"), record(1, b"a")])
    (job,) = taken(one)
    assert one.failed(job, ValueError(), 0.0) is True
    assert one.running() == 1
    assert taken(one) == []
    one.done(job)
    assert position(one) == 1
    assert offsets(taken(one)) == [1]


def test_what_cannot_be_read_is_not_tried_again():
    one = progress("key", retries=5, letters="dead")
    one.add([record(0)])
    (job,) = taken(one)
    assert one.failed(job, ValueError(), 0.0, is_final=True) is True


def test_of_a_revoked_partition_nothing_is_begun_behind_what_was_and_the_rest_is_done():
    one = progress("key")
    one.add([record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, b"b"), record(4, b"c")])
    one.add([record(0, b"a", partition=1)])
    first, second = one.take(0.0), one.take(0.0)
    assert offsets([first, second]) == [0, 2]
    one.close([T0])
    assert one.is_open([T0])
    one.done(second)
    assert offsets(taken(one)) == [0]  # of the other partition: 3 and 4 are not begun any more
    one.done(first)
    assert position(one) == 1
    assert one.is_open([T0])  # else 2, which is done, would come again
    (hole,) = taken(one)
    assert hole.record.offset == 1
    one.done(hole)
    assert position(one) == 3
    assert not one.is_open([T0])
    assert taken(one) == []
    one.forget([T0])
    assert position(one) is None
    assert one.running() == 1


def test_who_stops_while_partitions_go_waits_for_what_is_under_way_alone():
    one = progress("key")
    one.add([record(0, b"a"), record(1, b"a"), record(2, b"b")])
    first, second = taken(one)
    one.close([T0])
    one.is_stopping = True
    one.done(second)
    assert one.is_open([T0])
    one.done(first)
    assert not one.is_open([T0])


def test_of_a_lost_partition_nothing_counts_any_more():
    one = progress("key", letters=None)
    one.add([record(0, b"a"), record(1, b"a")])
    (job,) = taken(one)
    one.forget([T0])
    one.add([record(0, b"a")])  # it came back
    one.done(job)
    assert position(one) is None
    (again,) = taken(one)
    one.done(again)
    assert position(one) == 1


def test_a_handler_that_fails_after_its_partition_was_lost_ends_nothing():
    one = progress("key")
    one.add([record(0)])
    (job,) = taken(one)
    one.forget([T0])
    one.fail(job, ValueError())
    assert not one.is_stopping
    assert one.failures == []


@pytest.mark.parametrize("how", ["done", "fails", "is to be tried again"])
@pytest.mark.parametrize("order", ["key", "partition"])
def test_a_partition_that_is_back_waits_for_the_handler_of_before(order, how):
    one = progress(order, retries=1 if how == "is to be tried again" else 0)
    one.add([record(0, b"a"), record(1, b"a")])
    (before,) = taken(one)
    for _ in range(2):
        one.forget([T0])
        one.add([record(0, b"a"), record(1, b"a")])
        assert taken(one) == [], "two at a time"
    if how == "done":
        one.done(before)
    else:
        assert not one.failed(before, ValueError(), 0.0)
    for offset in (0, 1):
        (again,) = taken(one, now=100.0)
        assert again.record.offset == offset
        assert again is not before
        one.done(again)
    assert position(one) == 2


def test_a_partition_that_is_back_does_not_wait_for_a_retry_of_before():
    one = progress("key", retries=1, delay=50.0)
    one.add([record(0, b"a")])
    (before,) = taken(one)
    one.failed(before, ValueError(), 0.0)
    one.forget([T0])
    one.add([record(0, b"a")])
    (again,) = taken(one)
    one.done(again)
    assert position(one) == 1
    assert taken(one, now=100.0) == []


def test_what_is_read_again_from_further_back_is_worked_on_again():
    one = progress("none")
    one.add([record(5), record(6)])
    for job in taken(one):
        one.done(job)
    one.add([record(3), record(4)])
    assert position(one) is None
    again = taken(one)
    assert offsets(again) == [3, 4]
    for job in again:
        one.done(job)
    assert position(one) == 5


def test_when_it_stops_nothing_more_is_begun():
    one = progress("none")
    one.add([record(0), record(1)])
    one.is_stopping = True
    assert taken(one) == []
    assert one.pending == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workers": 0}, "workers=0 must be at least 1"),
        ({"order": "offset"}, "order='offset' is not one of key, partition, none"),
        ({"retries": -1}, "retries=-1 must not be negative"),
    ],
)
def test_options_that_cannot_be_are_refused(change, message):
    options = ProcessOptions(1, "key", 0, 1.0, None, 1.0)
    options.check()
    with pytest.raises(ValueError, match=message):
        options._replace(**change).check()


@given(
    order=st.sampled_from(["key", "partition", "none"]),
    keys=st.lists(st.sampled_from([None, b"a", b"b", b"c"]), max_size=30),
    choices=st.lists(st.integers(0, 10**6), max_size=200),
    letters=st.sampled_from([None, "dead"]),
)
def test_whatever_ends_when_order_is_kept_and_nothing_is_committed_before_it_is_done(
    order, keys, choices, letters
):
    """Random ends, retries, revocations and returns of two partitions, against a plain model."""
    one = progress(order, retries=1, delay=1.0, letters=letters)
    next_offset = {0: 0, 1: 0}
    done: dict[int, set[Any]] = {0: set(), 1: set()}
    running: list[Any] = []
    now = 0.0
    waiting = list(keys)

    def lane(job):
        r = job.record
        if order == "none" or (order == "key" and r.key is None):
            return None
        return (r.partition, r.key) if order == "key" else (r.partition,)

    for choice in choices:
        what, pick = choice % 6, choice // 6
        if what == 0 and waiting:
            number = pick % 2
            one.add([record(next_offset[number], waiting.pop(), number)])
            next_offset[number] += 1
        elif what in (1, 2):
            now += 1.0
            if (job := one.take(now)) is not None:
                lanes = [lane(other) for other in running if lane(other) is not None]
                assert lane(job) not in lanes, "two of one lane at once"
                if order != "none" and lane(job) is not None:
                    assert not any(
                        lane_of == lane(job) and offset < job.record.offset
                        for offset, lane_of in _open(one, lane)
                    ), "a later record of a lane before an earlier one"
                running.append(job)
        elif what == 3 and running:
            job = running.pop(pick % len(running))
            one.done(job)
            done[job.record.partition].add(job.record.offset)
        elif what == 4 and running and not one.is_stopping:
            job = running.pop(pick % len(running))
            if one.failed(job, ValueError(), now):
                one.done(job)
                done[job.record.partition].add(job.record.offset)
        for tp, held in one.positions().items():
            assert set(range(held.offset)) <= done[tp.partition], "committed before it was done"
        assert one.pending == sum(next_offset.values()) - sum(map(len, done.values()))


def _open(one, lane):
    """Offsets and lanes of records that wait, for their turn or to be tried again."""
    waiting = [job for jobs in one._lanes.values() for job in jobs]
    waiting += [job for _, _, job in one._later]
    return [(job.record.offset, lane(job)) for job in waiting]
