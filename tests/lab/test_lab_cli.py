"""``shoal lab`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from shoal.cli.lab import app
from shoal.errors import ConfigError
from shoal.lab import BUILT_IN, SCHEMES


def lab(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_list_names_every_scenario_and_scheme() -> None:
    shown = lab("--list")
    for name in (*BUILT_IN, *SCHEMES):
        assert name in shown
    listed = json.loads(lab("--list", "--json"))
    assert [one["name"] for one in listed["scenarios"]] == list(BUILT_IN)


@pytest.mark.slow
def test_compare_prints_a_table_and_a_picture() -> None:
    shown = lab("compare", "member-joins")
    for scheme in SCHEMES:
        assert scheme in shown
    assert "two owners" in shown
    assert "stopped" in shown


def test_compare_shows_the_digits_that_run_shows() -> None:
    from shoal.lab import built_in, run_scenario

    metrics = run_scenario(built_in("member-joins"), "watchers").metrics
    compared = lab("compare", "member-joins", "-s", "watchers", "--no-picture")
    ran = lab("run", "member-joins", "-s", "watchers")
    exact = f"{metrics.stopped_partition_s:.2f}"
    assert f" {exact}" in next(line for line in compared.splitlines() if "stopped (" in line)
    assert f" {exact}" in next(line for line in ran.splitlines() if "stopped partition s" in line)


def test_no_word_is_broken_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    monkeypatch.setenv("COLUMNS", "80")
    narrow = Console.__init__

    def at_80_columns(console: Console, **named: object) -> None:
        narrow(console, **{**named, "width": 80})  # type: ignore[arg-type]  # passed on as given

    monkeypatch.setattr(Console, "__init__", at_80_columns)
    shown = lab("compare", "member-crashes", "-s", "watchers", "-s", "central", "-s", "eager",
                "-s", "cooperative", "-s", "incremental")  # fmt: skip
    assert all(len(line) <= 80 for line in shown.splitlines())
    words = set(shown.replace(",", " ").split())
    assert {"watchers", "cooperative", "incremental", "notifications", "partitions"} <= words


@pytest.mark.slow
def test_compare_as_json_has_every_number_and_repeats_itself() -> None:
    first = json.loads(lab("compare", "member-leaves", "--json", "--seed", "5"))
    again = json.loads(lab("compare", "member-leaves", "--json", "--seed", "5"))
    assert first == again
    assert [one["scheme"] for one in first] == list(SCHEMES)
    assert all(one["seed"] == 5 and one["stopped_partition_s"] >= 0 for one in first)


def test_run_shows_one_scheme_with_its_messages() -> None:
    shown = lab("run", "member-joins", "--scheme", "3", "--messages")
    assert "JoinGroup" in shown
    entry = json.loads(lab("run", "member-joins", "-s", "eager", "--json", "--messages"))
    assert {"spans", "marks", "messages"} <= entry.keys()


def test_explain_tells_each_scheme_in_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = lab("explain", "broker-dies", "-s", "watchers", "-s", "eager")
    assert "broker-dies: One of three brokers dies" in shown
    assert "/brokers/ids has changed" in " ".join(shown.split())
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize("kind", ["timeline", "messages"])
def test_draw_writes_a_picture(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "picture.svg"
    lab("draw", "member-joins", "--kind", kind, "-s", "eager", "-o", str(file))
    assert file.read_text().startswith("<svg")


def test_a_scenario_file_is_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("members: 2\ntopics: {a: 4}\nevents:\n  - {at: 5s, crash: m1}\n")
    (entry,) = json.loads(lab("compare", str(file), "-s", "central", "--json"))
    assert entry["scenario"] == "mine"
    assert entry["moved_partitions"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "nothing"], "there is no scenario 'nothing'"),
        (["run", "member-joins", "-s", "x"], "there is no scheme 'x'"),
        (["draw", "member-joins", "--kind", "x", "-s", "eager"], "--kind"),
        (["draw"], "which scenario"),
        (["draw", "member-joins", "-s", "eager", "-o", "x.gif"], "svg or .png"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_without_a_command_there_is_help() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert "compare" in result.output
    assert isinstance(app, typer.Typer)
