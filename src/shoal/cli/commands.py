"""The commands of ``shoal``, by name.

Rule: a command's module is imported when the command runs, not before. ``shoal --help`` reads the
table below and nothing else, so it answers at once and works without Arrow, Spark or Java.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand

from shoal._version import __version__
from shoal.cli.helping import HelpfulGroup, prepare


class _Entry(NamedTuple):
    module: str
    help: str


COMMANDS: Final[dict[str, _Entry]] = {
    "demo": _Entry("shoal.cli.demo", "Run the end-to-end demo: broker, group, Spark."),
    "serve": _Entry("shoal.cli.serve", "Run a broker on this machine."),
    "cluster": _Entry("shoal.cli.cluster", "Show the brokers, their versions and features."),
    "topic": _Entry("shoal.cli.topic", "List, create, describe, alter and delete topics."),
    "produce": _Entry("shoal.cli.produce", "Write records from standard input or files."),
    "consume": _Entry("shoal.cli.consume", "Read records, in a group or from partitions."),
    "group": _Entry("shoal.cli.group", "List, describe, watch and reset consumer groups."),
    "transaction": _Entry(
        "shoal.cli.transaction", "List, describe, abort transactions; find those that hang."
    ),
    "fleet": _Entry("shoal.cli.fleet", "All groups at once: lag, rebalances, their history."),
    "exporter": _Entry(
        "shoal.cli.exporter", "Metrics of a cluster and its groups, for Prometheus."
    ),
    "ui": _Entry("shoal.cli.ui", "Watch groups in a browser: lag, rebalances, what to do."),
    "plan": _Entry("shoal.cli.plan", "Preview what a change to a group would move."),
    "why": _Entry("shoal.cli.why", "Diagnose a group and suggest a fix."),
    "lab": _Entry("shoal.cli.lab", "How groups were rebalanced, then and now, side by side."),
    "log": _Entry("shoal.cli.log", "Dump, verify and repair log directories."),
    "user": _Entry("shoal.cli.user", "Manage the users of a broker."),
    "acl": _Entry("shoal.cli.acl", "Who may do what: add, list, remove and test access rules."),
    "quota": _Entry("shoal.cli.quota", "How much per second: list, set and remove quotas."),
    "telemetry": _Entry(
        "shoal.cli.telemetry", "Which metrics clients push to the broker (KIP-714)."
    ),
    "config": _Entry("shoal.cli.config", "What our clients make of other clients' settings."),
    "version": _Entry("shoal.cli.version", "Versions of Shoal and of what it found."),
}


def _placeholder(name: str) -> TyperCommand:
    return TyperCommand(name, help=COMMANDS[name].help)


class _LazyCommands(HelpfulGroup):
    """Shows the table in help and completion; imports a command when it is about to run."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # the base names it
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # the base names it
        return _placeholder(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            found = import_module(COMMANDS[name].module).app
            prepare(found)
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
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from shoal.cli.output import tell

        tell(f"shoal {__version__}")
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
    assert isinstance(command, HelpfulGroup)
    # Unknown commands are answered with the nearest of these.
    placeholders: dict[str, Any] = {name: _placeholder(name) for name in COMMANDS}
    command.commands = placeholders
    command(prog_name="shoal")
