"""Ctrl-C that comes while something starts is heard when it has its owner; a consumer is woken."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from shoal import Consumer
from shoal.cli.interrupts import interrupts_held, interrupts_wake
from shoal.testing.broker import Broker


@pytest.fixture(autouse=True)
def _hears_interrupts() -> Iterator[None]:
    """Whoever runs the tests in the background has told them to ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_what_is_started_is_owned_before_the_interrupt_is_heard() -> None:
    owned: list[str] = []

    def start() -> None:
        with interrupts_held():
            interrupt()
            owned.append("a process")
        owned.append("and went on")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        start()
    assert owned == ["a process"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_in_the_block_comes_first() -> None:
    def start() -> None:
        with interrupts_held():
            interrupt()
            raise OSError("no such program")

    with pytest.raises(OSError, match="no such program"):
        start()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_ignores_interrupts_still_does() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_held():
            interrupt()
        interrupt()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics=["t"]) as running:
        yield running


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as one:
        yield one


def test_a_consumer_is_woken_and_can_be_used_afterwards(consumer: Consumer) -> None:
    def read() -> None:
        with interrupts_wake(consumer):
            interrupt()
            consumer.poll(60)

    consumer.subscribe(["t"])
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        read()
    assert signal.getsignal(signal.SIGINT) is before
    consumer.commit_sync({})


def test_a_block_that_asks_the_consumer_nothing_more_ends_too(consumer: Consumer) -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_wake(consumer):
        interrupt()


def test_a_second_interrupt_does_not_wait_for_the_first(consumer: Consumer) -> None:
    reached = []

    def read() -> None:
        with interrupts_wake(consumer):
            interrupt()
            reached.append("the first")
            interrupt()
            reached.append("the second")

    with pytest.raises(KeyboardInterrupt):
        read()
    assert reached == ["the first"]
