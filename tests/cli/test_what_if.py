"""``shoal fleet what-if`` on groups that really were there, of both protocols."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from shoal import Consumer, Producer
from shoal.broker.config import BrokerConfig, GroupSettings
from shoal.cli.commands import app
from shoal.testing.broker import Broker
from tests.fleet.past import Past, rolling_restart
from tests.patience import PATIENCE_S

PARTITIONS = 6


class Group:
    """Members in this process, polled in turn until everybody has a share."""

    def __init__(self, broker: Broker, group: str, **settings: Any) -> None:
        self._settings = {
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 200,
            **settings,
        }
        self._members: dict[str, Consumer] = {}

    def join(self, name: str) -> None:
        member = Consumer(**self._settings, client_id=name)
        member.subscribe(["t"])
        self._members[name] = member
        self._settle()

    def leave(self, name: str) -> None:
        self._members.pop(name).close()
        self._settle()

    def close(self) -> None:
        for member in self._members.values():
            member.close()

    def _settle(self) -> None:
        deadline = time.monotonic() + 4 * PATIENCE_S
        members = list(self._members.values())
        while members:
            assert time.monotonic() < deadline, [one.assignment() for one in members]
            for member in members:
                member.poll(0.05)
            held = [len(one.assignment()) for one in members]
            if sum(held) == PARTITIONS and max(held) - min(held) <= 1:
                return


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A classic group that restarts one of its members, and one of the new protocol that does."""
    settings = GroupSettings(
        consumer_heartbeat_interval_ms=200,
        consumer_min_heartbeat_interval_ms=200,
        initial_rebalance_delay_ms=0,
    )
    with Broker(topics={"t": PARTITIONS}, config=BrokerConfig(groups=settings)) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(60):
                producer.send("t", str(number), str(number))
        classic = {"assignors": ["range"], "heartbeat_interval_ms": 200}
        with ExitStack() as stack:
            for name, more in (("old", classic), ("new", {"group_protocol": "consumer"})):
                group = Group(running, name, **more)
                stack.enter_context(closing(group))
                group.join("ann")
                group.join("ben")
                group.leave("ben")
                group.join("ben")
                group.leave("ann")
        yield running


def what_if(broker: Broker | None, *more: str) -> Result:
    where = ["--bootstrap", broker.bootstrap_servers] if broker else []
    return CliRunner().invoke(app, ["fleet", "what-if", *more, *where])


def by_scheme(answer: dict[str, Any], group: str) -> dict[str, dict[str, Any]]:
    return {row["scheme"]: row for row in answer["rehearsals"] if row["group"] == group}


def told(broker: Broker | None, *more: str) -> dict[str, Any]:
    done = what_if(broker, "--json", *more)
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
def test_the_past_of_real_groups_is_replayed_in_every_scheme(broker: Broker) -> None:
    answer = told(broker)
    assert answer["groups"] == 2
    old, new = by_scheme(answer, "old"), by_scheme(answer, "new")
    assert (old["eager"]["verdict"], new["consumer"]["verdict"]) == ("in use", "in use")
    # Ben comes, goes and comes back, then Ann goes; what is left is closed at the end.
    assert old["eager"]["changes"] == new["eager"]["changes"] == 5
    for rows in (old, new):
        moved = {name: row["moved_then"] for name, row in rows.items()}
        # Three to Ben, three back, three to Ben again, and Ann's three.
        assert moved["cooperative"] == moved["consumer"] == 12
        assert rows["eager"]["rebalances_then"] == 4
        assert rows["consumer"]["rebalances_then"] == 4
        assert rows["static"]["moved_then"] < 12, "nobody noticed one of the restarts"
        assert rows["consumer"]["stopped_then"] < rows["eager"]["stopped_then"]
    assert (new["consumer"]["members"], new["consumer"]["partitions"]) == (2, PARTITIONS)
    # The broker's own interval was asked for: 200 ms.
    assert not any("broker's defaults" in line for line in old["consumer"]["evidence"])


