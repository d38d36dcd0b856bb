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

A dash: there is no such check for that client, because it is about something only others have.

"""


_MIXED_HEAD: Final = """
## Mixed groups

Members of several clients in one group; the first leads it. Across: the broker, and the assignor.

"""


_MIXED: Final = "members form one group: "
"""What the checks of mixed groups begin with; their table leaves it out."""


def read_table(path: Path) -> dict[tuple[str, str], str]:
    """The outcomes on a page written before, so that a partial run updates its own cells."""
    if not path.exists():
        return {}
    lines = path.read_text().splitlines()
    notes = {
        line.split(")", 1)[0][3:]: line.split(") ", 1)[1]
        for line in lines
        if line[:3] == "- (" and line[3:4].isdigit()
    }
    found: dict[tuple[str, str], str] = {}
    clients: list[str] = []
    for line in lines:
        if line[:1] != "|" or line[:4] == "|---":
            continue
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if first in ("check", "members"):
            is_mixed = first == "members"
            clients = [_MIXED + cell if is_mixed else _without_version(cell) for cell in cells]
            continue
        for title, cell in zip(clients, cells, strict=True):
            if cell.startswith("not run ("):
                cell = f"not run: {notes[cell[9:-1]]}"
            if cell != "-":
                found[(title, first) if is_mixed else (first, title)] = cell
    return found


def _without_version(title: str) -> str:
    name, _, last = title.rpartition(" ")
    return name if name and _version(name) == last else title


def write_table(path: Path, outcomes: dict[tuple[str, str], str]) -> None:
    """Checks down, clients across; groups of several clients have a table of their own."""
    outcomes = read_table(path) | outcomes
    notes: list[str] = []
    alone = {key: cell for key, cell in outcomes.items() if ", " not in key[1]}
    mixed = {
        (who, check.removeprefix(_MIXED)): cell
        for (check, who), cell in outcomes.items()
        if ", " in who
    }
    text = _HEAD + _table("check", alone, notes)
    if mixed:
        text += _MIXED_HEAD + _table("members", mixed, notes)
    if notes:
        text += "\n" + "\n".join(f"- ({n}) {reason}" for n, reason in enumerate(notes, 1)) + "\n"
    path.write_text(text)


def _table(corner: str, outcomes: dict[tuple[str, str], str], notes: list[str]) -> str:
    """Markdown; the reasons of what did not run are added to ``notes``."""
    columns = sorted({column for _, column in outcomes})
    titles = [f"{column} {_version(column)}".strip() for column in columns]
    lines = [f"| {corner} | " + " | ".join(titles) + " |", "|---" * (len(columns) + 1) + "|"]
    for row in sorted({row for row, _ in outcomes}):
        cells = [_cell(outcomes.get((row, column), "-"), notes) for column in columns]
        lines.append("| " + " | ".join([row, *cells]) + " |")
    return "\n".join(lines) + "\n"


def _cell(cell: str, notes: list[str]) -> str:
    if not cell.startswith("not run: "):
        return cell
    reason = cell.removeprefix("not run: ")
    if reason not in notes:
        notes.append(reason)
    return f"not run ({notes.index(reason) + 1})"


def _version(client: str) -> str:
    try:
        return version(client)
    except (PackageNotFoundError, ValueError):
        return ""
