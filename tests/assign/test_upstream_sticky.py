"""What Apache Kafka's AbstractStickyAssignorTest expects of both sticky assignors, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from random import Random

import pytest

from shoal.assign import Assignor, ClusterMetadata, Subscription
from shoal.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from shoal.assign.user_data import encode_generation, encode_sticky
from tests.assign.groups import (
    RACKS,
    Owned,
    RackUse,
    Rounds,
    assert_balanced,
    assert_valid,
    cluster,
    expected,
    far_reads,
    lists,
    tps,
)

GENERATION = 1

Sticky = type[StickyAssignor] | type[CooperativeStickyAssignor]
both = pytest.mark.parametrize(
    "make", [StickyAssignor, CooperativeStickyAssignor], ids=["sticky", "cooperative"]
)
every_rack_use = pytest.mark.parametrize("racks", RackUse, ids=lambda use: use.value)


def member(
    topics: str, owned: str = "", *, generation: int = GENERATION, version: int = 2
) -> Subscription:
    """A member that has been assigned before; what it sent depends on the protocol's version."""
    held = tuple(tps(owned))
    return Subscription(
        topics=tuple(topics.split()),
        user_data=encode_sticky(held, generation),
        owned_partitions=held if version >= 1 else (),
        generation_id=generation if version >= 2 else None,
    )


def new(topics: str) -> Subscription:
    """A member that joins for the first time."""
    return Subscription(tuple(topics.split()))


def run(make: Sticky, racks: RackUse, topics: Mapping[str, int], **group: Subscription) -> Owned:
    """One round."""
    given = racks.group(**{name: fit(make, one) for name, one in group.items()})
    return lists(make().assign(racks.metadata(topics), given))


def fit(make: Sticky, one: Subscription) -> Subscription:
    """The user data of the cooperative assignor is a generation only."""
    if make is StickyAssignor or one.user_data is None:
        return one
    generation = one.user_data[-4:]
    return Subscription(
        one.topics, generation, one.owned_partitions, one.group_instance_id, one.generation_id
    )


def settled(
    make: Sticky, racks: RackUse, topics: Mapping[str, int], **group: Subscription
) -> Owned:
    """Rounds until nothing is given up; checked for validity and balance."""
    result = run(make, racks, topics, **group)
    for _ in range(4):
        given_up = [
            tp
            for name, one in group.items()
            for tp in one.owned_partitions
            if tp not in result[name]
        ]
        if make is StickyAssignor or not given_up:
            break
        added = {
            tp
            for name, held in result.items()
            for tp in held
            if tp not in group[name].owned_partitions
        }
        assert not added.intersection(given_up), "given up and handed out in one round"
        group = {
            name: Subscription(one.topics, None, tuple(result[name]), None, GENERATION)
            for name, one in group.items()
        }
        result = run(make, racks, topics, **group)
    wanted = {name: one.topics for name, one in group.items()}
    assert_valid(ClusterMetadata(topics), wanted, result)
    assert_balanced(wanted, result)
    return result


def is_full(result: Owned) -> bool:
    """Counts differ by one at most."""
    counts = [len(held) for held in result.values()]
    return max(counts) - min(counts) <= 1


def rounds(make: Sticky, racks: RackUse, topics: Mapping[str, int]) -> Rounds:
    return Rounds(make, racks.metadata(topics))  # type: ignore[arg-type]


def checked(group: Rounds) -> Owned:
    result = group.rebalance()
    wanted = {name: topics for name, (_, topics) in group.members.items()}
    assert_valid(group.metadata, wanted, result)
    assert_balanced(wanted, result)
    return result


@both
@pytest.mark.parametrize("version", [0, 1, 2])
def test_member_data_is_read_from_every_protocol_version(make: Sticky, version: int) -> None:
    if make is CooperativeStickyAssignor and version == 0:
        return  # version 0 has no owned partitions
    group = {
        "consumer1": member("topic1 topic2", "topic1-0 topic2-1", generation=3, version=version),
        "consumer2": new("topic1 topic2"),
    }
    result = run(make, RackUse.NO_BROKER_RACK, {"topic1": 2, "topic2": 2}, **group)
    assert result["consumer1"] == tps("topic1-0 topic2-1")


@both
@every_rack_use
def test_one_consumer_no_topic(make: Sticky, racks: RackUse) -> None:
    assert settled(make, racks, {}, consumer1=new("")) == expected(consumer1="")


@both
@every_rack_use
def test_one_consumer_nonexistent_topic(make: Sticky, racks: RackUse) -> None:
    assert settled(make, racks, {"topic": 0}, consumer=new("topic")) == expected(consumer="")


