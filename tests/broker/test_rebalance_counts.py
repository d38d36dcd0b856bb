"""Rebalances counted from what coordinators tell: by the worst cause, and within limits."""

from __future__ import annotations

import pytest

from shoal.broker import rebalance_counts as module
from shoal.broker.rebalance_counts import OTHERS, RebalanceCounts
from shoal.group.coordinator.decision import EventKind, GroupEvent

K = EventKind


def event(kind: EventKind, group: str = "g", duration_ms: int | None = None) -> GroupEvent:
    return GroupEvent(kind, group, 1, "somebody", duration_ms=duration_ms)


class Clock:
    now = 1_000

    def __call__(self) -> int:
        return self.now


def counts() -> tuple[RebalanceCounts, Clock]:
    clock = Clock()
    return RebalanceCounts(clock), clock


def test_the_worst_cause_counts() -> None:
    found, _ = counts()
    found.told([event(K.MEMBER_JOINED)])
    found.told([event(K.MEMBER_EXPIRED), event(K.MEMBER_LEFT), event(K.GENERATION_STARTED)])
    found.told([event(K.GENERATION_STARTED)])
    assert found.by_group() == {("g", "expired"): 1, ("g", "subscription_changed"): 1}


def test_a_cause_may_be_told_behind_its_effect() -> None:
    found, _ = counts()
    found.told([event(K.EPOCH_BUMPED), event(K.MEMBER_JOINED)])
    assert found.by_group() == {("g", "joined"): 1}
    found.told([event(K.EPOCH_BUMPED)])
    assert found.by_group() == {("g", "joined"): 1, ("g", "subscription_changed"): 1}


def test_how_long_it_took_belongs_to_the_cause() -> None:
    found, clock = counts()
    found.told([event(K.MEMBER_LEFT), event(K.GENERATION_STARTED)])
    found.told([event(K.STABLE, duration_ms=2_000)])
    found.told([event(K.EPOCH_BUMPED, "new"), event(K.MEMBER_JOINED, "new")])
    clock.now += 400
    found.told([event(K.EPOCH_BUMPED, "new")])
    clock.now += 400
    found.settled("new")
    found.settled("new")
    (left, changed) = (found.durations()[cause] for cause in ("left", "subscription_changed"))
    assert (left.total, sum(left.counts)) == (2.0, 1)
    assert (changed.total, sum(changed.counts)) == (0.8, 1), "from the first of the two"


def test_a_group_that_is_removed_is_forgotten() -> None:
    found, _ = counts()
    found.told([event(K.MEMBER_JOINED), event(K.EPOCH_BUMPED)])
    found.told([event(K.GROUP_REMOVED)])
    assert (found.by_group(), found.unsettled) == ({}, {})


def test_groups_without_end_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUPS_MAX", 2)
    found, _ = counts()
    for number in range(5):
        found.told([event(K.MEMBER_JOINED, f"g{number}"), event(K.EPOCH_BUMPED, f"g{number}")])
    assert found.by_group() == {
        ("g0", "joined"): 1,
        ("g1", "joined"): 1,
        (OTHERS, "joined"): 3,
    }
    assert found.unsettled.keys() == {"g0", "g1"}
