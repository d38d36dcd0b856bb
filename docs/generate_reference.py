"""Writes docs/reference/*.md from the code: ``python -m docs.generate_reference``.

Settings, error codes, the command line and the public Python names are documented where they are
defined; these pages only collect that.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import shoal
from docs.docstrings import markdown, signature
from shoal.errors import ErrorCode

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference"
_RESULTS = (
    "SendFuture",
    "ClientMetrics",
    "MetricName",
    "ClusterDescription",
    "ClusterFeatures",
    "FeatureLevel",
    "ConfigEntry",
    "TopicDescription",
    "GroupListing",
    "GroupDescription",
    "MemberDescription",
    "PartitionLag",
    "TransactionListing",
    "TransactionDescription",
    "PartitionProducer",
    "HangingTransaction",
)
_OF_SETTINGS = ("Config", "Settings", "Limits", "Defaults", "Listener")
NOTE = "Generated from the code by `python -m docs.generate_reference`.\n"


def error_codes() -> str:
    """Every error code of the protocol."""
    lines = [
        "# Error codes",
        "",
        NOTE,
        "| code | name | retriable | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {int(code)} | {code.name} | {'yes' if code.retriable else ''} | {code.description} |"
        for code in ErrorCode
    ]
    return "\n".join([*lines, ""])


def settings() -> str:
    """Settings of clients, broker and topics, with defaults and meaning."""
    lines = ["# Settings", "", NOTE]
    for title, name in (
        ("Clients", "src/shoal/client/config.py"),
        ("Broker", "src/shoal/broker/config.py"),
    ):
        lines += [f"## {title}", ""]
        if title == "Clients":
            lines += [*_other_names(), ""]
        tree = ast.parse((ROOT / name).read_text())
        for node in tree.body:
            # What explains settings has fields, too; its name does not say so.
            if isinstance(node, ast.ClassDef) and node.name.endswith(_OF_SETTINGS):
                if not (rows := _fields(node)):
                    continue
                summary = (ast.get_docstring(node) or "").split("\n\n")[0]
                lines += [f"### {node.name}", "", " ".join(summary.split()), ""]
                lines += ["| setting | type | default | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join([*lines, *_topic_settings(), ""])


def _other_names() -> list[str]:
    return [
        "`from_properties` takes the same names with dots (`session.timeout.ms`), values as",
        "strings or as they are, and [the settings of other clients](other-clients.md).",
        "A `sasl.jaas.config` is read for its user and password. Files are PEM, also where Java's",
        "would be key stores.",
    ]


def _topic_settings() -> list[str]:
    """The settings of a topic, from the table the broker answers from."""
    from shoal.broker.topic_configs import TOPIC_CONFIGS

    lines = [
        "## Topics",
        "",
        "`shoal topic create -c KEY=VALUE`, `shoal topic alter`, `Admin.create_topic(configs=…)`;",
        "as default of new topics under `[topics]` in the broker's file, with underscores.",
        "Names and defaults are Kafka's; -1 or the largest number means no limit.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {f'`{entry.default}`' if entry.default else ''} | {entry.about} |"
        for name, entry in sorted(TOPIC_CONFIGS.items())
    ]
    return lines


def _fields(node: ast.AST) -> list[str]:
    assert isinstance(node, ast.ClassDef)
    rows = []
    for index, item in enumerate(node.body):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        after = node.body[index + 1] if index + 1 < len(node.body) else None
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = " ".join(str(after.value.value).split())
        default = f"`{ast.unparse(item.value)}`" if item.value is not None else ""
        default = default.replace("_MIB", "MiB")
        row = f"| `{item.target.id}` | {_cell(item.annotation)} | {default} | {text} |"
        rows.append(row.replace("\n", " "))
    return rows


def _cell(annotation: ast.expr) -> str:
    """A type in a table: a bar would end the cell, and a backslash before it is shown in code."""
    kind = ast.unparse(annotation)
    return f"<code>{escape(kind).replace('|', '&#124;')}</code>" if "|" in kind else f"`{kind}`"


def python_api() -> str:
    """The public names and what their docstrings say."""
    from shoal import errors, spark, testing
    from shoal.client import (
        adapters,
        feature_admin,
        group_admin,
        metrics,
        opentelemetry,
        producer_batch,
        prometheus,
        serializers,
        topic_admin,
    )

    lines = ["# Python API", "", NOTE]
    for name in sorted(shoal.__all__):
        if not name.startswith("__"):
            lines += _described(f"shoal.{name}", getattr(shoal, name))
    lines += _described("shoal.testing.Broker", testing.Broker)
    for name in spark.__all__:
        lines += _described(f"shoal.spark.{name}", getattr(spark, name))
    lines += _described("shoal.client.prometheus.ClientCollector", prometheus.ClientCollector)
    lines += _described("shoal.client.opentelemetry.instrument", opentelemetry.instrument)
    telemetry = opentelemetry.ClientTelemetry
    lines += _described("shoal.client.opentelemetry.ClientTelemetry", telemetry)
    lines += ["## What calls return", ""]
    for module in (producer_batch, metrics, topic_admin, feature_admin, group_admin):
        for name, thing in vars(module).items():
            if name == "SendFuture":
                # The compiled one does the same; Python's says with which types.
                thing = producer_batch.PlainSendFuture
            if name in _RESULTS and thing.__module__ == module.__name__:
                lines += [
                    "#" + line if line.startswith("##") else line
                    for line in _described(name, thing)
                ]
    for module in (serializers, adapters):
        lines += [f"## {module.__name__}", "", markdown(inspect.getdoc(module) or ""), ""]
        for name, thing in vars(module).items():
            is_own = inspect.isfunction(thing) and thing.__module__ == module.__name__
            if is_own and not name.startswith("_"):
                lines += _call("###", name, name, thing)
    tree = (inspect.getdoc(errors) or "").split("\n\n")
    lines += ["## shoal.errors", "", "```text", inspect.cleandoc(tree[2]), "```", "", tree[3], ""]
    return "\n".join([*lines, "Codes of brokers: [Error codes](errors.md).", ""])


def _described(name: str, thing: Any) -> list[str]:
    """A heading, what the docstring says, then fields and methods."""
    short = name.rpartition(".")[2]
    if inspect.isfunction(thing):
        return _call("##", name, short, thing)
    lines = [f"## {name}", "", markdown(_own_doc(thing)), ""]
    if (keywords := _keywords(thing)) is not None:
        lines += [f"`{short}(config=None, **settings)`: {keywords}", ""]
    elif "Args:" in _own_doc(thing):
        call = _signature(thing.__init__).removesuffix(" -> None")
        lines[2:2] = [signature(short, call), ""]
    if not short.endswith("Config"):
        rows = _fields(ast.parse(inspect.getsource(thing)).body[0])
        if rows:
            lines += ["| field | type | default | meaning |", "|---|---|---|---|", *rows, ""]
    for method, member in inspect.getmembers(thing):
        function = member.fget if isinstance(member, property) else member
        home = getattr(function, "__module__", None) or ""
        if method.startswith("_") or not home.startswith("shoal") or inspect.isclass(function):
            continue
        if callable(function) and function.__doc__:
            if isinstance(member, property):
                lines += [f"### {short}.{method}", "", markdown(inspect.getdoc(function) or ""), ""]
            else:
                lines += _call("###", f"{short}.{method}", method, function)
    return lines


def _call(level: str, title: str, name: str, function: Callable[..., Any]) -> list[str]:
    """A function under a short heading, which the list of headings has room for."""
    text = markdown(inspect.getdoc(function) or "")
    return [f"{level} {title}", "", signature(name, _signature(function)), "", text, ""]


def _own_doc(thing: Any) -> str:
    """Not what a dataclass or a tuple makes up, which is its signature."""
    text = inspect.getdoc(thing) or ""
    return "" if text.startswith(f"{thing.__name__}(") else text


def _signature(function: Callable[..., Any]) -> str:
    """As it would be written: annotations are strings, and their quotes say nothing."""
    text = str(inspect.signature(function)).replace("self, ", "").replace("self", "")
    return re.sub(r"(: |-> )(['\"])(.*?)\2(?=[,)= ]|$)", r"\1\3", text)


def _keywords(thing: object) -> str | None:
    """Where the keyword arguments of a client's constructor are described."""
    start = getattr(thing, "__init__", None)
    if not inspect.isfunction(start) or "settings" not in inspect.signature(start).parameters:
        return None
    config = str(inspect.signature(start).parameters["config"].annotation).split(" | ")[0]
    names = dict.fromkeys(("ConnectionConfig", config.replace("Admin", "Connection")))
    links = " and ".join(f"[{one}](settings.md#{one.lower()})" for one in names)
    return f"every keyword, its type and its default stand in {links}."


