"""What happened to a group: kept once, shown with names, in storms; and who owned what."""

from __future__ import annotations

from shoal.fleet.causes import Departures, PartitionMove, Rebalance
from shoal.fleet.fold import RecordedGeneration, RecordedMember
from shoal.types import TopicPartition
from shoal.web.group_history import REBALANCES_MAX, RebalanceHistory, storms

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
ANN = "ann-0b0d8c1e-0000-4000-8000-000000000001"
BEN = "ben-1b0d8c1e-0000-4000-8000-000000000002"


def generation(number: int, at_s: float, owned: dict[str, list[TopicPartition]]):
    members = {
        id_: RecordedMember(id_, client_id=id_[:3], partitions=frozenset(tps))
        for id_, tps in owned.items()
    }
    return RecordedGeneration("g", number, "classic", int(at_s * 1e6), None, "range", members)


def rebalance(number: int, at_s: float, owned, cause: str = "member joined", **more) -> Rebalance:
    return Rebalance(generation(number, at_s, owned), cause, True, **more)


def test_what_is_told_twice_is_kept_once():
    history = RebalanceHistory()
    one = rebalance(1, 10, {ANN: [A, B]})
    assert history.add(one)
    assert not history.add(one)
    assert len(history.shown()) == 1


def test_a_history_is_bounded():
    history = RebalanceHistory()
    for number in range(REBALANCES_MAX + 10):
        history.add(rebalance(number + 1, number, {f"m{number}": [A]}))
    assert len(history.shown()) == REBALANCES_MAX


def test_who_owned_what_is_one_span_while_nothing_moves():
    history = RebalanceHistory()
    history.add(rebalance(1, 10, {ANN: [A, B]}))
    history.add(rebalance(2, 20, {ANN: [A], BEN: [B]}))
    history.add(rebalance(3, 30, {ANN: [A], BEN: [B]}))
    strip = history.ownership(40_000_000)
    assert [row["spans"] for row in strip] == [
        [[10_000, 40_000, "ann-0b0d"]],
        [[10_000, 20_000, "ann-0b0d"], [20_000, 40_000, "ben-1b0d"]],
    ]


def test_a_time_without_an_owner_is_a_hole_in_the_strip():
    history = RebalanceHistory()
    history.add(rebalance(1, 10, {ANN: [A]}))
    history.add(rebalance(2, 20, {ANN: []}))
    history.add(rebalance(3, 30, {ANN: [A]}))
    (row,) = history.ownership(40_000_000)
    assert row["spans"] == [[10_000, 20_000, "ann-0b0d"], [30_000, 40_000, "ann-0b0d"]]


def test_a_rebalance_is_shown_with_names_moves_and_what_is_not_known():
    history = RebalanceHistory()
    history.add(rebalance(1, 10, {ANN: [A, B], BEN: []}))
    moves = [PartitionMove(A, ANN, BEN), PartitionMove(B, ANN, None)]
    gone = Departures(expired=[ANN])
    history.add(rebalance(2, 20, {BEN: [A]}, "member expired", departures=gone, moves=moves))
    newest, oldest = history.shown(with_moves=True)
    assert (newest["expired"], newest["moved"], newest["unassigned"]) == (["ann-0b0d"], 1, 1)
    assert newest["moves"][0] == {"partition": "orders-0", "from": "ann-0b0d", "to": "ben-1b0d"}
    assert newest["moves"][1]["to"] is None
    assert newest["duration_ms"] is None
    assert oldest["generation"] == 1


def test_the_last_rebalance_is_told_by_its_cause_not_by_its_second_round():
    history = RebalanceHistory()
    history.add(rebalance(1, 10, {ANN: [A]}, "member left"))
    history.add(rebalance(2, 11, {ANN: [A, B]}, "second round of a cooperative rebalance"))
    assert history.last is not None
    assert history.last.cause == "member left"


def test_a_group_that_is_seen_for_the_first_time_has_not_rebalanced():
    history = RebalanceHistory()
    history.add(rebalance(7, 10, {ANN: [A]}, "first seen"))
    assert history.last is None
    assert history.shown()[0]["is_rebalance"] is False


def entry(group: str, at_s: int) -> dict[str, object]:
    return {"group": group, "at_ms": at_s * 1000}


def test_rebalances_that_follow_closely_are_a_storm_and_others_are_not():
    feed = [entry("g", 1000), entry("h", 990), entry("g", 900), entry("g", 700), entry("g", 100)]
    found = storms(feed)
    assert [(one["group"], one["is_storm"], len(one["items"])) for one in found] == [
        ("g", True, 3),
        ("h", False, 1),
        ("g", False, 1),
    ]


def test_two_are_no_storm_and_each_is_shown():
    found = storms([entry("g", 20), entry("g", 10)])
    assert [len(one["items"]) for one in found] == [1, 1]
