"""What a JVM says about itself is dropped; everything else reaches standard error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shoal.spark.noise import Sieve

PROGRAM = """
import os, subprocess, sys
from shoal.spark.noise import without_noise
with without_noise():
    child = subprocess.Popen(
        ["sh", "-c", 'echo "WARNING: Using incubator modules: x" >&2; echo real >&2; read x;'
         ' echo "To adjust logging level use y" >&2; printf later >&2'],
        stdin=subprocess.PIPE)
print("own", file=sys.stderr, flush=True)
child.communicate(b"go\\n")
import threading
for thread in threading.enumerate():
    if thread.name == "shoal-spark-stderr":
        thread.join(10)
"""


@pytest.mark.slow
def test_only_noise_is_dropped_also_after_the_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stderr.replace("later", "\nlater").split()) == ["later", "own", "real"]


DAEMON = [
    b"Traceback (most recent call last):",
    b'  File "/x/pyspark/daemon.py", line 264, in manager',
    b"    code = worker(sock, authenticated)",
    b"           ^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    b"BrokenPipeError: [Errno 32] Broken pipe",
]
USERS = [DAEMON[0], b'  File "/home/job.py", line 1, in <module>', b"    write()", DAEMON[-1]]


def sifted(lines: list[bytes]) -> list[bytes]:
    sieve = Sieve()
    return (b"".join(map(sieve.pass_on, lines)) + sieve.rest()).splitlines()


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (DAEMON, []),
        ([b"before", *DAEMON, b"after"], [b"before", b"after"]),
        (USERS, USERS),
        ([*DAEMON, *USERS], USERS),
        ([*DAEMON[:-1], b"ValueError: bad"], [*DAEMON[:-1], b"ValueError: bad"]),
        ([*DAEMON[:3]], DAEMON[:3]),
        ([DAEMON[-1]], [DAEMON[-1]]),
        ([DAEMON[0], *DAEMON], [DAEMON[0]]),
    ],
)
def test_only_the_daemons_farewell_is_dropped(lines: list[bytes], shown: list[bytes]) -> None:
    assert sifted(lines) == shown