def command_line() -> str:
    """The help of every command, and what all have in common."""
    from shoal.cli.commands import COMMANDS

    lines = ["# Command line", "", NOTE, *_codes_and_variables()]
    for name in COMMANDS:
        lines += [f"## shoal {name}", "", "```text", _help(name), "```", ""]
        for sub in _subcommands(name):
            lines += [f"### shoal {name} {sub}", "", "```text", _help(name, sub), "```", ""]
    return "\n".join(lines)


def _codes_and_variables() -> list[str]:
    from shoal.cli.connecting import _FROM_PROFILE, PREFIX

    names = [name.upper() for name in _FROM_PROFILE if name != "sasl_password"]
    variables = ", ".join(f"`{PREFIX}{name}`" for name in names)
    return [
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        "| 0 | done; `shoal serve` also after Ctrl-C, which is how it is stopped |",
        "| 1 | the operation failed (one line says why), or standard output was closed |",
        "| 2 | wrong usage |",
        "| 3 | `shoal why` found a problem; `shoal log verify` a torn tail |",
        "| 4 | `shoal log verify` found corruption; `shoal log repair` left some |",
        "| 5 | `shoal log verify` found something it does not support |",
        "| 130 | interrupted |",
        "",
        "## Where settings come from",
        "",
        "Precedence: flag, environment variable, profile, default.",
        "",
        "| variable | meaning |",
        "|---|---|",
        "| `SHOAL_BOOTSTRAP` | as `--bootstrap` |",
        "| `SHOAL_PROFILE` | as `--profile`: a table of the profile file |",
        "| `SHOAL_PROFILES` | the profile file, `~/.config/shoal/profiles.toml` if not given |",
        "| `SHOAL_SASL_PASSWORD` | the password, which is never a flag |",
        f"| {variables} | the settings of those names; the same in a profile, in small letters |",
        "| `NO_COLOR` | set to anything: no colours |",
        "",
        "A profile: [Run on a cluster](../howto/cluster.md). Shell completion:",
        "`shoal --install-completion`.",
        "",
    ]


def _help(*words: str) -> str:
    shown = subprocess.run(
        [sys.executable, "-m", "shoal", *words, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100", "TERMINAL_WIDTH": "100"},
    )
    return shown.stdout.strip()


def _subcommands(name: str) -> list[str]:
    _, found, rest = _help(name).partition("\nCommands:\n")
    rest = rest.split("\n\n")[0]  # examples follow
    return (
        [line.split()[0] for line in rest.splitlines() if line.startswith("  ") and line[2] != " "]
        if found
        else []
    )


PAGES = {
    "errors.md": error_codes,
    "settings.md": settings,
    "python.md": python_api,
    "cli.md": command_line,
}


def main() -> None:
    """Write every page."""
    TARGET.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (TARGET / name).write_text(page())


if __name__ == "__main__":
    main()
