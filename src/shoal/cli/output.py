"""The one door for what commands print: lines and tables for people, JSON for programs.

Rule: whatever passes here is text. Names, keys, errors and file names are other people's: nothing
in them is markup (``[red]`` is six characters), and a control character is written out, so that it
cannot move the cursor. No other module of the command line prints, or knows Rich.

Colours and progress bars appear on a terminal only, and not with ``NO_COLOR``, so that what a
program or a file gets is plain.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

import typer

from shoal.cli.tables import Column, Piece, lay_out
from shoal.errors import counted

COLOURS: Final = {
    "Stable": "green",
    "Empty": "yellow",
    "Dead": "red",
    "PreparingRebalance": "yellow",
    "CompletingRebalance": "yellow",
    "ok": "green",
    "note": "yellow",
    "problem": "red",
    "torn": "yellow",
    "corrupt": "red",
    "unsupported": "yellow",
}
"""Words that mean something at a glance. ``NO_COLOR`` and a pipe switch them off."""


def printable(text: str) -> str:
    """``text`` with control and other invisible characters written out."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def text_of(data: bytes | None) -> str:
    """Bytes for people: UTF-8 where it is that, escapes elsewhere; ``∅`` for a null."""
    if data is None:
        return "∅"
    return printable(data.decode(errors="backslashreplace"))


def json_of(data: bytes | None) -> Any:
    """Bytes for JSON, so that ``bytes_of`` gets exactly these back: UTF-8 as a string, anything
    else as ``{"base64": …}``."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_of(value: Any) -> bytes | None:
    """What ``json_of`` was given.

    Raises:
        ValueError: it is none of its answers; says what would be one.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"its base64 is damaged ({error})") from None
    raise ValueError('give a string, null, or {"base64": "…"}')


def tell(*cells: str, meaning: str = "") -> None:
    """One line on standard output; several cells get tabs between them.

    Args:
        meaning: a key of ``COLOURS``.
    """
    line = "\t".join(map(printable, cells))
    for part in _fitting(line, sys.stdout):
        typer.secho(part, fg=COLOURS.get(meaning), color=_wants_color())


def tell_link(before: str, path: Path) -> None:
    """A line that ends in a file: to click on a terminal, as an address anywhere else."""
    address = path.resolve().as_uri()
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        tell(f"{before}{address}")
        return
    # OSC 8; what is between is ours, the address is percent-encoded.
    shown = printable(str(path))
    typer.echo(f"{printable(before)}\x1b]8;;{address}\x1b\\{shown}\x1b]8;;\x1b\\  ({address})")


def warn(text: str) -> None:
    """One line on standard error."""
    for part in _fitting(printable(text), sys.stderr):
        typer.echo(part, err=True)


def _fitting(line: str, stream: TextIO) -> list[str]:
    """A line as it is; on a terminal that is too narrow for it, broken between words."""
    width = shutil.get_terminal_size().columns
    return wrapped(line, width) if len(line) > width and stream.isatty() else [line]


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    typer.echo(json_text(value))


def json_text(value: Any) -> str:
    """A value as JSON that is readable and still cannot move a cursor."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if text.isprintable():
        return text
    # Outside of ASCII there are only characters of strings, and there an escape means the same.
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )


def print_csv(rows: Iterable[Sequence[object]]) -> None:
    """Rows as CSV, without a header: what Kafka's own tools read and write."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows(rows)


def print_record(text: str) -> None:
    """One record on standard output, which the caller flushes: there may be millions."""
    sys.stdout.write(f"{text}\n")


def say(text: str, data: Any, *, as_json: bool) -> None:
    """What was done: a sentence for people, or the same as JSON."""
    if as_json:
        print_json(data)
    else:
        tell(text)


