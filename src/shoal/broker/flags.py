"""The flags of ``shoal serve`` as one table: their help, how to read them, what each changes.

A parser for command lines takes as long to import as the whole log; a broker that is started by a
test wants to be there before that. So flags as they are usually written are read by this table;
whatever it does not understand (help, an abbreviation, a mistake) is ``None`` here and goes to a
real parser, which is built from the same table and knows how to explain.

Rule: a flag is one row, and nothing else has to know of it. Rows win over the configuration file,
in their order; whatever is not given keeps its default. ``quick`` never accepts what the real
parsers refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from shoal.broker.config import (
    DURABILITIES,
    AuthorizationSettings,
    BrokerConfig,
    Listener,
    MetricsSettings,
    OAuthSettings,
    from_toml,
    parse_address,
)
from shoal.errors import ConfigError

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")


class Flag(NamedTuple):
    """One flag: its keyword, what follows it, and what it makes of a configuration."""

    keyword: str
    kind: str
    """``switch`` (nothing follows), ``value``, ``number`` or ``list`` (one value each time)."""
    help: str
    apply: Callable[[BrokerConfig, Any], BrokerConfig] | None = None
    """The configuration with this value in it. None: it concerns the process, see ``serve``."""
    metavar: str = ""
    default: str | None = None
    choices: tuple[str, ...] = ()
    opposite: str = ""
    """Switches a switch off again; only ``shoal serve`` knows it."""


def _read_file(_: BrokerConfig, name: str) -> BrokerConfig:
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (at byte {error.start})") from None
    return from_toml(text, source=str(path))


def _listen(config: BrokerConfig, addresses: Sequence[str]) -> BrokerConfig:
    parsed = (parse_address(address, default_port=9092) for address in addresses)
    return config._replace(listeners=tuple(Listener(host=host, port=port) for host, port in parsed))


def _all_listeners(config: BrokerConfig, **changes: Any) -> BrokerConfig:
    changed = tuple(listener._replace(**changes) for listener in config.listeners)
    return config._replace(listeners=changed)


def _topics(config: BrokerConfig, **changes: Any) -> BrokerConfig:
    return config._replace(topics=config.topics._replace(**changes))


def _insecure_tokens(config: BrokerConfig, _: bool) -> BrokerConfig:
    if config.oauth is not None and not config.oauth.unsecured:
        raise ConfigError("--insecure-tokens contradicts [oauth] of the file: take one away")
    return config._replace(oauth=OAuthSettings(unsecured=True))


def _authorize(config: BrokerConfig, _: bool) -> BrokerConfig:
    return config._replace(authorization=config.authorization or AuthorizationSettings())


def _super_users(config: BrokerConfig, names: Sequence[str]) -> BrokerConfig:
    settings = config.authorization
    if settings is None:
        raise ConfigError("--super-user needs --authorize; add it")
    everybody = tuple(dict.fromkeys((*settings.super_users, *names)))
    return config._replace(authorization=settings._replace(super_users=everybody))


def _assignors(config: BrokerConfig, texts: Sequence[str]) -> BrokerConfig:
    named = dict.fromkeys((*config.groups.consumer_assignors, *texts))
    return config._replace(groups=config.groups._replace(consumer_assignors=tuple(named)))


def _metrics(config: BrokerConfig, **changes: Any) -> BrokerConfig:
    if config.metrics is None and "address" not in changes:
        (name,) = (key.replace("_", "-") for key in changes)
        raise ConfigError(f"--metrics-{name} needs --metrics; add it")
    return config._replace(metrics=(config.metrics or MetricsSettings())._replace(**changes))


FLAGS: Final[dict[str, Flag]] = {
    "--config": Flag("config_file", "value", "A TOML file.", _read_file, "FILE"),
    "--listen": Flag(
        "listen", "list", "Address to serve; port 0 picks a free one.", _listen, "HOST:PORT"
    ),
    "--advertise": Flag(
        "advertise",
        "value",
        "What clients are told to use.",
        lambda config, text: _all_listeners(config, advertised=parse_address(text, default_port=0)),
        "HOST[:PORT]",
    ),
    "--data-dir": Flag(
        "data_dir",
        "value",
        "Where the log lives [shoal-data].",
        lambda config, name: config._replace(data_dir=name),
        "DIR",
    ),
    "--durability": Flag(
        "durability",
        "value",
        "When to sync before a record counts as stored.",
        lambda config, name: config._replace(durability=name),
        "|".join(DURABILITIES),
    ),
    "--sasl": Flag(
        "sasl",
        "list",
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.",
        lambda config, mechanisms: _all_listeners(config, sasl=tuple(mechanisms)),
        "MECHANISM",
    ),
    "--certificate": Flag(
        "certificate_file",
        "value",
        "TLS: PEM.",
        lambda config, name: _all_listeners(config, certificate_file=name),
        "FILE",
    ),
    "--key": Flag(
        "key_file",
        "value",
        "TLS: its key.",
        lambda config, name: _all_listeners(config, key_file=name),
        "FILE",
    ),
    "--client-ca": Flag(
        "client_ca_file",
        "value",
        "TLS: clients must show a certificate.",
        lambda config, name: _all_listeners(config, client_ca_file=name),
        "FILE",
    ),
    "--insecure-public": Flag(
        "insecure_public",
        "switch",
        "Allow unauthenticated access from other machines.",
        lambda config, _: config._replace(insecure_public=True),
        opposite="--no-insecure-public",
    ),
    "--insecure-tokens": Flag(
        "insecure_tokens",
        "switch",
        "OAUTHBEARER without signatures, on this machine only.",
        _insecure_tokens,
    ),
    "--authorize": Flag(
        "authorize", "switch", "Only what access rules allow (shoal acl).", _authorize
    ),
    "--super-user": Flag(
        "super_user", "list", "Who may do everything; with --authorize.", _super_users, "User:NAME"
    ),
    "--assignor": Flag(
        "assignor",
        "list",
        "An assignor of your own for groups of the consumer protocol.",
        _assignors,
        "NAME[=MODULE:ATTRIBUTE]",
    ),
    "--partitions": Flag(
        "partitions",
        "number",
        "Partitions of topics created on first use.",
        lambda config, count: _topics(config, partitions=count),
        "N",
    ),
    "--no-auto-create": Flag(
        "no_auto_create",
        "switch",
        "Do not create topics on first use.",
        lambda config, _: _topics(config, auto_create=False),
        opposite="--auto-create",
    ),
    "--metrics": Flag(
        "metrics",
        "value",
        "Metrics for Prometheus here; port 0 picks a free one.",
        lambda config, text: _metrics(config, address=text),
        "[HOST:]PORT",
    ),
    "--metrics-token-file": Flag(
        "metrics_token_file",
        "value",
        "Scrapes must bring the token in it.",
        lambda config, name: _metrics(config, token_file=name),
        "FILE",
    ),
    "--metrics-jmx-names": Flag(
        "metrics_jmx_names",
        "switch",
        "Also the names that the JMX exporter gives.",
        lambda config, _: _metrics(config, jmx_names=True),
    ),
    "--ui": Flag("with_ui", "switch", "A dashboard beside it, on this machine (shoal ui)."),
    "--json": Flag("json_output", "switch", "Ready line as one JSON object."),
    "--log-level": Flag(
        "log_level",
        "value",
        "debug, info, warning or error.",
        metavar="LEVEL",
        default="warning",
        choices=LOG_LEVELS,
    ),
    "--log-format": Flag(
        "log_format",
        "value",
        "text or json.",
        metavar="text|json",
        default="text",
        choices=LOG_FORMATS,
    ),
}


def default(flag: Flag) -> Any:
    """What holds if this flag is not given; a list is a fresh one."""
    return {"switch": False, "list": []}.get(flag.kind, flag.default)


def defaults() -> dict[str, Any]:
    """What holds if no flag is given."""
    return {flag.keyword: default(flag) for flag in FLAGS.values()}


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
            if flag.choices and value not in flag.choices:
                return None
            options[flag.keyword] = value
        elif value.isdecimal() and value.isascii() and int(value) > 0:
            options[flag.keyword] = int(value)
        else:
            return None
    return options


def build_config(**options: Any) -> BrokerConfig:
    """The checked configuration for these flags, by keyword."""
    config = BrokerConfig()
    for flag in FLAGS.values():
        value = options.get(flag.keyword)
        # An empty text is as good as none; a number that is no number of partitions is not.
        is_given = value is not None if flag.kind == "number" else bool(value)
        if is_given and flag.apply is not None:
            config = flag.apply(config, value)
    return config._replace(data_dir=config.data_dir or "shoal-data").checked()


def serve(options: dict[str, Any]) -> None:
    """Run the broker that these options describe, until a signal ends it."""
    # What a start makes stays: looking for garbage in it takes 5 ms and finds none.
    import gc

    gc.disable()
    from shoal.broker.process import run, set_up_logging

    set_up_logging(options["log_level"], options["log_format"])
    run(build_config(**options), json_output=options["json_output"], with_ui=options["with_ui"])
