"""Our bytes read and written again by the message classes of Apache Kafka itself."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from shoal.wire.apis.registry import API
from shoal.wire.offsets_topic import RECORD_TYPES
from shoal.wire.schema import Message
from tests.peers import need
from tests.peers.cache import fetched, program
from tests.peers.jars import java, kafka_jars
from tests.wire.values import Builder

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOURCE = Path(__file__).with_name("WireOracle.java")
REQUESTS = "org.apache.kafka.common.message."
RECORDS = "org.apache.kafka.coordinator.group.generated."
MESSAGES_PER_PAIR = 8


def compiled() -> Path:
    """The directory with the compiled program, kept in the peers' cache."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]

    def build(directory: Path) -> None:
        command = [program("javac", "install a JDK, 17 or newer"), "-nowarn", "-d", str(directory)]
        jars = f"{kafka_jars()}/*"
        subprocess.run([*command, "-cp", jars, str(SOURCE)], check=True, capture_output=True)

    return fetched(f"wire-oracle-{digest}", build)


def answers(questions: list[str]) -> list[str]:
    classpath = f"{need(compiled)}:{need(kafka_jars)}/*"
    shown = subprocess.run(
        [need(java), "-Xmx256m", "-cp", classpath, "WireOracle"],
        input="\n".join(questions) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return shown.stdout.splitlines()


def random_messages(kind: type[Message], version: int) -> Iterator[bytes]:
    random = Random(f"{kind.__name__} {version} kafka")
    for _ in range(MESSAGES_PER_PAIR):
        yield Builder(random, version).message(kind).encode(version)


def assert_kafka_writes_the_same(cases: list[tuple[str, int, bytes]]) -> None:
    questions = [f"{name} {version} {data.hex()}" for name, version, data in cases]
    for (name, version, data), answer in zip(cases, answers(questions), strict=True):
        assert answer == data.hex(), f"{name} v{version}"


def test_kafka_reads_and_writes_our_requests_and_responses():
    cases = [
        (f"{REQUESTS}{kind.__name__}Data", version, data)
        for spec in API.values()
        for kind in (spec.request, spec.response)
        for version in range(kind.MIN_VERSION, kind.MAX_VERSION + 1)
        for data in random_messages(kind, version)
    ]
    assert len(cases) == 490 * MESSAGES_PER_PAIR
    assert_kafka_writes_the_same(cases)


def test_kafka_reads_and_writes_our_records_of_the_offsets_topic():
    cases = []
    for record_type, (key, value) in RECORD_TYPES.items():
        if record_type == 0:
            continue  # the same classes as type 1, under a name of their own in Kafka
        # Kafka's classes of keys have a version 0 only: the type is written apart.
        for data in random_messages(key, key.MAX_VERSION):
            cases.append((RECORDS + key.__name__, 0, data))
        for version in range(value.MIN_VERSION, value.MAX_VERSION + 1):
            for data in random_messages(value, version):
                cases.append((RECORDS + value.__name__, version, data))
    assert_kafka_writes_the_same(cases)
