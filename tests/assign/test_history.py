"""Bugs that Apache Kafka had in its assignors, each as a test that would have found it.

The number in a name is that of the issue in Kafka's tracker. Of 16277 (whole topics stayed on one
member) and 18688 (the server's uniform assignor moved partitions of a balanced group) the tests
stand with those of the same assignor, in test_upstream_sticky.py and test_server.py.
"""

from __future__ import annotations

import time

import pytest

from shoal.assign import Assignor, ClusterMetadata, Subscription, load
from shoal.assign.loading import BUILT_IN, validate
from shoal.assign.model import Assignment
from shoal.assign.range import RangeAssignor
from shoal.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from shoal.assign.user_data import encode_sticky
from tests.assign.groups import (
    Rounds,
    assert_balanced,
    assert_valid,
    assigned,
    cluster,
    expected,
    lists,
    member,
    tps,
)

both_sticky = pytest.mark.parametrize("make", [StickyAssignor, CooperativeStickyAssignor])


def test_7026_two_members_with_the_same_memory_do_not_get_the_same_partition() -> None:
    """KIP-341: c1 was away, came back with what it had remembered, and both kept it."""
    group = {
        "c1": member("t", user_data=encode_sticky(tps("t-0,1,2"), 1)),
        "c2": member("t", user_data=encode_sticky(tps("t-0,1,2"), 2)),
    }
    result = assigned(StickyAssignor(), {"t": 3}, group)
    assert_valid(ClusterMetadata({"t": 3}), {"c1": ["t"], "c2": ["t"]}, result)
    assert set(result["c2"]) <= set(tps("t-0,1,2"))
    assert len(result["c2"]) == 2, "the younger memory counts"


def test_5277_nothing_is_remembered_from_one_assignment_to_the_next() -> None:
    assignor = StickyAssignor()
    first = assigned(assignor, {"t": 4}, {"a": member("t"), "b": member("t")})
    again = assigned(assignor, {"t": 4}, {"b": member("t"), "a": member("t")})
    other = assigned(assignor, {"t": 4}, {"x": member("t"), "y": member("t")})
    assert first == again
    assert sorted(map(len, other.values())) == [2, 2]


@both_sticky
def test_12984_what_a_member_claims_from_an_older_generation_does_not_count(
    make: type[Assignor],
) -> None:
    """KAFKA-13419, 13715, KIP-792: endless cooperative rebalances, or an exception."""
    old = member("t", "t-0,1", generation=3)
    now = member("t", "t-0,1,2,3", generation=7)
    if make is StickyAssignor:
        old = member("t", user_data=encode_sticky(tps("t-0,1"), 3), generation=3)
        now = member("t", user_data=encode_sticky(tps("t-0,1,2,3"), 7), generation=7)
    result = assigned(make(), {"t": 4}, {"c1": old, "c2": now})
    assert set(result["c2"]) <= set(tps("t-0,1,2,3"))
    assert len(result["c2"]) == 2
    assert not set(result["c1"]) & set(result["c2"])


def test_13406_the_built_in_cooperative_assignor_is_not_held_to_what_others_are() -> None:
    """Both claim t-0 in the same generation: the rule for custom assignors would refuse that."""
    group = {
        "c1": member("t", "t-0,1", generation=5),
        "c2": member("t", "t-0,2", generation=5),
    }
    metadata = ClusterMetadata({"t": 4})
    (assignor,) = load(["cooperative-sticky"])
    result = validate(assignor, assignor.assign(metadata, group), metadata, group)
    held = [tp for one in result.values() for tp in one.partitions]
    assert len(set(held)) == len(held)


def test_14639_nothing_is_given_up_and_handed_out_in_one_cooperative_round() -> None:
    """Members of different generations: the one that lost t-1 was still told to revoke it."""
    group = {
        "c1": member("t u", "t-0 u-0", generation=9),
        "c2": member("t u", "t-1 u-1", generation=8),
        "c3": member("t u", "t-1 u-2", generation=10),
        "c4": member("t u"),
    }
    result = assigned(CooperativeStickyAssignor(), {"t": 3, "u": 3}, group)
    owned = {name: set(one.owned_partitions) for name, one in group.items()}
    # Who claims an outdated partition has lost it already: only current claims are revoked.
    current = {"c1": owned["c1"], "c2": owned["c2"] - set(tps("t-1")), "c3": owned["c3"]}
    revoked = {tp for name, held in current.items() for tp in held - set(result[name])}
    added = {tp for name, held in result.items() for tp in set(held) - owned[name]}
    assert not revoked & added


