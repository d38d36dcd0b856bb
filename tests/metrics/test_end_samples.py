"""Lag in seconds, from looks at where partitions end."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.metrics.end_samples import SAMPLES_MAX, EndSamples
from shoal.types import TopicPartition

TP = TopicPartition("orders", 0)


def samples(*looks: tuple[float, int]) -> EndSamples:
    found = EndSamples()
    for at_s, end in looks:
        found.add({TP: end}, at_s)
    return found


def test_who_has_read_everything_is_not_behind() -> None:
    found = samples((0, 100), (60, 200))
    assert found.behind_s(TP, 200, 500) == 0
    assert found.behind_s(TP, 250, 500) == 0, "a commit that is newer than the look"


def test_between_two_looks_it_lies_on_a_line() -> None:
    found = samples((0, 100), (60, 200))
    assert found.behind_s(TP, 150, 60) == 30
    assert found.behind_s(TP, 199, 100) == pytest.approx(40.6)


def test_before_the_first_look_it_is_at_least_so_long() -> None:
    assert samples((100, 50), (160, 60)).behind_s(TP, 10, 200) == 100


def test_quiet_time_is_no_time_of_writing() -> None:
    """Nothing was written from 10 to 1,000; what came then came between the last two looks."""
    found = samples((0, 100), (10, 100), (500, 100), (1000, 100), (1010, 110))
    assert found.behind_s(TP, 100, 1010) == 10
    assert found.behind_s(TP, 105, 1010) == 5


def test_a_topic_made_anew_has_no_past() -> None:
    found = samples((0, 1000), (60, 2000), (120, 10), (180, 20))
    assert found.behind_s(TP, 5, 200) == 80


def test_nobody_looked_at_it() -> None:
    found = samples((0, 5))
    assert found.behind_s(TopicPartition("orders", 1), 0, 9) is None
    found.add({}, 10)
    assert found.behind_s(TP, 0, 20) is None, "it is not looked at any more"


@example([1] * 100, 50)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200), st.integers(0, 100_000))
def test_a_long_history_is_thinned_out_and_stays_right(grown: list[int], committed: int) -> None:
    """Against every look: between the looks that are kept on either side, never outside them."""
    looks, end = [], 0
    for number, more in enumerate(grown):
        end += more
        looks.append((float(number * 60), end))
    found = samples(*looks)
    kept = found._partitions[TP]
    assert len(kept.ends) <= SAMPLES_MAX
    assert (kept.times[0], kept.ends[0]) == looks[0]
    assert (kept.times[-1], kept.ends[-1]) == looks[-1]
    now_s = looks[-1][0]
    behind_s = found.behind_s(TP, committed, now_s)
    assert behind_s is not None
    if committed >= end:
        assert behind_s == 0
    elif committed < looks[0][1]:
        assert behind_s == now_s
    else:
        after = next(at for at, each in zip(kept.times, kept.ends, strict=True) if each > committed)
        before = max(
            at for at, each in zip(kept.times, kept.ends, strict=True) if each <= committed
        )
        assert now_s - after <= behind_s <= now_s - before