@pytest.mark.slow
def test_a_recording_and_pictures_of_real_groups(broker: Broker, tmp_path: Path) -> None:
    where = ["--bootstrap", broker.bootstrap_servers]
    record = ["fleet", "record", str(tmp_path / "history"), "--rounds", "1", *where]
    assert CliRunner().invoke(app, record).exit_code == 0
    live, kept = told(broker), told(None, str(tmp_path / "history"))
    ignored = {"evidence", "stopped_then", "stopped_now", "saves", "verdict", "catch_up_then"}
    ignored |= {"catch_up_now", "longest_now", "longest_then"}

    def same(answer: dict[str, Any]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = answer["rehearsals"]
        return [{k: v for k, v in row.items() if k not in ignored} for row in rows]

    assert same(live) == same(kept)
    report = CliRunner().invoke(app, ["fleet", "report", "--json", *where])
    assert {one["group"]: one["protocol"] for one in json.loads(report.stdout)["groups"]} == {
        "new": "consumer",
        "old": "classic",
    }


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups of a hundred partitions that are restarted, and one that nobody can replay."""
    root = tmp_path_factory.mktemp("what-if") / "history"
    past = Past(100, group="orders")
    names = [f"m{number}" for number in range(10)]
    for group, assignor in (("orders", "range"), ("mails", "mine"), ("bills", "roundrobin")):
        past = Past(100, journal=past.journal, group=group, assignor=assignor)
        past.members(*names)
        rolling_restart(past, names, away_s=12)
    place = root / "records" / "day=2026-11-16" / "batch=0"
    place.mkdir(parents=True)
    pq.write_table(pa.Table.from_batches([past.journal.records()]), place / "part.parquet")
    (root / "ends").mkdir()
    return root


def test_people_are_told_what_saves_most_and_what_blocks(recording: Path) -> None:
    done = what_if(None, str(recording), "--limit", "1")
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("2 of 3 groups could stand still for less: ")
    assert done.stdout.startswith("changes "), "a pipe begins with the header of a table"
    assert "group.protocol=consumer" in done.output
    assert "1 more group; --limit shows the rest" in done.output
    assert "custom assignor" in done.output


def test_one_group_is_told_in_full(recording: Path) -> None:
    done = what_if(None, str(recording), "--group", "ord*")
    assert "- 20 changes and 20 rebalances recorded in 18.7 minutes" in done.output
    assert "- 10 restarts were over within the session" in done.output
    assert "mails" not in done.output
    one = told(None, str(recording), "-g", "orders")
    assert one["groups"] == 1


def test_files_hold_the_rows_and_the_pictures(recording: Path, tmp_path: Path) -> None:
    answer = told(None, str(recording), "--out", str(tmp_path / "out"))
    rows = pq.read_table(tmp_path / "out" / "what-if.parquet").to_pylist()
    assert rows == answer["rehearsals"]
    with (tmp_path / "out" / "what-if.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["group"] for line in lines] == [row["group"] for row in rows]
    blocked = {line["blocked_by"] for line in lines if line["group"] == "mails"}
    assert blocked == {"custom assignor", ""}
    pictures = {p.name: p.read_text() for p in (tmp_path / "out").glob("*.svg")}
    assert sorted(pictures) == ["headline.svg", "scatter.svg", "worst.svg"]
    assert "2 of 3 groups could stand still for less" in pictures["headline.svg"]
    assert "consumer: 2 groups better" in pictures["headline.svg"]
    assert "bills: " in pictures["scatter.svg"]
    assert "partition-seconds with consumer" in pictures["worst.svg"]


def test_groups_of_several_recordings_are_kept_apart(recording: Path) -> None:
    assert told(None, str(recording), str(recording)) == told(None, str(recording))
    copy = recording.parent / "copy"
    if not copy.exists():
        copy.symlink_to(recording)
    both = told(None, str(recording), str(copy))
    assert both["groups"] == 6
    assert all(row["group"].startswith((f"{recording}:", f"{copy}:")) for row in both["advice"])


def test_an_empty_past_is_no_error(tmp_path: Path) -> None:
    for part in ("records", "ends"):
        (tmp_path / "history" / part).mkdir(parents=True)
    done = what_if(None, str(tmp_path / "history"), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert "0 of 0 groups could stand still for less" in done.stderr
    assert "no group has changes enough" in (tmp_path / "out" / "scatter.svg").read_text()


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    done = what_if(None, str(tmp_path / "absent"))
    assert done.exit_code != 0
    assert "there is no directory" in str(done.exception or done.output)
