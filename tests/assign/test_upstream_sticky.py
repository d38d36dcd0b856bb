"""What Apache Kafka's AbstractStickyAssignorTest expects of both sticky assignors, in our words."""

from __future__ import annotations

import pytest

from shoal.assign.sticky import CooperativeStickyAssignor
from tests.assign.groups import RackUse, expected, tps
from tests.assign.sticky_groups import (
    Sticky,
    both,
    checked,
    every_rack_use,
    is_full,
    member,
    new,
    rounds,
    run,
    settled,
)


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
