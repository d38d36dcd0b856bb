"""Claims of several generations, changed subscriptions, deleted topics: more of what Apache Kafka's
AbstractStickyAssignorTest expects of both sticky assignors.
"""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from shoal.assign import ClusterMetadata
from shoal.assign.sticky import CooperativeStickyAssignor
from tests.assign.groups import RackUse, expected, tps
from tests.assign.sticky_groups import (
    Sticky,
    both,
    checked,
    every_rack_use,
    member,
    new,
    rounds,
    run,
    settled,
)


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
