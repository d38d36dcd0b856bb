"""L12 against the real thing: Apache Kafka's tools and broker on our files, we on its files."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from shoal.errors import ErrorCode
from shoal.log import dumping, inspection
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.inspection import Status
from shoal.types import TopicPartition
from tests.golden import make_segments
from tests.log.batches import NOW_MS, batch, keyed, read_records
from tests.peers import need
from tests.peers.jars import kafka_jars
from tests.peers.kafka import ApacheKafka, tool

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TP = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300)


@pytest.fixture(scope="module", autouse=True)
def jars() -> Path:
    return need(kafka_jars)


def dump(*paths: Path, deep: bool = False) -> str:
    """What DumpLogSegments says; it must have no complaint."""
    options = ["--deep-iteration", "--print-data-log"] if deep else []
    shown = tool("DumpLogSegments", "--files", ",".join(map(str, paths)), *options)
    assert shown.returncode == 0, shown.stderr
    for line, following in pairwise([*shown.stderr.splitlines(), ""]):
        if line.startswith("Non-consecutive"):
            # It expects every file to begin at offset 0.
            assert following.strip().startswith("-1 is followed by"), following
    for word in ("Mismatches", "Found timestamp", "isvalid: false", "Exception", "corrupt"):
        assert word not in shown.stdout + shown.stderr, shown.stdout[-2000:]
    return shown.stdout


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*{suffix}"))


def test_L12_kafkas_tool_reads_what_we_append(tmp_path: Path) -> None:
    directory = LogDirectory.open(str(tmp_path), now_ms=NOW_MS, durability=Durability.OS)
    log = directory.create(TP, now_ms=NOW_MS, config=CONFIG)
    for index in range(60):
        data = batch(
            b"value %d" % index * 10,
            b"w",
            key=b"key-%d" % (index % 7),
            codec=index % 5,
            timestamp_ms=NOW_MS + index,
            producer_id=9,
            producer_epoch=0,
            base_sequence=index * 2,
        )
        assert log.append(data, now_ms=NOW_MS).error is ErrorCode.NONE
    directory.close()
    inside = tmp_path / "orders-0"
    shown = dump(*files(inside, ".log"), deep=True)
    assert shown.count("isvalid: true") == 60
    assert shown.count("| offset:") == 120
    assert dump(*files(inside, ".index")).count("offset:") > 10
    assert dump(*files(inside, ".timeindex")).count("timestamp:") > 10
    producers = dump(*files(inside, ".snapshot"))
    assert "producerId: 9 producerEpoch: 0" in producers
    assert "lastSequence: 119 lastOffset: 119" in producers


def test_L12_kafkas_tool_reads_what_we_compact(tmp_path: Path) -> None:
    directory = LogDirectory.open(str(tmp_path), now_ms=NOW_MS, durability=Durability.OS)
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    log = directory.create(TP, now_ms=NOW_MS, config=config)
    for index in range(80):
        value = None if index % 9 == 8 else b"value %d" % index * 5
        log.append(
            keyed(
                [(b"%d" % (index % 11), value), (b"only-%d" % index, b"x")],
                codec=index % 5,
                timestamp_ms=NOW_MS + index,
            ),
            now_ms=NOW_MS,
        )
    run_job(directory.checkpoint(NOW_MS))  # syncs the sealed segments
    run_job(directory.compact(NOW_MS))
    kept = len(read_records(log))
    directory.close()
    assert kept < 140
    inside = tmp_path / "orders-0"
    shown = dump(*files(inside, ".log"))
    assert "deleteHorizonMs: OptionalLong[" in shown
    dump(*files(inside, ".index"))
    dump(*files(inside, ".timeindex"))


def test_L12_a_kafka_broker_serves_a_partition_that_we_wrote(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka import TopicPartition as Assigned
    from confluent_kafka.admin import AdminClient, NewTopic

    ours = LogDirectory.open(str(tmp_path), now_ms=NOW_MS, durability=Durability.OS)
    log = ours.create(TP, now_ms=NOW_MS, config=CONFIG)
    for index in range(50):
        log.append(
            batch(
                b"value %d" % index * 8,
                codec=index % 5,
                timestamp_ms=NOW_MS + index,
                producer_id=3,
                producer_epoch=0,
                base_sequence=index,
            ),
            now_ms=NOW_MS,
        )
    expected = [(record.offset, record.value) for record in read_records(log)]
    ours.close()
    with ApacheKafka(settings={"log.retention.hours": "-1"}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("orders", b"replaced below")
        assert producer.flush(30) == 0
        kafka.kill(1)
        target = kafka.data_directory() / "orders-0"
        metadata = (target / "partition.metadata").read_bytes()
        shutil.rmtree(target)
        shutil.copytree(tmp_path / "orders-0", target)
        (target / "partition.metadata").write_bytes(metadata)
        kafka.start(1)
        kafka._await_port(1)
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "reader",
                "check.crcs": True,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([Assigned("orders", 0, 0)])
        found = []
        while len(found) < len(expected):
            message = consumer.poll(30)
            assert message is not None, f"only {len(found)} records came"
            assert message.error() is None, message.error()
            found.append((message.offset(), message.value()))
        (at,) = consumer.offsets_for_times([Assigned("orders", 0, NOW_MS + 33)], timeout=30)
        assert at.offset == 33
        consumer.close()
    assert found == expected


def test_L12_a_live_kafka_directory_is_verified_and_read() -> None:
    with ApacheKafka(settings=make_segments.SETTINGS) as kafka:
        make_segments.fill(kafka.bootstrap_servers)
        target = inspection.look_at(str(kafka.data_directory()))
        verdicts = list(inspection.verify(target))
        bad = [
            verdict
            for verdict in verdicts
            # The controller's own log is not in the format of records we know inside.
            if verdict.status is not Status.OK and "cluster_metadata" not in verdict.path
        ]
        assert not bad
        codecs = inspection.look_at(str(kafka.data_directory() / "codecs-0"))
        assert len(list(dumping.records(codecs, dumping.Choice()))) == 100


def test_L13_a_directory_in_use_by_a_java_broker_is_refused() -> None:
    from shoal.errors import DataDirectoryInUseError
    from shoal.log.disk import OsDisk

    with ApacheKafka() as kafka, pytest.raises(DataDirectoryInUseError):
        OsDisk(str(kafka.data_directory())).lock(".lock")
