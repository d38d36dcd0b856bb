"""Writes docs/reference/*.md from the code: ``python -m docs.generate_reference``.

Settings, error codes, the command line and the public Python names are documented where they are
defined; these pages only collect that.
"""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import shoal
from shoal.errors import ErrorCode

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference"
NOTE = "Made from the code by `python -m docs.generate_reference`.\n"


def error_codes() -> str:
    """Every error code of the protocol."""
    lines = [
        "# Error codes",
        "",
        NOTE,
        "| code | name | retriable | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {int(code)} | {code.name} | {'yes' if code.retriable else ''} | {code.description} |"
        for code in ErrorCode
    ]
    return "\n".join([*lines, ""])


def settings() -> str:
    """Settings of clients and broker, with defaults and meaning."""
    files = {
        "Clients": "src/shoal/client/config.py",
        "Broker": "src/shoal/broker/config.py",
        "Group coordinator": "src/shoal/group/config.py",
        "Topic": "src/shoal/log/config.py",
    }
    lines = ["# Settings", "", NOTE]
    for title, name in files.items():
        lines += [f"## {title}", ""]
        tree = ast.parse((ROOT / name).read_text())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and (rows := _fields(node)):
                summary = (ast.get_docstring(node) or "").split("\n\n")[0]
                lines += [f"### {node.name}", "", " ".join(summary.split()), ""]
                lines += ["| setting | type | default | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _fields(node: ast.ClassDef) -> list[str]:
    rows = []
    for index, item in enumerate(node.body):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        after = node.body[index + 1] if index + 1 < len(node.body) else None
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = " ".join(str(after.value.value).split())
        default = ast.unparse(item.value) if item.value is not None else "required"
        default = default.replace("_MIB", "MiB")
        kind = ast.unparse(item.annotation).replace("|", "\\|")
        row = f"| `{item.target.id}` | `{kind}` | `{default}` | {text} |"
        rows.append(row.replace("\n", " "))
    return rows


def python_api() -> str:
    """The public names and what their docstrings say."""
    lines = ["# Python API", "", NOTE]
    for name in sorted(shoal.__all__):
        if name.startswith("__"):
            continue
        thing = getattr(shoal, name)
        lines += [f"## shoal.{name}", "", inspect.getdoc(thing) or "", ""]
        if (keywords := _keywords(thing)) is not None:
            lines += [f"`{name}(config=None, **settings)`: {keywords}", ""]
        for method, function in inspect.getmembers(thing, inspect.isfunction):
            if method.startswith("_") or not function.__module__.startswith("shoal"):
                continue
            signature = str(inspect.signature(function)).replace("self, ", "").replace("self", "")
            lines += [f"### `{name}.{method}{signature}`", "", inspect.getdoc(function) or "", ""]
    return "\n".join(lines)


def _keywords(thing: object) -> str | None:
    """Where the keyword arguments of a client's constructor are described."""
    start = getattr(thing, "__init__", None)
    if not inspect.isfunction(start) or "settings" not in inspect.signature(start).parameters:
        return None
    config = str(inspect.signature(start).parameters["config"].annotation).split(" | ")[0]
    names = dict.fromkeys(("ConnectionConfig", config.replace("Admin", "Connection")))
    links = " and ".join(f"[{one}](settings.md#{one.lower()})" for one in names)
    return f"every keyword, its type and its default stand in {links}."


def command_line() -> str:
    """The help of every command."""
    from shoal.cli.commands import COMMANDS

    lines = [
        "# Command line",
        "",
        NOTE,
        "Exit codes: 0 done; 1 the world said no (one line says what); 2 wrong usage;",
    ]
    lines += ["3 `shoal why` found a problem; 130 interrupted.", ""]
    for name in COMMANDS:
        lines += [f"## shoal {name}", "", "```text", _help(name), "```", ""]
        for sub in _subcommands(name):
            lines += [f"### shoal {name} {sub}", "", "```text", _help(name, sub), "```", ""]
    return "\n".join(lines)


def _help(*words: str) -> str:
    shown = subprocess.run(
        [sys.executable, "-m", "shoal", *words, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100"},
    )
    return shown.stdout.strip()


def _subcommands(name: str) -> list[str]:
    _, found, rest = _help(name).partition("\nCommands:\n")
    return (
        [line.split()[0] for line in rest.splitlines() if line.startswith("  ") and line[2] != " "]
        if found
        else []
    )


PAGES = {
    "errors.md": error_codes,
    "settings.md": settings,
    "python.md": python_api,
    "cli.md": command_line,
}


def main() -> None:
    """Write every page."""
    TARGET.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (TARGET / name).write_text(page())


if __name__ == "__main__":
    main()
