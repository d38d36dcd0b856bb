"""The goals of benchmarks are read by a program, so that a page cannot call a miss a success."""

from __future__ import annotations

import pytest
from benchmarks.measuring import Row

from docs import generate_benchmarks


@pytest.mark.parametrize(
    ("goal", "is_met"),
    [
        ("", True),
        (">= 3x", True),
        (">= 3.1x", False),
        (">= 4,000", True),
        (">= 4,001", False),
        ("<= 4000", True),
        ("< 3,999.5", False),
        (">= 3x and >= 5,000", False),
    ],
)
def test_a_goal_is_for_the_ratio_or_for_our_own_number(goal: str, is_met: bool) -> None:
    assert Row("read", "rows/s", 4000, 1333, "peer", goal).is_met is is_met


def test_where_less_is_better_the_ratio_turns_round() -> None:
    row = Row("start", "ms", 100, 300, "peer", ">= 3x", higher_is_better=False)
    assert row.is_met
    assert not Row("start", "ms", 101, 300, "peer", ">= 3x", higher_is_better=False).is_met


def test_a_peer_that_was_not_there_leaves_the_ratio_out() -> None:
    assert Row("read", "rows/s", 4000, goal=">= 3x").is_met


@pytest.mark.parametrize("goal", ["3x", "10 M", ">= 3 x", "fast"])
def test_a_goal_that_cannot_be_read_is_an_error(goal: str) -> None:
    with pytest.raises(ValueError, match="is not like"):
        _ = Row("read", "rows/s", 4000, 1, "peer", goal).is_met


def test_who_misses_a_goal_says_why_and_nobody_else_does() -> None:
    missed = {
        name
        for name, entry in generate_benchmarks.results().items()
        for row in entry["rows"]
        if row["goal"] and not row["is_met"]
    }
    assert missed == generate_benchmarks.REASONS.keys()
