"""Without Java, with an old Java, without Spark: one line, and the rest works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.errors import ConfigError, install_command
from shoal.spark.local import check_prerequisites

OLD_JAVA = """#!/bin/sh
echo 'openjdk version "{version}" 2024-01-01' >&2
"""


def fake_java(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(OLD_JAVA.format(version=version))
    java.chmod(0o755)
    return directory


def test_no_java_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="Java is not installed; Spark needs a JDK, 17 or newer"):
        check_prerequisites()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="has no bin/java; Spark needs a JDK"):
        check_prerequisites()


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_392", "8"), ("11.0.21", "11")])
def test_an_old_java_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, shown: str
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    with pytest.raises(ConfigError, match=f"Java is version {shown}; Spark needs 17 or newer"):
        check_prerequisites()


def test_a_fitting_java_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "21.0.8")))
    check_prerequisites()


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


HIDE_SPARK = "import sys; sys.modules['pyspark'] = None\n"


@pytest.mark.slow
def test_without_spark_the_rest_works_and_the_session_says_what_to_install() -> None:
    rest = HIDE_SPARK + (
        "import shoal, shoal.spark\n"
        "from shoal.testing.broker import Broker\n"
        "with Broker(topics={'t': 1}) as broker:\n"
        "    with shoal.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:\n"
        "        print(producer.send('t', b'v').result(10).offset)\n"
    )
    done = run(rest)
    assert done.stdout.strip() == "0", done.stderr
    asked = HIDE_SPARK + (
        "from shoal.errors import ConfigError\n"
        "from shoal.spark import session\n"
        "try:\n    session()\nexcept ConfigError as error:\n    print(error)\n"
    )
    said = f"Spark is not installed; run: {install_command('spark')}"
    assert run(asked).stdout.strip() == said


@pytest.mark.slow
def test_the_demo_without_java_shows_the_rest_and_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shoal", "demo", "--output", str(tmp_path / "out")]
    environment = {**os.environ, "PATH": str(tmp_path)}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "no Spark pipeline: Java is not installed" in done.stderr
    assert (tmp_path / "out" / "group.svg").exists()
