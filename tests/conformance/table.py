"""The table of client by check, written by a run of the conformance tests.

SHOAL_CONFORMANCE_TABLE=docs/conformance.md python -m pytest tests/conformance
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

TABLE_VARIABLE: Final = "SHOAL_CONFORMANCE_TABLE"
_HEAD: Final = """# Conformance

Real clients against our broker, one row per check. Written by the tests themselves
(`SHOAL_CONFORMANCE_TABLE=docs/conformance.md python -m pytest tests/conformance`); a check that
could not run says why. The tests that other projects have of their own are on
[a page of their own](conformance-suites.md).

A dash: the check does not exist for that client, because it is about a tool or about several
clients at once.

"""


def read_table(path: Path) -> dict[tuple[str, str], str]:
    """The outcomes in a table written before, so that a partial run updates its own cells."""
    if not path.exists():
        return {}
    lines = path.read_text().splitlines()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|"
    ]
    notes = {
        line.split(")", 1)[0][1:]: line.split(") ", 1)[1]
        for line in lines
        if line[:1] == "(" and line[1:2].isdigit()
    }
    found = {}
    clients = [_without_version(title) for title in rows[0][1:]]
    for check, *cells in rows[2:]:
        for client, cell in zip(clients, cells, strict=True):
            if cell.startswith("not run ("):
                cell = f"not run: {notes[cell[9:-1]]}"
            if cell != "-":
                found[check, client] = cell
    return found


def _without_version(title: str) -> str:
    name, _, last = title.rpartition(" ")
    return name if name and _version(name) == last else title


def write_table(path: Path, outcomes: dict[tuple[str, str], str]) -> None:
    outcomes = read_table(path) | outcomes
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
