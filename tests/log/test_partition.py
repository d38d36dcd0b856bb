"""One partition by example: offsets, rolling, reading, times, deleting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.partition import Origin, PartitionLog
from shoal.records.batch import decode_batch, encode_batch, iter_headers, read_header
from shoal.testing.disk import FailingDisk, SimDisk
from shoal.types import OffsetAndTimestamp, TimestampType, TopicPartition
from tests.log.batches import NOW_MS, batch, read_batches, read_records

TP = TopicPartition("orders", 0)
DAY_MS = 86_400_000
Make = Callable[..., PartitionLog]


def make(durability: Durability = Durability.OS, **config: object) -> PartitionLog:
    settings = replace(LogConfig(), **config)  # type: ignore[arg-type]  # each test passes what it needs
    directory = LogDirectory.open(SimDisk(), now_ms=NOW_MS, durability=durability, reserve_bytes=0)
    return directory.create(TP, now_ms=NOW_MS, config=settings)


def fill(log: PartitionLog, count: int, **header: Any) -> None:
    for index in range(count):
        result = log.append(batch(b"value %d" % index, **header), now_ms=NOW_MS)
        assert result.error is ErrorCode.NONE


def test_the_first_16_bytes_are_set_and_the_rest_is_left_alone() -> None:
    log = make()
    fill(log, 3)
    sent = batch(b"a", b"b", codec=2, key=b"k")
    result = log.append(sent, now_ms=NOW_MS)
    assert (result.base_offset, result.last_offset, result.end_offset) == (3, 4, 5)
    stored = read_batches(log)[3]
    assert stored[8:12] + stored[16:] == sent[8:12] + sent[16:]
    assert read_header(stored).leader_epoch == 0


def test_L2_offsets_are_dense_over_batches_of_any_size() -> None:
    log = make()
    for size in (1, 5, 2, 9):
        log.append(batch(*[b"x"] * size), now_ms=NOW_MS)
    assert [record.offset for record in read_records(log)] == list(range(17))


def test_the_broker_may_append_several_batches_at_once() -> None:
    log = make()
    result = log.append(batch(b"a", b"b") + batch(b"c"), now_ms=NOW_MS, origin=Origin.BROKER)
    assert (result.base_offset, result.last_offset) == (0, 2)
    assert [record.value for record in read_records(log)] == [b"a", b"b", b"c"]


def test_what_the_broker_encoded_itself_is_stored_as_if_it_had_been_checked() -> None:
    quick, checked = make(), make()
    for index in range(3):
        data = batch(*[b"x"] * (index + 1), timestamp_ms=NOW_MS - index)
        # What is not writable is not its own.
        found = quick.append(bytearray(data), now_ms=NOW_MS, origin=Origin.BROKER)
        assert found == checked.append(data, now_ms=NOW_MS, origin=Origin.BROKER)
    assert read_batches(quick) == read_batches(checked)
    assert quick.latest_by_time() == checked.latest_by_time() == OffsetAndTimestamp(0, NOW_MS, 0)


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        ("max_message_bytes", ErrorCode.MESSAGE_TOO_LARGE),
        ("segment_bytes", ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_what_the_broker_encoded_itself_has_limits(limit: str, error: ErrorCode) -> None:
    data = bytearray(batch(b"x" * 2000))
    size = len(data)
    fits: dict[str, Any] = {limit: size}
    assert make(**fits).append(data, now_ms=NOW_MS, origin=Origin.BROKER).error == 0
    too_small: dict[str, Any] = {limit: size - 1}
    log = make(**too_small)
    assert log.append(data, now_ms=NOW_MS, origin=Origin.BROKER).error is error
    assert log.end_offset == 0


def test_what_the_broker_encoded_itself_gets_the_append_time_where_a_topic_wants_it() -> None:
    log = make(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    log.append(bytearray(batch(b"a", timestamp_ms=5)), now_ms=NOW_MS + 7, origin=Origin.BROKER)
    assert [record.timestamp_ms for record in read_records(log)] == [NOW_MS + 7]


def test_log_append_time_is_the_brokers_clock() -> None:
    log = make(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    result = log.append(batch(b"a", b"b", timestamp_ms=5), now_ms=NOW_MS + 7)
    assert result.append_time_ms == NOW_MS + 7
    assert [record.timestamp_ms for record in read_records(log)] == [NOW_MS + 7] * 2
    assert log.offset_for_time(NOW_MS + 7) == OffsetAndTimestamp(0, NOW_MS + 7, 0)


def test_a_refused_append_leaves_no_trace() -> None:
    log = make()
    fill(log, 2)
    before = read_batches(log)
    assert log.append(batch(b"x")[:-1], now_ms=NOW_MS).error is ErrorCode.INVALID_RECORD
    assert log.end_offset == 2
    assert read_batches(log) == before


def test_a_gap_in_a_producers_sequence_is_refused() -> None:
    log = make()
    log.append(batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0), now_ms=NOW_MS)
    gap = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=2)
    assert log.append(gap, now_ms=NOW_MS).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == log.last_stable_offset == 1


def test_a_duplicate_is_answered_with_its_first_offset() -> None:
    log = make(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    fill(log, 3)
    sent = batch(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=0)
    first = log.append(sent, now_ms=NOW_MS + 1)
    again = log.append(sent, now_ms=NOW_MS + 999)
    assert again == first._replace(duplicate=True)
    assert log.end_offset == 5


# Rolling


def test_a_segment_is_rolled_when_the_next_batch_would_not_fit() -> None:
    size = len(batch(b"value 0"))
    log = make(segment_bytes=3 * size)
    fill(log, 7)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, size]


def test_a_segment_is_rolled_by_the_time_of_its_records() -> None:
    log = make(segment_ms=1000)
    for timestamp_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001):
        log.append(batch(b"x", timestamp_ms=timestamp_ms), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_without_times_is_rolled_by_the_clock() -> None:
    log = make(segment_ms=1000)
    for now_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 2001):
        log.append(batch(b"x", timestamp_ms=-1), now_ms=now_ms)
    assert len(log.segments) == 2


def test_a_segment_is_rolled_when_its_index_is_full() -> None:
    log = make(index_interval_bytes=0, segment_index_bytes=40)
    fill(log, 20)
    assert len(log.segments) > 2
    assert all(len(segment.index) <= 5 for segment in log.segments)


def test_rolling_names_the_new_segment_after_its_first_offset() -> None:
    log = make(segment_bytes=400)
    fill(log, 20)
    names = {entry.name for entry in log.disk.list("orders-0")}
    for segment in log.segments:
        assert f"{segment.base_offset:020d}.log" in names
    for segment in log.segments[:-1]:
        assert f"{segment.base_offset:020d}.index" in names
        assert f"{segment.base_offset:020d}.timeindex" in names
    assert f"{log.active.base_offset:020d}.snapshot" in names


# Reading


@pytest.mark.parametrize("max_bytes", [1, 200, 10_000])
def test_L5_a_read_returns_whole_batches_from_the_one_that_holds_the_offset(max_bytes: int) -> None:
    log = make(segment_bytes=2000, index_interval_bytes=100)
    for _ in range(30):
        log.append(batch(b"a", b"b", b"c"), now_ms=NOW_MS)
    for offset in range(90):
        result = log.read(offset, max_bytes)
        data = result.read_bytes()
        headers = [header for _, header in iter_headers(data)]
        assert sum(header.size_bytes for header in headers) == len(data) == result.size
        assert headers[0].base_offset == offset // 3 * 3
        assert len(data) <= max(max_bytes, headers[0].size_bytes)


def test_a_first_batch_larger_than_the_limit_comes_whole_or_not_at_all() -> None:
    log = make()
    fill(log, 3)
    assert len(log.read(1, 10).read_bytes()) > 10
    assert log.read(1, 10, min_one_batch=False).read_bytes() == b""
    assert log.read(1, 10, min_one_batch=False).error is ErrorCode.NONE


def test_L5_nothing_past_the_high_watermark_is_read() -> None:
    log = make(Durability.GROUP, segment_bytes=300)
    fill(log, 5)
    assert log.high_watermark == 0
    assert log.read(0, 1000).read_bytes() == b""
    work = log.begin_sync()
    assert work is not None
    fill(log, 5)  # while the sync is under way
    log.finish_sync(work, work.run())
    assert log.high_watermark == 5
    assert list(read_batches(log)) == list(range(5))
    assert log.read(7, 1000).error is ErrorCode.NONE, "there, but not to be seen yet"
    log.sync()
    assert list(read_batches(log)) == list(range(10))


def test_a_segment_rolled_while_it_is_synced_becomes_visible_to_its_end() -> None:
    log = make(Durability.GROUP)
    fill(log, 3)
    work = log.begin_sync()
    assert work is not None
    log.roll(now_ms=NOW_MS)
    log.finish_sync(work, work.run())
    assert list(read_batches(log)) == [0, 1, 2]
    fill(log, 2)
    assert log.high_watermark == 3
    log.sync()
    assert list(read_batches(log)) == [0, 1, 2, 3, 4]


def test_results_of_an_older_sync_change_nothing() -> None:
    log = make(Durability.GROUP)
    fill(log, 1)
    first = log.begin_sync()
    fill(log, 1)
    assert log.sync() is None
    assert first is not None
    log.finish_sync(first, first.run())
    assert log.high_watermark == 2


def test_L4_bytes_that_went_bad_are_an_error_to_who_reads_them() -> None:
    log = make(segment_bytes=1000, index_interval_bytes=100)
    fill(log, 30)
    log.segments[1].file.write_at(0, b"\xff" * 20)
    base = log.segments[1].base_offset
    log.segments[1].let_go(indexes=True)
    assert log.read(base, 1000).error is ErrorCode.CORRUPT_MESSAGE
    assert log.read(0, 100).error is ErrorCode.NONE
    assert log.offset_for_time(NOW_MS) is not None
    log.delete_records(base)
    found = log.offset_for_time(NOW_MS)
    assert found is not None
    assert found.offset == log.segments[2].base_offset, "later records still count"


def test_a_file_that_is_gone_is_an_error_to_who_reads_it() -> None:
    log = make(segment_bytes=300)
    fill(log, 20)
    log.sync()
    log.release_files()
    log.disk.remove(log.segments[0].path())
    assert log.read(0, 1000).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.read(19, 1000).error is ErrorCode.NONE


def test_many_readers_at_different_places_do_not_disturb_each_other() -> None:
    log = make(index_interval_bytes=1000)
    for _ in range(600):
        log.append(batch(b"a"), now_ms=NOW_MS)
    for offset in [*range(600), *range(0, 600, 7)]:
        (header,) = [header for _, header in iter_headers(log.read(offset, 1).read_bytes())]
        assert header.base_offset == offset


def test_a_caller_may_read_less_than_is_visible() -> None:
    log = make(segment_bytes=300)
    fill(log, 10)
    found = log.read(0, 10_000, max_offset=2).read_bytes()
    assert [header.last_offset for _, header in iter_headers(found)] == [0, 1]
    assert log.read(4, 10_000, max_offset=2).read_bytes() == b""


def test_reads_outside_the_log_are_told() -> None:
    log = make()
    fill(log, 3)
    assert log.read(-1, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(4, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(3, 100).error is ErrorCode.NONE
    log.delete_records(2)
    outside = log.read(1, 100)
    assert outside.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert outside.log_start_offset == 2


def test_L10_an_open_read_survives_retention() -> None:
    log = make(segment_bytes=200, retention_bytes=0)
    fill(log, 10)
    result = log.read(0, 1000)
    expected = result.read_bytes()
    directory_paths = log.drop_segments(len(log.segments) - 1)
    for path in directory_paths:
        if log.disk.stat(path):
            log.disk.remove(path)
    assert result.read_bytes() == expected
    assert decode_batch(expected)


# Times and epochs


def test_L11_a_time_finds_the_first_record_at_or_after_it() -> None:
    log = make(segment_bytes=500, index_interval_bytes=100)
    times = [100, 105, 103, 200, 150, 150, 300]  # clocks jump
    for index, time_ms in enumerate(times):
        log.append(
            encode_batch([(None, b"%d" % index, (), NOW_MS + time_ms)] * 2), now_ms=NOW_MS + 400
        )
    for at in range(90, 310):
        expected = next((i * 2 for i, time_ms in enumerate(times) if time_ms >= at), None)
        found = log.offset_for_time(NOW_MS + at)
        assert (found and found.offset) == expected
    answers = [log.offset_for_time(NOW_MS + at) for at in range(90, 300)]
    offsets = [answer.offset for answer in answers if answer]
    assert offsets == sorted(offsets), "L11: later times, later offsets"
    assert log.latest_by_time() == OffsetAndTimestamp(12, NOW_MS + 300, 0)


def test_times_below_the_log_start_are_not_found() -> None:
    log = make()
    for index in range(5):
        log.append(batch(b"x", b"y", timestamp_ms=NOW_MS + index), now_ms=NOW_MS)
    log.delete_records(5)
    assert log.offset_for_time(0) == OffsetAndTimestamp(5, NOW_MS + 2, 0)
    log.delete_records(None)
    assert log.offset_for_time(0) is None
    assert log.latest_by_time() is None


def test_the_newest_record_may_be_of_1970() -> None:
    log = make()
    log.append(batch(b"x", b"y", timestamp_ms=0), now_ms=NOW_MS)
    assert log.latest_by_time() == OffsetAndTimestamp(0, 0, 0)


def test_an_epoch_whose_records_were_deleted_is_forgotten() -> None:
    disk = SimDisk()
    directory = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=0)
    log = directory.create(TP, now_ms=NOW_MS)
    fill(log, 4)
    log.epochs.assign(2, 4)
    fill(log, 3)
    log.sync()
    assert log.delete_records(5) is ErrorCode.NONE
    directory.close()
    again = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=0).partitions[TP]
    for found in (log, again):
        assert found.epochs.entries == [(2, 5)]
        # Who last read in epoch 0 is told that nothing of it is here, not where it ended once.
        assert found.end_offset_for_epoch(0) == (0, 5)


def test_an_epochs_end_is_found() -> None:
    log = make()
    fill(log, 4)
    log.epochs.assign(2, 4)
    fill(log, 3)
    assert log.leader_epoch == 2
    assert log.end_offset_for_epoch(0) == (0, 4)
    assert log.end_offset_for_epoch(1) == (0, 4)
    assert log.end_offset_for_epoch(2) == (2, 7)
    assert log.end_offset_for_epoch(3) is None


# Deleting


def test_delete_records_raises_the_start_up_to_the_high_watermark() -> None:
    log = make(Durability.GROUP)
    fill(log, 5)
    log.sync()
    fill(log, 5)
    assert log.delete_records(6) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(-2) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(3) is ErrorCode.NONE
    assert log.delete_records(1) is ErrorCode.NONE, "already gone"
    assert log.start_offset == 3
    assert log.delete_records(None) is ErrorCode.NONE
    assert log.start_offset == 5


def test_listeners_are_told_when_the_high_watermark_moves() -> None:
    log = make(Durability.GROUP)
    seen = []
    log.on_advance = lambda log: seen.append(log.high_watermark)
    fill(log, 3)
    assert seen == []
    log.sync()
    assert seen == [3]
    log.durability = Durability.OS
    fill(log, 1)
    assert seen == [3, 4]


def test_producers_are_listed() -> None:
    log = make()
    log.append(batch(b"a", producer_id=3, producer_epoch=1, base_sequence=9), now_ms=NOW_MS)
    (entry,) = log.producer_states()
    assert (entry.producer_id, entry.epoch, entry.last_sequence) == (3, 1, 9)


def test_files_are_opened_again_when_they_are_needed() -> None:
    log = make(segment_bytes=300)
    fill(log, 20)
    expected = read_batches(log)
    log.sync()
    log.release_files()
    assert read_batches(log) == expected
    fill(log, 1)
    assert len(read_batches(log)) == 21


def test_a_file_is_not_closed_before_it_is_synced() -> None:
    disk = FailingDisk()
    directory = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=0)
    log = directory.create(TP, now_ms=NOW_MS, config=LogConfig(segment_bytes=300))
    fill(log, 10)
    directory.release_idle_files()
    opened = disk.count("open")
    assert log.sync() is None
    assert disk.count("open") == opened, "a write-back error is told to the files that were open"


def test_a_checkpoint_lets_the_next_start_scan_only_what_came_after() -> None:
    disk = SimDisk()
    directory = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=0)
    log = directory.create(TP, now_ms=NOW_MS)
    fill(log, 500)
    log.sync()
    run_job(directory.checkpoint(NOW_MS))
    fill(log, 10)
    log.sync()
    again = LogDirectory.open(disk.crash(), now_ms=NOW_MS, reserve_bytes=0)
    assert again.partitions[TP].end_offset == 510
    size = log.size_bytes // 510
    assert again.reports[0].scanned_bytes <= 10 * size + log.config.index_interval_bytes + 2 * size
