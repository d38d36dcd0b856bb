"""``shoal fleet`` against a live broker: what happened to a real group is what the report says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import install_command
from shoal.testing.broker import Broker
from tests.cli.conftest import Run
from tests.cli.test_commands import one_line
from tests.peers.kafka import ApacheKafka
from tests.spark.happening import Happening, five_things_happen

pytestmark = pytest.mark.slow

WHAT_HAPPENED = [
    ("group started", ["ann"]),
    ("member joined", ["ben"]),
    ("member joined", ["cleo"]),
    ("member expired", ["cleo"]),
    ("member left", ["ben"]),
    ("topic grew", []),
    ("member left", ["ann"]),
]


@pytest.fixture(scope="module")
def happened(broker: Broker | ApacheKafka) -> str:
    """A group that was through everything, and is ten records behind."""
    five_things_happen(broker.bootstrap_servers, "readers", "orders")
    return "readers"


def told(report: dict[str, Any]) -> list[tuple[str, list[str]]]:
    who = ("joined", "left", "expired", "gone", "restarted")
    return [
        (row["cause"], [name.split("-")[0] for kind in who for name in row[kind]])
        for row in report["rebalances"]
    ]


def test_a_report_tells_what_happened(shoal: Run, happened: str, tmp_path: Path) -> None:
    done = shoal("fleet", "report", "--json", "--group", "read*")
    report = json.loads(done.stdout)
    assert told(report) == WHAT_HAPPENED
    assert [row["certain"] for row in report["rebalances"]] == [True] * 3 + [False] + [True] * 3
    assert [row["moved"] for row in report["rebalances"]] == [0, 3, 3, 3, 3, 2, 0]
    (group,) = report["groups"]
    assert (group["group"], group["state"], group["lag"]) == (happened, "Empty", 10)
    assert group["seconds"] > 0
    assert not group["at_least"]
    assert report["unreadable"] == 0


def test_a_report_for_people_has_tables_and_a_picture(
    shoal: Run, happened: str, tmp_path: Path
) -> None:
    done = shoal("fleet", "report", "--draw", "fleet.svg", "--limit", "3")
    assert done.returncode == 0, done.stderr
    assert happened in done.stdout
    assert "topic grew" in done.stdout
    assert "4 more rebalances; --limit shows the rest" in done.stdout
    drawn = (tmp_path / "fleet.svg").read_text()
    assert "records behind" in drawn
    assert "member expired, 3 moved" in drawn
    assert shoal("fleet", "report", "--draw", "fleet.png").returncode == 0
    assert (tmp_path / "fleet.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_needs_neither_spark_nor_java(shoal: Run, happened: str, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "pyspark.py").write_text("raise ImportError('not here')")
    bare = {"PYTHONPATH": str(tmp_path / "hidden"), "PATH": str(tmp_path), "JAVA_HOME": ""}
    done = shoal("fleet", "report", env=bare)
    assert done.returncode == 0, done.stderr
    assert happened in done.stdout


def test_a_group_that_was_not_asked_for_is_left_out(shoal: Run, happened: str) -> None:
    report = json.loads(shoal("fleet", "report", "--json", "-g", "nobody").stdout)
    assert (report["groups"], report["rebalances"], report["lag"]) == ([], [], [])
    later = json.loads(shoal("fleet", "report", "--json", "--since", "2100-01-01").stdout)
    assert later["rebalances"] == []


def test_a_recording_tells_the_same_without_the_cluster(
    shoal: Run, happened: str, tmp_path: Path
) -> None:
    kept = shoal("fleet", "record", "history", "--rounds", "2", "--every", "0.2")
    assert "records kept" in kept.stderr
    report = json.loads(shoal("fleet", "report", "history", "--json", "-b", "nowhere:1").stdout)
    assert told(report) == WHAT_HAPPENED
    assert [row["lag"] for row in report["lag"]] == [10, 10]


def test_a_group_at_work_is_stable(shoal: Run, broker: Broker | ApacheKafka) -> None:
    with Happening(broker.bootstrap_servers, "workers", "cooperative-sticky") as now:
        now.admin.create_topic("work", partitions=4)
        now.produce("work", 8)
        first = now.join("first", "work")
        first.owns(4)
        second = now.join("second", "work")
        second.owns(2)
        report = json.loads(shoal("fleet", "report", "--json", "-g", "workers").stdout)
    (group,) = report["groups"]
    assert (group["state"], group["members"], group["partitions"]) == ("Stable", 2, 4)
    assert group["imbalance"] == 1.0
    assert [row["cause"] for row in report["rebalances"]] == [
        "group started",
        "member joined",
        "second round of a cooperative rebalance",
    ]


def test_a_log_directory_tells_the_same_without_a_broker(shoal: Run, tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path / "data") as own,
        Happening(own.bootstrap_servers, "readers") as now,
    ):
        now.admin.create_topic("orders", partitions=2)
        now.produce("orders", 4)
        now.join("ann", "orders").owns(2)
        now.join("ben", "orders").owns(1)
    report = json.loads(shoal("fleet", "report", "data", "--json").stdout)
    assert told(report) == [("group started", ["ann"]), ("member joined", ["ben"])]
    assert report["groups"][0]["state"] == "Stable"


def test_mistakes_are_one_line(shoal: Run, tmp_path: Path) -> None:
    assert "pictures are .svg or .png" in one_line(shoal("fleet", "report", "--draw", "x.gif"))
    assert "there is no directory" in one_line(shoal("fleet", "report", "absent"))
    assert "holds neither" in one_line(shoal("fleet", "report", str(tmp_path)))
    assert "is not a valid time" in one_line(shoal("fleet", "report", "--since", "soon"))
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "pyarrow.py").write_text("raise ImportError('not here')")
    bare = shoal("fleet", "report", env={"PYTHONPATH": str(tmp_path / "hidden")})
    assert install_command("arrow") in one_line(bare)
    bare = shoal("fleet", "record", "r", env={"PYTHONPATH": str(tmp_path / "hidden")})
    assert install_command("arrow") in one_line(bare)
