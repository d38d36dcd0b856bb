"""The commands of ``shoal``, by name.

Rule: a command's module is imported when the command runs, not before. ``shoal --help`` reads the
table below and nothing else, so it answers at once and works without Arrow, Spark or Java.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from shoal._version import __version__


class _Entry(NamedTuple):
    module: str
    help: str


COMMANDS: Final[dict[str, _Entry]] = {
    "demo": _Entry("shoal.cli.demo", "The main job, everything embedded: broker, group, Spark."),
    "serve": _Entry("shoal.cli.serve", "Run a broker on this machine."),
    "topic": _Entry("shoal.cli.topic", "List, create, describe, alter and delete topics."),
    "produce": _Entry("shoal.cli.produce", "Write records from standard input or files."),
    "consume": _Entry("shoal.cli.consume", "Read records, in a group or from partitions."),
    "group": _Entry("shoal.cli.group", "List, describe, watch and reset consumer groups."),
    "fleet": _Entry("shoal.cli.fleet", "All groups at once: lag, rebalances, their history."),
    "plan": _Entry("shoal.cli.plan", "What moves, and who waits, before a change is made."),
    "why": _Entry("shoal.cli.why", "What is wrong with a group, and what to do."),
    "lab": _Entry("shoal.cli.lab", "How groups were rebalanced, then and now, side by side."),
    "log": _Entry("shoal.cli.log", "Dump, verify and repair log directories."),
    "user": _Entry("shoal.cli.user", "Manage the users of a broker."),
    "version": _Entry("shoal.cli.version", "Versions of Shoal and of what it found."),
}


def _placeholder(name: str) -> TyperCommand:
    return TyperCommand(name, help=COMMANDS[name].help)


class _LazyCommands(TyperGroup):
    """Shows the table in help and completion; imports a command when it is about to run."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # the base names it
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # the base names it
        return _placeholder(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            found = import_module(COMMANDS[name].module).app
            found._add_completion = False  # the program's own, not each command's
            command = typer.main.get_command(found)
            command.name = name
        return name, command, rest


app = typer.Typer(
    name="shoal",
    cls=_LazyCommands,
    help="Kafka's consumer groups for Python and Spark.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shoal {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Kafka's consumer groups for Python and Spark."""


def run() -> None:
    """Run the command that the arguments name; failures are the caller's to tell."""
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    # Unknown commands are answered with the nearest of these.
    command.commands = {name: _placeholder(name) for name in COMMANDS}
    command(prog_name="shoal")
