"""README's two commands, as somebody runs them who has just cloned the repository.

The clone stands in an empty directory, the home is empty, and the path holds Python, make, git and
the ordinary small tools, with Java or without; no compiler, no Maven, no npm. Everything else must
come from the project itself. These are long: packages are installed anew and the tests run whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.peers import need
from tests.peers.jars import java

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    "awk basename bash cat chmod cp cut date dirname env expand expr find git grep head hostname "
    "id kill ln ls make mkdir mktemp mv nice nohup ps readlink rm sed seq setsid sh sleep sort "
    "stat tail tar tee touch tr true uname wc which whoami xargs"
)
# What a machine says about its package index and certificates is not the user's home.
KEPT = ("PIP_", "SSL_", "REQUESTS_", "http_proxy", "https_proxy", "no_proxy", "LANG", "TMPDIR")


class NewUser:
    """A clone, a home and a path of their own."""

    def __init__(self, directory: Path, *, with_java: bool) -> None:
        self.clone = directory / "shoal"
        self.home = directory / "home"
        self.home.mkdir()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(self.clone)], check=True)
        programs = directory / "programs"
        programs.mkdir()
        for name in TOOLS.split():
            found = shutil.which(name)
            if found is not None:
                (programs / name).symlink_to(found)
        base = Path(sys.base_prefix) / "bin" / "python3"
        (programs / "python3").symlink_to(base)
        if with_java:
            (programs / "java").symlink_to(Path(need(java)).resolve())
        self.environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(KEPT)},
            "HOME": str(self.home),
            "PATH": str(programs),
        }

    def make(self, target: str, *, minutes: int) -> str:
        """Run one target; what it printed, if it ended well."""
        log = self.home.parent / f"{target}.log"
        with log.open("w") as out:
            code = subprocess.run(
                ["make", target],
                cwd=self.clone,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=minutes * 60,
                check=False,
            ).returncode
        text = log.read_text()
        assert code == 0, f"make {target} ended with {code}:\n{text[-6000:]}"
        return text

    def left_running(self) -> list[str]:
        """Processes started from the clone that are still there."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if any(str(self.clone) in word for word in words):
                found.append(" ".join(words))
        return found


@pytest.fixture(params=[True, False], ids=["with Java", "without Java"])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> NewUser:
    return NewUser(tmp_path, with_java=request.param)


def test_the_two_commands_work_first_and_again(user: NewUser) -> None:
    shown = user.make("demo", minutes=20)
    has_java = "java" in os.listdir(user.environment["PATH"])
    assert "lag" in shown
    if not has_java:
        assert "Java" in shown
    user.make("demo", minutes=5)
    tested = user.make("test", minutes=60)
    assert " passed" in tested
    assert " failed" not in tested
    assert user.left_running() == []
    state = subprocess.run(
        ["git", "status", "--porcelain"], cwd=user.clone, capture_output=True, text=True, check=True
    )
    assert state.stdout == "", "the commands changed files that are kept"
