"""What every assignor promises, for any group."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.assign import Assignor, ClusterMetadata, Subscription, load, validate
from shoal.assign.hash_order import string_hash
from shoal.assign.loading import BUILT_IN
from shoal.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from tests.assign.groups import Owned, Rounds, assert_balanced, assert_valid, lists
from tests.assign.oracle import arrays_from

pytestmark = pytest.mark.slow

TOPICS = ("a", "b", "c", "d", "e")

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12), min_size=1)
topic_lists = st.lists(st.sampled_from(TOPICS), unique=True, max_size=5)
member_ids = st.text("abcdefgh-0123456789", min_size=1, max_size=12)
groups = st.dictionaries(
    member_ids,
    st.builds(
        Subscription,
        st.builds(tuple, topic_lists),
        group_instance_id=st.none() | member_ids,
        rack_id=st.none() | st.sampled_from(["r1", "r2"]),
    ),
    min_size=1,
    max_size=9,
)
racks = st.dictionaries(
    st.sampled_from(TOPICS),
    st.lists(st.lists(st.sampled_from(["r1", "r2", None]), max_size=2), min_size=12, max_size=12),
)

every_assignor = pytest.mark.parametrize("name", BUILT_IN)
both_sticky = pytest.mark.parametrize("make", [StickyAssignor, CooperativeStickyAssignor])
on_lists_and_arrays = pytest.mark.parametrize(
    "from_partitions", [1, 1 << 62], ids=["arrays", "lists"]
)


def wanted(group: Mapping[str, Subscription]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(one.topics) for name, one in group.items()}


def assign(name: str, metadata: ClusterMetadata, group: Mapping[str, Subscription]) -> Owned:
    (assignor,) = load([name])
    return lists(assignor.assign(metadata, group))


@every_assignor
@on_lists_and_arrays
@given(counts=counts, racks=racks, group=groups)
def test_an_assignment_is_total_disjoint_and_subscribed_only(
    name: str,
    from_partitions: int,
    counts: dict[str, int],
    racks: dict[str, list[list[str | None]]],
    group: dict[str, Subscription],
) -> None:
    metadata = ClusterMetadata(counts, racks)
    with arrays_from(from_partitions):
        result = assign(name, metadata, group)
    assert set(result) == set(group)
    assert_valid(metadata, wanted(group), result)
    # And the checks that custom assignors must pass let it through.
    (assignor,) = load([name])
    plain = {name: one for name, one in assignor.assign(metadata, group).items()}  # noqa: C416 - walked on purpose: the mapping is lazy
    validate(assignor, plain, metadata, group)


@both_sticky
@given(counts=counts, group=groups)
def test_sticky_leaves_nothing_that_could_be_more_even(
    make: type[Assignor], counts: dict[str, int], group: dict[str, Subscription]
) -> None:
    result = lists(make().assign(ClusterMetadata(counts), group))
    assert_balanced(wanted(group), result)


@every_assignor
@given(counts=counts, members=st.lists(member_ids, min_size=1, max_size=9, unique=True))
def test_how_even_it_is_when_all_want_the_same(
    name: str, counts: dict[str, int], members: list[str]
) -> None:
    group = {member_id: Subscription(tuple(counts)) for member_id in members}
    result = assign(name, ClusterMetadata(counts), group)
    loads = [len(held) for held in result.values()]
    # range is even per topic only.
    uneven = sum(count % len(members) > 0 for count in counts.values()) if name == "range" else 1
    assert max(loads) - min(loads) <= uneven
    for topic, count in counts.items():
        shares = [sum(tp.topic == topic for tp in held) for held in result.values()]
        if name == "range":
            assert max(shares) - min(shares) <= (count % len(members) > 0)


@both_sticky
@given(counts=counts, members=st.integers(2, 9), leaver=st.integers(0, 8))
def test_when_one_leaves_everybody_keeps_everything(
    make: type[Assignor], counts: dict[str, int], members: int, leaver: int
) -> None:
    group = Rounds(make, ClusterMetadata(counts))
    for number in range(members):
        group.join(f"c{number}", list(counts))
    before = group.rebalance()
    gone = f"c{leaver % members}"
    group.leave(gone)
    after = group.rebalance()
    assert all(set(before[name]) <= set(after[name]) for name in after)


@both_sticky
@given(counts=counts, members=st.integers(1, 9))
def test_when_one_joins_no_more_moves_than_its_share(
    make: type[Assignor], counts: dict[str, int], members: int
) -> None:
    group = Rounds(make, ClusterMetadata(counts))
    for number in range(members):
        group.join(f"c{number}", list(counts))
    before = group.rebalance()
    group.join("new", list(counts))
    after = group.rebalance()
    total = sum(counts.values())
    assert len(after["new"]) in (total // (members + 1), -(-total // (members + 1)))
    for name, held in before.items():
        assert set(after[name]) <= set(held), "old members only give"
    # A balanced group that rebalances again moves nothing.
    assert {name: set(held) for name, held in group.rebalance().items()} == {
        name: set(held) for name, held in after.items()
    }


@every_assignor
@given(counts=counts, group=groups, order=st.randoms(use_true_random=False))
def test_the_order_in_which_members_joined_does_not_matter(
    name: str, counts: dict[str, int], group: dict[str, Subscription], order: object
) -> None:
    # Two ids in one hash bucket are kept in order of insertion by Java, and so by us.
    buckets = {string_hash(member_id) ^ (string_hash(member_id) >> 16) for member_id in group}
    if len({bucket & 15 for bucket in buckets}) < len(group):
        return
    shuffled = list(group)
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' random
    # Equal instance ids would be the same member.
    instances = [one.group_instance_id for one in group.values() if one.group_instance_id]
    if len(set(instances)) < len(instances):
        return
    metadata = ClusterMetadata(counts)
    first = assign(name, metadata, group)
    second = assign(name, metadata, {member_id: group[member_id] for member_id in shuffled})
    assert {m: set(held) for m, held in first.items()} == {
        m: set(held) for m, held in second.items()
    }


@every_assignor
def test_a_group_without_members_or_topics_is_assigned_nothing(name: str) -> None:
    assert assign(name, ClusterMetadata({"a": 3}), {}) == {}
    assert assign(name, ClusterMetadata({}), {"m": Subscription(())}) == {"m": []}
    assert assign(name, ClusterMetadata({}), {"m": Subscription(("a",))}) == {"m": []}


@pytest.mark.parametrize("name", BUILT_IN)
def test_ten_thousand_partitions_by_a_hundred_members(name: str) -> None:
    metadata = ClusterMetadata({f"t{number}": 100 for number in range(100)})
    topics = tuple(metadata.partition_counts)
    group = {f"c{number}": Subscription(topics) for number in range(100)}
    result = assign(name, metadata, group)
    assert {len(held) for held in result.values()} == {100}
