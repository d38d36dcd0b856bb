"""Several batches in one write: the same log as one after the other, or nothing."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ErrorCode
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory
from shoal.log.disk import OsDisk, write_parts_fully
from shoal.testing.disk import DiskFault, FailingDisk, SimDisk
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch, read_records

TP = TopicPartition("orders", 0)
CONFIG = LogConfig(index_interval_bytes=100)
VALUES = (b"a", b"b" * 70, b"c" * 300)


def directory_on(disk: SimDisk, config: LogConfig) -> LogDirectory:
    return LogDirectory.open(
        disk,
        now_ms=NOW_MS,
        durability=Durability.OS,
        config_for=lambda _: config,
        reserve_bytes=0,
    )


def batch_of(kind: int, timestamp_ms: int) -> bytearray:
    """Usual ones of three sizes, one of an idempotent producer, and one that is damaged."""
    if kind == 3:
        return bytearray(batch(b"d", producer_id=7, producer_epoch=0, base_sequence=0))
    data = bytearray(batch(VALUES[kind % 3], b"second", timestamp_ms=timestamp_ms))
    if kind == 4:
        data[-1] ^= 1
    return data


run_of = st.lists(
    st.tuples(st.integers(0, 4), st.integers(NOW_MS - 5000, NOW_MS)), min_size=1, max_size=6
)


@given(st.lists(run_of, max_size=6), st.sampled_from([1 << 30, 1000]))
def test_a_run_makes_the_same_files_and_answers_as_its_batches_alone(runs, segment_bytes):
    config = replace(CONFIG, segment_bytes=segment_bytes)
    apart, together = SimDisk(), SimDisk()
    answers: list[list[object]] = [[], []]
    for disk, found in zip((apart, together), answers, strict=True):
        directory = directory_on(disk, config)
        log = directory.create(TP, now_ms=NOW_MS)
        for run in runs:
            batches = [batch_of(*one) for one in run]
            if disk is together:
                found += log.append_run(batches, NOW_MS)
            else:
                found += [log.append(data, now_ms=NOW_MS) for data in batches]
        directory.close()
    assert answers[0] == answers[1]
    assert files_of(apart) == files_of(together)


of_a_producer = st.tuples(
    st.integers(7, 8),  # producer id
    st.integers(0, 1),  # epoch
    st.integers(0, 2),  # sequence
    st.integers(1, 2),  # records
    st.booleans(),  # transactional
    st.sampled_from([None, 0, 2]),  # what the coordinator says
)


@given(st.lists(of_a_producer, max_size=12))
def test_a_usual_batch_of_a_producer_is_taken_as_any_batch_is(batches) -> None:
    """``bytes`` are checked the long way."""
    usual, any_other = SimDisk(), SimDisk()
    answers: list[list[object]] = [[], []]
    for disk, found in zip((usual, any_other), answers, strict=True):
        directory = directory_on(disk, replace(CONFIG, segment_bytes=1000))
        log = directory.create(TP, now_ms=NOW_MS)
        for producer_id, epoch, sequence, count, is_transactional, version in batches:
            data = batch(
                *[b"value"] * count,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
            one = log.append(
                bytearray(data) if disk is usual else data,
                now_ms=NOW_MS,
                transaction_version=version,
            )
            found += [one, log.last_stable_offset, log.producers.encode(log.end_offset)]
        directory.close()
    assert answers[0] == answers[1]
    assert files_of(usual) == files_of(any_other)


def files_of(disk: SimDisk) -> dict[str, bytes]:
    """What belongs to the partition; the directory's own files have ids of their own."""
    return {path: data for path, data in disk.contents().items() if path.startswith("orders-0/0")}


@pytest.mark.parametrize("nth", [1, 2])
def test_a_run_that_cannot_be_written_leaves_nothing(nth: int) -> None:
    disk = FailingDisk()
    log = directory_on(disk, CONFIG).create(TP, now_ms=NOW_MS)
    log.append(batch_of(0, NOW_MS), now_ms=NOW_MS)
    # The second write comes after a short one: a part of the run is in the file already.
    disk.fault = DiskFault("write", disk.count("write") + 1, short_bytes=90 if nth == 2 else None)
    if nth == 2:
        disk.capacity_bytes = disk.used_bytes + 90
    else:
        disk.fault = replace(disk.fault, error=errno.EIO)
    refused = log.append_run([batch_of(0, NOW_MS), batch_of(1, NOW_MS)], NOW_MS)
    assert [one.error for one in refused] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert disk.hits == 1
    assert log.end_offset == log.high_watermark == 2
    disk.fault, disk.capacity_bytes = None, 1 << 50
    stored = log.append_run([batch_of(0, NOW_MS), batch_of(1, NOW_MS)], NOW_MS)
    assert [one.base_offset for one in stored] == [2, 4]
    assert [record.offset for record in read_records(log)] == [*range(6)]


def test_a_short_write_of_a_run_is_continued() -> None:
    disk = FailingDisk()
    log = directory_on(disk, CONFIG).create(TP, now_ms=NOW_MS)
    disk.fault = DiskFault("write", disk.count("write") + 1, short_bytes=100)
    log.append_run([batch_of(kind, NOW_MS) for kind in (0, 1, 2)], NOW_MS)
    assert disk.hits == 1
    assert [record.value for record in read_records(log)][::2] == list(VALUES)


def test_a_run_for_which_an_index_has_no_room_begins_a_segment() -> None:
    entries = 4
    config = replace(CONFIG, index_interval_bytes=0, segment_index_bytes=12 * entries)
    log = directory_on(SimDisk(), config).create(TP, now_ms=NOW_MS)
    for _ in range(5):
        log.append_run([batch_of(1, NOW_MS), batch_of(1, NOW_MS)], NOW_MS)
    assert len(log.segments) > 1
    assert all(len(segment.index.offsets) <= 12 * entries // 8 for segment in log.segments)
    assert [record.offset for record in read_records(log)] == [*range(20)]


def test_a_fenced_log_refuses_every_batch_of_a_run() -> None:
    log = directory_on(SimDisk(), CONFIG).create(TP, now_ms=NOW_MS)
    log.fence("a test")
    refused = log.append_run([batch_of(0, NOW_MS), batch_of(0, NOW_MS)], NOW_MS)
    assert [one.error for one in refused] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


def test_parts_are_written_one_behind_the_other_in_a_real_file(tmp_path) -> None:
    file = OsDisk(str(tmp_path)).open("f", create=True)
    write_parts_fully(file, 2, [b"ab", memoryview(bytearray(b"cd")), b"", b"e"])
    assert (tmp_path / "f").read_bytes() == b"\0\0abcde"