@both_sticky
@pytest.mark.parametrize("members", [2, 3, 5])
def test_15106_a_group_one_step_from_balance_is_brought_there_and_no_further(
    make: type[Assignor], members: int
) -> None:
    """The check for balance was off by one, and the algorithm never stopped."""
    topics = {f"t{number}": 1 + number % 3 for number in range(7)}
    group = Rounds(make, ClusterMetadata(topics))
    for number in range(members):
        group.join(f"c{number}", list(topics)[number:])
    group.join("all", list(topics))
    result = group.rebalance()
    wanted = {name: listed for name, (_, listed) in group.members.items()}
    assert_valid(group.metadata, wanted, result)
    assert_balanced(wanted, result)
    again = group.rebalance()
    assert {name: set(held) for name, held in again.items()} == {
        name: set(held) for name, held in result.items()
    }


def test_15170_what_changes_hands_for_a_rack_waits_for_its_owner_too() -> None:
    metadata = cluster({"t": 4}, 1, ("a", "b"))
    group = {
        "c1": member("t", "t-0,1", generation=1, rack="a"),
        "c2": member("t", "t-2,3", generation=1, rack="b"),
    }
    first = lists(CooperativeStickyAssignor().assign(metadata, group))
    owned = {name: set(one.owned_partitions) for name, one in group.items()}
    added = {tp for name, held in first.items() for tp in set(held) - owned[name]}
    assert not added & set().union(*owned.values()), "still owned by somebody"


def test_14891_topics_that_belong_together_stay_together_where_only_some_have_racks() -> None:
    metadata = cluster({"t1": 4, "t2": 4, "t3": 4}, 1, ("a", "b"))
    group = {
        "c1": member("t1 t2 t3", rack="a"),
        "c2": member("t1 t2 t3", rack="b"),
        "c3": member("t3", rack="b"),
    }
    result = lists(RangeAssignor().assign(metadata, group))
    for held in result.values():
        numbers = {
            topic: sorted(tp.partition for tp in held if tp.topic == topic)
            for topic in ("t1", "t2")
        }
        assert numbers["t1"] == numbers["t2"]


@pytest.mark.slow
@both_sticky
def test_12464_a_large_group_is_assigned_in_no_time(make: type[Assignor]) -> None:
    """KAFKA-9987, 12675: minutes at 100,000 partitions, of one subscription and of several."""
    topics = {f"t{number}": 1000 for number in range(100)}
    every = tuple(topics)
    group = {f"c{number}": Subscription(every) for number in range(500)}
    for less in (False, True):
        if less:
            group["c0"] = Subscription(every[:1])
        began = time.process_time()
        result = make().assign(ClusterMetadata(topics), group)
        assert time.process_time() - began < 5
        assert sum(len(one.partitions) for one in result.values()) == 100_000


@pytest.mark.parametrize("name", BUILT_IN)
def test_3661_a_topic_that_is_gone_is_left_out(name: str) -> None:
    """KAFKA-7962: the metadata of a deleted topic was null, and the leader failed."""
    (assignor,) = load([name])
    group = {"c1": member("gone here", "gone-0 here-0", generation=1), "c2": member("gone")}
    assert assigned(assignor, {"here": 2}, group) == expected(c1="here-0,1", c2="")
    assert assigned(assignor, {"gone": 0}, group) == {"c1": [], "c2": []}


def test_a_custom_assignor_may_do_none_of_this_unnoticed() -> None:
    (assignor,) = load([lambda _, group: {name: tps("t-0") for name in group}])
    group = {"c1": member("t"), "c2": member("t")}
    metadata = ClusterMetadata({"t": 1})
    with pytest.raises(Exception, match="went to both"):
        validate(assignor, assignor.assign(metadata, group), metadata, group)
    assert isinstance(assignor.assign(metadata, group)["c1"], Assignment)
