"""Entry point of the ``shoal`` command.

Rule: nothing is imported here that the command at hand does not need. ``shoal serve`` with usual
flags needs no parser for command lines at all, and is there in half the time.

Exit codes: 0 done; 1 the world said no (one line on standard error); 2 wrong usage;
130 interrupted; others are named in the help of the command that uses them.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Final

from shoal.errors import ShoalError

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130


def main() -> None:
    """Run the command line; every expected failure is one line."""
    _open_closed_streams()
    # A terminal that knows no arrows gets them escaped: a table must not end in an encoding error.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        _run()
    except ShoalError as error:
        from shoal.cli.hints import with_hint

        _fail(with_hint(error))
    except BrokenPipeError:
        # The reader went away (`| head`). Standard output is closed for good, so that the
        # interpreter does not complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        said = error.strerror or str(error)
        _fail(f"{said}: {error.filename}" if error.filename else said)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _open_closed_streams() -> None:
    """A stream the shell closed (``>&-``) is nothing to read or to write, not an error.

    Python has ``None`` in its place. The number is taken before a socket or a file gets it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # until the end


def _run() -> None:
    if sys.argv[1:2] == ["serve"]:
        from shoal.broker.flags import quick, serve

        options = quick(sys.argv[2:])
        if options is not None:
            serve(options)
            return
    from shoal.cli.commands import run

    run()


def _fail(text: str) -> None:
    from shoal.cli.output import warn

    warn(f"shoal: {' '.join(text.split())}")
    sys.exit(EXIT_FAILED)
