"""What `group watch` and `why` say, from looks made up here."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shoal.fleet.diagnosis import diagnose, diagnose_history, worst_first
from shoal.fleet.snapshots import MemberView, Observer, Snapshot
from shoal.types import TopicPartition

TPS = [TopicPartition("orders", number) for number in range(6)]


def member(
    name: str,
    *numbers: int,
    topics: tuple[str, ...] = ("orders",),
    member_id: str | None = None,
    instance: str | None = None,
) -> MemberView:
    partitions = frozenset(TPS[number] for number in numbers)
    known_as = member_id or f"{name}-id"
    return MemberView(known_as, name, "10.0.0.1", instance, frozenset(topics), partitions)


def look(
    at_s: float,
    *members: MemberView,
    state: str = "Stable",
    lags: dict[int, int | None] | None = None,
    ends: dict[int, int] | None = None,
    is_joined: bool = True,
) -> Snapshot:
    return Snapshot(
        at_s,
        state,
        "range",
        {one.member_id: one for one in members},
        {TPS[number]: lag for number, lag in (lags or {}).items()},
        {TPS[number]: end for number, end in (ends or {}).items()},
        is_joined=is_joined,
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
        ("rebalanced", "rebalanced in about 2.5 s, 1 partition moved"),
        ("moved", "orders-1: ann → ben"),
    ]


def test_a_rebalance_between_two_looks_is_noticed_by_what_moved() -> None:
    happened = events(look(0, member("ann", 0), member("ben", 1)), look(1, member("ann", 0, 1)))
    assert happened == [("left", "ben (10.0.0.1)"), ("moved", "orders-1: ben → ann")]


def test_members_of_one_name_are_told_apart() -> None:
    before = look(0, member("x", 0, 1, member_id="a"), member("x", 2, 3, member_id="b"))
    after = look(1, member("x", 0, 2, member_id="a"), member("x", 1, 3, member_id="b"))
    assert events(before, after) == [("moved", "orders-1: x → x"), ("moved", "orders-2: x → x")]
    shown = said(look(0, member("x", 0, 1, 2, member_id="a"), member("x", 3, member_id="b")))
    assert "x reads 3 partitions, another 1" in shown
    idle = [member("x", member_id=name) for name in "bc"]
    assert "2 of 3 members read nothing" in said(look(0, member("x", 0, member_id="a"), *idle))


def test_a_static_member_that_restarts_moves_nothing() -> None:
    before = look(0, member("till-1", 0, 1, member_id="a", instance="till-1"))
    after = look(1, member("till-1", 0, 1, member_id="b", instance="till-1"))
    assert events(before, after) == [("restarted", "till-1 (10.0.0.1)")]


def test_a_group_that_is_only_committed_to_is_well() -> None:
    before = look(0, state="Empty", is_joined=False, lags={0: 5}, ends={0: 10})
    moved = look(5, state="Empty", is_joined=False, lags={0: 1}, ends={0: 12})
    assert {one.level for one in diagnose([before, moved])} == {"ok"}
    assert "never had" in said(before, moved)
    assert "lag is 1 and shrinks" in said(before, moved)
    resting = look(5, state="Empty", is_joined=False, lags={0: 5}, ends={0: 10})
    assert {one.level for one in diagnose([before, resting])} == {"ok", "note"}
    assert "nothing was committed for the 5 s we looked; records waiting: 5" in said(
        before, resting
    )
    done = look(5, state="Empty", is_joined=False, lags={0: 0}, ends={0: 10})
    assert {one.level for one in diagnose([done, done])} == {"ok"}


def test_a_group_without_members_is_a_problem_and_a_missing_one_says_so() -> None:
    assert "problem: the group has no active members" in said(look(0, state="Empty"))
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
    assert "problem: members joined and left" in shown
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
    assert "problem: 1 partition with lag and no progress, such as orders-0 (read by ann)" in shown
    assert "offset 95" in shown


def test_growing_lag_is_noted_and_shrinking_lag_is_well() -> None:
    ann = member("ann", 0)
    small = look(0, ann, lags={0: 100}, ends={0: 1000})
    large = look(10, ann, lags={0: 1100}, ends={0: 3000})
    assert "note: lag is 1,100 and grows by 100 records per second" in said(small, large)
    later = look(20, ann, lags={0: 10}, ends={0: 3000})
    assert "ok: lag is 10 and shrinks" in said(large, later)


def test_what_is_read_and_never_committed_is_noted() -> None:
    assert "1 partition read and never committed" in said(look(0, member("ann", 0)))


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
    assert "9 rebalances in the last hour, most often: member joined (8)" in often.what
    assert "group.instance.id" in often.advice
    assert worst_first([quiet, often, noted]) == [often, noted, quiet]


# --- groups of the new protocol (KIP-848) ---


def moving(name: str, has: tuple[int, ...], target: tuple[int, ...]) -> MemberView:
    one = member(name, *has)
    return replace(one, target=frozenset(TPS[number] for number in target))


def test_who_has_not_given_up_what_is_named_while_a_group_reconciles() -> None:
    slow, quick = moving("ann", (0, 1, 2, 3, 4), (0,)), moving("ben", (5,), (1, 2, 3, 4, 5))
    shown = said(look(0, slow, quick, state="Reconciling"))
    wanted = "ann has not given up orders-1, orders-2, orders-3 and 1 more"
    assert f"rebalancing (Reconciling): {wanted}" in shown
    both = [look(at_s, slow, quick, state="Reconciling") for at_s in (0.0, 40.0)]
    stuck = said(*both)
    assert f"problem: the group was in Reconciling for all of the 40 s we looked: {wanted}" in stuck
    assert "they give partitions up in a poll" in stuck


def test_who_gives_up_something_else_each_time_is_not_waited_for() -> None:
    looks = [
        look(0, moving("ann", (0, 1), (0,)), state="Reconciling"),
        look(5, moving("ann", (0, 2), (0,)), state="Reconciling"),
    ]
    assert "has not given up" not in said(*looks)


def test_who_gives_up_something_else_is_named_by_what_stays() -> None:
    looks = [
        look(0, moving("ann", (0, 1, 2), (0,)), state="Reconciling"),
        look(5, moving("ann", (0, 2, 3), (0,)), state="Reconciling"),
    ]
    assert "ann has not given up orders-2 " in said(*looks)


def test_members_of_classic_groups_have_no_target() -> None:
    shown = said(look(0, member("ann", 0, 1), state="PreparingRebalance"))
    assert "has not given up" not in shown
