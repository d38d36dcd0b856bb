"""Ctrl-C at a moment when it can be answered.

Rule: a process that was started belongs to somebody before Ctrl-C may raise anything. One that
comes between the start of a process and its place in a list would leave it running forever.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
