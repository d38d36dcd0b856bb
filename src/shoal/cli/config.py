"""``shoal config``: what our clients make of a file with settings of any Kafka client."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shoal.cli.connecting import utf8_text, yaml_document
from shoal.cli.output import print_json, print_table, tell, warn
from shoal.errors import ConfigError, counted

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="What our clients make of settings of other Kafka clients.",
)

_CLIENTS: Final = {
    "consumer": "ConsumerConfig",
    "producer": "ProducerConfig",
    "admin": "AdminConfig",
}


@app.callback()
def _group() -> None:
    """What our clients make of settings of other Kafka clients."""


@app.command("check")
def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help=".properties, .json, .toml or .yaml.")
    ],
    client: Annotated[
        str, typer.Option("--for", metavar="CLIENT", help="consumer, producer or admin.")
    ] = "consumer",
    section: Annotated[
        str | None,
        typer.Option("--section", metavar="NAME", help="The part of the file; a.b for b in a."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Say of each setting what became of it. Exit code 1 if any is refused."""
    from shoal.client import config

    if client not in _CLIENTS:
        raise ConfigError(f"--for {client}: give {', '.join(_CLIENTS)}")
    settings = _section(_read(Path(file)), section, file)
    explained = getattr(config, _CLIENTS[client]).explain_properties(settings)
    refused = sum(one.outcome == "refused" for one in explained.outcomes)
    if as_json:
        rows = [
            {
                "name": one.name,
                "outcome": one.outcome,
                "ours": one.ours,
                "value": one.shown,
                "why": one.why,
            }
            for one in explained.outcomes
        ]
        print_json({"settings": rows, "problem": explained.problem or None})
    else:
        print_table(
            ("setting", "value", "outcome", "here, or why"),
            [(o.name, o.shown, o.outcome, o.ours or o.why) for o in explained.outcomes],
        )
        if explained.problem:
            warn(f"shoal: these settings do not work together: {explained.problem}")
        elif refused:
            warn(f"shoal: {counted(refused, 'setting')} refused")
        else:
            tell(f"a {client} can be made from it")
    if refused or explained.problem:
        raise typer.Exit(1)


def _read(path: Path) -> Any:
    text = utf8_text(path)
    return _FORMATS.get(path.suffix.lower(), _from_properties)(text, path)


def _from_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not JSON: nested too deeply") from None


def _from_toml(text: str, path: Path) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def _from_properties(text: str, path: Path) -> dict[str, str]:
    """Java's format: name=value, name: value or name value; comments; lines that go on."""
    found: dict[str, str] = {}
    for line in re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*", r"\1", text).splitlines():
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        parts = re.match(r"((?:\\.|[^\\=:\s])+)(?:\s*[=:]\s*|\s+|$)(.*)", line)
        if parts is None:
            raise ConfigError(f"{path} has a line without a name: {line[:20]!r}")
        found[_unescaped(parts[1])] = _unescaped(parts[2])
    return found


def _unescaped(text: str) -> str:
    return re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))",
        lambda m: chr(int(m[1], 16)) if m[1] else {"n": "\n", "t": "\t", "r": "\r"}.get(m[2], m[2]),
        text,
    )


_FORMATS: Final[dict[str, Callable[[str, Path], Any]]] = {
    ".json": _from_json,
    ".toml": _from_toml,
    ".yaml": yaml_document,
    ".yml": yaml_document,
}


def _section(found: Any, section: str | None, file: str) -> dict[str, Any]:
    for name in section.split(".") if section else ():
        if not isinstance(found, dict) or name not in found:
            raise ConfigError(f"{file} has no section {section!r}")
        found = found[name]
    if not isinstance(found, dict):
        raise ConfigError(f"{file} holds no settings; write lines such as acks=all")
    return _flat(found)


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    """``group: {id: x}`` of a YAML file, or ``group.id = "x"`` of TOML, is group.id."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": deep for inner, deep in _flat(value).items()}
        else:
            flat[str(name)] = value
    return flat