@both
@every_rack_use
def test_one_consumer_one_topic(make: Sticky, racks: RackUse) -> None:
    result = settled(make, racks, {"topic": 3}, consumer=new("topic"))
    assert result == expected(consumer="topic-0,1,2")


@both
@every_rack_use
def test_only_assigns_partitions_from_subscribed_topics(make: Sticky, racks: RackUse) -> None:
    owned = "topic-0,1 other-0,1"
    result = run(make, racks, {"topic": 2}, consumer=member("topic", owned))
    assert result == expected(consumer="topic-0,1")


@both
@every_rack_use
def test_one_consumer_multiple_topics(make: Sticky, racks: RackUse) -> None:
    result = settled(make, racks, {"topic1": 1, "topic2": 2}, consumer=new("topic1 topic2"))
    assert result == expected(consumer="topic1-0 topic2-0,1")


@both
@every_rack_use
def test_two_consumers_one_topic_one_partition(make: Sticky, racks: RackUse) -> None:
    settled(make, racks, {"topic": 1}, consumer1=new("topic"), consumer2=new("topic"))


@both
@every_rack_use
def test_two_consumers_one_topic_two_partitions(make: Sticky, racks: RackUse) -> None:
    result = settled(make, racks, {"topic": 2}, consumer1=new("topic"), consumer2=new("topic"))
    assert result == expected(consumer1="topic-0", consumer2="topic-1")


@both
@every_rack_use
def test_multiple_consumers_mixed_topic_subscriptions(make: Sticky, racks: RackUse) -> None:
    group = {
        "consumer1": new("topic1"),
        "consumer2": new("topic1 topic2"),
        "consumer3": new("topic1"),
    }
    assert settled(make, racks, {"topic1": 3, "topic2": 2}, **group) == expected(
        consumer1="topic1-0,2", consumer2="topic2-0,1", consumer3="topic1-1"
    )


@both
@every_rack_use
def test_two_consumers_two_topics_six_partitions(make: Sticky, racks: RackUse) -> None:
    group = {"consumer1": new("topic1 topic2"), "consumer2": new("topic1 topic2")}
    assert settled(make, racks, {"topic1": 3, "topic2": 3}, **group) == expected(
        consumer1="topic1-0,2 topic2-1", consumer2="topic1-1 topic2-0,2"
    )


@both
@every_rack_use
def test_consumer_owning_min_quota_expected_max_quota(make: Sticky, racks: RackUse) -> None:
    group = {
        "consumer1": member("topic1 topic2", "topic1-0 topic2-1"),
        "consumer2": member("topic1 topic2", "topic1-1 topic2-2"),
    }
    assert settled(make, racks, {"topic1": 2, "topic2": 3}, **group) == expected(
        consumer1="topic1-0 topic2-1 topic2-0", consumer2="topic1-1 topic2-2"
    )


@both
@every_rack_use
def test_max_quota_consumers_more_than_expected(make: Sticky, racks: RackUse) -> None:
    # Who keeps two is decided by the order of a HashMap.
    group = {
        "consumer1": member("topic1 topic2", "topic1-0 topic2-0"),
        "consumer2": member("topic1 topic2", "topic1-1 topic2-1"),
        "consumer3": member("topic1 topic2"),
    }
    first = run(make, racks, {"topic1": 2, "topic2": 2}, **group)
    cooperative = make is CooperativeStickyAssignor
    assert first == expected(
        consumer1="topic1-0",
        consumer2="topic1-1 topic2-1",
        consumer3="" if cooperative else "topic2-0",
    )
    assert settled(make, racks, {"topic1": 2, "topic2": 2}, **group) == expected(
        consumer1="topic1-0", consumer2="topic1-1 topic2-1", consumer3="topic2-0"
    )


@both
@every_rack_use
def test_all_consumers_are_under_min_quota(make: Sticky, racks: RackUse) -> None:
    group = {
        "consumer1": member("topic1 topic2", "topic1-0"),
        "consumer2": member("topic1 topic2", "topic1-1"),
        "consumer3": member("topic1 topic2"),
    }
    assert settled(make, racks, {"topic1": 2, "topic2": 3}, **group) == expected(
        consumer1="topic1-0 topic2-1", consumer2="topic1-1 topic2-2", consumer3="topic2-0"
    )


