"""The hunts of ``tests.client.lifetimes``, briefly; in processes of their own, should one crash."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from shoal.client import producer_batch
from shoal.records import objects

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        producer_batch._native is None or objects._native is None,
        reason="the extension modules were not built",
    ),
]


def hunted(call: str) -> str:
    """The output of one of the hunts."""
    code = f"from tests.client.lifetimes import *; print({call})"
    command = [sys.executable, "-X", "faulthandler", "-X", "dev", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]  # of a finalizer
    return done.stdout


@pytest.mark.skipif(find_spec("_testcapi") is None, reason="this Python has no _testcapi")
def test_every_allocation_may_fail_and_nothing_is_left_half_done() -> None:
    assert int(hunted("exhaust_memory()")) > 100


def test_finalizers_may_call_back_in_the_midst_of_every_call() -> None:
    assert int(hunted("collect_always(1_000)")) > 300


def test_every_object_has_as_many_references_afterwards_as_before() -> None:
    assert hunted("count_references(100)").strip() == "None"


def test_threads_may_send_read_flush_and_close_at_once() -> None:
    assert int(hunted("share_among_threads(1.0)")) > 0
