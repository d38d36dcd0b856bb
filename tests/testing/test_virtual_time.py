"""The clock and the network of simulations."""

from __future__ import annotations

import doctest
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.testing.simulation import clock as clock_module
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.network import Network, SimulatedConnection


def test_the_example_in_the_docstring_is_true() -> None:
    assert doctest.testmod(clock_module).failed == 0


@given(st.lists(st.integers(0, 1_000), max_size=50))
def test_things_happen_in_order_of_time_and_then_of_asking(times: list[int]) -> None:
    clock = VirtualClock()
    happened: list[tuple[int, int]] = []
    for number, when in enumerate(times):
        clock.at(when, lambda entry: happened.append(entry), (when, number))
    assert clock.run_until(1_001) == len(times)
    assert happened == sorted(happened)
    assert clock.now_ms == 1_001
    assert not clock.step()
    assert len(clock) == 0


def test_what_is_past_happens_now() -> None:
    clock = VirtualClock(100)
    clock.at(50, lambda _: None)
    assert clock.step()
    assert clock.now_ms == 100


def test_what_is_put_for_this_very_moment_still_happens_in_it_after_what_was_put_before() -> None:
    clock = VirtualClock()
    happened: list[str] = []

    def first(_: None) -> None:
        happened.append("first")
        clock.at(10, happened.append, "put meanwhile")
        clock.at(5, happened.append, "put for the past")

    clock.at(10, first)
    clock.at(10, happened.append, "second")
    assert clock.run_until(11) == 4
    assert happened == ["first", "second", "put meanwhile", "put for the past"]


def test_an_action_that_raises_is_not_done_again_and_the_others_stay() -> None:
    clock = VirtualClock()
    happened: list[str] = []

    def fail(_: None) -> None:
        happened.append("failed")
        raise RuntimeError

    clock.at(10, happened.append, "before")
    clock.at(10, fail)
    clock.at(10, happened.append, "after")
    with pytest.raises(RuntimeError):
        clock.run_until(20)
    assert (len(clock), clock.now_ms, clock.next_ms) == (1, 10, 10)
    assert clock.run_until(20) == 1
    assert happened == ["before", "failed", "after"]


class Peer:
    """Both ends: keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.losses = 0

    def answered(self, connection: SimulatedConnection, message: Any) -> None:
        self.heard.append(message)

    def disconnected(self, connection: SimulatedConnection) -> None:
        self.losses += 1

    def asked(self, connection: SimulatedConnection, message: Any) -> None:
        self.heard.append(message)


def connect(delay_ms: int = 100) -> tuple[VirtualClock, Network, Peer, Peer, SimulatedConnection]:
    clock = VirtualClock()
    network = Network(clock, Random(1), delay_ms_max=delay_ms)
    client, server = Peer(), Peer()
    return clock, network, client, server, network.connect(client, server)


@given(st.integers(1, 500), st.integers(1, 30))
def test_messages_of_a_connection_arrive_once_and_in_order(delay_ms: int, count: int) -> None:
    clock, _, client, server, connection = connect(delay_ms)
    for number in range(count):
        connection.ask(number)
        connection.answer(number)
    clock.run_until(10 * delay_ms)
    assert server.heard == client.heard == list(range(count))


@given(st.integers(0, 8), st.sampled_from([0, 5_000]))
def test_of_a_cut_connection_a_prefix_of_the_requests_arrives_and_no_answer(
    survivors: int, late_ms: int
) -> None:
    clock, network, client, server, connection = connect()
    for number in range(5):
        connection.ask(number)
        connection.answer(number)
    connection.cut(survivors=survivors, late_ms=late_ms, notice_ms=10)
    connection.ask("too late")
    connection.answer("too late")
    clock.run_until(1_000)
    if late_ms:
        assert server.heard == []
        clock.run_until(10_000)
        assert network.late_count == min(survivors, 5)
    assert server.heard == list(range(min(survivors, 5)))
    assert client.heard == []
    assert client.losses == 1


def test_what_was_sent_before_hanging_up_is_read() -> None:
    clock, _, client, server, connection = connect()
    connection.ask("last words")
    connection.close()
    connection.cut(survivors=0, late_ms=0, notice_ms=0)
    clock.run_until(1_000)
    assert server.heard == ["last words"]
    assert client.losses == 0
