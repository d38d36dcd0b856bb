"""The examples run as they stand, and print what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import need
from tests.peers.jars import java

pytestmark = [pytest.mark.spark, pytest.mark.long]

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {
    "spark_job.py": ("riga", "oslo", "lima"),
    "spark_streaming.py": ('"visitor":"ann"', '"count":3', '"count":2', '"ben"', "lag: 0"),
    "spark_migration.py": ("1000 records in",),
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs_from_anywhere(name: str, tmp_path: Path) -> None:
    need(java)
    pytest.importorskip("pyspark")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for text in SHOWN[name]:
        assert text in done.stdout
