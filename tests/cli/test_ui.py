"""``shoal ui`` and ``shoal serve --ui`` as processes: what they print, and that they end."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE_S = 90


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def address(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The port and the token that it printed."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"dashboard at http://127\.0\.0\.1:(\d+)/#token=(\S+)", line):
            return int(found[1]), found[2]
    raise AssertionError("no address was printed")


def status(port: int) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def wait_until_gone(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while status(port) is not None:
        assert time.monotonic() < deadline, "the dashboard is still there"
        time.sleep(0.1)


@pytest.mark.slow
def test_a_dashboard_beside_a_broker_goes_with_it_however_it_ends(tmp_path: Path) -> None:
    serve = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--ui")
    with running(*serve) as broker:
        port, _ = address(broker)
        assert status(port) == 200
        broker.send_signal(signal.SIGKILL)
        broker.wait(PATIENCE_S)
        wait_until_gone(port)


@pytest.mark.slow
def test_a_terminated_broker_takes_its_dashboard_along(tmp_path: Path) -> None:
    serve = ("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--ui")
    with running(*serve) as broker:
        port, _ = address(broker)
        broker.terminate()
        assert broker.wait(PATIENCE_S) == 0
        wait_until_gone(port)


def refused(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "shoal", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.mark.slow
def test_a_dashboard_for_others_needs_tls_and_a_password() -> None:
    said = refused("ui", "--host", "0.0.0.0", "--no-browser")
    assert "--certificate and --key, --login-password-file, --public-name" in said


@pytest.mark.slow
def test_a_broker_with_users_has_no_dashboard_without_one(tmp_path: Path) -> None:
    said = refused("serve", "--ui", "--sasl", "SCRAM-SHA-256", "--data-dir", str(tmp_path))
    assert "run `shoal ui` beside the broker" in said


@pytest.mark.slow
def test_without_the_extra_a_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ImportError\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "shoal", "ui", "--no-browser"],
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("shoal: the dashboard's web server is not installed; run: pip ")
    assert "[web]" in done.stderr
    assert done.stderr.count("\n") == 1
