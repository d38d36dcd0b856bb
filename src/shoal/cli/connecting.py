"""How commands reach a cluster: flags, environment, and named profiles in a TOML file.

Precedence: flag, environment variable, profile, default. Passwords
are never flags: every process of the machine can read a command line. They come from
``SHOAL_SASL_PASSWORD``, a file, the profile, or a prompt.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import socket
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from shoal.cli.helping import CONNECTION
from shoal.cli.output import ask_password, warn
from shoal.errors import ConfigError, ShoalError, did_you_mean

if TYPE_CHECKING:
    from shoal.client.admin import Admin
    from shoal.client.consumer import Consumer
    from shoal.client.producer import Producer

PREFIX: Final = "SHOAL_"
PROFILES_VARIABLE: Final = "SHOAL_PROFILES"
TIMEOUT_MAX_S: Final = 365 * 86_400
DEFAULT_SERVERS: Final = "localhost:9092"

_FLAGS: Final[dict[str, tuple[tuple[str, ...], str, str]]] = {
    "bootstrap_servers": (
        ("--bootstrap", "-b"),
        "HOST:PORT",
        "Brokers to start from, with commas between.  [default: localhost:9092]",
    ),
    "security_protocol": (
        ("--security-protocol",),
        "NAME",
        "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    ),
    "ssl_cafile": (("--ssl-cafile",), "FILE", "PEM file with the authorities to trust."),
    "ssl_certfile": (("--ssl-certfile",), "FILE", "PEM file with our own certificate."),
    "ssl_keyfile": (("--ssl-keyfile",), "FILE", "PEM file with the key of our certificate."),
    "sasl_mechanism": (
        ("--sasl-mechanism",),
        "NAME",
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.",
    ),
    "sasl_username": (("--sasl-username",), "USER", "SASL user name."),
}
FLAG_NAMES: Final = tuple(_FLAGS)
_FROM_PROFILE: Final = (
    *_FLAGS,
    "sasl_password",
    "sasl_plain_without_tls",
    "ssl_check_hostname",
    "ssl_key_password",
    "sasl_oauthbearer_token_file",
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_secret",
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_cafile",
    "sasl_oauthbearer_extensions",
)
_TRUE_OR_FALSE: Final = ("sasl_plain_without_tls", "ssl_check_hostname")


@dataclass(frozen=True)
class ClusterTarget:
    """The cluster a command is for, and how long it may take to answer."""

    settings: dict[str, Any]
    timeout_s: float = 30.0

    def __repr__(self) -> str:
        return f"Target({self.settings.get('bootstrap_servers')!r})"  # never the password

    def admin(self) -> Admin:
        from shoal.client.admin import Admin

        self._knock()
        return Admin(**self.settings, default_api_timeout_ms=self._timeout_ms)

    def consumer(self, **more: Any) -> Consumer:
        from shoal.client.consumer import Consumer

        # Reading must not create what is misspelt.
        chosen = {**self.settings, "allow_auto_create_topics": False, **more}
        self._knock()
        return Consumer(default_api_timeout_ms=self._timeout_ms, **chosen)

    def producer(self, **more: Any) -> Producer:
        from shoal.client.producer import Producer

        self._knock()
        return Producer(**self.settings, max_block_ms=self._timeout_ms, **more)

    def _knock(self) -> None:
        """Say at once if nobody listens; the client waits for a broker that is about to start."""
        from shoal.client.config import ConnectionConfig

        servers = self.settings["bootstrap_servers"]
        unknown: list[str] = []
        for host, port in ConnectionConfig(bootstrap_servers=servers).addresses():
            try:
                socket.create_connection((host, port), timeout=1.0).close()
            except ConnectionRefusedError:
                continue
            except socket.gaierror:
                unknown.append(host)
                continue
            except OSError:
                return  # the client knows better what to say
            return
        if unknown:
            warn(
                f"shoal: no address is known for {', '.join(unknown)}; trying again "
                "(name another broker with --bootstrap)"
            )
        else:
            warn(
                f"shoal: nothing is listening on {servers}; trying again "
                "(start a broker with: shoal serve; name another with --bootstrap)"
            )
        if not logging.getLogger().handlers:  # else --verbose shows what the client says too
            logging.getLogger("shoal.client.broker_links").setLevel(logging.ERROR)

    @property
    def _timeout_ms(self) -> int:
        return max(1, int(self.timeout_s * 1000))


def for_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of a connection; its first argument is a ``ClusterTarget``."""
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=typer.Option(
                None,
                *flags,
                help=text,
                metavar=value,
                show_default=False,
                rich_help_panel=CONNECTION,
            ),
            annotation=str | None,
        )
        for name, (flags, value, text) in _FLAGS.items()
    ]
    shared += [
        _option("profile", "--profile", "NAME", "Settings from a profile file.", str | None),
        _option(
            "password_file", "--password-file", "FILE", "Read the SASL password there.", str | None
        ),
        _option("timeout", "--timeout", "SECONDS", "Give up after this long.", float, 30.0),
        _option(
            "verbose", "--verbose", None, "Log client activity to standard error.", bool, False
        ),
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in _FLAGS}
        settings = resolve(chosen, given.pop("profile"), given.pop("password_file"))
        if given.pop("verbose"):
            _explain(settings)
        try:
            command(ClusterTarget(settings, _seconds(given.pop("timeout"))), **given)
        except ShoalError:
            raise
        except ValueError as error:
            # The client's word for an argument it cannot take: a partition that is not there, say.
            raise ConfigError(str(error)) from error

    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # typer reads it
        parameters=[p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
    )
    run.__annotations__ = {p.name: p.annotation for p in (*own, *shared)}
    return run


