"""Retention and compaction by example."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from shoal.log import cleaning
from shoal.log.cleaning import dirty_ratio, shift_timestamp, split_records
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.partition import Origin, PartitionLog
from shoal.records.batch import (
    checksum_holds,
    decode_batch,
    encode_batch,
    iter_headers,
    read_body,
    read_header,
)
from shoal.records.compression import Codec
from shoal.records.markers import encode_marker
from shoal.testing.disk import DiskFault, FailingDisk, SimDisk
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch, keyed, read_batches, read_records

TP = TopicPartition("orders", 0)
DAY_MS = 86_400_000
COMPACT = LogConfig(
    segment_bytes=400,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)


def make(config: LogConfig, durability: Durability = Durability.GROUP) -> LogDirectory:
    directory = LogDirectory.open(SimDisk(), now_ms=NOW_MS, durability=durability, reserve_bytes=0)
    directory.create(TP, now_ms=NOW_MS, config=config)
    return directory


def retain(directory: LogDirectory, now_ms: int = NOW_MS) -> PartitionLog:
    run_job(directory.retain(now_ms))
    return directory.partitions[TP]


def filled(config: LogConfig, count: int = 20) -> tuple[LogDirectory, PartitionLog]:
    directory = make(config)
    log = directory.partitions[TP]
    for index in range(count):
        log.append(batch(b"value %d" % index, timestamp_ms=NOW_MS + index), now_ms=NOW_MS)
    log.sync()
    return directory, log


# Retention


def test_segments_older_than_the_retention_go() -> None:
    directory, log = filled(LogConfig(segment_bytes=400, retention_ms=1000))
    bases = [segment.base_offset for segment in log.segments]
    second_newest = log.segments[1].max_timestamp_ms
    retain(directory, second_newest + 1000)
    assert log.start_offset == bases[1], "a segment stays as long as its newest record may"
    retain(directory, second_newest + 1001)
    assert log.start_offset == bases[2]
    assert [record.offset for record in read_records(log)] == list(range(bases[2], 20))


def test_when_everything_is_too_old_an_empty_segment_stays() -> None:
    directory, log = filled(LogConfig(segment_bytes=400, retention_ms=1000))
    retain(directory, NOW_MS + DAY_MS)
    assert (log.start_offset, log.end_offset) == (20, 20)
    assert [segment.size for segment in log.segments] == [0]
    retain(directory, NOW_MS + DAY_MS)
    assert log.append(batch(b"next"), now_ms=NOW_MS).base_offset == 20


def test_a_log_larger_than_its_limit_loses_its_oldest_segments() -> None:
    directory, log = filled(LogConfig(segment_bytes=400, retention_bytes=800))
    before = [segment.size for segment in log.segments]
    retain(directory)
    after = [segment.size for segment in log.segments]
    assert sum(after) >= 800
    assert sum(after) - after[0] < 800, "one segment less would be below the limit"
    assert before[-len(after) :] == after


def test_nothing_unsynced_is_deleted() -> None:
    directory = make(LogConfig(segment_bytes=400, retention_ms=1000))
    log = directory.partitions[TP]
    for _ in range(20):
        log.append(batch(b"value"), now_ms=NOW_MS)
    retain(directory, NOW_MS + DAY_MS)
    assert log.start_offset == 0
    assert len(log.segments) > 2


def test_segments_below_the_log_start_go_whatever_the_policy() -> None:
    directory, log = filled(replace(COMPACT, cleanup_policy=frozenset()))
    log.delete_records(log.segments[2].base_offset + 1)
    start = log.segments[2].base_offset
    retain(directory)
    assert log.segments[0].base_offset == start
    assert log.start_offset == start + 1
    names = [entry.name for entry in directory.disk.list("orders-0")]
    assert f"{0:020d}.log" not in names
    assert f"{0:020d}.index" not in names


def log_files(directory: LogDirectory) -> list[str]:
    names = [entry.name for entry in directory.disk.list("orders-0")]
    return [name for name in names if name.endswith((".log", ".deleted"))]


def test_files_that_could_not_go_go_with_the_next_retention() -> None:
    disk = FailingDisk()
    directory = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=0)
    config = LogConfig(segment_bytes=400, retention_ms=1000)
    log = directory.create(TP, now_ms=NOW_MS, config=config)
    for index in range(20):
        log.append(batch(b"value %d" % index, timestamp_ms=NOW_MS + index), now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    log.sync()
    disk.fault = DiskFault("rename", disk.count("rename") + 1, error=errno.ENOSPC)
    retain(directory, NOW_MS + 10_000)
    assert disk.hits == 1, "where the log starts could not be saved"
    assert len(log_files(directory)) == 5
    retain(directory, NOW_MS + 10_000)
    assert log_files(directory) == [f"{20:020d}.log"]


def test_retention_leaves_a_topic_made_again_meanwhile_alone() -> None:
    directory, _ = filled(LogConfig(segment_bytes=400, retention_ms=1000))
    job = directory.retain(NOW_MS + 10_000)
    saving = next(job)
    assert saving is not None
    saving()
    directory.delete(TP)()
    log = directory.create(TP, now_ms=NOW_MS, config=LogConfig())
    log.append(batch(b"new"), now_ms=NOW_MS)
    run_job(job)
    assert log_files(directory) == [f"{0:020d}.log"]


def test_a_policy_without_delete_keeps_everything() -> None:
    directory, log = filled(replace(COMPACT, retention_ms=1, retention_bytes=1))
    retain(directory, NOW_MS + DAY_MS)
    assert log.start_offset == 0


# Compaction


def compacted(
    batches: list[bytes], config: LogConfig = COMPACT, now_ms: int = NOW_MS
) -> tuple[LogDirectory, PartitionLog]:
    directory = make(config)
    log = directory.partitions[TP]
    for data in batches:
        assert log.append(data, now_ms=NOW_MS).error == 0
    log.sync()
    log.roll(now_ms=NOW_MS)
    log.append(keyed([(b"last", b"x")]), now_ms=NOW_MS)
    log.sync()
    run_job(directory.compact(now_ms))
    return directory, log


def test_the_last_record_of_every_key_stays_at_its_offset() -> None:
    _, log = compacted(
        [keyed([(b"a", b"%d" % turn), (b"b", b"%d" % turn)]) for turn in range(20)]
        + [keyed([(b"c", b"only")])]
    )
    records = {record.offset: (record.key, record.value) for record in read_records(log)}
    assert records == {
        38: (b"a", b"19"),
        39: (b"b", b"19"),
        40: (b"c", b"only"),
        41: (b"last", b"x"),
    }
    assert log.start_offset == 0
    assert log.cleaned_offset == 41


def test_the_active_segment_is_never_touched() -> None:
    directory = make(COMPACT)
    log = directory.partitions[TP]
    for _ in range(4):
        log.append(keyed([(b"a", b"x")]), now_ms=NOW_MS)
    log.sync()
    run_job(directory.compact(NOW_MS))
    assert len(read_records(log)) == 4


def test_unsynced_segments_are_not_touched() -> None:
    directory = make(COMPACT)
    log = directory.partitions[TP]
    for _ in range(20):
        log.append(keyed([(b"a", b"x")]), now_ms=NOW_MS)
    run_job(directory.compact(NOW_MS))
    log.sync()
    assert len(read_records(log)) == 20


def test_reading_from_a_hole_goes_on_behind_it() -> None:
    _, log = compacted([keyed([(b"a", b"%d" % turn)]) for turn in range(20)])
    for offset in range(20):
        data = log.read(offset, 1).read_bytes()
        assert next(iter_headers(data))[1].last_offset >= offset


def test_tombstones_stay_for_their_time_and_then_go() -> None:
    directory, log = compacted([keyed([(b"a", b"1")]), keyed([(b"a", None), (b"b", b"2")])])
    record = read_records(log)[0]
    assert (record.offset, record.key, record.value) == (1, b"a", None)
    assert record.timestamp_ms == NOW_MS, "the horizon does not change the record's time"
    (header,) = [read_header(data) for data in read_batches(log).values() if b"\x01" in data][:1]
    assert header.delete_horizon_ms == NOW_MS + 1000
    log.cleaned_offset = 0
    run_job(directory.compact(NOW_MS + 1000))
    assert read_records(log)[0].value is None, "its time is not over yet"
    log.cleaned_offset = 0
    run_job(directory.compact(NOW_MS + 1001))
    assert [record.key for record in read_records(log)] == [b"b", b"last"]


def test_the_time_of_a_tombstone_begins_though_its_batch_keeps_its_size() -> None:
    directory = make(replace(COMPACT, delete_retention_ms=0))
    log = directory.partitions[TP]
    log.append(keyed([(b"a", None)]), now_ms=NOW_MS)
    log.append(keyed([(b"b", b"2")]), now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    log.append(keyed([(b"last", b"3")]), now_ms=NOW_MS)
    log.sync()
    for later_ms in (0, 1):
        log.cleaned_offset = 0
        run_job(directory.compact(NOW_MS + later_ms))
    assert [record.key for record in read_records(log)] == [b"b", b"last"]


def test_records_without_a_key_are_dropped() -> None:
    directory = make(replace(COMPACT, cleanup_policy=frozenset({"delete"})))
    log = directory.partitions[TP]
    log.append(batch(b"keyless"), now_ms=NOW_MS)
    log.append(keyed([(b"a", b"1")]), now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    log.append(keyed([(b"last", b"x")]), now_ms=NOW_MS)
    log.sync()
    log.config = COMPACT
    run_job(directory.compact(NOW_MS))
    assert [record.key for record in read_records(log)] == [b"a", b"last"]


@pytest.mark.parametrize("codec", list(Codec))
def test_kept_records_are_the_same_bytes(codec: Codec) -> None:
    headers = [("plain", b"x"), ("none", None)]
    data = encode_batch(
        [(b"k%d" % (index % 5), b"v%d" % index, headers, NOW_MS + index) for index in range(10)],
        codec=codec,
    )
    _, log = compacted([data])
    stored = read_batches(log)[0]
    header = read_header(stored)
    assert checksum_holds(stored)
    assert (header.codec, header.record_count, header.last_offset_delta) == (codec, 5, 9)
    assert header.max_timestamp_ms == NOW_MS + 9
    raw = split_records(read_body(data, 0, read_header(data)))
    assert split_records(read_body(stored, 0, header)) == raw[5:]
    assert decode_batch(stored) == decode_batch(data)[5:]


def test_a_producers_last_batch_stays_as_an_empty_one() -> None:
    sent = [
        keyed([(b"a", b"%d" % n)], producer_id=5, producer_epoch=0, base_sequence=n)
        for n in range(3)
    ]
    directory, log = compacted([*sent, keyed([(b"a", b"newer")])])
    kept = read_header(read_batches(log)[2])
    assert (kept.record_count, kept.base_sequence, kept.last_offset) == (0, 2, 2)
    # Without snapshots the state comes from the log alone, and still knows the sequence.
    contents = {
        path: data
        for path, data in directory.disk.contents().items()  # type: ignore[attr-defined]  # the simulated disk
        if not path.endswith(".snapshot")
    }
    again = LogDirectory.open(SimDisk.of(contents), now_ms=NOW_MS, reserve_bytes=0)
    assert again.partitions[TP].append(sent[2], now_ms=NOW_MS).duplicate


def test_the_last_batch_of_a_segment_stays_to_say_where_its_offsets_end() -> None:
    config = replace(COMPACT, segment_bytes=140)
    _, log = compacted([keyed([(b"a", b"x" * 40), (b"a", b"y")]) for _ in range(3)], config)
    headers = [read_header(data) for data in read_batches(log).values()]
    assert [(one.base_offset, one.last_offset, one.record_count) for one in headers] == [
        (0, 1, 0),
        (2, 3, 0),
        (4, 5, 1),
        (6, 6, 1),
    ]


def test_control_batches_stay() -> None:
    directory = make(COMPACT)
    log = directory.partitions[TP]
    marker = encode_marker(commit=True, producer_id=5, producer_epoch=0, timestamp_ms=NOW_MS)
    log.append(marker, now_ms=NOW_MS, origin=Origin.BROKER)
    log.append(keyed([(b"a", b"1")]), now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    log.append(keyed([(b"a", b"2")]), now_ms=NOW_MS)
    log.sync()
    run_job(directory.compact(NOW_MS))
    assert read_header(read_batches(log)[0]).is_control


def test_small_neighbours_become_one_segment() -> None:
    directory, log = compacted([keyed([(b"a", b"x" * 100)]) for _ in range(20)])
    before = len(log.segments)
    for _ in range(3):
        log.cleaned_offset = 0
        run_job(directory.compact(NOW_MS))
    assert len(log.segments) < before
    assert log.segments[0].base_offset == 0
    assert [record.key for record in read_records(log)] == [b"a", b"last"]
    names = [entry.name for entry in directory.disk.list("orders-0")]
    assert sum(name.endswith(".log") for name in names) == len(log.segments)


def test_a_pass_starts_only_when_enough_is_dirty() -> None:
    directory = make(replace(COMPACT, min_cleanable_dirty_ratio=0.5))
    log = directory.partitions[TP]
    for index in range(40):
        log.append(keyed([(b"%d" % index, b"x" * 50)]), now_ms=NOW_MS)
    log.sync()
    assert dirty_ratio(log, NOW_MS) == 1.0
    run_job(directory.compact(NOW_MS))
    assert dirty_ratio(log, NOW_MS) == 0.0
    for index in range(10):
        log.append(keyed([(b"%d" % index, b"x" * 50)]), now_ms=NOW_MS)
    log.sync()
    assert dirty_ratio(log, NOW_MS) == 0.0, "a fifth is not enough"
    log.config = replace(log.config, max_compaction_lag_ms=500)
    assert dirty_ratio(log, NOW_MS + 501) == 1.0, "unless it has waited too long"


def test_young_records_wait() -> None:
    directory, log = compacted(
        [keyed([(b"a", b"%d" % turn)]) for turn in range(20)],
        replace(COMPACT, min_compaction_lag_ms=1000),
        NOW_MS + 999,
    )
    assert len(read_records(log)) == 21
    run_job(directory.compact(NOW_MS + 1000))
    assert len(read_records(log)) == 2


def test_more_keys_than_memory_are_compacted_in_several_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cleaning, "KEYS_MAX_BYTES", 1000)
    directory = make(COMPACT)
    log = directory.partitions[TP]
    for index in range(60):
        log.append(keyed([(b"%d" % (index % 30), b"%d" % index)]), now_ms=NOW_MS)
    log.roll(now_ms=NOW_MS)
    log.append(keyed([(b"last", b"x")]), now_ms=NOW_MS)
    log.sync()
    run_job(directory.compact(NOW_MS))
    assert 0 < log.cleaned_offset < 60
    while log.cleaned_offset < 60:
        run_job(directory.compact(NOW_MS))
    assert [record.offset for record in read_records(log)] == list(range(30, 61))


def test_compaction_works_in_slices_and_appends_go_on_between_them() -> None:
    directory = make(replace(COMPACT, segment_bytes=1 << 20))
    log = directory.partitions[TP]
    for index in range(60):
        log.append(keyed([(b"%d" % (index % 3), b"x" * 30_000)]), now_ms=NOW_MS)
    log.sync()
    slices = 0
    for work in directory.compact(NOW_MS):
        slices += 1
        if work is not None:
            work()
        log.append(keyed([(b"live", b"%d" % slices)]), now_ms=NOW_MS)
        log.read(0, 1000).read_bytes()
        retain(directory)
    log.sync()
    assert slices > 6
    values = [record.value for record in read_records(log) if record.key == b"live"]
    assert values == [b"%d" % number for number in range(1, slices + 1)]


def test_a_corrupt_batch_stops_a_pass_and_nothing_is_lost() -> None:
    directory = make(COMPACT)
    log = directory.partitions[TP]
    for index in range(20):
        log.append(keyed([(b"a", b"%d" % index)]), now_ms=NOW_MS)
    log.sync()
    file = log.segments[0].file
    file.write_at(70, b"\xff")
    sizes = [segment.size for segment in log.segments]
    run_job(directory.compact(NOW_MS))
    assert [segment.size for segment in log.segments] == sizes
    assert not [e.name for e in directory.disk.list("orders-0") if "clean" in e.name]


def test_a_deleted_topic_ends_its_compaction() -> None:
    directory = make(COMPACT)
    log = directory.partitions[TP]
    for index in range(40):
        log.append(keyed([(b"a", b"%d" % index)]), now_ms=NOW_MS)
    log.sync()
    job = directory.compact(NOW_MS)
    next(job)
    directory.delete(TP)()
    run_job(job)
    assert not directory.partitions


def test_shifting_a_timestamp_changes_nothing_else() -> None:
    data = encode_batch([(b"k", b"v" * 200, [("h", b"x")], NOW_MS + 70), (b"l", None, (), NOW_MS)])
    header = read_header(data)
    one, two = split_records(read_body(data, 0, header))
    assert shift_timestamp(one, 0) == one
    assert shift_timestamp(shift_timestamp(two, 10**12), -(10**12)) == two
