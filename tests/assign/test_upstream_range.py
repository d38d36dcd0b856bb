"""What Apache Kafka's RangeAssignorTest and RoundRobinAssignorTest expect, in our words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shoal.assign import Assignor, ClusterMetadata, Subscription
from shoal.assign.range import RangeAssignor
from shoal.assign.roundrobin import RoundRobinAssignor
from tests.assign.groups import (
    RACKS,
    RackUse,
    assigned,
    cluster,
    expected,
    far_reads,
    lists,
    member,
    tps,
)

every_rack_use = pytest.mark.parametrize("racks", RackUse, ids=lambda use: use.value)
both = pytest.mark.parametrize(
    "assignor", [RangeAssignor(), RoundRobinAssignor()], ids=["range", "roundrobin"]
)


def run(
    assignor: Assignor, racks: RackUse, topics: Mapping[str, int], **members: Subscription
) -> dict[str, list[Any]]:
    result = lists(assignor.assign(racks.metadata(topics), racks.group(**members)))
    # Kafka compares these as sets.
    return {name: sorted(held) for name, held in result.items()}


@both
@every_rack_use
def test_one_consumer_no_topic(assignor: Assignor, racks: RackUse) -> None:
    assert run(assignor, racks, {}, c1=member("")) == expected(c1="")


@both
@every_rack_use
def test_one_consumer_nonexistent_topic(assignor: Assignor, racks: RackUse) -> None:
    assert run(assignor, racks, {}, c1=member("t1")) == expected(c1="")
    assert run(assignor, racks, {"t1": 0}, c1=member("t1")) == expected(c1="")


@both
@every_rack_use
def test_one_consumer_one_topic(assignor: Assignor, racks: RackUse) -> None:
    assert run(assignor, racks, {"t1": 3}, c1=member("t1")) == expected(c1="t1-0,1,2")


@both
@every_rack_use
def test_only_assigns_partitions_from_subscribed_topics(assignor: Assignor, racks: RackUse) -> None:
    assert run(assignor, racks, {"t1": 3, "other": 3}, c1=member("t1")) == expected(c1="t1-0,1,2")


@both
@every_rack_use
def test_one_consumer_multiple_topics(assignor: Assignor, racks: RackUse) -> None:
    result = run(assignor, racks, {"t1": 1, "t2": 2}, c1=member("t1 t2"))
    assert result == expected(c1="t1-0 t2-0,1")


@both
@every_rack_use
def test_two_consumers_one_topic_one_partition(assignor: Assignor, racks: RackUse) -> None:
    result = run(assignor, racks, {"t1": 1}, c1=member("t1"), c2=member("t1"))
    assert result == expected(c1="t1-0", c2="")


@both
@every_rack_use
def test_two_consumers_one_topic_two_partitions(assignor: Assignor, racks: RackUse) -> None:
    result = run(assignor, racks, {"t1": 2}, c1=member("t1"), c2=member("t1"))
    assert result == expected(c1="t1-0", c2="t1-1")


@both
@every_rack_use
def test_multiple_consumers_mixed_topics(assignor: Assignor, racks: RackUse) -> None:
    group = {"c1": member("t1"), "c2": member("t1 t2"), "c3": member("t1")}
    result = run(assignor, racks, {"t1": 3, "t2": 2}, **group)
    assert result == expected(c1="t1-0", c2="t1-1 t2-0,1", c3="t1-2")


@every_rack_use
def test_range_two_consumers_two_topics_six_partitions(racks: RackUse) -> None:
    group = {"c1": member("t1 t2"), "c2": member("t1 t2")}
    result = run(RangeAssignor(), racks, {"t1": 3, "t2": 3}, **group)
    assert result == expected(c1="t1-0,1 t2-0,1", c2="t1-2 t2-2")


def test_round_robin_two_dynamic_consumers_two_topics_six_partitions() -> None:
    group = {"c1": member("t1 t2"), "c2": member("t1 t2")}
    result = assigned(RoundRobinAssignor(), {"t1": 3, "t2": 3}, group)
    assert result == expected(c1="t1-0,2 t2-1", c2="t1-1 t2-0,2")


PIECES = {
    "range": ("t1-0,1 t2-0,1", "t1-2 t2-2"),
    "roundrobin": ("t1-0,2 t2-1", "t1-1 t2-0,2"),
}


@both
@every_rack_use
def test_two_static_consumers_are_ordered_by_instance(assignor: Assignor, racks: RackUse) -> None:
    first, second = PIECES[assignor.name]
    group = {
        "consumer-b": member("t1 t2", instance="instance1"),
        "consumer-a": member("t1 t2", instance="instance2"),
    }
    result = lists(assignor.assign(racks.metadata({"t1": 3, "t2": 3}), racks.group(**group)))
    assert {name: sorted(held) for name, held in result.items()} == {
        "consumer-b": tps(first),
        "consumer-a": tps(second),
    }


@both
@every_rack_use
def test_a_static_consumer_comes_before_a_dynamic_one(assignor: Assignor, racks: RackUse) -> None:
    first, second = PIECES[assignor.name]
    group = {"consumer-b": member("t1 t2", instance="instance1"), "consumer-a": member("t1 t2")}
    result = lists(assignor.assign(racks.metadata({"t1": 3, "t2": 3}), racks.group(**group)))
    assert {name: sorted(held) for name, held in result.items()} == {
        "consumer-b": tps(first),
        "consumer-a": tps(second),
    }


@both
@every_rack_use
def test_static_assignment_stays_when_a_dynamic_member_is_replaced(
    assignor: Assignor, racks: RackUse
) -> None:
    static = {f"c{n}": member("t1 t2", instance=f"instance{n}") for n in (1, 2, 3)}
    counts = {"t1": 5, "t2": 4} if assignor.name == "range" else {"t1": 3, "t2": 3}
    pieces = {
        "range": ("t1-0,1 t2-0", "t1-2 t2-1", "t1-3 t2-2", "t1-4 t2-3"),
        "roundrobin": ("t1-0 t2-1", "t1-1 t2-2", "t1-2", "t2-0"),
    }[assignor.name]
    with_c4 = run(assignor, racks, counts, **static, c4=member("t1 t2"))
    with_c5 = run(assignor, racks, counts, **static, c5=member("t1 t2"))
    for name, piece in zip(static, pieces[:3], strict=True):
        assert with_c4[name] == with_c5[name] == tps(piece)
    assert with_c4["c4"] == with_c5["c5"] == tps(pieces[3])


@both
@every_rack_use
def test_static_assignment_stays_when_member_ids_change(assignor: Assignor, racks: RackUse) -> None:
    pieces = {
        "range": ("t1-0,1 t2-0,1", "t1-2,3 t2-2,3", "t1-4 t2-4"),
        "roundrobin": ("t1-0,3 t2-1,4", "t1-1,4 t2-2", "t1-2 t2-0,3"),
    }[assignor.name]
    for ids in (("c1", "c2", "c3"), ("c1", "c5", "c4")):
        group = {
            name: member("t1 t2", instance=f"instance{n}") for n, name in enumerate(ids, start=1)
        }
        result = run(assignor, racks, {"t1": 5, "t2": 5}, **group)
        assert [result[name] for name in ids] == [tps(piece) for piece in pieces]


def test_rack_aware_static_assignment_stays_when_member_ids_change() -> None:
    # Both topics start on the first broker.
    placed = cluster({"t1": 5}, 2, RACKS[:3]).racks["t1"]
    metadata = ClusterMetadata({"t1": 5, "t2": 5}, {"t1": placed, "t2": placed})
    for ids in (("c1", "c2", "c3"), ("c1", "c5", "c4")):
        group = {
            name: member("t1 t2", instance=f"instance{n}", rack=RACKS[n])
            for n, name in enumerate(ids)
        }
        result = lists(RangeAssignor().assign(metadata, group))
        assert [result[name] for name in ids] == [
            tps("t1-0,2 t2-0,2"),
            tps("t1-1,3 t2-1,3"),
            tps("t1-4 t2-4"),
        ]


def rack_aware(
    topics: Mapping[str, int],
    replication: int,
    broker_racks: Sequence[str | None],
    consumer_racks: Sequence[str | None],
    wanted: Sequence[str],
) -> tuple[list[str], int]:
    """The assignment in order of members, and how many partitions are read across racks."""
    metadata = cluster(topics, replication, broker_racks)
    group = {
        f"consumer{n}": member(names, rack=rack)
        for n, (names, rack) in enumerate(zip(wanted, consumer_racks, strict=True))
    }
    result = lists(RangeAssignor().assign(metadata, group))
    shown = [" ".join(map(str, sorted(result[name]))) for name in group]
    return shown, far_reads(metadata, group, result)


def shown(*pieces: str) -> list[str]:
    return [" ".join(map(str, tps(piece))) for piece in pieces]


THREE = RACKS[:3]
NONE = (None, None, None)
UNEVEN = {"t1": 6, "t2": 7, "t3": 2}
EVEN = {"t1": 5, "t2": 5, "t3": 5}
ALL = ["t1 t2 t3"] * 3
LAST_WANTS_LESS = ["t1 t2 t3", "t1 t2 t3", "t1 t3"]

RACK_CASES: list[
    tuple[Mapping[str, int], list[str], list[str], dict[str, tuple[list[str], int]]]
] = [
    (
        UNEVEN,
        ALL,
        shown("t1-0,1 t2-0,1,2 t3-0", "t1-2,3 t2-3,4 t3-1", "t1-4,5 t2-5,6"),
        {
            "rf1": (shown("t1-0,3 t2-0,3,6", "t1-1,4 t2-1,4 t3-0", "t1-2,5 t2-2,5 t3-1"), 0),
            "rf2": (shown("t1-0,2 t2-0,2,3 t3-1", "t1-1,3 t2-1,4 t3-0", "t1-4,5 t2-5,6"), 1),
            "far": (shown("t1-0,1 t2-0,1,2 t3-0", "t1-2,3 t2-3,4 t3-1", "t1-4,5 t2-5,6"), 4),
        },
    ),
    (
        UNEVEN,
        LAST_WANTS_LESS,
        shown("t1-0,1 t2-0,1,2,3 t3-0", "t1-2,3 t2-4,5,6 t3-1", "t1-4,5"),
        {
            "rf1": (shown("t1-0,3 t2-0,2,3,6", "t1-1,4 t2-1,4,5 t3-0", "t1-2,5 t3-1"), 2),
            "rf2": (shown("t1-0,2 t2-0,2,3,5 t3-1", "t1-1,3 t2-1,4,6 t3-0", "t1-4,5"), 0),
            "far": (shown("t1-0,1 t2-0,1,2,3 t3-0", "t1-2,3 t2-4,5,6 t3-1", "t1-4,5"), 2),
        },
    ),
    (
        EVEN,
        ALL,
        shown("t1-0,1 t2-0,1 t3-0,1", "t1-2,3 t2-2,3 t3-2,3", "t1-4 t2-4 t3-4"),
        {
            "rf1": (shown("t1-0,1 t2-0,1 t3-0,1", "t1-2,3 t2-2,3 t3-2,3", "t1-4 t2-4 t3-4"), 10),
            "rf2": (shown("t1-0,1 t2-0,1 t3-0,1", "t1-2,3 t2-2,3 t3-2,3", "t1-4 t2-4 t3-4"), 5),
            "far": (shown("t1-0,1 t2-0,1 t3-0,1", "t1-2,3 t2-2,3 t3-2,3", "t1-4 t2-4 t3-4"), 3),
        },
    ),
    (
        EVEN,
        LAST_WANTS_LESS,
        shown("t1-0,1 t2-0,1,2 t3-0,1", "t1-2,3 t2-3,4 t3-2,3", "t1-4 t3-4"),
        {
            "rf1": (shown("t1-0,1 t2-0,1,4 t3-0,1", "t1-2,3 t2-2,3 t3-2,3", "t1-4 t3-4"), 9),
            "rf2": (shown("t1-2 t2-0,1,3 t3-2", "t1-0,3 t2-2,4 t3-0,3", "t1-1,4 t3-1,4"), 0),
            "far": (shown("t1-0,1 t2-0,1,2 t3-0,1", "t1-2,3 t2-3,4 t3-2,3", "t1-4 t3-4"), 2),
        },
    ),
]
CASE_NAMES = [
    "uniform subscription",
    "non-equal subscription",
    "uniform partitions",
    "uniform partitions, non-equal subscription",
]


@pytest.mark.parametrize(("topics", "wanted", "plain", "by_rack"), RACK_CASES, ids=CASE_NAMES)
def test_rack_aware_assignment(
    topics: Mapping[str, int],
    wanted: list[str],
    plain: list[str],
    by_rack: dict[str, tuple[list[str], int]],
) -> None:
    # Racks unknown on one side, in common nowhere, or everywhere: not looked at.
    assert rack_aware(topics, 3, NONE, THREE, wanted)[0] == plain
    assert rack_aware(topics, 3, THREE, NONE, wanted)[0] == plain
    assert rack_aware(topics, 3, THREE, THREE, wanted) == (plain, 0)
    assert rack_aware(topics, 4, RACKS[:4], THREE, wanted) == (plain, 0)
    assert rack_aware(topics, 3, THREE, RACKS[3:6], wanted)[0] == plain
    assert rack_aware(topics, 3, THREE, (None, "e", "f"), wanted)[0] == plain
    # Racks with a part of the partitions each.
    assert rack_aware(topics, 1, THREE, THREE, wanted) == by_rack["rf1"]
    assert rack_aware(topics, 2, THREE, THREE, wanted) == by_rack["rf2"]
    # One consumer in a rack without any.
    assert rack_aware(topics, 3, RACKS[:2], THREE, wanted) == by_rack["far"]


def test_rack_aware_assignment_with_co_partitioning() -> None:
    topics = {"t1": 6, "t2": 6, "t3": 2, "t4": 2}
    racks = ("a", "b", "b", "a")
    pairs = ["t1 t2", "t1 t2", "t3 t4", "t3 t4"]
    plain = shown("t1-0,1,2 t2-0,1,2", "t1-3,4,5 t2-3,4,5", "t3-0 t4-0", "t3-1 t4-1")
    assert rack_aware(topics, 3, RACKS[:2], racks, pairs)[0] == plain
    assert rack_aware(topics, 2, RACKS[:2], racks, pairs) == (plain, 0)
    assert rack_aware(topics, 1, RACKS[:2], racks, pairs) == (
        shown("t1-0,2,4 t2-0,2,4", "t1-1,3,5 t2-1,3,5", "t3-1 t4-1", "t3-0 t4-0"),
        0,
    )
    everything = ["t1 t2 t3 t4"] * 4
    plain = shown("t1-0,1 t2-0,1 t3-0 t4-0", "t1-2,3 t2-2,3 t3-1 t4-1", "t1-4 t2-4", "t1-5 t2-5")
    assert rack_aware(topics, 3, RACKS[:2], racks, everything)[0] == plain
    assert rack_aware(topics, 2, RACKS[:2], racks, everything) == (plain, 0)
    assert rack_aware(topics, 1, RACKS[:2], racks, everything) == (
        shown("t1-0,2 t2-0,2 t3-0 t4-0", "t1-1,3 t2-1,3 t3-1 t4-1", "t1-5 t2-5", "t1-4 t2-4"),
        0,
    )
    assert rack_aware(topics, 1, THREE, racks, everything) == (
        shown("t1-0,3 t2-0,3 t3-0 t4-0", "t1-1,4 t2-1,4 t3-1 t4-1", "t1-2 t2-2", "t1-5 t2-5"),
        6,
    )


def test_co_partitioned_assignment_with_same_subscription() -> None:
    topics = {"t1": 6, "t2": 6, "t3": 2, "t4": 2, "t5": 4, "t6": 4}
    wanted = [" ".join(f"t{n}" for n in range(1, 10))] * 3  # three of them do not exist
    plain = shown(
        "t1-0,1 t2-0,1 t3-0 t4-0 t5-0,1 t6-0,1",
        "t1-2,3 t2-2,3 t3-1 t4-1 t5-2 t6-2",
        "t1-4,5 t2-4,5 t5-3 t6-3",
    )
    assert rack_aware(topics, 3, NONE, THREE, wanted)[0] == plain
    assert rack_aware(topics, 3, THREE, THREE, wanted) == (plain, 0)
    assert rack_aware(topics, 2, THREE, THREE, wanted) == (
        shown(
            "t1-0,2 t2-0,2 t3-0 t4-0 t5-1 t6-1",
            "t1-1,3 t2-1,3 t3-1 t4-1 t5-2 t6-2",
            "t1-4,5 t2-4,5 t5-0,3 t6-0,3",
        ),
        0,
    )
