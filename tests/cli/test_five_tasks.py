"""Five things people come for, each in at most three commands that ``--help`` or the docs name.

A task is a list of command lines, run as they stand. What is found out from one line for the next
(the name of a group, a partition, an offset) is read from its output as a person would.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import Consumer, Producer
from shoal.cli.commands import COMMANDS
from shoal.cli.examples import EXAMPLES
from shoal.client.admin import Admin
from shoal.testing.broker import Broker
from shoal.types import OffsetAndMetadata, TopicPartition
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[2]
COMMANDS_MAX = 3
HOUR_MS = 3_600_000


class Shell:
    """Runs the lines of a task, and counts them."""

    def __init__(self, shoal: Run) -> None:
        self._shoal = shoal
        self.lines: list[str] = []

    def __call__(self, line: str) -> subprocess.CompletedProcess[str]:
        self.lines.append(line)
        program, *words = line.split()
        assert program == "shoal"
        assert words[0] in COMMANDS, "named by shoal --help"
        return self._shoal(*words)


@pytest.fixture
def shell(shoal: Run) -> Iterator[Shell]:
    made = Shell(shoal)
    yield made
    assert 1 <= len(made.lines) <= COMMANDS_MAX


def _topic(broker: Broker, name: str, values: list[bytes], *, start_ms: int | None = None) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic(name, partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            at = None if start_ms is None else start_ms + number * HOUR_MS
            producer.send(name, value, partition=0, timestamp_ms=at)


def _committed(broker: Broker, group: str, topic: str, offset: int) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        where = TopicPartition(topic, 0)
        admin.alter_group_offsets(group, {where: OffsetAndMetadata(offset)})


@pytest.mark.slow
def test_find_the_stuck_group(shell: Shell, broker: Broker) -> None:
    """One of three groups stands still: which, and why?"""
    _topic(broker, "parcels", [b"x"] * 50)
    for group, offset in (("fine-one", 50), ("stuck-one", 3), ("fine-two", 50)):
        with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group) as consumer:
            consumer.subscribe(["parcels"])
            while not consumer.assignment():
                consumer.poll(0.2)
            where = TopicPartition("parcels", 0)
            consumer.seek(where, offset)
            consumer.commit_sync({where: OffsetAndMetadata(offset)})
    listed = shell("shoal group list -t parcels").stdout
    header, *rows = listed.splitlines()
    lag = header.split().index("lag")
    worst = max((row.split() for row in rows), key=lambda cells: int(cells[lag]))[0]
    assert worst == "stuck-one"
    said = shell(f"shoal why {worst} --seconds 0.5")
    assert said.returncode == 3, "a problem"
    assert "no active members" in said.stdout
    assert "→" in said.stdout, "what to do about it"


@pytest.mark.slow
def test_move_a_group_back_two_hours(shell: Shell, broker: Broker) -> None:
    """The last two hours were processed wrongly: read them again."""
    import time

    _topic(broker, "meters", [b"x"] * 10, start_ms=int(time.time() * 1000) - 9 * HOUR_MS - 60_000)
    _committed(broker, "metering", "meters", 10)
    shown = shell("shoal group reset metering --to 2h --dry-run").stdout
    assert shown.splitlines()[1].split() == ["meters-0", "10", "8", "-2"]
    assert shell("shoal group reset metering --to 2h --yes").returncode == 0
    assert json.loads(shell("shoal group lag metering --json").stdout)[0]["committed"] == 8
    assert any("--to 2h" in line for line, _ in EXAMPLES["group reset"]), "found by --help"


@pytest.mark.slow
def test_see_who_reads_a_topic(shell: Shell, broker: Broker) -> None:
    """Before a topic is changed: whom does it concern, and on which machines?"""
    _topic(broker, "prices", [b"x"])
    _topic(broker, "others", [b"x"])
    _committed(broker, "not-concerned", "others", 0)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="pricing", client_id="shop-7"
    ) as consumer:
        consumer.subscribe(["prices"])
        while not consumer.assignment():
            consumer.poll(0.2)
        rows = shell("shoal group list --topic prices").stdout.splitlines()[1:]
        assert [row.split()[0] for row in rows] == ["pricing"]
        members = shell("shoal group describe pricing").stdout
    assert re.search(r"shop-7.*127\.0\.0\.1.*prices 0", members)


@pytest.mark.slow
def test_find_the_poison_record(shell: Shell, broker: Broker) -> None:
    """A consumer falls over the same record again and again: look at it, and step over it."""
    values = [b'{"n": 1}', b'{"n": 2}', b"\xff\xfe not JSON", b'{"n": 4}']
    _topic(broker, "events", values)
    _committed(broker, "eventing", "events", 2)
    lag = shell("shoal group lag eventing").stdout.splitlines()[1].split()
    partition, committed = lag[0].rpartition("-")[2], lag[1]
    shown = shell(f"shoal consume events -p {partition} --from {committed} -n 1 --json").stdout
    record = json.loads(shown)
    assert (record["offset"], record["value"]) == (2, {"base64": "//4gbm90IEpTT04="})
    assert shell("shoal group reset eventing --shift 1 --yes").returncode == 0


@pytest.mark.slow
def test_test_code_with_a_broker(tmp_path: Path) -> None:
    """The page about CI has tests to copy: they pass as they stand, with one command."""
    page = (ROOT / "docs" / "howto" / "ci.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "test_orders.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
