"""A machine's own time: a pause of the process is nobody's silence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.machine.own_time import OwnTime

PULSE_MS = 500
START_MS = 1_000_000


def begun() -> OwnTime:
    time = OwnTime(PULSE_MS)
    time.begin(START_MS)
    return time


def called(time: OwnTime, now_ms: int) -> int:
    """A call that promises the next one within a pulse, as machines do while sessions run."""
    paused_ms = time.advance(now_ms)
    time.promise(time.deadline_ms(time.clock_ms(now_ms) + 60_000, pulses=True))
    return paused_ms


def test_time_passes_between_calls_that_come_as_promised() -> None:
    time = begun()
    for tick in range(1, 20):
        assert called(time, START_MS + tick * PULSE_MS) == 0
    assert time.clock_ms(START_MS + 19 * PULSE_MS) == START_MS + 19 * PULSE_MS


def test_a_pause_does_not_count_and_the_sockets_are_heard_before_anything_is_due() -> None:
    time = begun()
    called(time, START_MS)
    paused_ms = called(time, START_MS + 30_000)
    assert paused_ms == 30_000 - PULSE_MS
    clock_ms = time.clock_ms(START_MS + 30_000)
    assert clock_ms == START_MS + PULSE_MS
    assert not time.may_be_due(clock_ms)
    assert time.may_be_due(clock_ms + PULSE_MS)
    # What is due now is looked at when the time for listening is over, not before.
    assert time.deadline_ms(clock_ms, pulses=False) == START_MS + 30_000 + PULSE_MS


def test_a_machine_that_is_always_late_still_comes_to_an_end() -> None:
    time = begun()
    now_ms, times_due = START_MS, 0
    for _ in range(20):
        now_ms += 5 * PULSE_MS
        called(time, now_ms)
        times_due += time.may_be_due(time.clock_ms(now_ms))
    assert times_due >= 5


def test_a_clock_that_goes_back_takes_nobody_s_time() -> None:
    time = begun()
    called(time, START_MS)
    before_ms = time.clock_ms(START_MS)
    called(time, START_MS - 3_600_000)
    assert time.clock_ms(START_MS - 3_600_000) == before_ms


@given(st.lists(st.integers(-10_000, 100_000), max_size=40))
def test_its_own_clock_never_goes_back(steps: list[int]) -> None:
    time = begun()
    now_ms, last_ms = START_MS, time.clock_ms(START_MS)
    for step in steps:
        now_ms += step
        called(time, now_ms)
        clock_ms = time.clock_ms(now_ms)
        assert last_ms <= clock_ms <= last_ms + 2 * PULSE_MS
        assert time.deadline_ms(clock_ms, pulses=True) >= now_ms
        last_ms = clock_ms
