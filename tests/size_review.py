"""What is worth a look for its size: ``python -m tests.size_review``, printed by ``make check``.

Length is a question, not a limit: a file is cut where an idea ends, and a satellite that exists
for a line count costs every reader a hop. So nothing here fails. A class whose constructor needs
many things, or that remembers many, is the better hint that two are hiding in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
LINES = 500
CONSTRUCTOR_ARGUMENTS = 9
ATTRIBUTES = 20


def findings() -> Iterator[str]:
    """One line per module or class, the largest of each kind first."""
    modules: list[tuple[int, str]] = []
    classes: list[tuple[int, int, str]] = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        is_ours = path.is_relative_to(SOURCE / "shoal")  # a clone may be called shoal, too
        name = str(path.relative_to(SOURCE / "shoal")) if is_ours else path.name
        modules.append((text.count("\n"), name))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                arguments, attributes = _size(node)
                classes.append((arguments, attributes, f"{name}: {node.name}"))
    for lines, name in sorted(modules, reverse=True):
        if lines > LINES:
            yield f"{name} has {lines} lines"
    for arguments, attributes, name in sorted(classes, reverse=True):
        if arguments > CONSTRUCTOR_ARGUMENTS or attributes > ATTRIBUTES:
            yield f"{name} takes {arguments} arguments and has {attributes} attributes"


def _size(node: ast.ClassDef) -> tuple[int, int]:
    """Arguments of the constructor, and attributes that any method sets."""
    arguments = 0
    attributes: set[str] = set()
    for method in node.body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if method.name == "__init__":
            arguments = len(method.args.args) + len(method.args.kwonlyargs) - 1
        for each in ast.walk(method):
            if (
                isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Store)
                and isinstance(each.value, ast.Name)
                and each.value.id == "self"
            ):
                attributes.add(each.attr)
    return arguments, len(attributes)


if __name__ == "__main__":
    for finding in findings():
        print(f"worth a look: {finding}")
