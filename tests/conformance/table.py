"""The table of client by check, written by a run of the conformance tests.

SHOAL_CONFORMANCE_TABLE=docs/conformance.md python -m pytest tests/conformance
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

TABLE_VARIABLE: Final = "SHOAL_CONFORMANCE_TABLE"
_HEAD: Final = """# Conformance

Real clients against `shoal serve`, one row per check. Written by the tests themselves
(`SHOAL_CONFORMANCE_TABLE=docs/conformance.md python -m pytest tests/conformance`); a check that
could not run says why.

"""


def write_table(path: Path, outcomes: dict[tuple[str, str], str]) -> None:
    clients = sorted({client for _, client in outcomes})
    checks = sorted({check for check, _ in outcomes})
    notes: list[str] = []
    rows = []
    for check in checks:
        cells = []
        for client in clients:
            cell = outcomes.get((check, client), "-")
            if cell.startswith("not run: "):
                reason = cell.removeprefix("not run: ")
                if reason not in notes:
                    notes.append(reason)
                cell = f"not run ({notes.index(reason) + 1})"
            cells.append(cell)
        rows.append("| " + " | ".join([check, *cells]) + " |")
    titles = [f"{client} {_version(client)}".strip() for client in clients]
    lines = ["| check | " + " | ".join(titles) + " |", "|---" * (len(clients) + 1) + "|", *rows]
    text = _HEAD + "\n".join(lines) + "\n"
    if notes:
        text += "\n" + "\n".join(f"({n}) {reason}" for n, reason in enumerate(notes, 1)) + "\n"
    path.write_text(text)


def _version(client: str) -> str:
    try:
        return version(client)
    except PackageNotFoundError:
        return ""