def _seconds(timeout: float) -> float:
    if not 0 < timeout <= TIMEOUT_MAX_S:
        raise ConfigError(f"--timeout {timeout:g}: give seconds, more than 0 and at most a year")
    return timeout


def _option(
    name: str, flag: str, value: str | None, text: str, kind: Any, default: Any = None
) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Option(
            default,
            flag,
            help=text,
            metavar=value,
            show_default=default is not None,
            rich_help_panel=CONNECTION,
        ),
        annotation=kind,
    )


def resolve(
    flags: dict[str, str | None],
    profile: str | None,
    password_file: str | None,
    *,
    may_ask: bool = True,
) -> dict[str, Any]:
    """The settings of a client, from all the places they may stand.

    Args:
        may_ask: a password that is missing is asked for, if a person is there.

    Raises:
        ConfigError: the profile is unknown or has a wrong key; a password is needed and missing.
    """
    chosen = _profile(profile or os.environ.get("SHOAL_PROFILE"))
    chosen |= _environment()
    chosen |= {name: value for name, value in flags.items() if value is not None}
    chosen.setdefault("bootstrap_servers", DEFAULT_SERVERS)
    if password_file is not None:
        chosen["sasl_password"] = utf8_text(password_file).rstrip("\n")
    uses_tokens = chosen.get("sasl_mechanism") == "OAUTHBEARER"
    if str(chosen.get("security_protocol", "")).startswith("SASL_") and not uses_tokens:
        chosen.setdefault("sasl_password", None)
        chosen["sasl_password"] = chosen["sasl_password"] or _prompt(
            chosen.get("sasl_username"), may_ask=may_ask
        )
    return chosen


def _environment() -> dict[str, str | bool]:
    found: dict[str, str | bool] = {
        name: os.environ[PREFIX + name.upper()]
        for name in _FROM_PROFILE
        if PREFIX + name.upper() in os.environ
    }
    for name in found.keys() & _TRUE_OR_FALSE:
        text = str(found[name])
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{PREFIX}{name.upper()}={text!r}: set true or false")
        found[name] = text.lower() == "true"
    if "SHOAL_BOOTSTRAP" in os.environ:
        found["bootstrap_servers"] = os.environ["SHOAL_BOOTSTRAP"]
    return found


def utf8_text(path: str | Path) -> str:
    """A text file the user named, which is UTF-8 whatever the locale is."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (at byte {error.start})") from None


def yaml_document(text: str, name: str | Path) -> Any:
    """What a YAML document of the user's holds; what is wrong with it is told with its line."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{name} is not YAML{line}: {' '.join(problem.split())}") from None
    except ValueError as error:  # such as a date that the calendar does not have
        raise ConfigError(f"{name} is not YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{name} is not YAML: nested too deeply") from None


def profiles_file() -> Path:
    """Where profiles are kept."""
    given = os.environ.get(PROFILES_VARIABLE)
    return Path(given) if given else Path.home() / ".config" / "shoal" / "profiles.toml"


def _profile(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    path = profiles_file()
    try:
        found = tomllib.loads(utf8_text(path))
    except FileNotFoundError:
        raise ConfigError(f"there is no profile file {path}; create it with [{name}]") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"{path} has no profile {name!r}; there are: {known}")
    if not isinstance(found[name], dict):
        raise ConfigError(f"{path}: {name} is a value, not a profile; write [{name}] above it")
    for key in found[name]:
        if key not in _FROM_PROFILE:
            hint = did_you_mean(key, _FROM_PROFILE, f"; known: {', '.join(_FROM_PROFILE)}")
            raise ConfigError(f"profile {name!r} in {path} has an unknown key {key!r}{hint}")
    if any(map(_is_secret, found[name])) and path.stat().st_mode & 0o077:
        raise ConfigError(f"{path} holds a password and others can read it; run: chmod 600 {path}")
    return dict(found[name])


def _is_secret(name: str) -> bool:
    return "password" in name or "secret" in name


def _explain(settings: dict[str, Any]) -> None:
    """Log what the client does, beginning with the settings it was given; secrets are masked."""
    logging.basicConfig(
        level=logging.DEBUG, format="%(relativeCreated)6.0f ms %(name)s: %(message)s"
    )
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    for name, value in sorted(settings.items()):
        shown = "****" if _is_secret(name) and value else value
        logging.getLogger(__name__).debug("%s = %s", name, shown)


def _prompt(username: object, *, may_ask: bool) -> str:
    if not may_ask or not sys.stdin.isatty():
        raise ConfigError(
            "a SASL password is needed: set SHOAL_SASL_PASSWORD, or give --password-file"
        )
    return ask_password(f"password of {username}")
