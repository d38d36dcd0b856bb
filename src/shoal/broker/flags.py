"""The flags of ``shoal serve`` as one table, and the quick way to read them.

A parser for command lines takes as long to import as the whole log; a broker that is started by a
test wants to be there before that. So flags as they are usually written are read by this table;
whatever it does not understand (help, an abbreviation, a mistake) is ``None`` here and goes to a
real parser, which knows how to explain.

Rule: this table decides nothing. It never accepts what the real parsers refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple


class Flag(NamedTuple):
    """One flag: its keyword, and what follows it (nothing, one value, or one each time)."""

    keyword: str
    kind: str  # "switch", "value", "number" or "list"
    metavar: str = ""


FLAGS: Final[dict[str, Flag]] = {
    "--config": Flag("config_file", "value", "FILE"),
    "--listen": Flag("listen", "list", "HOST:PORT"),
    "--advertise": Flag("advertise", "value", "HOST[:PORT]"),
    "--data-dir": Flag("data_dir", "value", "DIR"),
    "--durability": Flag("durability", "value", "group|each|interval|os"),
    "--sasl": Flag("sasl", "list", "MECHANISM"),
    "--certificate": Flag("certificate_file", "value", "FILE"),
    "--key": Flag("key_file", "value", "FILE"),
    "--client-ca": Flag("client_ca_file", "value", "FILE"),
    "--insecure-public": Flag("insecure_public", "switch"),
    "--partitions": Flag("partitions", "number", "N"),
    "--no-auto-create": Flag("no_auto_create", "switch"),
    "--json": Flag("json_output", "switch"),
    "--log-level": Flag("log_level", "value", "LEVEL"),
    "--log-format": Flag("log_format", "value", "text|json"),
}
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")
_CHOICES: Final = {"log_level": LOG_LEVELS, "log_format": LOG_FORMATS}
_DEFAULTS: Final[dict[str, Any]] = {
    "listen": [],
    "sasl": [],
    "insecure_public": False,
    "no_auto_create": False,
    "json_output": False,
    "log_level": "warning",
    "log_format": "text",
}


def defaults() -> dict[str, Any]:
    """What holds if no flag is given; the lists are fresh."""
    given = {flag.keyword: None for flag in FLAGS.values()} | _DEFAULTS
    return {name: list(each) if isinstance(each, list) else each for name, each in given.items()}


def quick(arguments: Sequence[str]) -> dict[str, Any] | None:
    """The options in ``arguments``; None if a real parser must look at them."""
    options = defaults()
    left = list(reversed(arguments))
    while left:
        name, equals, value = left.pop().partition("=")
        flag = FLAGS.get(name)
        if flag is None or (flag.kind == "switch" and equals):
            return None
        if flag.kind == "switch":
            options[flag.keyword] = True
            continue
        if not equals:
            if not left or left[-1].startswith("-"):
                return None
            value = left.pop()
        if flag.kind == "list":
            options[flag.keyword].append(value)
        elif flag.kind == "value":
            if value not in _CHOICES.get(flag.keyword, (value,)):
                return None
            options[flag.keyword] = value
        elif value.isdecimal() and value.isascii() and int(value) > 0:
            options[flag.keyword] = int(value)
        else:
            return None
    return options


def serve(options: dict[str, Any]) -> None:
    """Run the broker that these options describe, until a signal ends it."""
    # What a start makes stays: looking for garbage in it takes 5 ms and finds none.
    import gc

    gc.disable()
    from shoal.broker.options import build_config
    from shoal.broker.serving import run, set_up_logging

    json_output = options.pop("json_output")
    set_up_logging(options.pop("log_level"), options.pop("log_format"))
    run(build_config(**options), json_output=json_output)
