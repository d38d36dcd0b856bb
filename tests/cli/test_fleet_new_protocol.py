"""Groups of the new protocol (KIP-848), run by Apache Kafka's own clients, in a fleet report."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from shoal.client.admin import Admin
from tests.cli.conftest import PROGRAM
from tests.peers import need
from tests.peers.jars import kafka_jars
from tests.peers.kafka import ApacheKafka, tool_command

pytestmark = [pytest.mark.kafka, pytest.mark.long]

SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    need(kafka_jars)
    with ApacheKafka(settings=SETTINGS) as running:
        yield running


def join(kafka: ApacheKafka, topic: str) -> subprocess.Popen[bytes]:
    command = tool_command(
        "consumer.ConsoleConsumer", "--bootstrap-server", kafka.bootstrap_servers
    )
    command += [
        "--topic",
        topic,
        "--group",
        "new",
        "--consumer-property",
        "group.protocol=consumer",
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def report(kafka: ApacheKafka) -> dict[str, list[dict[str, object]]]:
    done = subprocess.run(
        [PROGRAM, "fleet", "report", "--json", "-b", kafka.bootstrap_servers],
        capture_output=True,
        check=True,
    )
    found: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return found


def rebalanced(kafka: ApacheKafka, members: int) -> list[dict[str, object]]:
    """The rebalances, once the last of them left so many members."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = report(kafka)["rebalances"]
        if (
            found
            and found[-1]["members"] == members
            and found[-1]["partitions"] == 4 * bool(members)
        ):
            return found
    raise AssertionError(f"no generation of {members} members: {found}")


def test_a_report_puts_groups_of_the_new_protocol_together(kafka: ApacheKafka) -> None:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topic("orders", partitions=4)
        first = join(kafka, "orders")
        rebalanced(kafka, 1)
        second = join(kafka, "orders")
        rebalanced(kafka, 2)
        second.kill()
        rebalanced(kafka, 1)
        first.terminate()
        found = rebalanced(kafka, 0)
    first.wait()
    second.wait()
    assert {row["protocol"] for row in found} == {"consumer"}
    causes = [row["cause"] for row in found]
    assert causes[0] in ("group started", "first seen")
    assert "member joined" in causes
    assert causes[-2:] == ["member left or expired"] * 2
    assert [row["members"] for row in found][-3:] == [2, 1, 0]
