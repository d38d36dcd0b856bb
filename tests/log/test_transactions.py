"""Transactions in a partition: what may be appended, what is stable, what was aborted.

The oracle (``Oracle``) looks at every batch of the log from the start, each time it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ErrorCode
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.partition import AppendResult, Origin, PartitionLog
from shoal.records.batch import iter_headers
from shoal.records.markers import is_abort_marker
from shoal.testing.disk import SimDisk
from shoal.types import TimestampType, TopicPartition
from tests.log.batches import NOW_MS, batch, read_batches

TP = TopicPartition("orders", 0)
MARKER_HEX = (
    "000000000000002a000000420000000002ad320ccb0030000000000000018bcfe568000000018bcfe5680000"
    "000000000003e80003ffffffff000000012000000008000000010c00000000000700"
)


def make(
    durability: Durability = Durability.OS, disk: SimDisk | None = None, **config: object
) -> PartitionLog:
    return open_directory(disk or SimDisk(), durability, **config).create(TP, now_ms=NOW_MS)


def open_directory(disk: SimDisk, durability: Durability, **config: object) -> LogDirectory:
    log_config = replace(LogConfig(), **config)  # type: ignore[arg-type]  # each test passes what it needs
    return LogDirectory.open(
        disk,
        now_ms=NOW_MS,
        durability=durability,
        reserve_bytes=0,
        config_for=lambda _: log_config,
        loaders=0,
    )


def write(
    log: PartitionLog,
    producer_id: int,
    sequence: int,
    *,
    epoch: int = 0,
    count: int = 1,
    version: int | None = 2,
) -> AppendResult:
    data = batch(
        *[b"value"] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    return log.append(data, now_ms=NOW_MS, transaction_version=version)


def end(
    log: PartitionLog,
    producer_id: int,
    *,
    epoch: int = 1,
    commit: bool = True,
    coordinator_epoch: int = 0,
    version: int = 2,
) -> AppendResult:
    return log.append_marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        commit=commit,
        transaction_version=version,
        now_ms=NOW_MS,
    )


# What may be appended ------------------------------------------------------------------------


def test_a_marker_has_kafkas_bytes() -> None:
    log = make()
    log.append(batch(*[b"x"] * 42), now_ms=NOW_MS)
    assert end(log, 1000, epoch=3, coordinator_epoch=7).base_offset == 42
    assert read_batches(log)[42].hex() == MARKER_HEX


def test_a_transaction_begins_only_with_the_coordinators_knowledge() -> None:
    log = make()
    assert write(log, 7, 0, version=None).error is ErrorCode.INVALID_TXN_STATE
    assert not log.has_open_transaction(7, 0)
    assert write(log, 7, 0).error is ErrorCode.NONE
    assert log.has_open_transaction(7, 0)
    assert not log.has_open_transaction(7, 1)
    assert write(log, 7, 1, version=None).error is ErrorCode.NONE, "it is open here"
    end(log, 7)
    assert write(log, 7, 0, epoch=1, version=None).error is ErrorCode.INVALID_TXN_STATE


def test_plain_batches_do_not_mix_with_an_open_transaction() -> None:
    log = make()
    write(log, 7, 0)
    plain = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=1)
    assert log.append(plain, now_ms=NOW_MS).error is ErrorCode.INVALID_TXN_STATE
    end(log, 7, epoch=0, version=1)
    assert log.append(plain, now_ms=NOW_MS).error is ErrorCode.NONE


def test_a_retried_batch_of_an_ended_transaction_is_a_duplicate() -> None:
    log = make()
    write(log, 7, 0, version=1)
    end(log, 7, epoch=0, version=1)
    again = write(log, 7, 0, version=None)
    assert (again.error, again.duplicate, again.base_offset) == (ErrorCode.NONE, True, 0)


def test_an_unknown_producer_starts_at_0_only_if_each_transaction_has_an_epoch() -> None:
    assert write(make(), 7, 5, version=1).error is ErrorCode.NONE
    assert write(make(), 7, 5, version=2).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_first_sequence_after_a_marker_of_a_new_epoch_is_0() -> None:
    log = make()
    write(log, 7, 0, count=3)
    end(log, 7, epoch=1)
    assert write(log, 7, 3, epoch=0).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(log, 7, 3, epoch=1).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, 7, 0, epoch=1).error is ErrorCode.NONE


def test_offsets_the_broker_stores_for_a_producer_are_checked_for_their_epoch_alone() -> None:
    log = make()
    end(log, 7, epoch=4)
    for epoch, expected in ((3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.NONE)):
        data = batch(b"offset", producer_id=7, producer_epoch=epoch, is_transactional=True)
        assert log.append(data, now_ms=NOW_MS, origin=Origin.BROKER).error is expected
    assert log.last_stable_offset == 1
    (state,) = log.producer_states()
    assert (state.last_sequence, state.last_offset) == (-1, 1)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("marker_epoch", "open_at"), [(4, True), (5, True), (5, False), (6, True)])
def test_which_epochs_a_marker_may_have(version: int, marker_epoch: int, open_at: bool) -> None:
    log = make()
    write(log, 7, 0, epoch=5, version=version)
    if not open_at:
        end(log, 7, epoch=5, version=1)
    result = end(log, 7, epoch=marker_epoch, version=version)
    is_late = marker_epoch < 5 or (version == 2 and marker_epoch == 5 and open_at)
    assert result.error is (ErrorCode.INVALID_PRODUCER_EPOCH if is_late else ErrorCode.NONE)
    assert (log.last_stable_offset == log.end_offset) is not is_late


def test_a_marker_written_twice_is_harmless() -> None:
    log = make()
    write(log, 7, 0)
    for _ in range(2):
        assert end(log, 7, commit=False).error is ErrorCode.NONE
    assert log.end_offset == 3
    assert log.aborted_transactions(0, 3) == [(7, 0)]
    assert log.aborted_transactions(2, 3) == []


def test_an_old_coordinator_is_fenced() -> None:
    log = make()
    write(log, 7, 0)
    end(log, 7, epoch=1, coordinator_epoch=3)
    write(log, 7, 0, epoch=1)
    fenced = end(log, 7, epoch=2, coordinator_epoch=2)
    assert fenced.error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.has_open_transaction(7, 1)
    assert end(log, 7, epoch=2, coordinator_epoch=3).error is ErrorCode.NONE


def test_a_marker_of_a_stranger_shuts_its_older_epochs_out() -> None:
    log = make()
    assert end(log, 7, epoch=3).error is ErrorCode.NONE
    assert write(log, 7, 0, epoch=2).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    log = make()
    write(log, 7, 0)
    write(log, 8, 0)
    end(log, 8)
    log.producers.expire(NOW_MS + 10 * 86_400_000)
    assert [each.producer_id for each in log.producer_states()] == [7]


def test_a_marker_is_written_whatever_the_largest_batch_of_its_topic_is() -> None:
    """Whoever lowers the limit while a transaction is open would never see the end of it."""
    log = make()
    write(log, 7, 0)
    log.config = replace(log.config, max_message_bytes=50)
    assert end(log, 7).error is ErrorCode.NONE
    assert log.last_stable_offset == 2


def test_the_append_time_of_a_topic_is_also_the_markers() -> None:
    log = make(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    write(log, 7, 0)
    result = end(log, 7)
    assert result.append_time_ms == NOW_MS
    (state,) = log.producer_states()
    assert state.timestamp_ms == NOW_MS


# What is stable ------------------------------------------------------------------------------


def test_the_last_stable_offset_stands_at_the_oldest_open_transaction() -> None:
    log = make()
    log.append(batch(b"plain"), now_ms=NOW_MS)
    write(log, 7, 0)
    write(log, 8, 0)
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    end(log, 8)
    assert log.last_stable_offset == 1
    assert [each.first_offset for each in log.open_transactions()] == [1]
    end(log, 7)
    assert log.last_stable_offset == log.high_watermark == 5


def test_an_end_counts_when_its_marker_is_durable() -> None:
    log = make(Durability.GROUP)
    write(log, 7, 0)
    log.sync()
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    end(log, 7)
    assert log.last_stable_offset == 0, "a power cut could still take the marker"
    log.sync()
    assert log.last_stable_offset == 2


def test_the_last_stable_offset_never_lies_before_the_start() -> None:
    log = make()
    write(log, 7, 0, count=3)
    write(log, 7, 3)
    log.delete_records(2)
    assert log.last_stable_offset == 2
    assert log.aborted_transactions(2, 4) == []
    end(log, 7, commit=False)
    assert log.aborted_transactions(2, 4) == [(7, 0)]


def test_who_waits_is_told_when_the_last_stable_offset_has_moved() -> None:
    log = make()
    seen: list[int] = []
    log.on_advance = lambda moved: seen.append(moved.last_stable_offset)
    write(log, 7, 0)
    log.append(batch(b"plain"), now_ms=NOW_MS)
    end(log, 7)
    assert seen == [0, 0, 3]


def test_reads_can_be_bounded_by_the_last_stable_offset() -> None:
    log = make(segment_bytes=200)
    for sequence in range(5):
        log.append(batch(b"plain"), now_ms=NOW_MS)
        write(log, 7 + sequence, 0)
    for stable in (1, 3):
        read = log.read(0, 1 << 20, max_offset=stable)
        assert read.next_offset <= stable
    assert log.read(3, 1 << 20, max_offset=log.last_stable_offset).size == 0


# Against the oracle --------------------------------------------------------------------------


@dataclass
class Oracle:
    """Everything again from the batches, each time."""

    batches: list[bytes]

    def _walk(self) -> Iterator[tuple[int, int, int, bool]]:
        """(producer id, first offset, marker's offset or -1, committed) of every transaction."""
        begun: dict[int, int] = {}
        for data in self.batches:
            for position, header in iter_headers(data):
                if not header.is_transactional:
                    continue
                if not header.is_control:
                    begun.setdefault(header.producer_id, header.base_offset)
                elif header.producer_id in begun:
                    first = begun.pop(header.producer_id)
                    commit = not is_abort_marker(data, position)
                    yield header.producer_id, first, header.last_offset, commit
        for producer_id, first in begun.items():
            yield producer_id, first, -1, False

    def open(self) -> list[tuple[int, int]]:
        return sorted((first, who) for who, first, marker, _ in self._walk() if marker < 0)

    def last_stable_offset(self, high_watermark: int, start_offset: int) -> int:
        unstable = [
            max(first, start_offset)
            for _, first, marker, _ in self._walk()
            if marker < 0 or marker >= high_watermark
        ]
        return min([*unstable, high_watermark])

    def aborted(self, start: int, stop: int) -> list[tuple[int, int]]:
        return sorted(
            (who, first)
            for who, first, marker, commit in self._walk()
            if marker >= start and first < stop and not commit
        )


class Run:
    """A log, and producers that follow the rules."""

    def __init__(self, durability: Durability, segment_bytes: int) -> None:
        self.durability = durability
        self.segment_bytes = segment_bytes
        self.disk = SimDisk()
        self.directory = self._open()
        self.log = self.directory.create(TP, now_ms=NOW_MS)
        self.log.sync()  # its name, too
        self.history: list[bytes] = []

    def _open(self) -> LogDirectory:
        return open_directory(self.disk, self.durability, segment_bytes=self.segment_bytes)

    def step(self, kind: str, producer_id: int, count: int) -> None:
        before = self.log.end_offset
        state = self.log.producers.entries.get(producer_id)
        epoch = 0 if state is None else state.epoch
        sequence = 0 if state is None else state.last_sequence + 1
        match kind:
            case "write":
                result = write(self.log, producer_id, sequence, epoch=epoch, count=count)
                assert result.error is ErrorCode.NONE
            case "plain":
                self.log.append(batch(*[b"plain"] * count), now_ms=NOW_MS)
            case "commit" | "abort":
                result = end(self.log, producer_id, epoch=epoch + 1, commit=kind == "commit")
                assert result.error is ErrorCode.NONE
            case "retry":
                result = end(self.log, producer_id, epoch=epoch, commit=False, version=1)
                assert result.error is ErrorCode.NONE
            case "sync":
                assert self.log.sync() is None
            case "checkpoint":
                self.log.checkpoint()()
            case "delete":
                self.log.delete_records(max(self.log.start_offset, self.log.high_watermark - count))
                run_job(self.directory.retain(NOW_MS))
            case "reopen":
                self.directory.close()
                self._reopen()
            case "crash":
                self.disk = self.disk.crash()
                self._reopen()
        if self.log.end_offset > before:
            self.history.append(self._last_batch(before))
        self.history = [data for data in self.history if _base(data) < self.log.end_offset]

    def _reopen(self) -> None:
        self.directory = self._open()
        self.log = self.directory.partitions[TP]

    def _last_batch(self, offset: int) -> bytes:
        segment = self.log.active
        found = segment.seek(offset, segment.size)
        assert found is not None
        return segment.file.read_at(found.position, found.size)

    def compare(self, ranges: list[tuple[int, int]]) -> None:
        log, oracle = self.log, Oracle(self.history)
        expected = oracle.last_stable_offset(log.high_watermark, log.start_offset)
        assert log.last_stable_offset == expected
        assert [(each.first_offset, each.producer_id) for each in log.open_transactions()] == (
            oracle.open()
        )
        span = log.end_offset - log.start_offset
        for first, second in ranges:
            start = log.start_offset + first % (span + 1)
            stop = start + second % (log.end_offset - start + 1)
            if start < stop:
                found = log.aborted_transactions(start, stop)
                assert sorted(found) == oracle.aborted(start, stop), (start, stop)


_KINDS = ["write"] * 6 + ["plain", "commit", "abort", "abort", "retry", "sync", "checkpoint"]


def _steps(*more: str) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    kinds = st.sampled_from([*_KINDS, *more])
    return st.lists(st.tuples(kinds, st.integers(1, 4), st.integers(1, 3)), max_size=60)


_RANGES = st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), min_size=1, max_size=5)
_Steps = list[tuple[str, int, int]]


