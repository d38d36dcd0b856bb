"""Writes docs/file-map.md from the modules' first lines (python -m docs.generate_file_map)."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "file-map.md"
# From the bottom of the layers to the top, the way a reader builds up.
PACKAGES = (
    "records",
    "wire",
    "assign",
    "machine",
    "group",
    "group/coordinator",
    "group/member",
    "transaction",
    "log",
    "broker",
    "client",
    "fleet",
    "spark",
    "spark/history",
    "testing",
    "testing/simulation",
    "lab",
    "web",
    "cli",
)


def page() -> str:
    """The page as text."""
    lines = [
        "# File map",
        "",
        "Generated from the first line of each module by `python -m docs.generate_file_map`.",
        "",
        "| module | what it is for |",
        "|---|---|",
        *_rows(sorted((ROOT / "src" / "shoal").glob("*.py"))),
        "",
    ]
    for package in PACKAGES:
        directory = ROOT / "src" / "shoal" / package
        lines += [f"## {package}", "", _first_line(directory / "__init__.py"), ""]
        files = [path for path in sorted(directory.glob("*.py")) if path.stem != "__init__"]
        if files:
            lines += ["| module | what it is for |", "|---|---|", *_rows(files), ""]
    return "\n".join(lines)


def _rows(paths: list[Path]) -> list[str]:
    return [
        f"| `{path.relative_to(ROOT / 'src' / 'shoal')}` | {_first_line(path)} |" for path in paths
    ]


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    # A first sentence may run over the line's end; it stops at the blank line.
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(page())
