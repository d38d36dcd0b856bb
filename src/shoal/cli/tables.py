"""Tables for terminals of any width, without a word broken or a cell cut.

Rule: what does not fit is first wrapped between words, and if that is not enough, the table is
given in parts below each other, each with the first column again. Only a single word that is wider
than the terminal itself is broken, because nothing else can be done with it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

GAP: Final = 2
WRAPPED_MIN: Final = 12
"""A column of text is not made narrower than this, if its words allow."""


class Piece(NamedTuple):
    """A part of a line, and what it means: a key of ``COLOURS``, or nothing."""

    text: str
    meaning: str = ""


class Column(NamedTuple):
    """The cells of a column as they are shown, its name first."""

    cells: Sequence[str]
    is_numeric: bool

    @property
    def natural(self) -> int:
        return max(1, *map(len, self.cells))

    @property
    def least(self) -> int:
        """As narrow as it can be without breaking a word."""
        if self.is_numeric:
            return self.natural
        words = [len(word) for cell in self.cells for word in cell.split()]
        return min(self.natural, max([*words, WRAPPED_MIN]))


def lay_out(
    columns: Sequence[Column], width: int, meaning: Callable[[str], str] = lambda _: ""
) -> Iterator[list[Piece]]:
    """The lines of a table that is at most ``width`` wide."""
    for number, part in enumerate(_parts(columns, width)):
        if number:
            yield []
        yield from _lines(part, _widths(part, width), meaning)


def _parts(columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    """Columns side by side as far as they fit; the first begins every part."""
    first, *others = columns
    part = [first]
    for column in others:
        if len(part) > 1 and _sum(one.least for one in (*part, column)) > width:
            yield part
            part = [first]
        part.append(column)
    yield part


def _sum(widths: Iterator[int]) -> int:
    found = list(widths)
    return sum(found) + GAP * (len(found) - 1)


def _widths(columns: list[Column], width: int) -> list[int]:
    """Natural widths, those of text cut down, the widest first, until all fit."""
    widths = [column.natural for column in columns]
    least = [column.least for column in columns]
    while (over := _sum(iter(widths)) - width) > 0:
        slack = [w - m for w, m in zip(widths, least, strict=True)]
        if not any(slack):
            # Words wider than the terminal: whoever is widest is broken.
            least = [min(m, max(1, width // len(columns) - GAP)) for m in least]
            if widths == [min(w, m) for w, m in zip(widths, least, strict=True)]:
                break
            continue
        widest = max(
            (index for index, one in enumerate(slack) if one), key=lambda index: widths[index]
        )
        widths[widest] -= min(over, slack[widest], max(1, slack[widest] // 2))
    return widths


def _lines(
    columns: list[Column], widths: list[int], meaning: Callable[[str], str]
) -> Iterator[list[Piece]]:
    for row in range(len(columns[0].cells)):
        cells = [
            textwrap.wrap(column.cells[row], width, break_on_hyphens=False) or [""]
            for column, width in zip(columns, widths, strict=True)
        ]
        means = [meaning(column.cells[row]) if row else "" for column in columns]
        for level in range(max(map(len, cells))):
            line: list[Piece] = []
            for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
                text = cells[index][level] if level < len(cells[index]) else ""
                is_last = index == len(columns) - 1
                if column.is_numeric:
                    text = f"{text:>{width}}"
                elif not is_last:
                    text = f"{text:<{width}}"
                line.append(Piece(text, means[index]))
                if not is_last:
                    line.append(Piece(" " * GAP))
            yield line
        if row == 0:
            yield [Piece("─" * _sum(iter(widths)))]
