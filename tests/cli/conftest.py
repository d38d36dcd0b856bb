"""A live broker, ours or Apache Kafka's, and the real program run against it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shoal.cli.commands import app
from shoal.testing.broker import Broker
from tests.peers import need
from tests.peers.jars import kafka_jars
from tests.peers.kafka import ApacheKafka

Run = Callable[..., subprocess.CompletedProcess[str]]
QuickRun = Callable[..., Result]
PROGRAM = str(Path(sys.executable).parent / "shoal")


@pytest.fixture(
    scope="module",
    params=["ours", pytest.param("Apache Kafka", marks=[pytest.mark.kafka, pytest.mark.long])],
)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker | ApacheKafka]:
    if request.param == "ours":
        with Broker() as ours:
            yield ours
    else:
        need(kafka_jars)
        with ApacheKafka() as theirs:
            yield theirs


@pytest.fixture
def shoal(broker: Broker | ApacheKafka, tmp_path: Path) -> Run:
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


@pytest.fixture
def quick(broker: Broker | ApacheKafka, monkeypatch: pytest.MonkeyPatch) -> QuickRun:
    """The same in this process, for tests of many commands; standard input is a pipe."""
    monkeypatch.setenv("SHOAL_BOOTSTRAP", broker.bootstrap_servers)

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin)

    return run
