"""Rehearsals of groups whose answer is known by construction.

Where nothing else is said: four members read twelve partitions, members hear of a rebalance within
three seconds of each other and the assignment takes no time, sessions are 45 seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.assign.plan import (
    Change,
    Join,
    Leave,
    PlannedGroup,
    PlannedMember,
    PlannedTopic,
    Resize,
    Resubscribe,
    plan,
)
from shoal.assign.plan_broker import broker_assignors
from shoal.fleet.analysis import analyse, events_of
from shoal.fleet.group_changes import DepartedMember, GroupHistory, RecordedChange, group_histories
from shoal.fleet.lag import lag_table
from shoal.fleet.rehearse import (
    SCHEMES,
    BrokerOffer,
    GroupSpeed,
    Rehearsal,
    group_speeds,
    outlook,
    read_rehearsals,
    rehearsal_table,
    rehearse,
    rehearse_events,
    worst_groups,
)
from shoal.fleet.scheme_replay import CONSUMER, COOPERATIVE, EAGER, ReplayPace, ReplayScheme, replay
from shoal.fleet.tables import schema
from tests.fleet.consumer_offsets import START_MS, Journal, tps
from tests.fleet.past import Past, histories, history_of, rolling_restart
from tests.fleet.test_causes import consumer_group

FOUR = ("a", "b", "c", "d")
JOINING_S, HEARTBEAT_S, SESSION_S = 3.0, 5.0, 45.0
UNNOTICED_S = SESSION_S - JOINING_S / 2


def rows(history: GroupHistory, **more: Any) -> dict[str, Rehearsal]:
    return {row.scheme: row for row in rehearse(history, **more)}


def restarted(*, away_s: float, **past: Any) -> dict[str, Rehearsal]:
    """All four of them were restarted, one after another."""
    happened = Past(12, **past)
    happened.members(*FOUR)
    rolling_restart(happened, FOUR, away_s=away_s)
    return rows(happened.history())


def costs(row: Rehearsal) -> tuple[Any, Any, Any]:
    return row.stopped_then, row.moved_then, row.rebalances_then


# --- rolling restarts ---


def test_an_eager_group_stops_everything_twice_for_each_restart() -> None:
    found = restarted(away_s=20)
    # Three partitions wait for the whole round, nine for half of it; then all twelve for half.
    leaves, returns = 3 * JOINING_S + 9 * JOINING_S / 2, 12 * JOINING_S / 2
    assert costs(found["eager"])[0] == pytest.approx(4 * (leaves + returns))
    assert found["eager"].rebalances_then == 8
    assert found["eager"].longest_then == JOINING_S
    assert found["eager"].verdict == "in use"
    assert found["eager"].stopped_now == found["eager"].stopped_then


def test_a_cooperative_group_stops_what_moves_for_a_round() -> None:
    found = restarted(away_s=20)
    # Three partitions of the one that left, and three that it is given when it is back.
    assert costs(found["cooperative"]) == (pytest.approx(4 * 6 * JOINING_S), 24, 12)
    assert found["cooperative"].verdict == "better"


def test_with_the_consumer_protocol_what_moves_waits_for_a_heartbeat() -> None:
    found = restarted(away_s=20)
    assert costs(found["consumer"]) == (pytest.approx(4 * 6 * HEARTBEAT_S / 2), 24, 8)
    assert found["consumer"].longest_then == HEARTBEAT_S


@pytest.mark.parametrize(("away_s", "verdict"), [(2.0, "better"), (20.0, "worse")])
def test_static_members_keep_their_partitions_which_wait_for_them(
    away_s: float, verdict: str
) -> None:
    found = restarted(away_s=away_s)["static"]
    assert costs(found) == (pytest.approx(4 * 3 * away_s), 0, 0)
    assert found.longest_then == away_s
    assert found.verdict == verdict
    assert "4 restarts were over within the session" in found.evidence


def test_a_static_member_that_stays_away_is_noticed_a_session_later() -> None:
    found = restarted(away_s=60)["static"]
    leaves = 3 * (UNNOTICED_S + JOINING_S) + 9 * JOINING_S / 2
    assert found.stopped_then == pytest.approx(4 * (leaves + 12 * JOINING_S / 2))
    assert found.verdict == "worse"
    assert found.rebalances_then == 8


def test_another_host_under_a_shared_client_id_is_no_restart() -> None:
    """Who comes must be the one that went: by name and host, or by a name nobody else has."""
    past = Past(12)
    past.members(*FOUR)
    for number in range(4):
        past.members("a", "b", "c")
        past.members("a", "b", "c", f"new{number}", after_s=5)
    assert "0 restarts were over within the session" in rows(past.history())["static"].evidence


def test_a_restart_within_one_rebalance_takes_no_longer_than_that() -> None:
    past = Past(12)
    past.members(*FOUR)
    for life in range(2, 6):
        past.members("b", "c", "d", f"a.{life}")
    static = rows(past.history())["static"]
    assert costs(static) == (4 * 3 * JOINING_S, 0, 0)


def test_members_that_are_static_already_are_said_to_be() -> None:
    past = Past(12, static=True)
    past.members(*FOUR)
    for life in range(2, 6):
        past.members(f"a.{life}", "b", "c", "d")
        past.again()
    found = rows(past.history())
    assert found["static"].verdict == "in use"
    # Only the four generations that nobody can explain.
    assert found["eager"].changes == 4
    assert found["eager"].rebalances_then == 4
    assert found["consumer"].rebalances_then == 0


# --- other changes ---


def test_a_dead_member_is_unread_until_its_session_runs_out() -> None:
    past = Past(12)
    past.members(*FOUR)
    for _ in range(3):
        past.expires("a", "b", "c")
        past.members(*FOUR)
    found = rows(past.history())
    dies = 3 * (UNNOTICED_S + JOINING_S)
    comes = 3 * JOINING_S
    assert found["cooperative"].stopped_then == pytest.approx(3 * (dies + comes))
    # Sessions of ten seconds are 35 seconds shorter, for three partitions, three times.
    assert found["session"].saves == pytest.approx(3 * 3 * 35)
    assert found["session"].verdict == "better"
    assert "session.timeout.ms=10000" in (found["session"].advice or "")
    # The broker's session counts from then on, and its heartbeat.
    assert found["consumer"].longest_then == pytest.approx(45 - 2.5 + HEARTBEAT_S)


def test_nothing_stops_when_a_group_that_stands_still_starts_again() -> None:
    past = Past(12)
    past.members(*FOUR)
    for _ in range(3):
        past.members()
        past.members(*FOUR, after_s=10_000)
    found = rows(past.history())
    # Nobody reads for hours, which no protocol can help: it counts for as long as a session.
    assert found["eager"].stopped_then == pytest.approx(3 * 12 * SESSION_S)
    assert found["consumer"].stopped_then == pytest.approx(3 * 12 * SESSION_S)
    assert found["consumer"].verdict == "same"


def test_a_group_that_is_back_soon_stood_still_for_so_long() -> None:
    past = Past(12)
    past.members(*FOUR)
    for _ in range(3):
        past.members()
        past.members(*FOUR, after_s=7)
    found = rows(past.history())
    assert found["eager"].stopped_then == pytest.approx(3 * 12 * 7)
    assert found["static"].stopped_then == pytest.approx(3 * 12 * 7)


def test_a_topic_that_grows_stops_an_eager_group_and_no_other() -> None:
    past = Past(12)
    past.members(*FOUR)
    for partitions in (16, 20, 24):
        past.grows(partitions)
    found = rows(past.history())
    assert found["eager"].stopped_then == pytest.approx((12 + 16 + 20) * JOINING_S / 2)
    assert costs(found["cooperative"]) == (0, 0, 3)
    assert costs(found["consumer"]) == (0, 0, 3)
    assert found["eager"].partitions == 24


def test_the_second_round_of_a_cooperative_rebalance_is_no_change() -> None:
    journal = Journal()
    given: list[Mapping[str, list[int]]] = [
        {"a": [0, 1, 2, 3]},
        {"a": [0, 1], "b": []},
        {"a": [0, 1], "b": [2, 3]},
    ]
    for number, members in enumerate(given, 1):
        shares = {name: tps("t", *numbers) for name, numbers in members.items()}
        journal.generation(
            "g", number, shares, number * 10, topics=["t"], assignor="cooperative-sticky"
        )
    (history,) = histories(journal)
    assert len(history.changes) == 1
    assert history.rebalances == 2
    found = rows(history)["cooperative"]
    assert (found.rebalances_then, found.moved_then) == (2, 2)
    assert found.verdict == "in use"


def test_a_member_that_wants_other_topics_is_replayed() -> None:
    journal = Journal()
    for number, topics in enumerate((["t"], ["t", "u"], ["t"]), 1):
        shares = {"a": tps("t", 0, 1) + (tps("u", 0) if "u" in topics else [])}
        journal.generation("g", number, shares, number * 10, topics=topics)
    (history,) = histories(journal)
    assert [dict(one.resubscribed) for one in history.changes] == [
        {"a": ("t", "u")},
        {"a": ("t",)},
    ]
    assert dict(history.changes[0].grown) == {"u": 1}


# --- the same as a plan ---


@st.composite
def single_changes(draw: st.DrawFn) -> tuple[PlannedGroup, Change, RecordedChange]:
    counts = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    topics = {f"t{number}": PlannedTopic(count) for number, count in enumerate(counts)}
    wishes = st.lists(st.sampled_from(sorted(topics)), min_size=1, unique=True)
    names = [f"m{number}" for number in range(draw(st.integers(2, 6)))]
    members = {name: PlannedMember(tuple(draw(wishes))) for name in names}
    group = PlannedGroup(topics, members)
    kind = draw(st.sampled_from(["join", "leave", "grow", "subscribe"]))
    if kind == "join":
        new = {"x": PlannedMember(tuple(draw(wishes)))}
        return group, Join(new), RecordedChange(0, joined=new)
    if kind == "leave":
        gone = DepartedMember(names[0], "left", 45.0)
        return group, Leave([names[0]]), RecordedChange(0, departed=[gone])
    if kind == "grow":
        grown = {"t0": counts[0] + draw(st.integers(1, 5))}
        return group, Resize(grown), RecordedChange(0, grown=grown)
    wish = {names[0]: tuple(draw(wishes))}
    return group, Resubscribe(wish), RecordedChange(0, resubscribed=wish)


@given(single_changes())
def test_a_single_change_is_what_a_plan_says(
    case: tuple[PlannedGroup, Change, RecordedChange],
) -> None:
    group, planned, recorded = case
    schemes = [ReplayScheme(EAGER, name) for name in ("range", "roundrobin", "sticky")]
    schemes += [
        ReplayScheme(COOPERATIVE, "cooperative-sticky"),
        ReplayScheme(CONSUMER, broker_assignors()[0]),
    ]
    for scheme in schemes:
        (outcome,) = plan(group, [planned], [scheme.assignor]).outcomes
        found = replay(history_of(group, recorded), scheme, ReplayPace())
        assert (found.rebalances, found.moved) == (outcome.rebalances, outcome.moved), scheme
        # A plan does not count what nobody takes over.
        assert found.stopped >= outcome.stopped
        if recorded.departed == ():
            assert found.stopped == outcome.stopped


# --- what is known, and what is not ---


def test_a_custom_assignor_blocks_and_leaves_now_unknown() -> None:
    past = Past(12, assignor="mine")
    past.members(*FOUR)
    rolling_restart(past, FOUR, away_s=5)
    found = rows(past.history())
    for scheme in ("eager", "cooperative", "consumer"):
        assert found[scheme].blocked_by == ["custom assignor"]
        assert found[scheme].verdict == "blocked"
        assert not found[scheme].eligible
        assert found[scheme].stopped_now is None
        assert found[scheme].stopped_then is not None
    assert found["static"].verdict == "unknown"
    assert found["static"].stopped_then is None
    assert found["static"].saves is None
    assert any("'mine'" in line for line in found["static"].evidence)


@pytest.mark.parametrize(
    ("settings", "is_offered", "reason"),
    [
        ({"group.consumer.migration.policy": "disabled"}, True, "migration policy"),
        ({"group.consumer.max.size": "3"}, True, "too many members"),
        ({}, False, "protocol not offered"),
    ],
)
def test_the_broker_may_block_the_new_protocol(
    settings: dict[str, str], is_offered: bool, reason: str
) -> None:
    past = Past(12)
    past.members(*FOUR)
    rolling_restart(past, FOUR, away_s=5)
    found = rows(past.history(), offer=BrokerOffer(settings, is_offered))
    assert found["consumer"].blocked_by == [reason]
    assert found["cooperative"].blocked_by == []


def test_the_brokers_settings_are_used_where_they_are_known() -> None:
    past = Past(12)
    past.members(*FOUR)
    rolling_restart(past, FOUR, away_s=5)
    settings = {"group.consumer.heartbeat.interval.ms": "2000"}
    known = rows(past.history(), offer=BrokerOffer(settings, True))["consumer"]
    assert known.stopped_then == pytest.approx(4 * 6 * 1.0)
    assert not any("broker's defaults" in line for line in known.evidence)
    assumed = rows(past.history())["consumer"]
    assert any("broker's defaults" in line for line in assumed.evidence)


def test_there_is_no_verdict_on_two_changes() -> None:
    past = Past(12)
    past.members("a")
    past.members("a", "b")
    past.members("a", "b", "c")
    found = rows(past.history())["cooperative"]
    assert found.verdict == "too few changes"
    assert found.confidence == "none"
    past.members(*FOUR)
    assert rows(past.history())["cooperative"].confidence == "low"


def test_what_compaction_took_costs_confidence() -> None:
    whole, holed = Past(12), Past(12)
    for past in (whole, holed):
        past.members(*FOUR)
        rolling_restart(past, FOUR, away_s=5)
        rolling_restart(past, [f"{name}.2" for name in FOUR], away_s=5, round_=3)
    assert rows(whole.history())["eager"].confidence == "medium"
    holed._generation += 5
    holed.members("z")
    found = rows(holed.history())["eager"]
    assert found.confidence == "low"
    assert "5 of 22 rebalances are lost to compaction" in found.evidence


def test_how_long_partitions_stand_still_is_measured_where_commits_tell() -> None:
    """Commits every second, and none for six seconds around each of three rebalances."""
    journal = Journal()
    at_s = 0
    for number, names in enumerate((["a"], ["a", "b"], ["a", "b", "c"], ["a", "b"]), 1):
        shares = {name: tps("t", *range(index, 6, len(names))) for index, name in enumerate(names)}
        journal.generation("g", number, shares, at_s + 3, topics=["t"])
        for second in range(6, 26):
            for tp in tps("t", *range(6)):
                journal.commit("g", tp, second, at_s + second)
        at_s += 25
    (history,) = histories(journal)
    # The last commit of one spell and the first of the next are six seconds apart.
    assert history.standing_s == pytest.approx(5.0)
    found = rows(history)["cooperative"]
    assert "measured: a rebalance stops partitions for 5.0 s" in found.evidence
    assert found.longest_then == 5.0


def test_a_pause_that_may_hide_between_two_commits_is_not_measured() -> None:
    """A commit every four seconds, whatever happens: a stop of three would not show."""
    journal = Journal()
    for number in range(1, 6):
        begin = number * 12
        journal.generation("g", number, {f"m{number}": tps("t", 0)}, begin + 2, topics=["t"])
        for second in (4, 8, 12):
            journal.commit("g", tps("t", 0)[0], number, begin + second)
    (history,) = histories(journal)
    assert history.standing_s is None
    assert any(line.startswith("assumed: ") for line in rows(history)["eager"].evidence)


def test_the_worst_catch_up_follows_from_what_a_group_can_read() -> None:
    past = Past(12)
    past.members(*FOUR)
    rolling_restart(past, FOUR, away_s=5)
    found = rows(past.history(), speed=GroupSpeed(100.0, 150.0))
    # Three seconds at 100 records a second, caught up by 50 a second.
    assert found["eager"].catch_up_now == pytest.approx(6.0)
    assert found["consumer"].catch_up_then == pytest.approx(10.0)
    unknown = rows(past.history(), speed=GroupSpeed(100.0, None))["eager"]
    assert unknown.catch_up_now is None
    assert "catching up: the group was never seen behind" in unknown.evidence
    slow = rows(past.history(), speed=GroupSpeed(100.0, 100.0))["eager"]
    assert slow.catch_up_then is None
    assert "catching up: the group read no faster than records came" in slow.evidence


def test_capacity_is_the_most_that_was_read_of_a_group_that_was_behind() -> None:
    journal = Journal()
    for second, offset in ((0, 0), (10, 50), (20, 250), (30, 300)):
        journal.commit("g", tps("t", 0)[0], offset, second)
    for second, offset in ((0, 100), (10, 200), (20, 300)):
        journal.commit("current", tps("t", 0)[0], offset, second)
    ends = [
        {"topic": "t", "partition": 0, "end_offset": end, "at": (START_MS + at * 1000) * 1000}
        for at, end in ((1, 100), (11, 200), (21, 300), (31, 300))
    ]
    commits = events_of(journal.records())
    lags = lag_table(commits, pa.Table.from_pylist(ends, schema("ends")))
    found = group_speeds(lags)["g"]
    assert found.incoming == pytest.approx(200 / 30)
    # 100, 150, 50 and 0 behind: from the second sample to the third it read 200 in ten seconds.
    assert found.capacity == pytest.approx(20.0)
    current = group_speeds(lags)["current"]
    assert (current.incoming, current.capacity) == (found.incoming, None)
    assert group_speeds(schema("lag").empty_table()) == {}


# --- groups of the new protocol ---


def test_groups_of_the_new_protocol_are_replayed_like_others() -> None:
    journal = Journal()
    consumer_group(journal, 1, {"a": [0, 1, 2, 3]}, 0)
    consumer_group(journal, 2, {"a": [0, 1], "b": [2, 3]}, 100)
    consumer_group(journal, 3, {"a": [0, 1], "b": [2], "c": [3]}, 200)
    consumer_group(journal, 4, {"a": [0], "b": [2], "c": [3], "d": [1]}, 300)
    (history,) = histories(journal)
    assert history.start.topics["orders"].partitions == 4, "the id has a name"
    found = rows(history)
    assert found["consumer"].verdict == "in use"
    assert costs(found["consumer"]) == (pytest.approx(4 * HEARTBEAT_S / 2), 4, 3)
    assert found["eager"].verdict == "worse"
    assert found["eager"].stopped_then == pytest.approx(3 * 4 * JOINING_S / 2)
    assert {row.protocol for row in found.values()} == {"consumer"}


# --- the whole fleet ---


def fleet() -> Journal:
    """One group that gains by another assignor, one that would need a new one, one that is new."""
    journal = Journal()
    for name, assignor in (("gains", "range"), ("blocked", "mine"), ("modern", "range")):
        past = Past(12, journal=journal, group=name, assignor=assignor)
        past.members(*FOUR)
        if name != "modern":
            rolling_restart(past, FOUR, away_s=20)
    return journal


def fleet_rows() -> list[Rehearsal]:
    events = events_of(fleet().records())
    return [row for part in rehearse_events(events) for row in part]


def test_every_group_has_a_row_for_every_scheme() -> None:
    found = fleet_rows()
    assert [(row.group, row.scheme) for row in found] == [
        (group, scheme) for group in ("blocked", "gains", "modern") for scheme in SCHEMES
    ]


def test_many_groups_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = fleet_rows()
    monkeypatch.setattr("shoal.fleet.rehearse.GROUPS_AT_ONCE", 1)
    parts = list(rehearse_events(events_of(fleet().records())))
    assert len(parts) == 3
    assert [row for part in parts for row in part] == at_once


def test_an_outlook_counts_verdicts_and_ranks_advice() -> None:
    found = outlook(fleet_rows())
    assert (found.groups, found.changes) == (3, 16)
    assert found.blocked_by == {"custom assignor": 1}
    totals = {one.scheme: one for one in found.totals}
    verdicts = {name: n for name, n in totals["consumer"].verdicts.items() if n}
    assert verdicts == {"better": 1, "blocked": 1, "too few changes": 1}
    assert totals["consumer"].stopped_then == pytest.approx(60.0)
    assert totals["consumer"].stopped_now == pytest.approx(162.0)
    # Cooperative is better, too, and saves less.
    (advice,) = found.advice
    assert (advice.group, advice.scheme) == ("gains", "consumer")
    assert found.saves == pytest.approx(162.0 - 60.0)
    assert outlook([]).groups == 0


def test_what_saves_more_comes_first_and_what_is_blocked_is_no_advice() -> None:
    base = next(row for row in fleet_rows() if (row.group, row.scheme) == ("gains", "consumer"))
    little = replace(base, group="little", saves=2.0)
    much = replace(base, group="much", saves=200.0)
    refused = replace(base, group="refused", saves=900.0, verdict="blocked", eligible=False)
    assert [one.group for one in outlook([little, refused, much]).advice] == ["much", "little"]


def test_the_worst_groups_come_with_their_best_change() -> None:
    (worst,) = worst_groups(fleet_rows(), 1)
    assert {row.group for row in worst} == {"gains"}
    assert worst[0].scheme == "consumer"
    assert [len(rows) for rows in worst_groups(fleet_rows(), 20)] == [5, 5]


def test_a_table_holds_the_rows_as_they_are() -> None:
    found = fleet_rows()
    table = rehearsal_table(found)
    assert table.schema == schema("rehearsals")
    assert read_rehearsals(table) == found


def test_groups_that_never_had_members_are_left_out() -> None:
    journal = Journal()
    journal.generation("empty", 3, {}, 5)
    done = analyse(events_of(journal.records()))
    assert group_histories(done.rebalances) == []
