"""Series of lag: bounded, and drawn as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.web.lag_history import POINTS_MAX, SPARK_POINTS, GroupLags, LagSeries


def series(points: list[tuple[float, int, float]]) -> LagSeries:
    found = LagSeries()
    for at_s, lag, behind_s in points:
        found.add(at_s, lag, behind_s)
    return found


def test_nothing_known_is_not_drawn_as_zero():
    assert LagSeries().spark(100.0) == "." * SPARK_POINTS
    assert series([(1790.0, 5, 3.0)]).spark(1800.0).startswith("." * (SPARK_POINTS - 2))
    assert LagSeries().trend(100.0) == ""


def test_a_spark_shows_the_height_and_the_zero():
    found = series([(at, at, float(at)) for at in range(0, 1800, 10)]).spark(1800.0)
    assert found[-1] == "z"
    assert found[0] < found[8] < found[16] < found[-1]
    assert series([(float(at), 0, 0.0) for at in range(0, 1800, 10)]).spark(1800.0) == "0" * 24


def test_a_trend_needs_two_looks_and_a_difference():
    assert series([(0, 100, 1), (30, 100, 1)]).trend(30) == "steady"
    assert series([(0, 100, 1), (30, 200, 1)]).trend(30) == "rising"
    assert series([(0, 200, 1), (30, 100, 1)]).trend(30) == "falling"
    assert series([(0, 200, 1)]).trend(30) == ""


@given(st.lists(st.floats(0.01, 100), max_size=900))
def test_a_series_is_bounded_and_keeps_its_ends(steps):
    found, at = LagSeries(), 0.0
    for step in steps:
        at += step
        found.add(at, 1, 1.0)
    assert len(found.times) <= POINTS_MAX
    assert list(found.times) == sorted(set(found.times))
    if steps:
        assert found.times[0] == steps[0]
        assert found.times[-1] == at
    assert len(found.spark(at)) == SPARK_POINTS


def test_topics_are_told_apart_once_there_are_several():
    lags = GroupLags()
    lags.add(1.0, [("a", 5, 1.0)])
    lags.add(2.0, [("a", 6, 1.0), ("b", 1, 9.0)])
    lags.add(3.0, [("a", 7, 1.0), ("b", 2, 9.0)])
    assert list(lags.whole.lags) == [5, 7, 9]
    assert list(lags.whole.behind_s) == [1.0, 9.0, 9.0]
    assert list(lags.topics["a"].lags) == [6, 7]
    assert list(lags.topics["b"].lags) == [1, 2]
