"""Keeps what a JVM says about itself at its start out of the user's terminal.

The launcher and the logging of Spark write a few lines to standard error before any setting of ours
is read; and Spark's Python daemon prints a traceback when the JVM has what it wanted and hangs up
before a worker has flushed. Rule: only lines known to mean nothing are dropped; everything else
passes, for as long as the JVM lives.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NOISE: Final = (
    b"WARNING: Using incubator modules",
    b"WARNING: package sun.security.action not in java.base",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Using Spark's default log4j profile",
    b"WARNING: A terminally deprecated method in sun.misc.Unsafe",
)


_TRACEBACK: Final = b"Traceback (most recent call last):"
_HUNG_UP: Final = b"BrokenPipeError: [Errno 32] Broken pipe"
_DAEMON: Final = b"pyspark/daemon.py"


class Sieve:
    """Drops noise line by line; a traceback is held back until its last line tells what it is."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def pass_on(self, line: bytes) -> bytes:
        """What of ``line``, and of lines held back before it, is worth showing."""
        if self._held and line.startswith(b" "):
            self._held.append(line)
            return b""
        shown = self.rest()
        if line == _TRACEBACK:
            self._held = [line]
            return shown
        if line == _HUNG_UP and shown and _is_of_the_daemon(shown):
            return b""
        return shown if line.startswith(NOISE) else shown + line + b"\n"

    def rest(self) -> bytes:
        """What is held back, at the end of everything."""
        held, self._held = self._held, []
        return b"".join(line + b"\n" for line in held)


def _is_of_the_daemon(traceback: bytes) -> bool:
    frames = [line for line in traceback.splitlines() if line.startswith(b'  File "')]
    return all(_DAEMON in frame for frame in frames)


@contextmanager
def without_noise() -> Iterator[None]:
    """Whatever is started inside has a standard error from which the noise is taken."""
    sys.stderr.flush()
    real = os.dup(2)
    source, drain = os.pipe()
    os.dup2(drain, 2)
    os.close(drain)
    thread = threading.Thread(
        target=_pass_on, args=(source, real), name="shoal-spark-stderr", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)


def _pass_on(source: int, target: int) -> None:
    """Until every writer has closed its end."""
    with os.fdopen(source, "rb", buffering=0) as lines:
        left, sieve = b"", Sieve()
        while chunk := lines.read(65536):
            *whole, left = (left + chunk).split(b"\n")
            _write(target, b"".join(map(sieve.pass_on, whole)))
        _write(target, sieve.rest() + (b"" if left.startswith(NOISE) else left))
    os.close(target)


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
