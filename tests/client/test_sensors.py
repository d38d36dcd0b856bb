"""Samples of half a minute, compared with the same rule in plain words."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.sensors import HourlySensor, Sensor

EVENTS = st.lists(
    st.tuples(st.floats(0, 45), st.integers(-5, 100)),  # seconds after the last, and the value
    max_size=30,
)


class PlainSensor:
    """Keeps everything; cuts it into samples when asked."""

    def __init__(self):
        self.events = []

    def samples(self, now):
        cut: list[Any] = []
        for moment, value in self.events:
            if not cut or moment - cut[-1][0][0] >= 30:
                cut.append([])
            cut[-1].append((moment, value))
        return [one for one in cut[-3:] if now - one[-1][0] < 60]

    def values(self, now):
        return [value for sample in self.samples(now) for _, value in sample]

    def seconds(self, now):
        samples = self.samples(now)
        spent = now - samples[0][0][0] if samples else 0
        return max(0.001, spent if spent >= 30 else spent + 30)


@given(EVENTS, st.floats(0, 200))
def test_a_sensor_tells_what_the_rule_says(events, later):
    sensor, plain, now = Sensor(), PlainSensor(), 1000.0
    for gap, value in events:
        now += gap
        sensor.record(value, now)
        plain.events.append((now, value))
    now += later
    values = plain.values(now)
    assert sensor.total == sum(value for _, value in plain.events)
    assert sensor.count == len(plain.events)
    assert sensor.rate(now) == pytest.approx(sum(values) / plain.seconds(now))
    assert sensor.count_rate(now) == pytest.approx(len(values) / plain.seconds(now))
    if values:
        assert sensor.average(now) == pytest.approx(sum(values) / len(values))
        assert (sensor.least(now), sensor.largest(now)) == (min(values), max(values))
    else:
        told = (sensor.average(now), sensor.least(now), sensor.largest(now))
        assert all(math.isnan(one) for one in told)


def test_what_happened_once_just_now_is_not_a_rate_of_one_per_second():
    sensor = Sensor()
    sensor.record(60, 5.0)
    assert sensor.rate(5.0) == pytest.approx(2.0)
    assert sensor.rate(35.0) == pytest.approx(2.0)
    assert sensor.rate(64.9) == pytest.approx(60 / 59.9)
    assert sensor.rate(65.0) == 0


def test_what_happens_seldom_is_counted_by_the_hour():
    sensor = HourlySensor()
    for moment in (0.0, 1800.0, 3700.0):
        sensor.record(moment)
    assert sensor.rate_per_hour(3700.0) == pytest.approx(3 / (3700 / 3600))
    assert sensor.rate_per_hour(1800.0 + 7200) == pytest.approx(1 / (5300 / 3600))
    assert (sensor.count, sensor.rate_per_hour(20_000.0)) == (3, 0)
