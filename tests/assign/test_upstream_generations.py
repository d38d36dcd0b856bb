"""Sticky, cooperative and shared assignor tests of Apache Kafka about generations, in our words."""

from __future__ import annotations

from random import Random

import pytest

from shoal.assign import Assignment, ClusterMetadata, Subscription
from shoal.assign.claims import claim_in_subscription, claim_in_user_data
from shoal.assign.problem import racks_matter, state
from shoal.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from shoal.assign.user_data import encode_generation, encode_sticky
from shoal.types import ConsumerGroupMetadata, TopicPartition
from tests.assign.groups import Owned, RackUse, cluster, expected, lists, tps
from tests.assign.sticky_groups import every_rack_use, member, run, settled

equal_or_not = pytest.mark.parametrize("equal", [True, False], ids=["equal", "unequal"])


def text(partitions: list[TopicPartition]) -> str:
    return " ".join(map(str, partitions))


def sizes(result: Owned) -> list[int]:
    return sorted(len(held) for held in result.values())


@every_rack_use
@pytest.mark.parametrize("make", [StickyAssignor, CooperativeStickyAssignor])
def test_a_partition_claimed_twice_in_one_generation_is_invalidated(
    make: type[StickyAssignor], racks: RackUse
) -> None:
    group = {
        "consumer1": member("topic", "topic-0,1"),
        "consumer2": member("topic", "topic-0,2"),
        "consumer3": member("topic"),
    }
    # The cooperative assignor hands it out in the next round only.
    third = "topic-0" if make is StickyAssignor else ""
    assert run(make, racks, {"topic": 3}, **group) == expected(
        consumer1="topic-1", consumer2="topic-2", consumer3=third
    )
    assert run(make, racks, {"topic": 4}, **group) == expected(
        consumer1="topic-1,3", consumer2="topic-2", consumer3=third
    )
    assert sizes(settled(make, racks, {"topic": 4}, **group)) == [1, 1, 2]


@every_rack_use
@equal_or_not
def test_members_of_several_generations_leave_and_return(racks: RackUse, equal: bool) -> None:
    topics = {"topic": 6, "topic2": 6}
    every = "topic topic2"
    second = every if equal else "topic"
    first = settled(
        StickyAssignor,
        racks,
        topics,
        consumer1=Subscription(tuple(every.split())),
        consumer2=Subscription(tuple(second.split())),
        consumer3=Subscription(tuple(every.split())),
    )
    assert sizes(first) == [4, 4, 4]
    without_third = settled(
        StickyAssignor,
        racks,
        topics,
        consumer1=member(every, text(first["consumer1"])),
        consumer2=member(second, text(first["consumer2"])),
    )
    assert sizes(without_third) == [6, 6]
    assert set(first["consumer2"]) <= set(without_third["consumer2"])
    assert not set(without_third["consumer2"]).isdisjoint(first["consumer3"])
    returned = settled(
        StickyAssignor,
        racks,
        topics,
        consumer2=member(second, text(without_third["consumer2"]), generation=2),
        consumer3=member(every, text(first["consumer3"]), generation=1),
    )
    assert sizes(returned) == [6, 6]


@every_rack_use
@equal_or_not
def test_two_members_return_with_an_older_generation(racks: RackUse, equal: bool) -> None:
    topics = {"topic": 4, "topic2": 4, "topic3": 4}
    every = "topic topic2 topic3"
    wanted = {
        "consumer1": every if equal else "topic",
        "consumer2": every,
        "consumer3": every if equal else "topic topic2",
    }
    new = {name: Subscription(tuple(listed.split())) for name, listed in wanted.items()}
    first = settled(StickyAssignor, racks, topics, **new)
    assert sizes(first) == [4, 4, 4]
    alone = settled(
        StickyAssignor, racks, topics, consumer2=member(every, text(first["consumer2"]))
    )
    assert set(first["consumer2"]) <= set(alone["consumer2"])
    assert sizes(alone) == [12]
    held = {**first, "consumer2": alone["consumer2"]}
    back = {
        name: member(listed, text(held[name]), generation=2 if name == "consumer2" else 1)
        for name, listed in wanted.items()
    }
    assert sizes(settled(StickyAssignor, racks, topics, **back)) == [4, 4, 4]


@every_rack_use
@equal_or_not
def test_conflicting_claims_of_an_older_generation_lose(racks: RackUse, equal: bool) -> None:
    every = "topic topic2 topic3"
    second = "topic-0,1 topic2-0,1,2,3"
    third = "topic-2,3 topic3-0,1,2,3"
    group = {
        "consumer1": member(
            every if equal else "topic",
            "topic-0,1,2 topic2-2,3 topic3-0" if equal else "topic-0,1,2,3",
            generation=1,
        ),
        "consumer2": member(every if equal else "topic topic2", second, generation=2),
        "consumer3": member(every, third, generation=2),
    }
    result = settled(StickyAssignor, racks, {"topic": 4, "topic2": 4, "topic3": 4}, **group)
    assert sizes(result) == [4, 4, 4]
    assert set(result["consumer2"]) <= set(tps(second))
    assert set(result["consumer3"]) <= set(tps(third))


@every_rack_use
def test_user_data_of_version_zero_is_understood(racks: RackUse) -> None:
    old = encode_sticky(tps("topic-1"), 1)[:-4]
    group = {
        "consumer1": member("topic", "topic-0,2"),
        "consumer2": Subscription(("topic",), old),
        "consumer3": Subscription(("topic",)),
    }
    result = settled(StickyAssignor, racks, {"topic": 3}, **group)
    assert sizes(result) == [1, 1, 1]
    assert set(result["consumer1"]) <= set(tps("topic-0,2"))
    assert result["consumer2"] == tps("topic-1")


