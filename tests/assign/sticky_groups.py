"""Groups of both sticky assignors as their tests write them down."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shoal.assign import ClusterMetadata, Subscription
from shoal.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from shoal.assign.user_data import encode_sticky
from tests.assign.groups import (
    Owned,
    RackUse,
    Rounds,
    assert_balanced,
    assert_valid,
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
    return Rounds(make, racks.metadata(topics))  # type: ignore[arg-type]  # both classes are callables that make assignors


def checked(group: Rounds) -> Owned:
    result = group.rebalance()
    wanted = {name: topics for name, (_, topics) in group.members.items()}
    assert_valid(group.metadata, wanted, result)
    assert_balanced(wanted, result)
    return result