def _play(run: Run, steps: _Steps, ranges: list[tuple[int, int]]) -> None:
    stable = 0
    for kind, producer_id, count in steps:
        run.step(kind, producer_id, count)
        run.compare(ranges)
        if kind != "crash":
            assert run.log.last_stable_offset >= stable, "it never goes back"
        stable = run.log.last_stable_offset


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(_steps("reopen", "crash"), _RANGES, st.sampled_from([200, 700, 1 << 20]))
def test_stable_and_aborted_are_what_the_whole_log_says_after_any_crash(
    steps: _Steps, ranges: list[tuple[int, int]], segment_bytes: int
) -> None:
    _play(Run(Durability.GROUP, segment_bytes), steps, ranges)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(_steps("reopen", "delete"), _RANGES, st.sampled_from([200, 700, 1 << 20]))
def test_stable_and_aborted_are_what_the_whole_log_says_when_its_start_moves(
    steps: _Steps, ranges: list[tuple[int, int]], segment_bytes: int
) -> None:
    _play(Run(Durability.OS, segment_bytes), steps, ranges)


def _base(data: bytes) -> int:
    return int.from_bytes(data[:8], "big")


# Restarting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reopen", "crash"])
@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
def test_open_and_aborted_transactions_are_there_after_a_restart(
    kind: str, segment_bytes: int
) -> None:
    run = Run(Durability.GROUP, segment_bytes)
    for producer_id in (1, 2, 3, 1, 2):
        run.step("write", producer_id, 1)
        run.step("sync", 0, 0)
    run.step("abort", 2, 1)
    run.step("commit", 3, 1)
    run.step("checkpoint", 0, 0)
    run.step("sync", 0, 0)
    before = run.log.producers.entries[2]
    run.step(kind, 0, 0)
    run.compare([(0, 999)])
    assert run.log.aborted_transactions(0, 99) == [(2, 1)]
    after = run.log.producers.entries[2]
    for field in ("epoch", "batches", "coordinator_epoch", "timestamp_ms"):
        assert getattr(before, field) == getattr(after, field)


