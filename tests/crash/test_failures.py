"""Every call of the disk fails once: the n-th write, sync, rename …, for every n until none is hit.

After each failure the log must have told the truth: what it acknowledged survives a power cut, what
it refused may be sent again, and no call makes it raise.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.log.config import LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.partition import PartitionLog
from shoal.testing.disk import DiskFault, FailingDisk, SimDisk
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch, read_batches, read_records

TP = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_bytes=900)
NTH_MAX = 2000


class Run:
    """A scenario on a disk that fails: append, sync, roll, checkpoint, retain, stop, start."""

    def __init__(self, disk: FailingDisk, config: LogConfig = CONFIG) -> None:
        self.disk = disk
        self.config = config
        self.appended: dict[int, bytes] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.refused = 0

    def open(self, disk: SimDisk) -> LogDirectory:
        return LogDirectory.open(
            disk, now_ms=NOW_MS, config_for=lambda _: self.config, reserve_bytes=0
        )

    def go(self) -> None:
        try:
            directory = self.open(self.disk)
            log = directory.create(TP, now_ms=NOW_MS)
            for turn in range(2):
                self.fill(directory, log)
                if turn == 0:
                    directory.close()
                    directory = self.open(self.disk)
                    if TP in directory.offline:
                        log = directory.reopen(TP, now_ms=NOW_MS)
                    log = directory.partitions[TP]
        except OSError:
            self.refused += 1  # starting and stopping may fail; they say so
        finally:
            self.disk.locks.clear()

    def fill(self, directory: LogDirectory, log: PartitionLog) -> None:
        for index in range(8):
            data = batch(b"%d" % index * 20)
            stored = bytearray(data)
            stored[0:8] = log.end_offset.to_bytes(8, "big")
            stored[12:16] = log.leader_epoch.to_bytes(4, "big")
            result = log.append(data, now_ms=NOW_MS)
            if result.error is ErrorCode.NONE:
                self.appended[result.base_offset] = bytes(stored)
            else:
                assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
                self.refused += 1
            if index % 3 == 2:
                log.sync()
                self.note_acknowledged(log)
            if index % 4 == 3:
                run_job(directory.checkpoint(NOW_MS))
                run_job(directory.retain(NOW_MS))

    def note_acknowledged(self, log: PartitionLog) -> None:
        for offset, data in self.appended.items():
            if offset < log.high_watermark:
                self.acknowledged[offset] = data

    def verify(self) -> None:
        for image in (self.disk.crash(), SimDisk.of(self.disk.contents())):
            directory = self.open(image)
            log = directory.partitions.get(TP)
            if log is None:
                assert not self.acknowledged, "L1: an acknowledged partition is gone"
                continue
            found = read_batches(log)
            for offset, data in self.acknowledged.items():
                if offset >= log.start_offset:
                    assert found.get(offset) == data, f"L1: acknowledged offset {offset} is lost"
            again = log.append(batch(b"after"), now_ms=NOW_MS)
            assert again.error is ErrorCode.NONE, "the log takes appends again after a restart"
            assert log.sync() is None


def sweep(call: str, *, config: LogConfig = CONFIG, **fault: Any) -> int:
    """Fail the first call, the second …, until one run is not hit; how many were."""
    for nth in range(1, NTH_MAX):
        disk = FailingDisk(DiskFault(call, nth, **fault))
        run = Run(disk, config)
        run.go()
        run.verify()
        if not disk.hits:
            return nth - 1
    raise AssertionError("the scenario never ends")


CALLS = ["open", "write", "sync", "sync_directory", "rename", "truncate", "remove", "list", "read"]


@pytest.mark.slow
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("call", CALLS)
def test_L1_L8_every_call_may_fail_with_EIO(call: str, forever: bool) -> None:
    assert sweep(call, error=errno.EIO, forever=forever) > 3


@pytest.mark.slow
@pytest.mark.parametrize("call", ["open", "write", "rename", "make_directory"])
def test_L1_every_call_may_find_the_disk_full(call: str) -> None:
    assert sweep(call, error=errno.ENOSPC) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("taken", [0, 1, 30, 61])
def test_L7_every_write_may_be_short_without_an_exception(taken: int) -> None:
    assert sweep("write", short_bytes=taken) > 20


def test_L7_a_short_write_is_completed() -> None:
    disk = FailingDisk()
    log = _log(disk)
    writes = disk.count("write")
    disk.fault = DiskFault("write", writes + 1, short_bytes=10)
    result = log.append(batch(b"whole"), now_ms=NOW_MS)
    assert result.error is ErrorCode.NONE
    assert disk.hits == 1
    assert log.sync() is None
    assert len(read_batches(log)) == 1


def test_L7_a_write_that_stops_half_way_is_cut_back() -> None:
    disk = FailingDisk()
    log = _log(disk)
    size = log.active.size
    room = disk.free_bytes()
    disk.capacity_bytes = disk.capacity_bytes - room + 40  # the next batch does not fit
    result = log.append(batch(b"too much"), now_ms=NOW_MS)
    assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.active.file.size() == size
    disk.capacity_bytes += room
    assert log.append(batch(b"fits"), now_ms=NOW_MS).base_offset == 0
    assert log.fenced is None


def test_L7_a_write_that_cannot_be_cut_back_fences_the_log() -> None:
    disk = FailingDisk()
    log = _log(disk)
    disk.fault = DiskFault("truncate", disk.count("truncate") + 1, forever=True)
    disk.capacity_bytes = disk.used_bytes + 40
    assert log.append(batch(b"x"), now_ms=NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.fenced is not None
    disk.capacity_bytes = 1 << 40
    assert log.append(batch(b"x"), now_ms=NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("call", ["sync", "sync_directory"])
def test_L8_after_a_failed_sync_nothing_is_acknowledged_until_the_log_is_opened_anew(
    call: str,
) -> None:
    disk = FailingDisk()
    directory = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=0)
    log = directory.create(TP, now_ms=NOW_MS)
    log.append(batch(b"one"), now_ms=NOW_MS)
    disk.fault = DiskFault(call, disk.count(call) + 1)
    assert log.sync() is not None
    assert log.high_watermark == 0
    assert disk.hits == 1
    # The fault is over: a second sync would succeed and mean nothing.
    assert log.sync() is None
    assert log.high_watermark == 0, "L8: retried and believed"
    assert log.append(batch(b"two"), now_ms=NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    again = directory.reopen(TP, now_ms=NOW_MS)
    assert again.append(batch(b"three"), now_ms=NOW_MS).error is ErrorCode.NONE
    assert again.sync() is None
    survived = LogDirectory.open(disk.crash(), now_ms=NOW_MS, reserve_bytes=0).partitions[TP]
    assert survived.end_offset == again.end_offset == again.high_watermark
    assert not survived.state.corrupt


def test_L8_reading_goes_on_while_the_log_is_fenced() -> None:
    disk = FailingDisk()
    log = _log(disk)
    log.append(batch(b"one"), now_ms=NOW_MS)
    assert log.sync() is None
    log.append(batch(b"two"), now_ms=NOW_MS)
    disk.fault = DiskFault("sync", disk.count("sync") + 1, forever=True)
    assert log.sync() is not None
    assert list(read_batches(log)) == [0]


def test_the_reserve_refuses_appends_before_the_disk_is_full_and_resumes_by_itself() -> None:
    disk = FailingDisk(capacity_bytes=20_000)
    directory = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=10_000)
    log = directory.create(TP, now_ms=NOW_MS)
    errors = [log.append(batch(b"x" * 900), now_ms=NOW_MS).error for _ in range(20)]
    assert errors[0] is ErrorCode.NONE
    assert errors[-1] is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.free_bytes() >= 9_000
    assert log.fenced is None
    assert log.sync() is None, "what was taken can still be made durable"
    assert len(read_batches(log)) == errors.count(ErrorCode.NONE)
    disk.capacity_bytes = 40_000
    assert log.append(batch(b"x" * 900), now_ms=NOW_MS).error is ErrorCode.NONE


def test_what_follows_a_batch_without_room_is_refused_for_the_same_reason() -> None:
    # Told that its next batches are out of order, librdkafka goes on in a new epoch and sends
    # what was stored and never acknowledged again: a soak on a full disk had two copies of one.
    disk = FailingDisk(capacity_bytes=20_000)
    log = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=10_000).create(TP, now_ms=NOW_MS)

    def sent(sequence: int, size: int = 10, epoch: int = 0) -> ErrorCode:
        ids: dict[str, Any] = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": sequence}
        return log.append(batch(b"x" * size, **ids), now_ms=NOW_MS).error

    assert sent(0, size=30_000) is ErrorCode.KAFKA_STORAGE_ERROR, "of a producer nobody knew"
    assert sent(1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [sent(0), sent(1)] == [ErrorCode.NONE] * 2
    assert sent(2, size=30_000) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [sent(3), sent(4)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert sent(1) is ErrorCode.NONE, "what is stored is known all the same"
    assert [sent(2), sent(3), sent(4)] == [ErrorCode.NONE] * 3
    assert sent(6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sent(5, size=30_000) is ErrorCode.KAFKA_STORAGE_ERROR
    assert sent(0, epoch=1) is ErrorCode.NONE, "the next epoch owes nothing to the last"
    assert [record.offset for record in read_records(log)] == []
    assert log.sync() is None
    assert len(read_records(log)) == 6


@pytest.mark.slow
def test_L7_ENOSPC_at_every_byte_of_an_append_loses_nothing() -> None:
    for room in range(1, 200):
        disk = FailingDisk()
        log = _log(disk)
        assert log.append(batch(b"first"), now_ms=NOW_MS).error is ErrorCode.NONE
        assert log.sync() is None
        disk.capacity_bytes = disk.used_bytes + room
        result = log.append(batch(b"second" * 30), now_ms=NOW_MS)
        disk.capacity_bytes = 1 << 40
        assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert log.append(batch(b"third"), now_ms=NOW_MS).base_offset == 1
        assert log.sync() is None
        reopened = LogDirectory.open(disk.crash(), now_ms=NOW_MS, reserve_bytes=0).partitions[TP]
        assert list(read_batches(reopened)) == [0, 1]
        assert not reopened.state.corrupt


@pytest.mark.slow
@pytest.mark.parametrize("call", ["open", "write", "sync", "sync_directory", "rename", "remove"])
def test_L10_background_work_never_raises_and_goes_on_when_the_disk_is_well_again(
    call: str,
) -> None:
    config = replace(
        CONFIG,
        cleanup_policy=frozenset({"compact", "delete"}),
        min_cleanable_dirty_ratio=0.0,
        retention_bytes=None,
    )
    for nth in range(1, NTH_MAX):
        disk = FailingDisk()
        directory = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=0)
        log = directory.create(TP, now_ms=NOW_MS, config=config)
        for index in range(16):
            log.append(batch(b"%d" % index, key=b"k%d" % (index % 2)), now_ms=NOW_MS)
        log.sync()
        disk.fault = DiskFault(call, disk.count(call) + nth)
        for _ in range(3):
            run_job(directory.compact(NOW_MS))
            run_job(directory.checkpoint(NOW_MS))
            run_job(directory.retain(NOW_MS))
        assert log.append(batch(b"x", key=b"k"), now_ms=NOW_MS).error in (
            ErrorCode.NONE,
            ErrorCode.KAFKA_STORAGE_ERROR,
        )
        last = {record.key: record.value for record in read_records(log)}
        assert (last[b"k0"], last[b"k1"]) == (b"14", b"15")
        again = LogDirectory.open(disk.crash(), now_ms=NOW_MS, reserve_bytes=0)
        last = {record.key: record.value for record in read_records(again.partitions[TP])}
        assert (last[b"k0"], last[b"k1"]) == (b"14", b"15")
        if not disk.hits:
            return
    raise AssertionError("the work never ends")


def _log(disk: FailingDisk) -> PartitionLog:
    """Without a reserve: the disk may be filled to the last byte."""
    directory = LogDirectory.open(disk, now_ms=NOW_MS, reserve_bytes=-(1 << 60))
    return directory.create(TP, now_ms=NOW_MS)