@contextmanager
def progress(
    what: str, total: int | None, *, unit: str, is_shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while long work runs, if a person is there; call it with steps."""
    if not is_shown or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f} {task.fields[unit]}", markup=False),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # records go where they were going
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task(what, total=total, unit=unit)
        yield lambda step: bar.advance(task, step)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    facts: Mapping[str, object] | None = None,
    is_first: bool = True,
) -> None:
    """A table as wide as the terminal.

    Where the output is not a terminal it is plain: the first line has the names of the columns,
    cells are never broken and have two spaces between them, numbers no commas. The title
    goes to standard error there, if a person reads that; ``facts``, what the title says for
    people, are a table of one row before this one. An empty line is between tables.

    Args:
        is_first: the command has printed no table before this one.
    """
    if not sys.stdout.isatty():
        if title is not None and sys.stderr.isatty():
            warn(title)
        tables = [(columns, list(rows))]
        if facts:
            tables.insert(0, (list(facts), [list(facts.values())]))
        for number, (names, cells) in enumerate(tables):
            if number or not is_first:
                typer.echo()
            _print_plain(names, [[_plain_cell(value) for value in row] for row in cells])
        return
    width = shutil.get_terminal_size().columns
    if title is not None:
        for line in wrapped(title, width):
            _print_styled(line, italic=True)
    typer.echo()
    rows = list(rows)
    # Of nothing at all, the first columns tell enough.
    for pieces in lay_out(_columns(columns if rows else columns[:3], rows), width, _meaning):
        typer.echo("".join(_styled(piece) for piece in pieces).rstrip(), color=_wants_color())
    if not rows:
        typer.echo("(none)")
    typer.echo()


def wrapped(text: str, width: int) -> list[str]:
    """Text in lines that fit, broken between words; what continues is indented."""
    text = printable(text)
    indent = len(text) - len(text.lstrip())
    return textwrap.wrap(
        text, width, break_on_hyphens=False, subsequent_indent=" " * min(indent + 2, width // 2)
    ) or [""]


def _print_styled(line: str, *, italic: bool) -> None:
    typer.secho(line, italic=italic, color=_wants_color())


def _wants_color() -> bool | None:
    # None leaves it to the stream: colours on a terminal, none in a pipe.
    return False if os.environ.get("NO_COLOR") else None


def _styled(piece: Piece) -> str:
    return typer.style(piece.text, fg=COLOURS[piece.meaning]) if piece.meaning else piece.text


def _meaning(cell: str) -> str:
    return cell if cell in COLOURS else ""


def _columns(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[Column]:
    return [
        Column(
            [printable(name), *(_cell(row[index]) for row in rows)],
            is_numeric=bool(rows) and all(isinstance(row[index], int | float) for row in rows),
        )
        for index, name in enumerate(columns)
    ]


def _print_plain(columns: Sequence[str], rows: list[list[str]]) -> None:
    lines = [list(map(printable, columns)), *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def _plain_cell(value: object) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _cell(value)


@contextmanager
def live_table() -> Iterator[Callable[..., None]]:
    """A table with lines below it that changes in place; call it with what ``print_table`` takes
    and ``lines=``."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), screen=False, auto_refresh=False) as live:

        def show(
            columns: Sequence[str],
            rows: Sequence[Sequence[object]],
            *,
            title: str,
            lines: Iterable[str],
        ) -> None:
            width = live.console.width
            shown = Text("\n".join(wrapped(title, width)), "italic")
            shown.append("\n\n")
            for pieces in lay_out(_columns(columns, rows), width, _meaning):
                for piece in pieces:
                    shown.append(piece.text, COLOURS.get(piece.meaning, "") + " not italic")
                shown.append("\n")
            shown.append("\n".join(map(printable, ("", *lines))), "not italic")
            live.update(shown, refresh=True)

        yield show


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return printable(str(value))


def confirm_or_stop(*plan: str, yes: bool) -> None:
    """Go on only if the user said so; a command that destroys prints its plan first, in lines."""
    if yes:
        return
    for line in plan:
        warn(line)
    if not sys.stdin.isatty():
        warn("Nothing was changed. Add --yes to do it.")
        raise typer.Exit(1)
    typer.confirm("Continue?", abort=True, err=True)


def ask_password(what: str, *, twice: bool = False) -> str:
    """A secret from the terminal, which does not show it."""
    return str(typer.prompt(printable(what), hide_input=True, confirmation_prompt=twice, err=True))


def say_more(count: int, limit: int, noun: str) -> None:
    """Say how many rows were not shown."""
    if count > limit:
        tell(f"{counted(count - limit, f'more {noun}')}; --limit shows the rest")
