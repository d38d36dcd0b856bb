"""Keeps what a JVM says about itself at its start out of the user's terminal.

The launcher and the logging of Spark write a few lines to standard error before any setting of ours
is read. Rule: only lines known to mean nothing are dropped; everything else passes, for as long
as the JVM lives.
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
        left = b""
        while chunk := lines.read(65536):
            *whole, left = (left + chunk).split(b"\n")
            kept = b"".join(line + b"\n" for line in whole if not line.startswith(NOISE))
            if kept:
                _write(target, kept)
        if left and not left.startswith(NOISE):
            _write(target, left)
    os.close(target)


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