def test_a_topic_made_again_knows_nothing_of_transactions_of_the_old_one() -> None:
    run = Run(Durability.GROUP, 300)
    for _ in range(4):
        run.step("write", 1, 1)
        run.step("abort", 1, 1)
    run.step("write", 2, 1)
    run.step("sync", 0, 0)
    run.directory.delete(TP)()
    log = run.directory.create(TP, now_ms=NOW_MS)
    assert log.open_transactions() == []
    assert log.producer_states() == []
    assert write(log, 1, 0).error is ErrorCode.NONE
    log.sync()
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    run.directory.close()
    run._reopen()
    assert run.log.aborted_transactions(0, 99) == []
    assert [each.producer_id for each in run.log.open_transactions()] == [1]


def test_a_lost_or_damaged_transaction_index_is_derived_again() -> None:
    for damage in ("lost", "short", "flipped"):
        run = Run(Durability.GROUP, 300)
        for _ in range(6):
            run.step("write", 1, 1)
            run.step("abort", 1, 1)
        run.directory.close()
        contents = run.disk.contents()
        name = next(each for each in sorted(contents) if each.endswith(".txnindex"))
        data = contents.pop(name)
        if damage == "short":
            contents[name] = data[:34]
        elif damage == "flipped":
            contents[name] = data[:9] + bytes([data[9] ^ 1]) + data[10:]
        run.disk = SimDisk.of(contents)
        run._reopen()
        run.compare([(0, 999), (3, 2), (5, 5)])
