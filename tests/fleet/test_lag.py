"""Lag at each sample, in records and in seconds, against a slow and plain reckoning."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.fleet.decode import decode_commits
from shoal.fleet.lag import lag_table
from shoal.fleet.tables import schema
from shoal.spark.history import streaming
from shoal.spark.history.packing import to_bytes
from shoal.types import TopicPartition
from tests.fleet.consumer_offsets import START_MS, Journal, tps

Sample = tuple[TopicPartition, float, int]
TP = tps("orders", 0)[0]


def ends_of(samples: list[Sample]) -> pa.Table:
    columns = [
        [tp.topic for tp, _, _ in samples],
        [tp.partition for tp, _, _ in samples],
        [end for _, _, end in samples],
        [(START_MS + round(at_s * 1000)) * 1000 for _, at_s, _ in samples],
    ]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, schema("ends"), strict=True)],
        schema=schema("ends"),
    )


def commits_of(records: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([decode_commits(records).commits])


def lag(journal: Journal, samples: list[Sample]) -> list[dict[str, Any]]:
    """Rows with ``at`` in seconds after the start, sorted."""
    rows = lag_table(commits_of(journal.records()), ends_of(samples)).to_pylist()
    return in_order(rows)


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        row["at"] = row["at"].timestamp() - START_MS / 1000
    return sorted(rows, key=lambda row: (row["group"], row["topic"], row["partition"], row["at"]))


def test_lag_is_what_was_written_less_what_was_committed_at_that_moment() -> None:
    journal = Journal()
    journal.commit("g", TP, 40, 5)
    journal.commit("g", TP, 90, 15)
    rows = lag(journal, [(TP, 0, 10), (TP, 10, 60), (TP, 20, 100), (TP, 30, 100)])
    assert [(r["at"], r["committed"], r["lag"]) for r in rows] == [
        (10, 40, 20),
        (20, 90, 10),
        (30, 90, 10),
    ]


def test_a_group_that_committed_the_beginning_is_behind_by_everything() -> None:
    journal = Journal()
    journal.commit("g", TP, 0, 5)
    rows = lag(journal, [(TP, 10, 60)])
    assert [(r["at"], r["committed"], r["lag"]) for r in rows] == [(10, 0, 60)]


def test_seconds_are_since_the_partition_ended_where_the_group_stands() -> None:
    journal = Journal()
    journal.commit("g", TP, 35, 5)
    rows = lag(journal, [(TP, 0, 10), (TP, 10, 60), (TP, 20, 100)])
    # It ended at 35 half way between the samples at 0 and at 10 seconds.
    assert [(r["at"], r["seconds"], r["at_least"]) for r in rows] == [
        (10, 5, False),
        (20, 15, False),
    ]


def test_a_group_behind_the_first_sample_is_late_by_at_least_that_long() -> None:
    journal = Journal()
    journal.commit("g", TP, 3, 1)
    rows = lag(journal, [(TP, 2, 10), (TP, 12, 10)])
    assert [(r["lag"], r["seconds"], r["at_least"]) for r in rows] == [(7, 0, True), (7, 10, True)]


def test_who_has_read_everything_is_not_late() -> None:
    journal = Journal()
    journal.commit("g", TP, 10, 1)
    rows = lag(journal, [(TP, 0, 10), (TP, 60, 10)])
    assert [(r["at"], r["lag"], r["seconds"], r["at_least"]) for r in rows] == [(60, 0, 0, False)]


def test_a_deleted_offset_ends_the_series_and_a_topic_made_anew_begins_another() -> None:
    journal = Journal()
    journal.commit("g", TP, 10, 1)
    journal.commit("g", TP, None, 15)
    journal.commit("h", TP, 50, 1)
    journal.commit("h", TP, 2, 25)
    rows = lag(journal, [(TP, 10, 60), (TP, 20, 60), (TP, 30, 5), (TP, 40, 8)])
    assert [(r["group"], r["at"]) for r in rows] == [
        ("g", 10),
        ("h", 10),
        ("h", 20),
        ("h", 30),
        ("h", 40),
    ]
    assert [(r["lag"], r["seconds"], r["at_least"]) for r in rows[3:]] == [
        (3, 0, True),
        (6, 10, True),
    ]


def test_nothing_is_no_lag() -> None:
    assert lag(Journal(), [(TP, 0, 10)]) == []
    journal = Journal()
    journal.commit("g", TP, 1, 1)
    assert lag(journal, []) == []
    assert lag(journal, [(tps("other", 0)[0], 5, 10)]) == []


def plainly(
    commits: list[tuple[str, TopicPartition, int, int]], samples: list[Sample]
) -> list[Any]:
    """The same, one after the other."""
    rows = []
    for tp, at, end in samples:
        lives: list[list[Any]] = [[]]
        for _, when, where in sorted(s for s in samples if s[0] == tp):
            if lives[-1] and where < lives[-1][-1][1]:
                lives.append([])
            lives[-1].append((when, where))
        life = next(one for one in lives if (at, end) in one)
        for group in sorted({g for g, other, _, _ in commits if other == tp}):
            done = [o for g, other, o, t in commits if g == group and other == tp and t <= at]
            if not done:
                continue
            committed = done[-1]
            since, at_least = life[0][0], True
            for (t0, e0), (t1, e1) in pairwise(life):
                if e0 <= committed < e1:
                    since, at_least = t0 + (committed - e0) / (e1 - e0) * (t1 - t0), False
            if committed >= end:
                since, at_least = at, False
            rows.append((group, tp, at, committed, max(0, end - committed), at - since, at_least))
    return sorted(rows)


partitions = st.sampled_from(tps("a", 0, 1) + tps("b", 0))


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from("gh"), partitions, st.integers(0, 30)), max_size=15),
    st.lists(st.tuples(partitions, st.integers(0, 16), st.integers(0, 30)), max_size=12,
             unique_by=lambda s: (s[0], s[1])),
)  # fmt: skip
def test_all_at_once_is_the_same_as_one_by_one(
    done: list[tuple[str, TopicPartition, int]], samples: list[tuple[TopicPartition, int, int]]
) -> None:
    journal = Journal()
    commits = []
    for second, (group, tp, offset) in enumerate(done):
        journal.commit(group, tp, offset, second)
        commits.append((group, tp, offset, second))
    found = [
        (r["group"], TopicPartition(r["topic"], r["partition"]), r["at"], r["committed"], r["lag"],
         pytest.approx(r["seconds"]), r["at_least"])
        for r in lag(journal, [(tp, float(at), end) for tp, at, end in samples])
    ]  # fmt: skip
    assert plainly(commits, [(tp, float(at), end) for tp, at, end in samples]) == found


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from("gh"), partitions, st.integers(0, 30)), max_size=40),
    st.lists(
        st.tuples(partitions, st.integers(0, 40), st.integers(0, 30)),
        max_size=20,
        unique_by=lambda s: (s[0], s[1]),
    ),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_a_stream_gives_out_each_settled_sample_once(
    done: list[tuple[str, TopicPartition, int]],
    samples: list[tuple[TopicPartition, int, int]],
    cuts: list[int],
) -> None:
    journal = Journal()
    for second, (group, tp, offset) in enumerate(done):
        journal.commit(group, tp, offset, second)
    told: list[dict[str, Any]] = []
    carried: bytes | None = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_CELLS", 100_000)  # every old sample is kept
        for begin, end in pairwise([0, *sorted(cuts), 41]):
            now = [(tp, float(at), where) for tp, at, where in samples if begin <= at < end]
            commits = commits_of(journal.records(begin, min(end, len(journal))))
            payloads = {"commits": [to_bytes(commits)], "ends": [to_bytes(ends_of(now))]}
            step = streaming.lag_step(payloads, carried)
            told += step.rows.to_pylist()
            carried = step.carry
    newest = max([len(done) - 1, *(at for _, at, _ in samples)], default=0)
    every = lag(journal, [(tp, float(at), end) for tp, at, end in samples])
    assert in_order(told) == [row for row in every if row["at"] <= newest - 10]


@pytest.mark.slow
def test_a_stream_keeps_few_old_samples_and_the_first_of_them() -> None:
    carried: bytes | None = None
    journal = Journal()
    journal.commit("g", TP, 0, 0)
    payloads = {"commits": [to_bytes(commits_of(journal.records()))]}
    for hour in range(20):
        now = [(TP, hour * 3600.0 + at, hour * 3600 + at) for at in range(0, 3600, 10)]
        payloads["ends"] = [to_bytes(ends_of(now))]
        step = streaming.lag_step(payloads, carried)
        carried, payloads = step.carry, {}
        assert step.rows.num_rows in (359, 360)
        late = in_order(step.rows.to_pylist())[-1]
        # What is left of the samples still tells since when the group is behind.
        assert late["seconds"] == pytest.approx(late["at"], rel=0.15)
    assert len(carried or b"") < 20_000
