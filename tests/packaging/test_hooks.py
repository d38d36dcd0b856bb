"""What ``pre-commit install`` puts before a commit: run as git runs it, in a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.peers import need
from tests.peers.cache import program

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv" / "bin"

pytestmark = pytest.mark.slow


def _git(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    git = need(lambda: program("git", "to commit something"))
    # Nothing may be fetched: the hooks are the tools that `make setup` has put into .venv.
    offline = {"PRE_COMMIT_HOME": str(clone / ".git" / "hooks-cache"), "PIP_NO_INDEX": "1"}
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    return subprocess.run(
        [git, *who, *arguments],
        cwd=clone,
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with these hooks and nothing else in it."""
    if not (BIN / "pre-commit").exists():
        pytest.skip("pre-commit is not in .venv: make setup")
    for name in (".pre-commit-config.yaml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / ".gitignore").write_text(".venv\n.*_cache/\n")
    assert _git(tmp_path, "init", "-q").returncode == 0
    installed = subprocess.run(
        [BIN / "pre-commit", "install"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return tmp_path


def test_what_ruff_refuses_cannot_be_committed(clone: Path) -> None:
    bad = clone / "bad.py"
    bad.write_text('"""A module."""\n\nx = ( 1 )\nprint(undefined_name)\n')
    assert _git(clone, "add", "-A").returncode == 0
    refused = _git(clone, "commit", "-m", "Try it")
    assert refused.returncode != 0
    assert "ruff format" in refused.stderr
    assert "undefined_name" in refused.stderr
    assert "x = 1" in bad.read_text(), "what can be mended is mended, to be looked at and added"
    assert _git(clone, "rev-parse", "HEAD").returncode != 0, "nothing was committed"


def test_a_commit_without_python_waits_for_no_hook(clone: Path) -> None:
    (clone / "README.md").write_text("Words.\n")
    assert _git(clone, "add", "-A").returncode == 0
    done = _git(clone, "commit", "-m", "Say something")
    assert done.returncode == 0, done.stdout + done.stderr