def test_sticky_trusts_user_data_over_the_subscription() -> None:
    remembering = StickyAssignor()
    metadata = ConsumerGroupMetadata("g", 10, "consumer1")
    remembering.on_assignment(Assignment(tps("topic-1")), metadata)
    data = remembering.subscription_user_data(["topic"])
    inconsistent = Subscription(("topic",), data, tuple(tps("topic-0")))
    claim = claim_in_user_data(inconsistent)
    assert (claim.groups, claim.generation) == ([("topic", (1,))], 10)
    older = Subscription(("topic",), encode_sticky(tps("topic1-0 topic2-1"), 9), (), None, 10)
    claim = claim_in_user_data(older)
    assert (claim.groups, claim.generation) == ([("topic1", (0,)), ("topic2", (1,))], 9)


def test_sticky_with_subscriptions_of_old_versions() -> None:
    group = {
        "consumer1": member("topic1", "topic1-0", version=0),
        "consumer2": member("topic1", "topic1-1", version=1),
        "consumer3": member("topic1", version=2),
    }
    result = settled(StickyAssignor, RackUse.NO_BROKER_RACK, {"topic1": 3}, **group)
    assert result == expected(consumer1="topic1-0", consumer2="topic1-1", consumer3="topic1-2")


def test_cooperative_with_subscriptions_of_old_versions() -> None:
    group = {
        "consumer1": member("topic1", "topic1-0", version=1),
        "consumer2": member("topic1", "topic1-1", version=1),
        "consumer3": member("topic1", version=2),
    }
    result = settled(CooperativeStickyAssignor, RackUse.NO_BROKER_RACK, {"topic1": 3}, **group)
    assert result == expected(consumer1="topic1-0", consumer2="topic1-1", consumer3="topic1-2")


def test_cooperative_sends_its_generation() -> None:
    assignor = CooperativeStickyAssignor()
    first = Subscription(("topic",), assignor.subscription_user_data(["topic"]))
    assert claim_in_subscription(first).generation == -1
    assignor.on_assignment(Assignment(), ConsumerGroupMetadata("g", 10, "m"))
    later = Subscription(("topic",), assignor.subscription_user_data(["topic"]))
    assert claim_in_subscription(later).generation == 10


def test_cooperative_without_user_data_has_no_generation() -> None:
    assert claim_in_subscription(Subscription(("topic",))).generation is None


def test_cooperative_takes_partitions_from_the_subscription() -> None:
    data = encode_generation(10)
    claim = claim_in_subscription(Subscription(("topic",), data, tuple(tps("topic-0"))))
    assert (list(claim.partitions), claim.generation) == (tps("topic-0"), 10)


@pytest.mark.parametrize("in_user_data", [10, 9], ids=["equal", "lower"])
def test_cooperative_takes_the_generation_of_the_subscription_if_there_is_one(
    in_user_data: int,
) -> None:
    given = Subscription(("topic",), encode_generation(in_user_data), (), None, 10)
    claim = claim_in_subscription(given)
    assert (list(claim.partitions), claim.generation) == ([], 10)


def test_cooperative_withholds_what_is_far_from_its_owner() -> None:
    metadata = cluster({"topic1": 4}, 1, ("a", "b"))
    group = {
        "c0": Subscription(("topic1",), None, tuple(tps("topic1-0,1")), None, 1, "a"),
        "c1": Subscription(("topic1",), None, tuple(tps("topic1-2,3")), None, 1, "b"),
    }
    result = lists(CooperativeStickyAssignor().assign(metadata, group))
    # Two of four change hands.
    assert result == {"c0": tps("topic1-0"), "c1": tps("topic1-3")}


def order(**instances: str | None) -> list[str]:
    """Member ids in member order."""
    group = {
        name: Subscription(("t",), group_instance_id=instance)
        for name, instance in instances.items()
    }
    problem = state(ClusterMetadata({"t": 1}), group)
    return [problem.member_ids[index] for index in problem.in_member_order()]


def test_members_without_instance_are_ordered_by_id() -> None:
    assert order(b=None, a=None, c=None) == ["a", "b", "c"]


def test_members_with_instance_are_ordered_by_it() -> None:
    assert order(a="z", b="y", c="x") == ["c", "b", "a"]


def test_members_with_instance_come_first() -> None:
    assert order(a=None, b="y", c=None, d="x") == ["d", "b", "a", "c"]


def test_a_hundred_members_with_and_without_instance() -> None:
    random = Random(3)
    ids = random.sample(range(1000), 100)
    instances = {f"m{n:03d}": f"i{n:03d}" if random.random() < 0.5 else None for n in ids}
    found = order(**instances)
    static = sorted(name for name, instance in instances.items() if instance)
    assert found == static + sorted(name for name, instance in instances.items() if not instance)


def test_when_racks_matter() -> None:
    a, b, ab = frozenset("a"), frozenset("b"), frozenset("ab")
    nowhere: frozenset[str] = frozenset()
    assert not racks_matter(set(), [])
    assert not racks_matter({"a"}, [nowhere, nowhere])
    assert not racks_matter({"c"}, [a, b])
    assert not racks_matter({"a"}, [a, a])
    assert not racks_matter({"a", "b"}, [ab, ab])
    assert racks_matter({"a"}, [a, b])
    assert racks_matter({"a", "c"}, [a, ab])
    assert racks_matter({"a"}, [a, nowhere])
