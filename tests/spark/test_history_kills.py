"""The recorder's Spark form, its driver killed at each step of a micro-batch and of a merge."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shoal.fleet import recording_files
from shoal.testing.broker import Broker
from tests.fleet.test_recorder import commit, in_directory, in_topic
from tests.peers import need
from tests.peers.jars import java

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

DRIVER = Path(__file__).with_name("recording_driver.py")
PATIENCE_S = 500.0


@contextmanager
def recording(servers: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The driver at work; everything of it is gone when the block ends."""
    process = subprocess.Popen(
        [sys.executable, str(DRIVER), servers, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def kill_when(condition: Callable[[], object], servers: str, directory: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with recording(servers, directory) as process:
        while not condition():
            assert process.poll() is None, "the driver ended before it could be killed"
            assert time.monotonic() < deadline, "the moment did not come"
            time.sleep(0.001)


@pytest.mark.long
@pytest.mark.usefixtures("python_path")
def test_a_driver_killed_at_each_step_keeps_every_record_once(tmp_path: Path) -> None:
    need(java)
    pytest.importorskip("pyspark")
    directory = tmp_path / "history"
    checkpoint, records = directory / "_checkpoint", directory / "records"

    def reached(log: str, batch: int) -> bool:
        return (checkpoint / log / str(batch)).exists()

    def kept(batch: int) -> bool:
        return any(records.glob(f"day=*/batch={batch}"))

    steps: list[Callable[[], object]] = [
        lambda: reached("offsets", 0),  # planned, nothing read
        lambda: any(records.glob(".spark-staging-*/*/*")),  # read, being written
        lambda: kept(2) or kept(3),  # written; Spark's commit is missing
        lambda: reached("commits", 5),  # committed; the next is not planned
        lambda: (directory / recording_files.MERGING).exists(),  # in the middle of a merge
    ]
    with Broker(topics={"orders": 4}) as cluster:
        for number in range(120):
            commit(cluster, f"group-{number % 5}", number)
        for step in steps:
            kill_when(step, cluster.bootstrap_servers, directory)
            if records.exists():
                seen = in_directory(directory)
                assert len(seen) == len(set(seen))
        commit(cluster, "late", 1)
        with recording(cluster.bootstrap_servers, directory) as process:
            shown, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, shown[-3000:]
        assert in_directory(directory) == in_topic(cluster)
        assert len(recording_files.files(directory, "records")) <= 4
