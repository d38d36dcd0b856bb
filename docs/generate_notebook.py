"""Writes docs/tutorial.ipynb from docs/tutorial.md: ``python -m docs.generate_notebook``.

The page is the source. Text becomes text cells; code becomes code cells, commands of the shell as
``%%bash``. The first cell starts a broker in the notebook itself, so that nothing else has to run,
and blocks that cannot run on the page stay text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
SOURCE = DOCS / "tutorial.md"
TARGET = DOCS / "tutorial.ipynb"

BLOCK = re.compile(
    r"(?P<skip>^<!-- not run: [^>]+ -->\n)?^```(?P<kind>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
BEGIN = """import os

from shoal.testing import Broker

broker = Broker().start()
servers = broker.bootstrap_servers
os.environ["SHOAL_BOOTSTRAP"] = servers  # the commands below find it there
print("ready", servers)"""
END = "broker.stop()"
INTRODUCTION = (
    "*This notebook is [tutorial.md](tutorial.md), to run cell by cell. Its first cell starts a "
    "broker inside the notebook. Install Shoal into the notebook's Python first: in a clone, "
    "`pip install -e '.[spark]'`.*"
)


def notebook(page: str) -> dict[str, Any]:
    """The page as a notebook (nbformat 4.5)."""
    cells = [_text(INTRODUCTION), _code(BEGIN), *_cells(page), _code(END)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cells(page: str) -> Iterator[dict[str, Any]]:
    at = 0
    for match in BLOCK.finditer(page):
        if text := page[at : match.start()].strip():
            yield _text(text)
        at = match.end()
        code = match["code"].strip()
        if match["skip"]:
            yield _text(f"```{match['kind']}\n{code}\n```")
        elif match["kind"] == "sh":
            yield _code(f"%%bash\n{code}")
        else:
            yield _code(
                code.replace('"localhost:9092"', "servers").replace("servers = servers\n", "")
            )
    if text := page[at:].strip():
        yield _text(text)


def _text(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(code: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": code.splitlines(keepends=True),
    }


def text() -> str:
    """The notebook as it should be in the repository."""
    made = notebook(SOURCE.read_text(encoding="utf-8"))
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the notebook."""
    TARGET.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
