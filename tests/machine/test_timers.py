"""Deadlines by name: moved, cancelled, due in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.machine.timers import Timers


def test_names_are_due_in_the_order_of_their_deadlines() -> None:
    timers: Timers[str] = Timers()
    for name, deadline in (("b", 20), ("a", 10), ("c", 30)):
        timers.arm(name, deadline)
    assert timers.next_deadline() == 10
    assert [timers.pop_due(25) for _ in range(3)] == ["a", "b", None]
    assert len(timers) == 1


def test_a_deadline_may_move_both_ways() -> None:
    timers: Timers[str] = Timers()
    timers.arm("a", 10)
    timers.arm("a", 50)
    assert timers.next_deadline() == 50
    timers.arm("a", 5)
    assert timers.next_deadline() == 5
    assert timers.pop_due(5) == "a"
    assert timers.next_deadline() is None
    assert timers.deadline("a") is None


def test_a_cancelled_name_is_never_due() -> None:
    timers: Timers[str] = Timers()
    timers.arm("a", 10)
    timers.cancel("a")
    timers.cancel("a")
    assert timers.next_deadline() is None
    timers.arm("a", 30)
    assert timers.pop_due(29) is None
    assert timers.pop_due(30) == "a"


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("arm"), st.sampled_from("abcd"), st.integers(0, 20)),
            st.tuples(st.just("cancel"), st.sampled_from("abcd"), st.just(0)),
            st.tuples(st.just("pop"), st.just(""), st.integers(0, 20)),
        ),
        max_size=60,
    )
)
def test_timers_equal_a_dict_of_deadlines(steps: list[tuple[str, str, int]]) -> None:
    timers: Timers[str] = Timers()
    model: dict[str, int] = {}
    for step, name, number in steps:
        if step == "arm":
            timers.arm(name, number)
            model[name] = number
        elif step == "cancel":
            timers.cancel(name)
            model.pop(name, None)
        else:
            due = timers.pop_due(number)
            if due is None:
                assert all(deadline > number for deadline in model.values())
            else:
                deadline = model.pop(due)
                assert deadline <= number
                assert all(deadline <= other for other in model.values())
        assert timers.next_deadline() == min(model.values(), default=None)
        assert len(timers) == len(model)
        assert len(timers._heap) <= len(steps)
