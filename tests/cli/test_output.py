"""Whatever is printed is text: nothing a user, a broker or a name says is markup."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal.cli
from shoal import Producer
from shoal.cli.output import json_text, print_table, printable, progress, tell, warn
from shoal.client.admin import Admin
from shoal.client.consumer import Consumer
from shoal.errors import install_command
from shoal.testing.broker import Broker
from shoal.types import OffsetAndMetadata
from tests.cli.conftest import QuickRun, Run

NAMES = [
    "[/x]",
    "[red]",
    "[bold]x",
    "[/]",
    "a[link=http://x]b",
    ":fire:",
    "\\[red]",
    "[",
    "x\x1b[2J",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_shown_as_it_is_in_every_part_of_a_table(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table((name, "b"), [(name, 1)], title=f"title {name}")
    tell(name)
    warn(name)
    printed = capsys.readouterr()
    shown = printed.out + printed.err
    assert shown.count(printable(name)) == 4
    assert "\x1b" not in shown


def test_advice_with_brackets_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    tell("run: pip install '.[spark]'")
    assert capsys.readouterr().out == "run: pip install '.[spark]'\n"


@pytest.mark.parametrize("name", ["[/x]", "[red]", "[bold]x"])
@pytest.mark.slow
def test_a_group_of_any_name_can_be_looked_at(shoal: Run, broker: Broker, name: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        if "marked" not in admin.list_topics():
            admin.create_topic("marked", partitions=2)
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "client_id": f"client {name}",
    }
    with Consumer(**settings, group_id=name) as consumer:
        consumer.subscribe(["marked"])
        while not consumer.assignment():
            consumer.poll(0.2)
        consumer.commit_sync({tp: OffsetAndMetadata(0) for tp in consumer.assignment()})
        for command, wanted in (
            (("group", "list"), name),
            (("group", "describe", name), f"client {name}-"),
            (("group", "lag", name), f"client {name}-"),
            (("group", "watch", name, "--count", "1"), "Stable, 1 member"),
            (("plan", "--group", name), f"client {name}"),
            (("why", name, "--seconds", "0.5"), f"(client {name}-"),
            (("fleet", "report", "--group", "*"), name),
        ):
            shown = shoal(*command)
            assert shown.returncode == 0, (command, shown.stderr)
            assert wanted in shown.stdout, command
    for change, wanted in (
        (("group", "reset", name, "--to", "latest", "--yes"), f"group {name} was reset"),
        (("group", "delete", name, "--yes"), f"deleted {name}"),
    ):
        assert wanted in shoal(*change).stdout
    assert repr(name) in shoal("group", "describe", name).stderr


def test_names_in_files_are_text_too(shoal: Run, tmp_path: Path) -> None:
    group = {
        "topics": {"[red]t": 2},
        "members": [{"id": "[/m]", "topics": ["[red]t"]}, {"id": "b", "topics": ["[red]t"]}],
        "change": {"leave": ["[/m]"]},
    }
    (tmp_path / "[red].json").write_text(json.dumps(group))
    shown = shoal("plan", "[red].json")
    assert shown.returncode == 0, shown.stderr
    assert "[/m]" in shown.stdout
    assert "[/x].yaml" in shoal("lab", "compare", "[/x].yaml").stderr
    assert "[/x]" in shoal("topic", "create", "[/x]").stderr
    assert "--[red]" in shoal("topic", "list", "--[red]").stderr
    assert "[bold]x" in shoal("[bold]x").stderr
    (tmp_path / "data").mkdir()
    shown = shoal(
        *("user", "set", "[/x]", "--data-dir", "data", "--password-file", "-"), stdin="secret12\n"
    )
    assert shown.stdout.startswith("user [/x] can log in")
    assert shoal("user", "list", "--data-dir", "data").stdout.startswith("[/x]\t")


def test_a_header_cannot_move_the_cursor(quick: QuickRun, broker: Broker) -> None:
    quick("topic", "create", "headed", "-p", "1")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("headed", b"v", headers=[("h\x1b[2J\x9b", b"\x1b")])
    shown = quick("consume", "headed", "--format", "{headers}").stdout
    assert shown == "h\\x1b[2J\\x9b=\\x1b\n"
    shown = quick("consume", "headed", "--json").stdout
    assert shown.rstrip("\n").isprintable()
    assert json.loads(shown)["headers"] == [["h\x1b[2J\x9b", "\x1b"]]


def test_json_is_readable_and_means_what_was_said() -> None:
    value = {"Ünicode": ["\x9b2J", "\u202ered", "\x7f", "\U000e0001", "plain"]}
    assert json.loads(json_text(value)) == value
    assert json_text(value).isprintable()
    assert "Ünicode" in json_text(value)


def test_a_bar_is_for_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("[red]", 10, unit="[/x]") as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def modules() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted(Path(shoal.cli.__file__).parent.glob("*.py")):
        if path.name != "output.py":
            yield path, ast.parse(path.read_text())


# Processes the demo starts: what they write are messages to it.
_CHILDREN = ("demo_member.py", "demo_spark.py")
_TYPER = ("echo", "secho", "style", "prompt", "confirm", "progressbar")


def test_there_is_one_door_for_output() -> None:
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [one.name for one in node.names]
                module = getattr(node, "module", None) or ""
                if any(name.split(".")[0] == "rich" for name in [*names, module]):
                    found.append(f"{path.name}:{node.lineno} knows Rich")
            elif isinstance(node, ast.Call) and path.name not in _CHILDREN:
                called = ast.unparse(node.func)
                if called == "print" or called in [f"typer.{name}" for name in _TYPER]:
                    found.append(f"{path.name}:{node.lineno} calls {called}")
    assert found == []


@pytest.mark.slow
def test_a_demo_that_must_run_spark_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('not here')")
    for more in ((), ("--json",)):
        shown = subprocess.run(
            [sys.executable, "-m", "shoal", "demo", "--spark", *more],
            env={"PATH": "/usr/bin", "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        said = f"shoal: Spark is not installed; run: {install_command('spark')}\n"
        assert (shown.returncode, shown.stdout, shown.stderr) == (1, "", said)
        assert not (tmp_path / "demo-output").exists()
