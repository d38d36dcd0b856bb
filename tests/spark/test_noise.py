"""What a JVM says about itself is dropped; everything else reaches standard error."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
