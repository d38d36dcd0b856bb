"""The notebook is the tutorial, and its cells run one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from docs.generate_notebook import TARGET, notebook, text

from tests.peers import need
from tests.peers.jars import java

RUNNER = """
import json, subprocess, sys
space = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        code = "".join(cell["source"])
        if code.startswith("%%bash\\n"):
            subprocess.run(["bash", "-euc", code.partition("\\n")[2]], check=True)
        else:
            exec(compile(code, cell["id"], "exec"), space)
"""


def _run(path: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    programs = str(Path(sys.executable).parent)
    return subprocess.run(
        [sys.executable, "-c", RUNNER, str(path)],
        cwd=directory,
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_the_notebook_is_the_tutorial_of_today() -> None:
    assert TARGET.read_text(encoding="utf-8") == text(), "run: python -m docs.generate_notebook"


def test_a_page_becomes_cells_in_its_order() -> None:
    page = "# A\n\n```sh\nshoal x\n```\n\nText\n\n<!-- not run: why -->\n```python\nx\n```\n"
    cells = notebook(page)["cells"][2:-1]
    shown = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    assert shown == [
        ("markdown", "# A"),
        ("code", "%%bash\nshoal x"),
        ("markdown", "Text"),
        ("markdown", "```python\nx\n```"),
    ]


@pytest.mark.slow
def test_the_cells_before_spark_run(tmp_path: Path) -> None:
    made = json.loads(TARGET.read_text(encoding="utf-8"))
    made["cells"] = [
        cell for cell in made["cells"] if "spark" not in "".join(cell["source"]).lower()
    ]
    part = tmp_path / "part.ipynb"
    part.write_text(json.dumps(made), encoding="utf-8")
    done = _run(part, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "one reads" in done.stdout


@pytest.mark.slow
@pytest.mark.spark
def test_every_cell_runs(tmp_path: Path) -> None:
    need(java)
    done = _run(TARGET, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rides-etl" in done.stdout