@both
@every_rack_use
def test_add_remove_consumer_one_topic(make: Sticky, racks: RackUse) -> None:
    group = rounds(make, racks, {"topic": 3})
    group.join("consumer1", "topic", racks.rack(0))
    assert checked(group) == expected(consumer1="topic-0,1,2")
    group.join("consumer2", "topic", racks.rack(1))
    assert checked(group) == expected(consumer1="topic-0,1", consumer2="topic-2")
    group.leave("consumer1")
    assert set(checked(group)["consumer2"]) == set(tps("topic-0,1,2"))


@both
@every_rack_use
def test_topic_balance_after_reassignment(make: Sticky, racks: RackUse) -> None:
    # Not only the counts but every topic is spread evenly (KAFKA-16277).
    group = rounds(make, racks, {"topic1": 12, "topic2": 12})
    for members, share in ((1, 12), (2, 6), (4, 3), (2, 6)):
        for number in range(1, 5):
            if number <= members:
                group.join(f"consumer{number}", "topic1 topic2", racks.rack(number - 1))
            elif f"consumer{number}" in group.members:
                group.leave(f"consumer{number}")
        for held in checked(group).values():
            topics = [tp.topic for tp in held]
            assert topics.count("topic1") == topics.count("topic2") == share


@both
@every_rack_use
def test_add_remove_two_consumers_two_topics(make: Sticky, racks: RackUse) -> None:
    group = rounds(make, racks, {"topic1": 3, "topic2": 4})
    for number in (1, 2):
        group.join(f"consumer{number}", "topic1 topic2", racks.rack(number - 1))
    assert checked(group) == expected(
        consumer1="topic1-0,2 topic2-1,3", consumer2="topic1-1 topic2-0,2"
    )
    for number in (3, 4):
        group.join(f"consumer{number}", "topic1 topic2", racks.rack(number - 1))
    assert checked(group) == expected(
        consumer1="topic1-0 topic2-1",
        consumer2="topic2-0 topic1-1",
        consumer3="topic1-2 topic2-3",
        consumer4="topic2-2",
    )
    for number in (1, 2):
        group.leave(f"consumer{number}")
    assert checked(group) == expected(
        consumer3="topic1-2 topic2-3 topic1-0 topic2-1", consumer4="topic2-2 topic1-1 topic2-0"
    )


@both
@every_rack_use
def test_poor_round_robin_assignment_scenario(make: Sticky, racks: RackUse) -> None:
    topics = {"topic1": 2, "topic2": 1, "topic3": 2, "topic4": 1, "topic5": 2}
    everything = " ".join(topics)
    group = {
        "consumer1": new(everything),
        "consumer2": new("topic1 topic3 topic5"),
        "consumer3": new("topic1 topic3 topic5"),
        "consumer4": new(everything),
    }
    settled(make, racks, topics, **group)


@both
@every_rack_use
def test_add_remove_topic_two_consumers(make: Sticky, racks: RackUse) -> None:
    group = rounds(make, racks, {"topic": 3})
    for number in (1, 2):
        group.join(f"consumer{number}", "topic", racks.rack(number - 1))
    first = checked(group)
    assert is_full(first)
    group.metadata = racks.metadata({"topic": 3, "topic2": 3})
    for number in (1, 2):
        group.join(f"consumer{number}", "topic topic2", racks.rack(number - 1))
    second = checked(group)
    assert is_full(second)
    assert all(set(first[name]) <= set(second[name]) for name in first)
    group.metadata = racks.metadata({"topic2": 3})
    for number in (1, 2):
        group.join(f"consumer{number}", "topic2", racks.rack(number - 1))
    third = checked(group)
    assert is_full(third)
    assert all(set(third[name]) <= set(second[name]) for name in third)


@both
@every_rack_use
def test_reassignment_after_one_consumer_leaves(make: Sticky, racks: RackUse) -> None:
    topics = {f"t{number:02d}": number for number in range(1, 20)}
    group = rounds(make, racks, topics)
    for number in range(1, 20):
        wanted = [f"t{topic:02d}" for topic in range(1, number + 1)]
        group.join(f"c{number:02d}", wanted, racks.rack(number))
    before = checked(group)
    group.leave("c10")
    after = checked(group)
    # Nobody swaps: what leaves a member for another has no counterpart in the same topic.
    owner = {tp: name for name, held in before.items() for tp in held}
    moves = {
        (tp.topic, owner[tp], name)
        for name, held in after.items()
        for tp in held
        if owner[tp] not in (name, "c10")
    }
    assert not any((topic, b, a) in moves for topic, a, b in moves)


