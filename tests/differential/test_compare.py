"""What counts as a difference between two answers."""

from __future__ import annotations

from typing import Any

from shoal.wire.apis.describe_groups import DescribeGroupsResponse
from tests.differential.compare import ABSENT, Difference, differences, tree


def _plain(name: str, value: Any) -> Any:
    return value


def _found(theirs: Any, ours: Any) -> list[Difference]:
    return differences(theirs, ours)


def test_null_is_not_empty() -> None:
    assert _found({"a": None}, {"a": []}) == [Difference("a", None, [])]
    assert _found({"a": ""}, {"a": None}) == [Difference("a", "", None)]


def test_false_is_not_zero() -> None:
    assert _found({"a": False}, {"a": 0}) == [Difference("a", False, 0)]


def test_a_missing_element_is_one_difference_and_shifts_nothing() -> None:
    theirs = {"topics": [{"name": "a", "error_code": 0}, {"name": "b", "error_code": 3}]}
    ours = {"topics": [{"name": "b", "error_code": 3}]}
    assert _found(theirs, ours) == [
        Difference("topics[a]", {"name": "a", "error_code": 0}, ABSENT),
    ]


def test_order_is_a_difference_of_its_own() -> None:
    theirs = {"topics": [{"name": "a", "error_code": 0}, {"name": "b", "error_code": 0}]}
    ours = {"topics": [{"name": "b", "error_code": 7}, {"name": "a", "error_code": 0}]}
    assert _found(theirs, ours) == [
        Difference("topics[b].error_code", 0, 7),
        Difference("topics(order)", ["a", "b"], ["b", "a"]),
    ]


def test_an_element_that_comes_twice_is_compared_by_position() -> None:
    twice = [{"name": "a"}, {"name": "a"}]
    assert _found({"topics": twice}, {"topics": twice[:1]}) == [
        Difference("topics[#1]", {"name": "a"}, ABSENT)
    ]


def test_who_does_not_answer_differs_in_that_alone() -> None:
    theirs = {"outcome": "closed"}
    ours = {"outcome": "answered", "in turn": True, "message": {"error_code": 0}}
    assert _found(theirs, ours) == [Difference("outcome", "closed", "answered")]


def test_only_fields_of_the_version_are_compared() -> None:
    group = DescribeGroupsResponse.DescribedGroup(group_id="g", error_message="text")
    response = DescribeGroupsResponse(groups=[group])
    (old,) = tree(response, 5, _plain)["groups"]
    (new,) = tree(response, 6, _plain)["groups"]
    assert "error_message" not in old
    assert new["error_message"] == "text"


def test_the_shape_of_a_path_has_no_names_in_it() -> None:
    one = Difference("message.topics[a/b].partitions[0].error_code", 0, 1)
    assert one.shape == "message.topics[].partitions[].error_code"
