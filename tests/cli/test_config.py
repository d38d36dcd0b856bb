"""``shoal config check``: what our clients make of somebody's file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shoal.cli.commands import app


def check(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["config", "check", str(path), *arguments])


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def told(path: Path, *arguments: str) -> dict[str, tuple[str, str | None, str]]:
    found = json.loads(check(path, "--json", *arguments).stdout)["settings"]
    return {row["name"]: (row["outcome"], row["ours"], row["value"]) for row in found}


PROPERTIES = r"""
# a comment
! another
bootstrap.servers = broker-1:9092,\
    broker-2:9092
group.id: billing
auto.offset.reset smallest
debug=all
acks=1
sasl.password=hu\u0073h = hush
client.id=a\ b
"""


def test_a_properties_file_is_told_line_by_line(tmp_path):
    path = written(tmp_path, "client.properties", PROPERTIES)
    assert told(path) == {
        "bootstrap.servers": ("taken", "bootstrap_servers", "broker-1:9092,broker-2:9092"),
        "group.id": ("taken", "group_id", "billing"),
        "auto.offset.reset": ("taken", "auto_offset_reset", "earliest"),
        "debug": ("left out", None, "all"),
        "acks": ("left out", None, "1"),
        "sasl.password": ("taken", "sasl_password", "***"),
        "client.id": ("taken", "client_id", "a b"),
    }
    shown = check(path)
    assert shown.exit_code == 0
    assert "a consumer can be made from it" in shown.stdout
    assert "a setting of producers" in shown.stdout
    assert "hush" not in shown.output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.json", '{"group": {"id": "g"}, "linger.ms": 0.5}'),
        ("s.toml", '"linger.ms" = 0.5\n[group]\nid = "g"'),
        ("s.yaml", "group:\n  id: g\nlinger.ms: 0.5"),
        ("s.yml", "group.id: g\nlinger.ms: 0.5"),
        ("s.conf", "group.id=g\nlinger.ms=0.5"),
    ],
)
def test_other_formats_say_the_same(tmp_path, name, text):
    path = written(tmp_path, name, text)
    assert told(path)["group.id"] == ("taken", "group_id", "g")
    assert told(path, "--for", "producer")["linger.ms"] == ("taken", "linger_ms", "1")


def test_a_part_of_a_file_can_be_named(tmp_path):
    path = written(tmp_path, "s.yaml", "app: {kafka: {group.id: g}}\nport: 80")
    assert list(told(path, "--section", "app.kafka")) == ["group.id"]
    assert "no section 'app.rest'" in str(check(path, "--section", "app.rest").exception)


def test_a_refused_setting_ends_with_exit_code_1_and_what_to_do(tmp_path):
    path = written(tmp_path, "s.properties", "enable.partition.eof=true\nssl.key.pem=hush")
    shown = check(path)
    assert shown.exit_code == 1
    assert "compare position()" in " ".join(shown.stdout.split())
    assert "2 settings refused" in shown.output
    assert "hush" not in shown.output


def test_settings_that_do_not_go_together_end_with_exit_code_1(tmp_path):
    path = written(tmp_path, "s.properties", "group.instance.id=i")
    shown = check(path)
    assert shown.exit_code == 1
    assert "these settings do not work together: group_instance_id needs a group_id" in shown.output


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("s.json", "{", "is not JSON"),
        ("s.json", "[" * 100_000, "is not JSON"),
        ("s.json", "[1]", "holds no settings"),
        ("s.toml", "a = ", "is not TOML"),
        ("s.yaml", "a: [", "is not YAML, line 1: "),
        ("s.yaml", "just text", "holds no settings"),
        ("s.properties", "= x", "a line without a name"),
    ],
)
@pytest.mark.slow
def test_a_file_that_is_not_what_it_says_is_one_line(tmp_path, name, text, said):
    path = written(tmp_path, name, text)
    done = subprocess.run(
        [sys.executable, "-m", "shoal", "config", "check", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_another_client_than_the_three_is_refused(tmp_path):
    path = written(tmp_path, "s.properties", "a=b")
    assert "give consumer, producer, admin" in str(check(path, "--for", "stream").exception)
