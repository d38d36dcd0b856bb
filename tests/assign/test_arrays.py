"""Corners of the array algorithms that groups in other tests seldom reach."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.assign import ClusterMetadata, Subscription
from shoal.assign.arrays import stable_order
from shoal.assign.constrained import _verify
from shoal.assign.general_arrays import level_by_level
from shoal.assign.scenario import answer
from shoal.assign.sticky import CooperativeStickyAssignor, StickyAssignor
from shoal.errors import UpstreamFailureError
from tests.assign.groups import lists, tps
from tests.assign.oracle import arrays_from
from tests.assign.scenarios import random_scenario
from tests.assign.sticky_groups import fit, member

on_lists_and_arrays = pytest.mark.parametrize(
    "from_partitions", [1, 1 << 62], ids=["arrays", "lists"]
)
both_sticky = pytest.mark.parametrize("make", [StickyAssignor, CooperativeStickyAssignor])


@given(st.lists(st.integers(0, 200_000)))
def test_wide_keys_are_ordered_by_halves(keys: list[int]) -> None:
    order = stable_order(np.array(keys, dtype=np.int32), 200_001)
    assert order.tolist() == sorted(range(len(keys)), key=keys.__getitem__)


@given(st.lists(st.integers(0, 6), min_size=1), st.integers(1, 40))
def test_filling_by_levels_is_filling_the_least_again_and_again(
    counts: list[int], need: int
) -> None:
    chosen = level_by_level(np.array(counts), need).tolist()
    loads = list(counts)
    for member_index in chosen:
        assert member_index == loads.index(min(loads))
        loads[member_index] += 1
    assert len(chosen) == need


@both_sticky
@pytest.mark.parametrize("topics", [{"a": 7, "b": 4, "c": 2}, {"b": 4, "c": 3, "z": 2}, {"b": 2}])
def test_views_of_an_earlier_layout_are_understood(
    make: type[CooperativeStickyAssignor], topics: dict[str, int]
) -> None:
    # Topics grew, came and went since; views hold numbers of the old layout.
    wanted = ("a", "b", "c", "z")
    members = ("m1", "m2", "m3")
    with arrays_from(1):
        before = make().assign(
            ClusterMetadata({"a": 5, "b": 4, "c": 2}),
            {name: Subscription(wanted) for name in members},
        )
        views = {
            name: Subscription(wanted, None, before[name].partitions, None, 1)
            for name in members[:2]
        }
        by_views = lists(make().assign(ClusterMetadata(topics), views))
    plain = {
        name: Subscription(wanted, None, tuple(one.owned_partitions), None, 1)
        for name, one in views.items()
    }
    with arrays_from(1 << 62):
        assert by_views == lists(make().assign(ClusterMetadata(topics), plain))


@both_sticky
@on_lists_and_arrays
def test_a_newer_claim_does_not_save_a_contested_partition(
    make: type[StickyAssignor], from_partitions: int
) -> None:
    # m1 and m2 claim t-0 in one generation, m3 in a newer one: Kafka trusts nobody any more.
    group = {
        "m1": member("t", "t-0,1", generation=1),
        "m2": member("t", "t-0,2", generation=1),
        "m3": member("t", "t-0,3", generation=2),
    }
    fitted = {name: fit(make, one) for name, one in group.items()}
    with arrays_from(from_partitions):
        result = lists(make().assign(ClusterMetadata({"t": 6}), fitted))
    first = tps("t-1 t-0") if make is StickyAssignor else tps("t-1")
    assert result == {"m1": first, "m2": tps("t-2 t-4"), "m3": tps("t-3 t-5")}


def test_claims_are_looked_up_without_a_table_when_it_would_be_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal.assign.general_arrays._TABLE_MAX", 0)
    for seed in range(200):
        scenario = random_scenario(seed)
        if "sticky" in scenario["assignor"]:
            with arrays_from(1):
                by_arrays = answer(scenario)
            with arrays_from(1 << 62):
                assert by_arrays == answer(scenario)


@pytest.mark.slow
def test_arrays_and_lists_agree_on_messy_groups_where_java_is_not_at_hand() -> None:
    for seed in range(200, 700):
        scenario = random_scenario(seed)
        for strict in (True, False):
            with arrays_from(1):
                by_arrays = answer(scenario, strict_upstream=strict)
            with arrays_from(1 << 62):
                assert by_arrays == answer(scenario, strict_upstream=strict), seed


def test_kafkas_closing_checks_are_mirrored() -> None:
    """No group is known that fails them; should one come, the failure is Kafka's."""
    problem: Any = SimpleNamespace(member_ids=["m"])
    good: Any = SimpleNamespace(under=[0], over=1, over_expected=1, given=[[7]], low=1)
    _verify(problem, good)
    good.over_expected = 2
    with pytest.raises(UpstreamFailureError, match="expected number of members"):
        _verify(problem, good)
    good.over_expected, good.low = 1, 2
    with pytest.raises(UpstreamFailureError, match=r"\[m\] doesn't reach minQuota"):
        _verify(problem, good)
