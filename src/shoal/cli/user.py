"""``shoal user``: who may log in to a broker.

The users live in one file of the data directory; a running broker notices a change by itself.
Passwords come from a prompt, a file or standard input, never from the command line, where every
process of the machine could read them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shoal.broker.users import FILE_NAME, Users
from shoal.cli.connecting import utf8_text
from shoal.cli.output import ask_password, print_json, tell
from shoal.errors import ConfigError

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Manage the users of a broker.")

DataDir = Annotated[
    str, typer.Option("--data-dir", metavar="DIR", help="The broker's data directory.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _users(data_dir: str) -> Users:
    # Imported here: help must not load the broker.

    directory = Path(data_dir)
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory; start `shoal serve` once, or create it")
    return Users(directory / FILE_NAME)


@app.command("set")
def set_password(
    name: Annotated[str, typer.Argument(help="The user's name.")],
    data_dir: DataDir = "shoal-data",
    password_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Read the password from a file; - is standard input."),
    ] = None,
    iterations: Annotated[int, typer.Option(help="Key-derivation iterations (4096-16384).")] = 8192,
) -> None:
    """Add a user, or give an existing one a new password."""
    users = _users(data_dir)
    try:
        users.set_password(name, _password(password_file), iterations=iterations)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    tell(f"user {name} can log in with SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN")


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="The user's name.")],
    data_dir: DataDir = "shoal-data",
) -> None:
    """Remove a user. Connections that are open stay open."""
    if not _users(data_dir).remove(name):
        raise ConfigError(
            f"there is no user {name!r}; `shoal user list --data-dir {data_dir}` shows them"
        )
    tell(f"user {name} removed")


@app.command("list")
def list_users(data_dir: DataDir = "shoal-data", json: AsJson = False) -> None:
    """List users and their mechanisms; keys are never shown."""
    users = _users(data_dir)
    rows = {
        name: {credential.mechanism: credential.iterations for credential in users.of(name)}
        for name in users.names()
    }
    if json:
        print_json(rows)
        return
    if not rows:
        tell("no users")
    for name, mechanisms in rows.items():
        shown = ", ".join(f"{m} ({i} iterations)" for m, i in mechanisms.items())
        tell(name, shown)


def _password(password_file: str | None) -> str:
    if password_file == "-":  # noqa: S105  (a file name)
        return sys.stdin.readline().rstrip("\n")
    if password_file is not None:
        return utf8_text(password_file).rstrip("\n")
    return ask_password("Password", twice=True)
