"""L12: what a real Kafka wrote, we read; what we write for the same records is the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shoal.errors import ErrorCode
from shoal.log import dumping, inspection
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory
from shoal.log.inspection import Status
from shoal.log.partition import PartitionLog
from shoal.records.batch import decode_batch, iter_headers
from shoal.testing.disk import SimDisk
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch, read_batches, read_records

GOLDEN = Path(__file__).parents[1] / "golden" / "segments"
TOPICS = ["codecs", "rolled", "compacted", "transactions", "append-time", "__consumer_offsets"]
START_MS = 1_700_000_000_000


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    """A copy of the golden directory, opened as our own."""
    shutil.copytree(GOLDEN, tmp_path / "data")
    return LogDirectory.open(
        str(tmp_path / "data"),
        now_ms=NOW_MS,
        durability=Durability.OS,
        config_for=lambda _: LogConfig(message_timestamp_after_max_ms=None),
    )


def log_of(directory: LogDirectory, topic: str) -> PartitionLog:
    return directory.partitions[TopicPartition(topic, 0)]


def test_L12_every_file_of_a_real_kafka_is_ok() -> None:
    verdicts = list(inspection.verify(inspection.look_at(str(GOLDEN))))
    assert {verdict.status for verdict in verdicts} == {Status.OK}, verdicts
    assert sum(verdict.records for verdict in verdicts) > 130


def test_L12_a_kafka_directory_opens_as_our_own(directory: LogDirectory) -> None:
    assert set(directory.partitions) == {TopicPartition(topic, 0) for topic in TOPICS}
    assert all(report.is_good_news for report in directory.reports), directory.reports
    assert {topic: log_of(directory, topic).end_offset for topic in TOPICS} == {
        "codecs": 100,
        "rolled": 12,
        "compacted": 12,
        "transactions": 8,
        "append-time": 12,
        "__consumer_offsets": 5,
    }


def test_records_of_every_codec_are_read(directory: LogDirectory) -> None:
    records = read_records(log_of(directory, "codecs"))
    assert len(records) == 100
    seen = set()
    for record in records:
        index = record.timestamp_ms - START_MS
        codecs = {value for name, value in record.headers if name == "codec"}
        seen |= codecs
        assert bool(codecs) == bool(index % 2)
        assert (record.key is None) == (index % 3 == 0)
        assert (record.value is None) == (index % 5 == 0)
    assert seen == {b"none", b"gzip", b"snappy", b"lz4", b"zstd"}


def test_times_are_found_over_segments(directory: LogDirectory) -> None:
    log = log_of(directory, "rolled")
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    for offset in (0, 3, 6, 9):
        found = log.offset_for_time(START_MS + offset // 3 * 4000)
        assert found is not None
        assert found.offset == offset


def test_compaction_left_holes_and_a_horizon(directory: LogDirectory) -> None:
    log = log_of(directory, "compacted")
    records = {record.offset: (record.key, record.value) for record in read_records(log)}
    assert 0 not in records
    assert records[7] == (b"3", None)
    headers = [header for data in read_batches(log).values() for _, header in iter_headers(data)]
    (tombstone,) = [header for header in headers if header.has_delete_horizon]
    assert tombstone.base_offset == 7
    assert decode_batch(read_batches(log)[7])[0].timestamp_ms == START_MS + 8000


def test_producers_come_from_kafkas_snapshot(directory: LogDirectory) -> None:
    entries = log_of(directory, "codecs").producer_states()
    assert len(entries) == 4, "the one without idempotence leaves nothing"
    assert {entry.last_sequence for entry in entries} == {19}


def test_appending_to_a_kafka_log_goes_on_where_it_ended(directory: LogDirectory) -> None:
    log = log_of(directory, "rolled")
    result = log.append(batch(b"ours"), now_ms=NOW_MS)
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 12)
    assert log.leader_epoch == 1, "a Kafka that was killed, as far as we can tell"
    assert read_records(log)[-1].value == b"ours"


def test_L12_the_same_records_make_the_same_files() -> None:
    disk = SimDisk()
    ours = LogDirectory.open(disk, now_ms=NOW_MS, durability=Durability.OS, reserve_bytes=0)
    config = LogConfig(segment_ms=1000, index_interval_bytes=200)
    log = ours.create(TopicPartition("rolled", 0), now_ms=NOW_MS, config=config)
    for path in sorted((GOLDEN / "rolled-0").glob("*.log")):
        content = path.read_bytes()
        for position, header in iter_headers(content):
            data = bytearray(content[position : position + header.size_bytes])
            data[0:8], data[12:16] = bytes(8), b"\xff" * 4  # as the producer sent it
            assert log.append(data, now_ms=NOW_MS).error is ErrorCode.NONE
    ours.close()
    contents = disk.contents()
    compared = 0
    for path in sorted((GOLDEN / "rolled-0").iterdir()):
        if path.suffix in (".log", ".index", ".timeindex"):
            assert contents[f"rolled-0/{path.name}"] == path.read_bytes(), path.name
            compared += 1
    assert compared == 12
    assert (
        contents["rolled-0/leader-epoch-checkpoint"]
        == (GOLDEN / "rolled-0" / "leader-epoch-checkpoint").read_bytes()
    )


def test_L6_L12_indexes_built_from_a_kafka_log_are_kafkas() -> None:
    contents = {
        f"rolled-0/{path.name}": path.read_bytes() for path in (GOLDEN / "rolled-0").glob("*.log")
    }
    disk = SimDisk.of(contents)
    directory = LogDirectory.open(
        disk,
        now_ms=NOW_MS,
        reserve_bytes=0,
        config_for=lambda _: LogConfig(index_interval_bytes=200),
    )
    directory.close()
    for path in (GOLDEN / "rolled-0").iterdir():
        if path.suffix in (".index", ".timeindex"):
            assert disk.contents()[f"rolled-0/{path.name}"] == path.read_bytes(), path.name


def test_transactions_are_shown_with_their_markers() -> None:
    target = inspection.look_at(str(GOLDEN / "transactions-0"))
    rows = [row for row, _ in dumping.batches(target, dumping.Choice())]
    assert [row["control"] for row in rows] == [False, True] * 4
    assert all(row["transactional"] for row in rows)
