"""``python -m shoal.broker``: ``shoal serve`` without the command line's libraries."""

from __future__ import annotations

import sys
from typing import Any

from shoal.broker.flags import FLAGS, defaults, quick, serve
from shoal.errors import ShoalError


def _explained(arguments: list[str]) -> dict[str, Any]:
    """The options by a parser that has a help and names mistakes; it may not return."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m shoal.broker", description="Run a broker.")
    for name, flag in FLAGS.items():
        if flag.kind == "switch":
            parser.add_argument(name, dest=flag.keyword, action="store_true", help=flag.help)
        else:
            parser.add_argument(
                name,
                dest=flag.keyword,
                action="append" if flag.kind == "list" else "store",
                type=int if flag.kind == "number" else str,
                metavar=flag.metavar,
                choices=flag.choices or None,
                help=flag.help,
            )
    parser.set_defaults(**defaults())
    return vars(parser.parse_args(arguments))


def main(arguments: list[str]) -> int:
    options = quick(arguments) or _explained(arguments)
    try:
        serve(options)
    except (ShoalError, OSError) as error:
        print(f"shoal: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
