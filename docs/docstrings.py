"""Docstrings and signatures as Markdown, for the reference.

Docstrings have Google's sections and reST's ``::`` before an example; Markdown knows neither.
"""

from __future__ import annotations

import re
import textwrap
from itertools import takewhile

_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):$")
_NAMED = re.compile(r"^(\*{0,2}[\w.]+): ")
_WIDTH = 88


def markdown(text: str) -> str:
    """Sections become lists, examples blocks of code."""
    lines = text.splitlines()
    shown: list[str] = []
    while lines:
        line = lines.pop(0)
        if _SECTION.match(line):
            block = _indented(lines)
            shown += [line, "", *_items(block), ""]
        elif line.endswith("::"):
            while lines and not lines[0].strip():
                del lines[0]
            shown += [line[:-1], "", "```py", *_example(lines), "```", ""]
        else:
            shown.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(shown)).strip("\n")


def signature(name: str, call: str) -> str:
    """A block of code; one line for each parameter if all do not fit in one."""
    if len(name + call) > _WIDTH:
        end = _closing(call)
        parts = "".join(f"    {part},\n" for part in _parts(call[1:end]))
        call = f"(\n{parts}{call[end:]}"
    return f"```py\n{name}{call}\n```"


def _indented(lines: list[str]) -> list[str]:
    """What belongs to a section, taken from the lines after its title."""
    block = list(takewhile(lambda line: not line or line.startswith(" "), lines))
    del lines[: len(block)]
    return textwrap.dedent("\n".join(block)).strip().splitlines()


def _items(block: list[str]) -> list[str]:
    shown: list[str] = []
    while block:
        first = _NAMED.sub(r"`\1`: ", block.pop(0), count=1)
        first_line = [first, *textwrap.dedent("\n".join(_rest(block))).splitlines()]
        body = textwrap.indent(markdown("\n".join(first_line)), "    ")
        shown.append(f"-   {body.lstrip()}")
    return shown


def _rest(block: list[str]) -> list[str]:
    rest = list(takewhile(lambda line: not line or line.startswith(" "), block))
    del block[: len(rest)]
    return rest


def _example(lines: list[str]) -> list[str]:
    """The lines of an example. One after the first line of a docstring has lost its indent."""
    indent = len(lines[0]) - len(lines[0].lstrip())
    margin = " " * indent
    if indent:
        block = list(takewhile(lambda line: not line.strip() or line.startswith(margin), lines))
    else:
        block = list(takewhile(str.strip, lines))
    del lines[: len(block)]
    return textwrap.dedent("\n".join(block)).strip("\n").splitlines()


def _closing(call: str) -> int:
    depth = 0
    for index, letter in enumerate(call):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0:
            return index
    raise ValueError(f"no end of the parameters in {call!r}")


def _parts(inside: str) -> list[str]:
    """The parameters: cut at commas outside of all brackets."""
    depth, begin, found = 0, 0, []
    for index, letter in enumerate(inside):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            found.append(inside[begin:index].strip())
            begin = index + 1
    return [*found, inside[begin:].strip()]
