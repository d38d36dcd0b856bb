"""L12 against the real thing: Apache Kafka's tools and broker on our files, we on its files."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.log import dumping, inspection
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.inspection import Status
from shoal.log.offline_reader import OfflineReader
from shoal.log.partition import PartitionLog
from shoal.log.replaying import derive_aborted
from shoal.types import TopicPartition
from tests.golden import make_segments
from tests.log.batches import NOW_MS, batch, keyed, read_records
from tests.log.test_cleaned_transactions import read_committed
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
        found: list[Any] = []
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


# Transactions


def transact(log: PartitionLog, count: int, *, leave_open: bool = True) -> list[bytes]:
    """Transactions of two producers, every other one aborted; what was committed, in order."""
    committed = []
    for epoch in range(count):
        for producer_id in (4, 5):
            value = b"%d of %d" % (epoch, producer_id)
            data = batch(
                value * 20,
                key=b"%d" % (epoch % 3),
                timestamp_ms=NOW_MS + epoch,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                is_transactional=True,
            )
            result = log.append(data, now_ms=NOW_MS + epoch, transaction_version=2)
            assert result.error is ErrorCode.NONE
        for producer_id in (5, 4):
            is_last = epoch == count - 1
            if leave_open and is_last and producer_id == 4:
                break
            commit = (epoch + producer_id) % 2 == 0
            if commit:
                committed.append(b"%d of %d" % (epoch, producer_id) * 20)
            log.append_marker(
                producer_id=producer_id,
                producer_epoch=epoch + 1,
                coordinator_epoch=7,
                commit=commit,
                transaction_version=2,
                now_ms=NOW_MS + epoch,
            )
    return committed


def test_L12_kafkas_tool_reads_our_transactions(tmp_path: Path) -> None:
    directory = LogDirectory.open(str(tmp_path), now_ms=NOW_MS, durability=Durability.OS)
    log = directory.create(TP, now_ms=NOW_MS, config=CONFIG)
    transact(log, 20)
    aborted = log.aborted_entries(0, log.end_offset)
    (still_open,) = log.open_transactions()
    directory.close()
    inside = tmp_path / "orders-0"
    shown = dump(*files(inside, ".log"), deep=True)
    assert shown.count("endTxnMarker: COMMIT coordinatorEpoch: 7") == 20
    assert shown.count("endTxnMarker: ABORT coordinatorEpoch: 7") == 19
    shown = dump(*files(inside, ".txnindex"))
    entries = [line for line in shown.splitlines() if "producerId:" in line]
    assert [tuple(map(int, re.findall(r"-?\d+", line))) for line in entries] == [
        (0, *entry) for entry in aborted
    ]
    shown = dump(max(files(inside, ".snapshot")))
    assert "producerId: 4 producerEpoch: 19 coordinatorEpoch: 7" in shown
    assert f"currentTxnFirstOffset: OptionalLong[{still_open.first_offset}]" in shown
    assert "currentTxnFirstOffset: OptionalLong.empty" in shown


def test_L12_kafkas_tool_reads_transactions_that_we_compacted(tmp_path: Path) -> None:
    directory = LogDirectory.open(str(tmp_path), now_ms=NOW_MS, durability=Durability.OS)
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    log = directory.create(TP, now_ms=NOW_MS, config=config)
    transact(log, 20, leave_open=False)
    log.roll(now_ms=NOW_MS)
    for _ in range(2):
        run_job(directory.checkpoint(NOW_MS))
        run_job(directory.compact(NOW_MS))
        log.append(batch(b"more", key=b"1", timestamp_ms=NOW_MS), now_ms=NOW_MS)
        log.roll(now_ms=NOW_MS)
    directory.close()
    inside = tmp_path / "orders-0"
    shown = dump(*files(inside, ".log"), deep=True)
    assert "deleteHorizonMs: OptionalLong[" in shown
    assert "endTxnMarker: ABORT" in shown
    for suffix in (".index", ".timeindex", ".txnindex"):
        if files(inside, suffix):
            dump(*files(inside, suffix))
    assert all(
        one.status is Status.OK for one in inspection.verify(inspection.look_at(str(inside)))
    )


def test_L12_transactions_of_a_kafka_broker_are_ours_to_go_on_with(tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {"log.retention.hours": "-1", "transaction.state.log.num.partitions": "1"}
    with ApacheKafka(settings=settings) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        wanted = NewTopic("orders", 1, 1, config={"segment.bytes": "1048576"})
        admin.create_topics([wanted])["orders"].result(30)
        producers = [
            Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
            for name in ("one", "two")
        ]
        for producer in producers:
            producer.init_transactions(30)
        for number in range(12):
            for producer in producers:
                producer.begin_transaction()
                producer.produce("orders", b"%d" % number + b"x" * 100_000)
                assert producer.flush(30) == 0
            for at, producer in enumerate(producers):
                if number == 11 and at == 1:
                    break  # it stays open
                if (number + at) % 3:
                    producer.abort_transaction(30)
                else:
                    producer.commit_transaction(30)
        expected = committed_in(kafka.bootstrap_servers)
        crashed = tmp_path / "crashed"
        shutil.copytree(kafka.data_directory(), crashed, dirs_exist_ok=True)
        kafka.stop(1)
        stopped = tmp_path / "stopped"
        shutil.copytree(kafka.data_directory(), stopped, dirs_exist_ok=True)
    inside = stopped / "orders-0"
    assert all(
        one.status is Status.OK for one in inspection.verify(inspection.look_at(str(inside)))
    )
    kafkas = {path.name: path.read_bytes() for path in files(inside, ".txnindex")}
    offline = OfflineReader(str(stopped), committed_only=True)
    for copy in (crashed, stopped):
        shutil.rmtree(copy / "__cluster_metadata-0")
        (copy / "meta.properties").unlink()
        (copy / ".lock").unlink(missing_ok=True)
        mine = LogDirectory.open(
            str(copy), now_ms=NOW_MS, durability=Durability.OS, companions=os.listdir(copy)
        )
        log = mine.partitions[TP]
        assert [each.first_offset for each in log.open_transactions()] == [log.last_stable_offset]
        assert offline.latest([TP])[TP] == log.last_stable_offset
        assert [record.value for record in read_committed(log)] == expected
        assert sum(len(data) for data in kafkas.values()) == 34 * len(
            log.aborted_entries(0, log.end_offset)
        )
        for segment in log.segments:
            derived = derive_aborted(log.disk, log.directory, log.segments, segment)
            name = segment.path(".txnindex").rpartition("/")[2]
            assert derived.encode() == kafkas.get(name, b""), name
        (still_open,) = log.open_transactions()
        ended = log.append_marker(
            producer_id=still_open.producer_id,
            producer_epoch=still_open.producer_epoch,
            coordinator_epoch=100,
            commit=True,
            transaction_version=1,
            now_ms=NOW_MS,
        )
        assert ended.error is ErrorCode.NONE
        assert len(read_committed(log)) == len(expected) + 1
        mine.close()


def committed_in(bootstrap_servers: str) -> list[bytes | None]:
    """What Kafka shows a reader of committed records."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Assigned

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([Assigned("orders", 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "neither a record nor the end"
        if message.error() is not None:
            break
        found.append(message.value())
    consumer.close()
    return found


def test_L12_a_kafka_broker_serves_our_transactions(tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    ours = LogDirectory.open(str(tmp_path), now_ms=NOW_MS, durability=Durability.OS)
    log = ours.create(TP, now_ms=NOW_MS, config=CONFIG)
    committed = transact(log, 30)
    expected = [record.value for record in read_committed(log)]
    assert expected == committed[:-1], "the last one lies behind an open transaction"
    stable = log.last_stable_offset
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
        assert committed_in(kafka.bootstrap_servers) == expected
        shown = tool(
            "GetOffsetShell",
            "--bootstrap-server",
            kafka.bootstrap_servers,
            "--topic",
            "orders",
        )
        assert f"orders:0:{log.end_offset}" in shown.stdout
        shown = tool(
            "TransactionsCommand",
            "--bootstrap-server",
            kafka.bootstrap_servers,
            "describe-producers",
            "--topic",
            "orders",
            "--partition",
            "0",
        )
        assert re.search(rf"^4\s+29\s+7\s+.*\b{stable}\s*$", shown.stdout, re.MULTILINE), (
            shown.stdout
        )
