"""Live groups of the new protocol (KIP-848) on Apache Kafka, looked at with every command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.client.admin import Admin
from tests.cli.conftest import PROGRAM
from tests.peers import need
from tests.peers.jars import kafka_jars
from tests.peers.kafka import ApacheKafka

pytestmark = [pytest.mark.kafka, pytest.mark.long]

MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": "new", "group.protocol": "consumer",
    "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200,
})
consumer.subscribe(["orders"])
while True:
    consumer.poll(0.2)
"""
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    need(kafka_jars)
    pytest.importorskip("confluent_kafka")
    with ApacheKafka(settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def group(kafka: ApacheKafka) -> Iterator[str]:
    """A group of two members with nothing to tell them apart but their ids, and all committed."""
    members: list[subprocess.Popen[bytes]] = []
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=4)
        run(kafka, "produce", "orders", stdin="x\n" * 40)
        command = [sys.executable, "-c", MEMBER, kafka.bootstrap_servers]
        try:
            members += [subprocess.Popen(command) for _ in range(2)]
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                found = admin.describe_group("new")
                owned = [len(one.assignment) for one in found.members]
                lag = sum(one.lag or 0 for one in admin.group_lag("new").values())
                if owned == [2, 2] and found.state == "Stable" and lag == 0:
                    break
            else:
                raise AssertionError(f"the group never settled: {found}")
            yield "new"
        finally:
            for member in members:
                member.kill()
                member.wait()


def run(kafka: ApacheKafka, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments, "-b", kafka.bootstrap_servers],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_described_with_its_members(kafka: ApacheKafka, group: str) -> None:
    shown = run(kafka, "group", "describe", group)
    first, facts, *_ = shown.stdout.splitlines()
    names = ["group", "state", "protocol", "assignor", "epoch", "coordinator", "members"]
    assert first.split() == names, shown.stderr
    assert re.fullmatch(r"new +Stable +consumer +uniform +\d+ +1 +2", facts)
    row = re.compile(r"^(rdkafka-\S+) .* 127\.0\.0\.1 +2 +0 +orders ", re.MULTILINE)
    names = row.findall(shown.stdout)
    assert len(set(names)) == 2, shown.stdout
    found = json.loads(run(kafka, "group", "describe", group, "--json").stdout)
    partitions = [tp for member in found["members"] for tp in member["partitions"]]
    assert sorted(partitions) == [f"orders-{number}" for number in range(4)]
    assert found["protocol"] == "consumer"
    assert all(one["target"] == one["partitions"] for one in found["members"])
    assert {one["epoch"] for one in found["members"]} == {found["epoch"]}


def test_nothing_is_wrong_with_it(kafka: ApacheKafka, group: str) -> None:
    shown = run(kafka, "why", group, "--seconds", "1")
    assert shown.returncode == 0, shown.stdout
    assert "Stable, 2 members, assignor uniform" in shown.stdout
    assert "lag is 0" in shown.stdout


def test_a_change_of_it_is_planned(kafka: ApacheKafka, group: str) -> None:
    shown = run(kafka, "plan", "--group", group, "--join", "third", "--json")
    assert shown.returncode == 0, shown.stderr
    outcomes = json.loads(shown.stdout)["outcomes"]
    assert [one["assignor"] for one in outcomes] == ["uniform (broker)", "range (broker)"]
    assert {len(one["before"]) for one in outcomes} == {2}
    assert all(one["moved"] >= 1 for one in outcomes)
    back = run(kafka, "plan", "--group", group, "--protocol", "classic", "--json")
    assert len(json.loads(back.stdout)["outcomes"]) == 4


def test_it_is_watched_while_a_member_comes(kafka: ApacheKafka, group: str) -> None:
    watch = subprocess.Popen(
        [PROGRAM, "group", "watch", group, "--interval", "0.2", "-b", kafka.bootstrap_servers],
        stdout=subprocess.PIPE,
        text=True,
    )
    processes: list[subprocess.Popen[Any]] = [watch]
    try:
        assert watch.stdout is not None
        assert "Stable, 2 members" in watch.stdout.readline()
        third = [sys.executable, "-c", MEMBER, kafka.bootstrap_servers]
        processes.append(subprocess.Popen(third))
        text = ""
        while not re.search(r"moved +orders-\d: \S+ → rdkafka-\S+", text):
            text += (line := watch.stdout.readline())
            assert line, text
        assert re.search(r"joined +rdkafka-\S+ \(127.0.0.1\)", text)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        if watch.stdout is not None:
            watch.stdout.close()


def test_a_group_that_is_not_there_is_still_not_there(kafka: ApacheKafka) -> None:
    assert "there is no group 'nobody'" in run(kafka, "group", "describe", "nobody").stderr
