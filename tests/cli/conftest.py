"""A live broker, and the real program run against it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shoal.testing.broker import Broker

Run = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = str(Path(sys.executable).parent / "shoal")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture
def shoal(broker: Broker, tmp_path: Path) -> Run:
    """Run ``shoal`` as a user does; standard input is closed unless given."""

    def run(
        *arguments: str, stdin: str | bytes = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [PROGRAM, *arguments],
            input=data,
            capture_output=True,
            timeout=60,
            cwd=tmp_path,
            env={
                **os.environ,
                "SHOAL_BOOTSTRAP": broker.bootstrap_servers,
                "HOME": str(tmp_path),
                **(env or {}),
            },
            check=False,
        )
        return subprocess.CompletedProcess(
            done.args,
            done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
        )

    return run
