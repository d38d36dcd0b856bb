"""The layer contract holds, and it can fail: a planted forbidden import is caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PLANTS = {
    "a clock in the group": ("group/coordinator/states.py", "import time"),
    "asyncio inside a function of the group": (
        "group/coordinator/states.py",
        "def planted() -> None:\n    import asyncio  # noqa\n",
    ),
    "the log reaching up to the broker": ("log/index.py", "import shoal.broker"),
    "files opened outside disk.py": ("log/segment.py", "import os"),
    "the broker using the client": ("broker/server.py", "import shoal.client"),
    "a new package nobody argued for": ("helpers/__init__.py", ""),
    "pandas below spark": ("client/cluster.py", "import pandas"),
    "the client using spark": ("client/cluster.py", "import shoal.spark"),
    "the fleet using spark": ("fleet/report.py", "import shoal.spark.ranges"),
    "the dashboard printing": ("web/gate.py", "import shoal.cli.output"),
    "the lab showing pages": ("lab/paths.py", "import shoal.web.gate"),
    "the fleet printing": ("fleet/diagnosis.py", "import shoal.cli.output"),
    "the client diagnosing": ("client/admin.py", "import shoal.fleet.snapshots"),
    "chance in the assignors": ("assign/range.py", "import random"),
    "records knowing requests": ("records/batch.py", "import shoal.wire"),
}


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_tree_keeps_its_layers(copy: Path) -> None:
    shown = lint(copy)
    assert shown.returncode == 0, shown.stdout


@pytest.mark.slow
@pytest.mark.parametrize("what", list(PLANTS))
def test_a_planted_import_breaks_the_contract(copy: Path, what: str) -> None:
    name, line = PLANTS[what]
    module = copy / "src" / "shoal" / name
    module.parent.mkdir(exist_ok=True)
    text = module.read_text() if module.exists() else ""
    module.write_text(f"{text}\n{line}\n")
    shown = lint(copy)
    assert shown.returncode != 0, f"{what} went unnoticed"
    assert "BROKEN" in shown.stdout or "helpers" in shown.stdout
