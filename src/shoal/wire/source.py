"""Python text while it is being generated: lines, fresh names, and the objects the text refers to.

A declaration and a version become straight-line code, because deciding per field at run time what
its type is costs several times more than reading or writing the field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class GeneratedSource:
    """One module's worth of generated functions, sharing one namespace."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.names: dict[str, Any] = {}
        self._functions: list[str] = []
        self._bound: dict[tuple[str, int], str] = {}
        self._count = 0

    def fresh(self, prefix: str) -> str:
        """A name nobody else in this source uses."""
        self._count += 1
        return f"{prefix}{self._count}"

    def bind(self, value: Any, prefix: str) -> str:
        """A name under which the generated code finds ``value``."""
        key = prefix, id(value)
        if key not in self._bound:
            self._bound[key] = name = self.fresh(prefix)
            self.names[name] = value
        return self._bound[key]

    def add_function(self, lines: list[str]) -> None:
        self._functions.append("\n".join(lines))

    @property
    def text(self) -> str:
        return "\n\n".join(self._functions)

    def compile(self, name: str) -> Callable[..., Any]:
        code = compile(self.text, f"<{self.title}>", "exec")
        exec(code, self.names)  # noqa: S102  (text made by us from a declaration, never from input)
        function: Callable[..., Any] = self.names[name]
        return function


class Block:
    """The lines of one function; ``with block.indented("for x in xs:")`` opens an inner one."""

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self._depth = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def indented(self, head: str) -> Block:
        self.line(head)
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
