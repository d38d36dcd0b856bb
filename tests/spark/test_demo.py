"""``shoal demo``: the whole path, counted; nothing noisy, nothing left running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.cli.demo import EVENT_SPAN_MS, ORDERS
from shoal.cli.demo_orders import orders
from tests.peers import need
from tests.peers.jars import java

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def of_session(session: int) -> list[str]:
    """Command lines of the processes of one session that still run."""
    found = []
    for directory in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((directory / "cmdline").read_bytes().decode().replace("\0", " "))
    return found


def test_the_demo_counts_every_order_and_leaves_nothing_behind(tmp_path: Path) -> None:
    need(java)
    pytest.importorskip("pyspark")
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", "demo", "--json", "--output", str(tmp_path / "out")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    shown, noise = process.communicate(timeout=280)
    assert process.returncode == 0, noise[-3000:]
    summary = json.loads(shown)
    assert sum(summary["group"]["read"].values()) >= ORDERS
    pipeline = summary["pipeline"]
    assert pipeline["rows"] == [ORDERS + 1, ORDERS + 1]  # and the order that closes the windows
    # Only orders that came late may be missing from their window, and some are.
    late = sum(order.is_late for order in orders(ORDERS, span_ms=EVENT_SPAN_MS))
    assert 0 < pipeline["late_orders"] <= late
    assert pipeline["orders"] + pipeline["late_orders"] == ORDERS
    assert pipeline["lag"] == 0
    assert (tmp_path / "out" / "group.svg").read_text().startswith("<svg")
    assert list((tmp_path / "out" / "revenue.parquet").glob("*.parquet"))
    assert noise == ""
    assert of_session(process.pid) == []


@pytest.mark.long
def test_a_pipeline_that_fails_is_one_line(tmp_path: Path) -> None:
    """Hadoop's files call ``chmod``: without it Spark starts, and then its first query cannot."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "java").symlink_to(Path(need(java)).resolve())
    for name in ("bash", "dirname", "nice", "ps", "readlink", "uname"):
        (programs / name).symlink_to(str(shutil.which(name)))
    pytest.importorskip("pyspark")
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", "demo", "--output", str(tmp_path / "out")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "", "PATH": str(programs)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _, noise = process.communicate(timeout=280)
    assert process.returncode == 1
    (line,) = noise.splitlines()
    assert line.startswith("shoal: the Spark pipeline failed: java.io.IOException: Cannot run")
    assert of_session(process.pid) == []


def _hear_interrupts() -> None:
    """Whoever runs the tests in the background has told their children to ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("happened", ["Spark is starting", "members join", "  ann "])
def test_ctrl_c_ends_the_demo_at_once_in_one_line(tmp_path: Path, happened: str) -> None:
    """While Spark starts, while members do, and in the group's act; a JVM hears no Ctrl-C."""
    need(java)
    pytest.importorskip("pyspark")
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "shoal", "demo", "--output", str(tmp_path / "out")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "", "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_interrupts,
    )
    assert process.stdout is not None
    while happened not in process.stdout.readline():
        assert process.poll() is None
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, noise = process.communicate(timeout=60)
    taken = time.monotonic() - began
    assert (process.returncode, noise) == (130, "shoal: interrupted; nothing is left running\n")
    assert of_session(process.pid) == []
    assert list(tmp_path.glob("shoal-demo-*")) == []
    assert taken < 2
