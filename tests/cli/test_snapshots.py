"""What `group watch` and `why` say, from looks made up here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.group import in_ranges
from shoal.cli.snapshots import (
    MemberView,
    Observer,
    Snapshot,
    diagnose,
    diagnose_history,
    worst_first,
)
from shoal.types import TopicPartition

TPS = [TopicPartition("orders", number) for number in range(6)]


def member(name: str, *numbers: int, topics: tuple[str, ...] = ("orders",)) -> MemberView:
    partitions = frozenset(TPS[number] for number in numbers)
    return MemberView(f"{name}-id", name, "10.0.0.1", False, frozenset(topics), partitions)


def look(
    at_s: float,
    *members: MemberView,
    state: str = "Stable",
    lags: dict[int, int | None] | None = None,
    ends: dict[int, int] | None = None,
) -> Snapshot:
    return Snapshot(
        at_s,
        state,
        "range",
        {one.member_id: one for one in members},
        {TPS[number]: lag for number, lag in (lags or {}).items()},
        {TPS[number]: end for number, end in (ends or {}).items()},
    )


def said(*looks: Snapshot) -> str:
    return "\n".join(f"{one.level}: {one.what} {one.advice}" for one in diagnose(looks))


def events(*looks: Snapshot) -> list[tuple[str, str]]:
    observer = Observer()
    return [(event.kind, event.text) for one in looks for event in observer.look(one)]


def test_a_join_is_told_with_what_moved_and_how_long_it_took() -> None:
    ann, ben = member("ann", 0, 1), member("ben", 1)
    happened = events(
        look(0, ann),
        look(1, ann, state="PreparingRebalance"),
        look(3.5, member("ann", 0), ben),
    )
    assert happened == [
        ("state", "Stable → PreparingRebalance"),
        ("joined", "ben (10.0.0.1)"),
        ("state", "PreparingRebalance → Stable"),
        ("rebalanced", "rebalanced in about 2.5 s, 1 partitions moved"),
        ("moved", "orders-1: ann → ben"),
    ]


def test_a_rebalance_between_two_looks_is_noticed_by_what_moved() -> None:
    happened = events(look(0, member("ann", 0), member("ben", 1)), look(1, member("ann", 0, 1)))
    assert happened == [("left", "ben (10.0.0.1)"), ("moved", "orders-1: ben → ann")]


def test_a_group_without_members_is_a_problem_and_a_missing_one_says_so() -> None:
    assert "problem: nobody is in the group" in said(look(0, state="Empty"))
    assert "shoal group list" in said(look(0, state="Dead"))


def test_a_rebalance_that_does_not_end_is_a_problem_after_a_while() -> None:
    waiting = [look(at, member("ann"), state="PreparingRebalance") for at in (0, 5, 31)]
    assert "note: the group was in PreparingRebalance for all of the 5 s" in said(*waiting[:2])
    assert "--seconds 60" in said(*waiting[:2])
    assert "problem: the group was in PreparingRebalance for all of the 31 s" in said(*waiting)
    assert "max.poll.interval.ms" in said(*waiting)


def test_members_that_come_and_go_are_a_problem() -> None:
    shown = said(
        look(0, member("ann", 0)),
        look(1, member("ann"), member("ben"), state="PreparingRebalance"),
        look(2, member("ann", 0)),
    )
    assert "problem: members come and go" in shown
    assert "group.instance.id" in shown


def test_idle_members_and_uneven_load_are_noted() -> None:
    shown = said(look(0, member("ann", 0, 1, 2, 3), member("ben", 4), member("cleo")))
    assert "1 of 3 members read nothing: cleo" in shown
    assert "ann reads 4 partitions, another 1" in shown
    assert "uneven" not in said(look(0, member("ann", 0, 1), member("ben", 2)))


def test_different_subscriptions_are_noted() -> None:
    mixed = look(0, member("ann", 0), member("ben", topics=("orders", "refunds")))
    assert "2 different sets of topics" in said(mixed)


def test_a_partition_that_stands_still_is_a_problem_with_its_offset() -> None:
    ann = member("ann", 0, 1)
    before = look(0, ann, lags={0: 5, 1: 9}, ends={0: 100, 1: 50})
    after = look(5, ann, lags={0: 15, 1: 4}, ends={0: 110, 1: 50})
    shown = said(before, after)
    assert "problem: 1 partitions have lag and no progress, such as orders-0 (read by ann)" in shown
    assert "offset 95" in shown


def test_growing_lag_is_noted_and_shrinking_lag_is_well() -> None:
    ann = member("ann", 0)
    small = look(0, ann, lags={0: 100}, ends={0: 1000})
    large = look(10, ann, lags={0: 1100}, ends={0: 3000})
    assert "note: lag is 1,100 and grows by 100 records a second" in said(small, large)
    later = look(20, ann, lags={0: 10}, ends={0: 3000})
    assert "ok: lag is 10 and shrinks" in said(large, later)


def test_what_is_read_and_never_committed_is_noted() -> None:
    assert "1 partitions are read and never committed" in said(look(0, member("ann", 0)))


def row(cause: str, **more: Any) -> dict[str, Any]:
    return {"cause": cause, "expired": [], "at": datetime.now(UTC), **more}


def test_the_rebalances_of_a_day_are_weighed() -> None:
    assert diagnose_history([], 24) == []
    started = [row("group started"), row("second round of a cooperative rebalance")]
    assert diagnose_history(started, 24) == []
    (quiet,) = diagnose_history([row("member joined")], 24)
    assert (quiet.level, quiet.advice) == ("ok", "")
    (noted,) = diagnose_history([row("member expired", expired=["ben"])], 24)
    assert noted.level == "note"
    assert "session.timeout.ms" in noted.advice
    (often,) = diagnose_history([row("member joined")] * 8 + [row("member left")], 1)
    assert often.level == "problem"
    assert "9 rebalances in the last 1 h, most often: member joined (8)" in often.what
    assert "group.instance.id" in often.advice
    assert worst_first([quiet, often, noted]) == [often, noted, quiet]


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_exactly_the_partitions(numbers: set[int]) -> None:
    shown = in_ranges(TopicPartition("t", number) for number in numbers)
    found: set[int] = set()
    for run in shown.removeprefix("t ").split(",") if shown else []:
        first, _, last = run.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers


def test_topics_follow_each_other_in_ranges() -> None:
    given = [TopicPartition("b", 2), *TPS[:3], TPS[5]]
    assert in_ranges(given) == "b 2  orders 0-2,5"
