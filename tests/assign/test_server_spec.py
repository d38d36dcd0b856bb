"""What a user's assignor may answer, and the two that come with the broker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.assign.server_examples import drain, weighted
from shoal.assign.server_spec import (
    GroupSpec,
    ServerAssignFunction,
    SpecMember,
    SpecPartition,
    answered,
    check,
)
from shoal.errors import InvalidAssignmentError
from shoal.types import TopicPartition


def spec(
    members: dict[str, float], lags: list[int], owned: dict[str, list[int]] | None = None
) -> GroupSpec:
    tps = [TopicPartition("t", number) for number in range(len(lags))]
    return GroupSpec(
        "g",
        2,
        {
            one: SpecMember(
                one,
                frozenset({"t"}),
                tuple(tps[number] for number in (owned or {}).get(one, ())),
                weight=weight,
            )
            for one, weight in members.items()
        },
        {tp: SpecPartition(lag) for tp, lag in zip(tps, lags, strict=True)},
    )


def counts(target: Any) -> dict[str, int]:
    return {member: len(list(given)) for member, given in target.items()}


def test_drain_is_even_and_moves_little() -> None:
    owned = {"a": [0, 1, 2, 3, 4, 5]}
    target = drain(spec({"a": 1, "b": 1, "c": 1}, [0] * 6, owned))
    assert counts(target) == {"a": 2, "b": 2, "c": 2}
    kept = {one: [tp.partition for tp in given] for one, given in target.items()}
    again = drain(spec({"a": 1, "b": 1, "c": 1}, [0] * 6, kept))
    assert again == target


def test_weight_zero_empties_a_member_and_a_larger_one_fills_it() -> None:
    target = drain(spec({"a": 0, "b": 1, "c": 3}, [0] * 8, {"a": [0, 1, 2, 3]}))
    assert counts(target) == {"a": 0, "b": 2, "c": 6}
    assert counts(drain(spec({"a": 0, "b": 0}, [0] * 4))) == {"a": 2, "b": 2}, "somebody must"


def test_weighted_gives_who_has_the_long_queue_less_of_the_others() -> None:
    lags = [900, 10, 10, 10, 10, 10, 10, 10]
    target = weighted(spec({"a": 1, "b": 1}, lags))
    (busy,) = (one for one, given in target.items() if TopicPartition("t", 0) in list(given))
    other = "b" if busy == "a" else "a"
    assert counts(target)[busy] < counts(target)[other]


@given(
    weights=st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0, 0.5, 1, 3]), min_size=1),
    lags=st.lists(st.integers(0, 1_000), max_size=30),
    assign=st.sampled_from([weighted, drain]),
    data=st.data(),
)
def test_whatever_the_group_is_like_their_target_may_be_adopted(
    weights: dict[str, float], lags: list[int], assign: ServerAssignFunction, data: st.DataObject
) -> None:
    owned: dict[str, list[int]] = {}
    for number in range(len(lags)):
        owned.setdefault(data.draw(st.sampled_from(sorted(weights))), []).append(number)
    asked = spec(weights, lags, owned)
    check(assign.__name__, asked, answered("x", assign(asked)))


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ({"x": []}, "no member 'x'"),
        ({"a": [("t", 2)]}, "t-2, which does not exist"),
        ({"a": [("u", 0)]}, "does not subscribe to 'u'"),
        ({"a": [("t", 0)], "b": [("t", 0)]}, "went to both 'a' and 'b'"),
        ({"a": [("t", 0), ("t", 0)]}, "went to both 'a' and 'a'"),
        ({"a": [("t", 1)]}, "2 partitions went to nobody, among them t-0"),
    ],
)
def test_what_a_group_may_not_adopt(target: Any, reason: str) -> None:
    other = SpecMember("c", frozenset({"u"}))
    asked = spec({"a": 1, "b": 1}, [0, 0])
    asked = GroupSpec(
        "g",
        2,
        {**asked.members, "c": other},
        {**asked.partitions, TopicPartition("u", 0): SpecPartition()},
    )
    with pytest.raises(InvalidAssignmentError) as raised:
        check("mine", asked, answered("mine", target))
    assert raised.value.assignor == "mine"
    assert reason in str(raised.value)
