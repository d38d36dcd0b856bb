"""``shoal plan`` as a user types it."""

from __future__ import annotations

import io
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shoal.assign.plan_document import EXAMPLES
from shoal.cli.plan import app
from shoal.client.consumer import Consumer
from shoal.client.producer import Producer
from shoal.errors import ConfigError
from shoal.testing.broker import Broker
from shoal.types import OffsetAndMetadata

DOCUMENT = """
topics: {orders: 6}
members:
  - {id: c1, topics: [orders]}
  - {id: c2, topics: [orders]}
change: {leave: [c2]}
"""


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments: str) -> str:
    with pytest.raises(ConfigError) as error:
        CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return str(error.value)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_prints_a_table_and_matrices(name: str) -> None:
    shown = run("--example", name).stdout
    for assignor in ("range", "roundrobin", "sticky", "cooperative-sticky"):
        assert shown.count(f"\n{assignor}\n") == 1
    assert "■ keeps" in shown


def test_the_first_example_shows_four_and_two_against_three_and_three() -> None:
    rows = [line.split() for line in run("--example", "two-topics").stdout.splitlines()]
    assert ["range", "2", "4", "1.00"] in rows
    assert ["roundrobin", "3", "3", "0.00"] in rows


def test_examples_are_listed() -> None:
    listed = run("--examples").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(EXAMPLES)


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_a_file_is_planned(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"group{suffix}"
    document = {
        "topics": {"orders": 6},
        "members": [{"id": f"c{n}", "topics": ["orders"]} for n in (1, 2)],
        "change": {"leave": ["c2"]},
    }
    path.write_text(json.dumps(document) if suffix == ".json" else DOCUMENT)
    value = json.loads(run(str(path), "--json").stdout)
    assert [one["moved"] for one in value["outcomes"]] == [3, 3, 3, 3]


def test_a_group_comes_from_standard_input() -> None:
    shown = CliRunner().invoke(app, ["-", "--json"], input=DOCUMENT, catch_exceptions=False)
    assert [one["moved"] for one in json.loads(shown.stdout)["outcomes"]] == [3, 3, 3, 3]


def test_a_wrong_group_on_standard_input_is_named_and_shown_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = DOCUMENT.replace("{leave: [c2]}", "{join: [c3]}")
    for text, told in ((wrong, "{id: c1, topics: [orders]}"), ("{", "standard input is not YAML")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        with pytest.raises(ConfigError, match="standard input") as error:
            app(["-"], standalone_mode=False)
        assert told in str(error.value)


def test_flags_add_changes_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "group.yaml"
    path.write_text(DOCUMENT)
    given = ["--join", "c9", "--partitions", "orders=8", "--strategy", "any", "--restart", "static"]
    value = json.loads(run(str(path), "--json", "--assignor", "sticky", *given).stdout)
    assert value["changes"] == [
        "c2 leaves",
        "orders gets 8 partitions",
        "c9 joins",
        "the group changes to another assignor",
        "all members restart one by one (static)",
    ]
    (sticky,) = value["outcomes"]
    assert {len(held) for held in sticky["after"].values()} == {4}
    gone = json.loads(run("--example", "two-topics", "--leave", "c0", "--json").stdout)
    assert gone["changes"] == ["c0 leaves"]


def test_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    svg, png = tmp_path / "plan.svg", tmp_path / "plan.png"
    run("--example", "one-leaves", "--no-matrix", "--svg", str(svg), "--png", str(png))
    assert svg.read_text().startswith("<svg")
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_bad_file_is_one_line_naming_the_field(tmp_path: Path) -> None:
    path = tmp_path / "group.yaml"
    path.write_text(DOCUMENT.replace("[c2]", "c2"))
    assert refused(str(path)) == f"{path}: change.leave: must be a list of names"
    for text, said in (
        ("topics:\n  a: [", ", line 2: expected the node content"),
        ("topics: 2026-13-45", ": month must be in 1..12"),
        ("[" * 5_000, ": nested too deeply"),
    ):
        path.write_text(text)
        told = refused(str(path))
        assert told.startswith(f"{path} is not YAML{said}")
        assert "<unicode string>" not in told
    (tmp_path / "group.json").write_text("{")
    assert "is not JSON" in refused(str(tmp_path / "group.json"))


def test_what_cannot_be_planned_is_refused(tmp_path: Path) -> None:
    assert "give one of" in refused()
    assert "give one of" in refused("--example", "deploy", "--group", "g")
    assert "no example is called 'x'; there are two-topics" in refused("--example", "x")
    assert "TOPIC=N" in refused("--example", "deploy", "--partitions", "orders")
    assert "MEMBER=TOPIC" in refused("--example", "deploy", "--subscribe", "orders")
    assert "static or dynamic" in refused("--example", "deploy", "--restart", "now")
    assert "'c77' cannot leave" in refused("--example", "deploy", "--leave", "c77")
    assert "no assignor is called 'best'" in refused("--example", "deploy", "--assignor", "best")


@pytest.mark.slow
def test_a_live_group_is_planned() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=4)
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "client_id": "reader",
        }
        with Consumer(**settings, group_id="g") as consumer:
            consumer.subscribe(["orders"])
            while not consumer.assignment():
                consumer.poll(timeout=0.5)
            given = ["--bootstrap", broker.bootstrap_servers, "--group", "g", "--join", "second"]
            value = json.loads(run(*given, "--json").stdout)
            assert {one["moved"] for one in value["outcomes"]} == {2}
            for outcome in value["outcomes"]:
                ((name, owned),) = outcome["before"].items()
                assert re.fullmatch(r"reader-[0-9a-f]{4}", name)
                assert len(owned) == 4
            # A member may be called by the beginning of its name.
            moved = ["--subscribe", "reader=", *given]
            left = json.loads(run(*moved, "--json").stdout)
            assert all(list(one["after"]["second"]) for one in left["outcomes"])
            assert all(one["after"][name] == [] for one in left["outcomes"])
        assert "has no members now" in refused(*given)