@both
@every_rack_use
def test_reassignment_after_one_consumer_added(make: Sticky, racks: RackUse) -> None:
    group = rounds(make, racks, {"topic": 20})
    for number in range(1, 10):
        group.join(f"c{number:02d}", "topic", racks.rack(number))
    checked(group)
    group.join("c10", "topic", racks.rack(10))
    checked(group)


@both
@every_rack_use
def test_same_subscriptions(make: Sticky, racks: RackUse) -> None:
    topics = {f"t{number:02d}": number for number in range(1, 15)}
    group = rounds(make, racks, topics)
    for number in range(1, 9):
        group.join(f"c{number:02d}", list(topics), racks.rack(number))
    before = checked(group)
    group.leave("c05")
    after = checked(group)
    # Nothing moves but what the leaver had.
    assert all(set(before[name]) <= set(after[name]) for name in after)


@both
def test_the_same_partition_claimed_in_three_generations(make: Sticky) -> None:
    owned = {"consumer1": "topic-0,2", "consumer2": "topic-1,2,3", "consumer3": "topic-2,4,5"}
    for generations in permutations((1, 2, 3)):
        group = {
            name: member("topic", held, generation=generation)
            for (name, held), generation in zip(owned.items(), generations, strict=True)
        }
        group["consumer4"] = member("topic1", "topic1-0", generation=2)
        result = run(make, RackUse.NO_BROKER_RACK, {"topic": 6, "topic1": 1}, **group)
        held = [tp for partitions in result.values() for tp in partitions]
        assert len(held) == len(set(held))
        assert result["consumer4"] == tps("topic1-0")
        assert all(1 <= len(partitions) <= 2 for partitions in result.values())


@both
@every_rack_use
def test_many_consumers_leave_a_group_with_random_subscriptions(
    make: Sticky, racks: RackUse
) -> None:
    random = Random(7)
    topics = {f"t{number:02d}": random.randint(1, 10) for number in range(40)}
    group = rounds(make, racks, topics)
    for number in range(200):
        wanted = random.choices(list(topics), k=random.randrange(20))
        group.join(f"c{number:03d}", list(dict.fromkeys(wanted)), racks.rack(number))
    checked(group)
    for number in random.sample(range(200), 50):
        group.leave(f"c{number:03d}")
    checked(group)


@both
@every_rack_use
def test_new_subscription(make: Sticky, racks: RackUse) -> None:
    topics = {f"t{number:02d}": 1 for number in range(1, 5)}
    names = list(topics)
    group = rounds(make, racks, topics)
    for number in range(3):
        wanted = [names[j] for j in range(number, 2 * number + 1) if j < len(names)]
        group.join(f"consumer{number}", wanted, racks.rack(number))
    checked(group)
    group.join("consumer0", ["t01", "t02"], racks.rack(0))
    checked(group)


@both
@every_rack_use
def test_move_existing_assignments(make: Sticky, racks: RackUse) -> None:
    topics = {f"topic{number}": 1 for number in range(1, 7)}
    group = {
        "consumer1": member("topic1 topic2", "topic1-0"),
        "consumer2": member("topic1 topic2 topic3 topic4", "topic2-0 topic3-0"),
        "consumer3": member("topic2 topic3 topic4 topic5 topic6", "topic4-0 topic5-0 topic6-0"),
    }
    settled(make, racks, topics, **group)


@both
@every_rack_use
def test_stickiness(make: Sticky, racks: RackUse) -> None:
    group = rounds(make, racks, {"topic1": 3})
    for number in range(1, 5):
        group.join(f"consumer{number}", "topic1", racks.rack(number - 1))
    before = checked(group)
    assert sorted(len(held) for held in before.values()) == [0, 1, 1, 1]
    group.leave("consumer1")
    after = checked(group)
    for name, held in after.items():
        assert len(held) == 1
        assert not before[name] or before[name] == held


@both
@every_rack_use
def test_assignment_updated_for_deleted_topic(make: Sticky, racks: RackUse) -> None:
    result = settled(
        make, racks, {"topic1": 1, "topic3": 100}, consumer=new("topic1 topic2 topic3")
    )
    assert len(result["consumer"]) == 101


@both
@every_rack_use
def test_no_exception_when_the_only_subscribed_topic_is_deleted(
    make: Sticky, racks: RackUse
) -> None:
    group = rounds(make, racks, {"topic": 3})
    group.join("consumer", "topic", racks.rack(0))
    checked(group)
    group.metadata = ClusterMetadata({})
    assert group.rebalance() == expected(consumer="")


