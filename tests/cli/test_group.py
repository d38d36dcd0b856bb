"""How ``shoal group`` shows partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.offsets_story import in_ranges
from shoal.types import TopicPartition


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_exactly_the_partitions(numbers: set[int]) -> None:
    shown = in_ranges(TopicPartition("t", number) for number in numbers)
    found: set[int] = set()
    for run in shown.removeprefix("t ").split(",") if shown else []:
        first, _, last = run.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers


def test_topics_follow_each_other_in_ranges() -> None:
    tps = [TopicPartition("orders", number) for number in (0, 1, 2, 5)]
    assert in_ranges([TopicPartition("b", 2), *tps]) == "b 2  orders 0-2,5"
