"""Racks and large groups: the last of what Apache Kafka's AbstractStickyAssignorTest expects."""

from __future__ import annotations

import pytest

from shoal.assign import Assignor, ClusterMetadata, Subscription
from shoal.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from shoal.assign.user_data import encode_generation, encode_sticky
from tests.assign.groups import RACKS, Rounds, cluster, far_reads, lists, tps
from tests.assign.sticky_groups import Sticky, both, fit, member, new


def rack_aware(
    make: Sticky,
    replication: int,
    wanted: list[str],
    owned: list[str] | None = None,
    racks: tuple[str | None, ...] = RACKS[:3],
) -> tuple[list[set[object]], int]:
    """One round; the result in member order and how many partitions are read across racks."""
    metadata = cluster({"t1": 6, "t2": 7, "t3": 2}, replication, RACKS[:3])
    group = {}
    for number, topics in enumerate(wanted):
        one = fit(make, member(topics, owned[number])) if owned else new(topics)
        group[f"consumer{number}"] = Subscription(
            one.topics, one.user_data, one.owned_partitions, None, one.generation_id, racks[number]
        )
    result = lists(make().assign(metadata, group))
    far = far_reads(metadata, group, result)
    return [set(result[name]) for name in group], far  # type: ignore[arg-type]  # a set of partitions is none of objects to mypy


def sets(*pieces: str) -> list[set[object]]:
    return [set(tps(piece)) for piece in pieces]


EVERYTHING = ["t1 t2 t3"] * 3


@both
def test_rack_aware_assignment_with_uniform_subscription(make: Sticky) -> None:
    best = sets("t1-0,3 t2-0,3,6", "t1-1,4 t2-1,4 t3-0", "t1-2,5 t2-2,5 t3-1")
    assert rack_aware(make, 1, EVERYTHING) == (best, 0)
    assert rack_aware(make, 2, EVERYTHING) == (best, 0)
    assert rack_aware(make, 3, EVERYTHING) == (best, 0)
    assert rack_aware(make, 3, EVERYTHING, racks=(None, None, None))[0] == best
    # From an assignment that is not aligned: at once, or after what is far was given up.
    far = ["t1-0,1 t2-0,1 t3-0", "t1-2,3 t2-2,3,4", "t1-4,5 t2-5,6 t3-1"]
    result, _ = rack_aware(make, 1, EVERYTHING, far)
    if make is CooperativeStickyAssignor:
        assert all(held <= set(tps(had)) for held, had in zip(result, far, strict=True))
        kept = [" ".join(map(str, held)) for held in result]
        result, _ = rack_aware(make, 1, EVERYTHING, kept)
    assert [len(held) for held in result] == [5, 5, 5]


@both
def test_rack_aware_assignment_with_non_equal_subscription(make: Sticky) -> None:
    wanted = ["t1 t2 t3", "t1 t2 t3", "t1 t3"]
    plain = sets("t1-5 t2-0,2,4,6", "t1-3 t2-1,3,5 t3-0", "t1-0,1,2,4 t3-1")
    assert rack_aware(make, 3, wanted) == (plain, 0)
    assert rack_aware(make, 3, wanted, racks=(None, None, None))[0] == plain
    by_rack = sets("t1-3 t2-0,2,3,6", "t1-4 t2-1,4,5 t3-0", "t1-0,1,2,5 t3-1")
    assert rack_aware(make, 1, wanted) == (by_rack, 4)
    by_rack = sets("t1-3 t2-0,2,5,6", "t1-0 t2-1,3,4 t3-0", "t1-1,2,4,5 t3-1")
    assert rack_aware(make, 2, wanted) == (by_rack, 0)


LARGE = {f"t{number:03d}": 2000 for number in range(500)}


@both
@pytest.mark.slow
def test_large_assignment_and_group_with_uniform_subscription(make: Sticky) -> None:
    large_group(make, None)


@both
@pytest.mark.slow
def test_large_assignment_and_group_with_non_equal_subscription(make: Sticky) -> None:
    large_group(make, ["t000"])


def large_group(make: Sticky, last_wants: list[str] | None) -> None:
    """A million partitions and two thousand members, twice; the second time with ownership."""
    metadata = ClusterMetadata(LARGE)
    everything = tuple(LARGE)
    names = [f"consumer{number:04d}" for number in range(2000)]
    topics = dict.fromkeys(names, everything)
    if last_wants is not None:
        topics[names[-1]] = tuple(last_wants)
    assignors = {name: make() for name in names}
    leader: Assignor = assignors[names[0]]
    first = leader.assign(metadata, {name: Subscription(topics[name]) for name in names})
    assert sum(len(one.partitions) for one in first.values()) == 1_000_000
    group = {}
    for name in names[1:]:
        held = first[name].partitions
        data = encode_sticky(held, 1) if make is StickyAssignor else encode_generation(1)
        group[name] = Subscription(topics[name], data, held, None, 1)
    group[names[0]] = Subscription(topics[names[0]])
    second = leader.assign(metadata, group)
    kept = sum(set(first[n].partitions) <= set(second[n].partitions) for n in names[1:50])
    assert kept >= 48


@both
@pytest.mark.slow
def test_two_classes_of_subscriptions_do_not_time_out(make: Sticky) -> None:
    topics = {f"t{number:02d}": 200 for number in range(100)}
    names = list(topics)
    group = Rounds(make, ClusterMetadata(topics))  # type: ignore[arg-type]  # both classes are callables that make assignors
    for number in range(500):
        group.join(f"c{number:03d}", names[:50] if number % 4 == 0 else names[50:])
    group.rebalance()
    again = group.rebalance()
    assert sum(len(held) for held in again.values()) == 20_000
    # And the case that takes Kafka minutes: a member with all topics replaces one that leaves.
    group.leave("c001")
    group.join("c500", names)
    result = group.rebalance()
    assert sum(len(held) for held in result.values()) == 20_000
    assert len(result["c500"]) >= 79