@both
@every_rack_use
def test_reassignment_with_random_subscriptions_and_changes(make: Sticky, racks: RackUse) -> None:
    random = Random(11)
    for _ in range(8):
        topics = {f"t{number}": random.randint(1, 12) for number in range(random.randint(10, 19))}
        group = rounds(make, racks, topics)
        for _ in range(2):
            for number in range(random.randint(20, 39)):
                wanted = random.sample(list(topics), random.randint(1, len(topics)))
                group.join(f"c{number}", wanted, racks.rack(number))
            checked(group)


@both
@every_rack_use
def test_all_consumers_reach_expected_quota_and_are_considered_filled(
    make: Sticky, racks: RackUse
) -> None:
    group = {
        "consumer1": member("topic", "topic-0,1"),
        "consumer2": member("topic", "topic-2"),
        "consumer3": member("topic"),
    }
    assert settled(make, racks, {"topic": 4}, **group) == expected(
        consumer1="topic-0,1", consumer2="topic-2", consumer3="topic-3"
    )


@both
@every_rack_use
@pytest.mark.parametrize("stale", [9, -1])
def test_owned_partitions_of_a_stale_or_unknown_generation_are_invalidated(
    make: Sticky, racks: RackUse, stale: int
) -> None:
    group = {
        "consumer1": member("topic topic2", "topic-0,2 topic2-1", generation=10),
        "consumer2": member("topic topic2", "topic-0,2 topic2-1", generation=stale),
    }
    result = run(make, racks, {"topic": 3, "topic2": 3}, **group)
    assert set(result["consumer1"]) == set(tps("topic-0,2 topic2-1"))
    assert set(result["consumer2"]) == set(tps("topic-1 topic2-0,2"))


@both
@every_rack_use
def test_a_partition_claimed_twice_in_one_generation_changes_hands(
    make: Sticky, racks: RackUse
) -> None:
    group = {
        "consumer1": member("topic", "topic-0,1"),
        "consumer2": member("topic", "topic-0,2"),
        "consumer3": member("topic"),
    }
    cooperative = make is CooperativeStickyAssignor
    assert run(make, racks, {"topic": 3}, **group) == expected(
        consumer1="topic-1", consumer2="topic-2", consumer3="" if cooperative else "topic-0"
    )


@both
@every_rack_use
def test_partitions_go_to_the_highest_generation(make: Sticky, racks: RackUse) -> None:
    wanted = "topic topic2 topic3"
    group = {
        "consumer1": member(wanted, "topic-0 topic2-0 topic3-0", generation=10),
        "consumer2": member(wanted, "topic-1 topic2-1 topic3-1", generation=9),
        "consumer3": member(wanted, "topic2-1 topic3-0,2", generation=8),
    }
    result = run(make, racks, {"topic": 3, "topic2": 3, "topic3": 3}, **group)
    assert {name: set(held) for name, held in result.items()} == {
        "consumer1": set(tps("topic-0 topic2-0 topic3-0")),
        "consumer2": set(tps("topic-1 topic2-1 topic3-1")),
        "consumer3": set(tps("topic-2 topic2-2 topic3-2")),
    }


@both
@every_rack_use
def test_no_reassignment_on_current_members(make: Sticky, racks: RackUse) -> None:
    wanted = "topic topic1 topic2 topic3"
    group = {
        "consumer1": new(wanted),
        "consumer2": member(wanted, "topic-0 topic2-0 topic1-0", generation=9),
        "consumer3": member(wanted, "topic-1 topic2-2 topic3-1", generation=8),
        "consumer4": member(wanted, "topic1-1 topic3-0,2", generation=7),
    }
    result = run(make, racks, {"topic": 3, "topic1": 3, "topic2": 3, "topic3": 3}, **group)
    assert set(result["consumer1"]) == set(tps("topic-2 topic1-2 topic2-1"))
    for name in ("consumer2", "consumer3", "consumer4"):
        assert set(result[name]) == set(group[name].owned_partitions)


@both
@every_rack_use
def test_owned_partitions_of_several_generations(make: Sticky, racks: RackUse) -> None:
    group = {
        "consumer1": member("topic topic2", "topic-0,1 topic2-1", generation=10),
        "consumer2": member("topic topic2", "topic-0 topic2-1,2", generation=8),
    }
    result = run(make, racks, {"topic": 3, "topic2": 3}, **group)
    assert set(result["consumer1"]) == set(tps("topic-0,1 topic2-1"))
    assert set(result["consumer2"]) == set(tps("topic-2 topic2-0,2"))


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
    return [set(result[name]) for name in group], far  # type: ignore[arg-type]


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
    group = Rounds(make, ClusterMetadata(topics))  # type: ignore[arg-type]
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
