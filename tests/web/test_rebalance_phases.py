"""The phases of a rebalance: what is on record, and what is not and says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.fleet.causes import Departures, PartitionMove, Rebalance
from shoal.fleet.fold import RecordedGeneration, RecordedMember
from shoal.types import TopicPartition
from shoal.web.group_history import RebalanceHistory
from shoal.web.rebalance_phases import OVERTAKEN, UNWRITTEN, by_member, phases

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
NAMES = {"a": "ann", "b": "ben"}


def rebalance(
    at_s: float = 20,
    *,
    protocol: str = "classic",
    began_s: float | None = None,
    owned: dict[str, list[TopicPartition]] | None = None,
    number: int = 2,
    **more: Any,
) -> Rebalance:
    members = {
        id_: RecordedMember(id_, client_id=id_, partitions=frozenset(tps))
        for id_, tps in ({"a": [A], "b": [B]} if owned is None else owned).items()
    }
    now = RecordedGeneration(
        "g",
        number,
        protocol,
        int(at_s * 1e6),
        None if began_s is None else int(began_s * 1e6),
        "range",
        members,
        leader="a" if protocol == "classic" else None,
    )
    return Rebalance(now, "member joined", True, **more)


def test_a_classic_group_joins_and_is_assigned_by_its_leader() -> None:
    joins, assigns = phases(rebalance(20, began_s=19.5), NAMES)
    assert (joins["begin_ms"], joins["end_ms"], joins["note"]) == (None, 19_500, UNWRITTEN)
    assert (assigns["begin_ms"], assigns["end_ms"]) == (19_500, 20_000)
    assert assigns["waits_for"] == ["ann"]


def test_a_beginning_that_a_look_saw_is_a_lower_bound() -> None:
    joins, _ = phases(rebalance(20, began_s=19.5), NAMES, seen_ms=[12_000, 17_000, 19_900])
    assert (joins["begin_ms"], joins["at_least"]) == (12_000, True)
    late, _ = phases(rebalance(20, began_s=19.5), NAMES, seen_ms=[19_900])
    assert late["begin_ms"] is None


def test_where_nothing_is_on_record_there_is_no_time() -> None:
    joins, assigns = phases(rebalance(20), NAMES)
    assert (joins["end_ms"], assigns["begin_ms"], assigns["end_ms"]) == (None, None, 20_000)


def test_a_group_of_the_new_protocol_waits_for_who_has_not_changed_over() -> None:
    one = rebalance(20, protocol="consumer", began_s=19.9, reached_us={"a": 21_000_000})
    assigns, changes = phases(one, NAMES)
    assert (assigns["begin_ms"], assigns["end_ms"]) == (19_900, 20_000)
    assert (changes["begin_ms"], changes["end_ms"]) == (20_000, None)
    assert (changes["waits_for"], changes["note"]) == (["ben"], "")
    _, overtaken = phases(one, NAMES, is_last=False)
    assert overtaken["note"] == OVERTAKEN
    done = replace(one, reached_us={"a": 21_000_000, "b": 23_500_000})
    _, changes = phases(done, NAMES)
    assert (changes["end_ms"], changes["waits_for"]) == (23_500, [])


def test_a_group_that_nobody_is_in_any_more_has_no_phases() -> None:
    assert phases(rebalance(owned={}), NAMES) == []


def test_members_are_told_by_who_stood_still_longest_and_the_gone_come_along() -> None:
    moves = [PartitionMove(A, "c", "a"), PartitionMove(B, "c", None)]
    one = rebalance(
        owned={"a": [A], "b": []},
        departures=Departures(left=["c"]),
        moves=moves,
        still_us={"a": 4_000_000},
    )
    first, *others = by_member(one, NAMES)
    assert first == {
        "member": "ann",
        "is_gone": False,
        "has": 1,
        "gets": 1,
        "gives": 0,
        "still_ms": 4_000,
        "done_ms": None,
    }
    assert [(row["member"], row["is_gone"], row["gives"]) for row in others] == [
        ("ben", False, 0),
        ("c", True, 2),
    ]
    assert {row["still_ms"] for row in others} == {None}


def test_what_becomes_known_later_is_added_and_nothing_is_taken_back() -> None:
    history = RebalanceHistory()
    history.add(rebalance(10, number=1))
    told = rebalance(20, still_us={"a": 1_000_000}, reached_us={"a": 20_500_000})
    history.add(told)
    assert history.revise(told) is None
    later = replace(
        told, still_us={"b": 3_000_000}, reached_us={"a": 22_000_000, "b": 21_000_000}, pause_us=3
    )
    changed = history.revise(later)
    assert changed is not None
    assert changed.still_us == {"a": 1_000_000, "b": 3_000_000}
    assert changed.reached_us == {"a": 20_500_000, "b": 21_000_000}
    assert changed.pause_us == 3
    assert history.revise(rebalance(99, number=9, still_us={"a": 1})) is None
    newest = history.shown(with_moves=True)[0]
    assert [row["still_ms"] for row in newest["by_member"]] == [3_000, 1_000]


def test_a_look_counts_for_the_rebalance_that_followed_it() -> None:
    history = RebalanceHistory()
    history.look("PreparingRebalance", 8_000)
    history.look("Stable", 12_000)
    history.add(rebalance(10, number=1))
    history.look("PreparingRebalance", 15_000)
    history.add(rebalance(20, began_s=19))
    newest, oldest = history.shown(with_moves=True)
    assert newest["phases"][0]["begin_ms"] == 15_000
    assert oldest["phases"][0]["begin_ms"] == 8_000