@pytest.mark.slow
def test_a_live_group_is_planned_by_its_lag_and_by_how_fast_its_topics_grow() -> None:
    with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        broker.create_topic("orders", partitions=4)
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "client_id": "reader",
        }
        with Consumer(**settings, group_id="g") as consumer:
            consumer.subscribe(["orders"])
            while not consumer.assignment():
                consumer.poll(timeout=0.5)
            consumer.commit_sync({tp: OffsetAndMetadata(0) for tp in consumer.assignment()})
            producer.send("orders", b"x", partition=0)
            producer.flush()
            stop = Event()

            def produce() -> None:
                while not stop.wait(0.01):
                    producer.send("orders", b"x" * 1000, partition=0)
                    producer.flush()

            with ThreadPoolExecutor(1) as pool:
                done = pool.submit(produce)
                try:
                    given = ["--bootstrap", broker.bootstrap_servers, "--group", "g", "--json"]
                    value = json.loads(run(*given, "--watch", "0.5", "--join", "second").stdout)
                finally:
                    stop.set()
                done.result()
    for one in value["outcomes"]:
        assert one["loads"]["before"]["lag"]["maximum"] > 0
        assert one["loads"]["before"]["bytes_per_s"]["maximum"] > 1000
        assert one["loads"]["after"]["bytes_per_s"]["minimum"] == 0, "only one partition grows"


@pytest.mark.parametrize(
    "change",
    [
        ("--join", "new"),
        ("--leave", "c1"),
        ("--partitions", "orders=20"),
        ("--subscribe", "c1=orders"),
        ("--strategy", "any"),
        ("--restart", "static"),
        ("--restart", "dynamic"),
    ],
    ids=" ".join,
)
def test_every_kind_of_change_can_be_given_as_a_flag(
    change: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "group.json"
    described = {
        "topics": {"orders": 6, "payments": 4},
        "members": [{"id": name, "topics": ["orders", "payments"]} for name in ("c1", "c2", "c3")],
    }
    path.write_text(json.dumps(described))
    value = json.loads(run(str(path), *change, "--json").stdout)
    assert len(value["changes"]) == 1
    assert {one["assignor"] for one in value["outcomes"]} >= {"range", "sticky"}
