"""Ctrl-C at a moment when it can be answered.

Rule: a process that was started belongs to somebody before Ctrl-C may raise anything. One that
comes between the start of a process and its place in a list would leave it running forever.
A consumer is woken up instead: what is raised in the middle of its call may leave a part of it
that nobody ever runs, and Python says so on the terminal.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from shoal.errors import WakeupError

if TYPE_CHECKING:
    from shoal.client.consumer import Consumer


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C inside the block is heard at its end. For the main thread."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's form
        heard.append(number)

    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield  # nobody wants to hear it
        return
    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


@contextmanager
def interrupts_wake(consumer: Consumer) -> Iterator[None]:
    """Ctrl-C inside the block ends the consumer's call, and then the block. For the main thread.

    Whoever presses it again does not want to wait for that.
    """
    heard: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def hear(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's form
        heard.append(number)
        signal.signal(signal.SIGINT, before)
        consumer.wakeup()

    if before is signal.SIG_IGN:
        yield  # nobody wants to hear it
        return
    signal.signal(signal.SIGINT, hear)
    try:
        yield
    except WakeupError:
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt
