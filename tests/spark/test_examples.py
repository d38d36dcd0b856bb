"""The examples run as they stand, and print what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import need
from tests.peers.jars import java
from tests.peers.pipelines import pipeline_packages

pytestmark = [pytest.mark.spark, pytest.mark.long]

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {
    "spark_job.py": ("riga", "oslo", "lima"),
    "spark_streaming.py": ('"visitor":"ann"', '"count":3', '"count":2', '"ben"', "lag: 0"),
    "spark_migration.py": ("1000 records in",),
    "spark_fleet.py": ("member joined", "lag by group", "group started"),
}


def run(name: str, cwd: Path, **environment: str) -> str:
    need(java)
    pytest.importorskip("pyspark")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs_from_anywhere(name: str, tmp_path: Path) -> None:
    shown = run(name, tmp_path)
    for text in SHOWN[name]:
        assert text in shown


def test_a_declarative_pipeline_runs_on_the_same_source_and_sink(tmp_path: Path) -> None:
    shown = run("spark_pipeline.py", tmp_path, PYTHONPATH=str(need(pipeline_packages)))
    assert "10 large orders, lag 0" in shown
