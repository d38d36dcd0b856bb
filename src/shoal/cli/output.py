"""What commands print: tables for people, JSON for programs, and data that cannot do harm.

Records are other people's bytes. Whatever comes from a topic, a group or a member id is escaped
before it reaches a terminal: a control character in a key must not move the cursor. Colours and
progress bars appear on a terminal only, so that what a program or a file gets is plain.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer

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
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def text_of(data: bytes | None) -> str:
    """Bytes for people: UTF-8 where it is that, escapes elsewhere; ``∅`` for a null."""
    if data is None:
        return "∅"
    return printable(data.decode(errors="backslashreplace"))


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=str))


def say(text: str, data: Any, *, as_json: bool) -> None:
    """What was done: a sentence for people, or the same as JSON."""
    if as_json:
        print_json(data)
    else:
        typer.echo(printable(text))


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
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} {task.fields[unit]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,  # records go where they were going
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task(what, total=total, unit=unit)
        yield lambda step: bar.advance(task, step)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None
) -> None:
    """A table as wide as the terminal; plain when the output is not one."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    on_terminal = sys.stdout.isatty()
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    given = list(rows)
    for index, name in enumerate(columns):
        is_numeric = bool(given) and all(isinstance(row[index], int | float) for row in given)
        table.add_column(name, justify="right" if is_numeric else "left", overflow="fold")
    for row in given:
        table.add_row(*(Text(_cell(value), COLOURS.get(str(value), "")) for value in row))
    console = Console(highlight=False, width=None if on_terminal else 200)
    console.print(table)


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


def confirm_or_stop(plan: str, *, yes: bool) -> None:
    """Go on only if the user said so; a command that destroys prints its plan first."""
    if yes:
        return
    if not sys.stdin.isatty():
        typer.echo(f"{plan}\nNothing was changed. Add --yes to do it.", err=True)
        raise typer.Exit(1)
    typer.confirm(f"{plan}\nGo on?", abort=True, err=True)
