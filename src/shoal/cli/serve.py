"""``shoal serve``: a broker on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter, Signature
from typing import Annotated, Any, Final

import typer

from shoal.broker import flags

app = typer.Typer(rich_markup_mode=None)

_TYPES: Final[dict[str, Any]] = {
    "switch": bool,
    "value": str | None,
    "number": int | None,
    "list": list[str],
}


def serve(**options: Any) -> None:
    """Run a broker: one process, one node, no replication.

    Prints "ready HOST:PORT" when clients can connect. SIGTERM and Ctrl-C stop it cleanly,
    SIGHUP reads certificates again, SIGUSR1 prints its counters.
    """
    flags.serve(options)


def _parameters() -> Iterator[Parameter]:
    """The rows of the table as typer wants them: parameters of the command's function."""
    for name, flag in flags.FLAGS.items():
        option = typer.Option(
            f"{name}/{flag.opposite}" if flag.opposite else name,
            metavar=flag.metavar or None,
            help=flag.help,
            min=1 if flag.kind == "number" else None,
        )
        yield Parameter(
            flag.keyword,
            Parameter.KEYWORD_ONLY,
            default=flags.default(flag),
            annotation=Annotated[_TYPES[flag.kind], option],
        )


serve.__dict__["__signature__"] = Signature(list(_parameters()))
app.command()(serve)
