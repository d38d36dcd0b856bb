"""What an assignor of somebody's own may return to the broker, and what is said otherwise."""

from __future__ import annotations

import pytest

from shoal.assign.server_spec import answered
from shoal.errors import InvalidAssignmentError
from shoal.types import TopicPartition


def test_pairs_are_as_good_as_partitions() -> None:
    given = {"ann": (("orders", 0), TopicPartition("orders", 1)), "ben": iter([])}
    assert answered("mine", given) == {
        "ann": [TopicPartition("orders", 0), TopicPartition("orders", 1)],
        "ben": [],
    }


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (None, "a mapping of member ids was expected, not NoneType"),
        ([("ann", [])], "a mapping of member ids was expected, not list"),
        ({"ann": 3}, "'ann' got 3; give it a list of TopicPartition"),
        ({"ann": ["orders"]}, "'ann' got ['orders']; give it a list of TopicPartition"),
        ({"ann": [("orders", "0")]}, "'ann' got ('orders', '0'), which is not a partition"),
        ({"ann": [(0, 0)]}, "'ann' got (0, 0), which is not a partition"),
        ({"ann": [("orders", True)]}, "'ann' got ('orders', True), which is not a partition"),
    ],
)
def test_what_has_another_shape_is_named(result: object, complaint: str) -> None:
    with pytest.raises(InvalidAssignmentError) as caught:
        answered("mine", result)
    assert complaint in str(caught.value)
    assert "mine" in str(caught.value)
