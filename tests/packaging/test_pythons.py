"""How `make test-pythons` finds Pythons and chooses among them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging import pythons
from tests.packaging.distribution import ROOT
from tests.packaging.pythons import Interpreter

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def program(path: Path, version: str) -> Path:
    """An executable that says it is a Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}/path:/bin")
    monkeypatch.setenv("PYENV_ROOT", f"{tmp_path}/pyenv")
    monkeypatch.setenv("SHOAL_PYTHONS_CACHE", f"{tmp_path}/cache")
    return tmp_path


def test_every_supported_python_is_in_the_classifiers_and_the_oldest_is_what_is_required() -> None:
    assert pythons.supported() == ["3.11", "3.12", "3.13", "3.14"]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={pythons.supported()[0]}"' in text


def test_the_running_python_stands_for_its_own_version() -> None:
    found = pythons.find(HERE)
    assert found is not None
    assert found.program == sys.executable


def test_a_python_is_found_on_the_path_then_among_pyenvs_then_where_one_was_fetched(
    nothing_installed: Path,
) -> None:
    assert pythons.find("3.98") is None
    fetched = program(nothing_installed / "cache/bin/python3.98", "3.98 3.98.0")
    assert pythons.find("3.98") == Interpreter("3.98", "3.98.0", str(fetched))
    program(nothing_installed / "pyenv/versions/3.98.1/bin/python3.98", "3.98 3.98.1")
    newer = program(nothing_installed / "pyenv/versions/3.98.2/bin/python3.98", "3.98 3.98.2")
    assert pythons.find("3.98") == Interpreter("3.98", "3.98.2", str(newer))
    on_path = program(nothing_installed / "path/python3.98", "3.98 3.98.3")
    assert pythons.find("3.98") == Interpreter("3.98", "3.98.3", str(on_path))


def test_a_python_is_found_beside_the_one_that_runs_whatever_HOME_is(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(nothing_installed / "versions/3.97.0"))
    beside = program(nothing_installed / "versions/3.98.1/bin/python3.98", "3.98 3.98.1")
    assert pythons.find("3.98") == Interpreter("3.98", "3.98.1", str(beside))


def test_a_program_that_only_has_the_name_is_passed_over(nothing_installed: Path) -> None:
    shim = nothing_installed / "path/python3.98"
    program(shim, "").write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    fetched = program(nothing_installed / "cache/bin/python3.98", "3.98 3.98.0")
    assert pythons.find("3.98") == Interpreter("3.98", "3.98.0", str(fetched))
    program(shim, "3.97 3.97.0")
    assert pythons.find("3.98") == Interpreter("3.98", "3.98.0", str(fetched))


def test_the_second_python_is_the_newest_other_one() -> None:
    here = Interpreter(HERE, HERE, sys.executable)
    old, new = Interpreter("3.97", "3.97.0", "/old"), Interpreter("3.98", "3.98.0", "/new")
    assert pythons.second([old, new, here]) == [new]
    assert pythons.second([here]) == []


def test_without_the_python_that_was_asked_for_nothing_passes(
    nothing_installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pythons.main(["--only", "3.98"]) == 1
    assert "Python 3.98: not found" in capsys.readouterr().out


@pytest.mark.slow
def test_the_tests_can_be_collected_where_spark_has_no_wheel(tmp_path: Path) -> None:
    (tmp_path / "without_spark.py").write_text("import sys\nsys.modules['pyspark'] = None\n")
    command = [sys.executable, "-m", "pytest", "-p", "without_spark", "--collect-only", "-q"]
    options = ["-m", pythons.FAST, "-o", f"cache_dir={tmp_path}", "tests/spark"]
    paths = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env={**os.environ, **paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
