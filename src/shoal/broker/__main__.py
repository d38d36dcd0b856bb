"""``python -m shoal.broker``: ``shoal serve`` without the command line's libraries."""

from __future__ import annotations

import argparse
import sys

from shoal.errors import ShoalError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m shoal.broker", description="Run a broker.")
    parser.add_argument("--config", dest="config_file", metavar="FILE")
    parser.add_argument("--listen", action="append", default=[], metavar="HOST:PORT")
    parser.add_argument("--advertise", metavar="HOST[:PORT]")
    parser.add_argument("--data-dir", metavar="DIR")
    parser.add_argument("--durability", metavar="group|each|interval|os")
    parser.add_argument("--sasl", action="append", default=[], metavar="MECHANISM")
    parser.add_argument("--certificate", dest="certificate_file", metavar="FILE")
    parser.add_argument("--key", dest="key_file", metavar="FILE")
    parser.add_argument("--client-ca", dest="client_ca_file", metavar="FILE")
    parser.add_argument("--insecure-public", action="store_true")
    parser.add_argument("--partitions", type=int, metavar="N")
    parser.add_argument("--no-auto-create", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--log-level", default="warning")
    parser.add_argument("--log-format", default="text", choices=("text", "json"))
    options = vars(parser.parse_args(arguments))
    json_output = options.pop("json")
    level, log_format = options.pop("log_level"), options.pop("log_format")
    # Imported after parsing: a wrong flag is answered at once.
    from shoal.broker.options import build_config
    from shoal.broker.serving import run, set_up_logging

    try:
        set_up_logging(level, log_format)
        run(build_config(**options), json_output=json_output)
    except ShoalError as error:
        print(f"shoal: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
