"""Compaction and retention with transactions: readers of committed records lose nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ErrorCode
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.partition import PartitionLog
from shoal.records.batch import RawRecord, decode_batch, iter_headers, read_header
from shoal.records.chunks import AbortedTransactions
from shoal.testing.disk import SimDisk
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, keyed, read_batches

TP = TopicPartition("orders", 0)
HORIZON_MS = 1000
COMPACT = LogConfig(
    segment_bytes=400,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=HORIZON_MS,
)
EXPIRED_MS = 30 * 86_400_000


def read_committed(log: PartitionLog, start: int = 0, max_bytes: int = 300) -> list[RawRecord]:
    """What a client shows that asks for committed records only."""
    found, offset = [], max(start, log.start_offset)
    while offset < log.last_stable_offset:
        read = log.read(offset, max_bytes, max_offset=log.last_stable_offset)
        assert read.error is ErrorCode.NONE
        data = read.read_bytes()
        if not data:
            break
        aborted = AbortedTransactions(log.aborted_transactions(offset, read.next_offset))
        for position, header in iter_headers(data):
            if not aborted.hide(data, position, header) and not header.is_control:
                found += [one for one in decode_batch(data, position) if one.offset >= offset]
        offset = read.next_offset
    return found


class Topic:
    """A compacted topic, its transactional producers, and what they committed."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.now_ms = NOW_MS
        self.directory = self._open()
        self.log = self.directory.create(TP, now_ms=NOW_MS)
        self.log.sync()
        self.committed: dict[bytes, tuple[int, bytes]] = {}
        #: Every value that was ever committed.
        self.good: set[bytes] = set()
        self._open_data: dict[int, list[tuple[bytes, int, bytes]]] = {}

    def _open(self) -> LogDirectory:
        return LogDirectory.open(
            self.disk,
            now_ms=self.now_ms,
            durability=Durability.GROUP,
            reserve_bytes=0,
            config_for=lambda _: COMPACT,
            loaders=0,
        )

    def state(self, producer_id: int) -> tuple[int, int]:
        entry = self.log.producers.entries.get(producer_id)
        return (0, -1) if entry is None else (entry.epoch, entry.last_sequence)

    def write(self, producer_id: int, key: bytes) -> None:
        epoch, sequence = self.state(producer_id)
        value = b"%d" % self.log.end_offset
        data = keyed(
            [(key, value)],
            timestamp_ms=self.now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence + 1,
            is_transactional=True,
        )
        result = self.log.append(data, now_ms=self.now_ms, transaction_version=2)
        assert result.error is ErrorCode.NONE
        self._open_data.setdefault(producer_id, []).append((key, result.base_offset, value))

    def write_plain(self, key: bytes) -> None:
        value = b"%d" % self.log.end_offset
        data = keyed([(key, value)], timestamp_ms=self.now_ms)
        self._commit(key, self.log.append(data, now_ms=self.now_ms).base_offset, value)

    def end(self, producer_id: int, *, commit: bool) -> None:
        result = self.log.append_marker(
            producer_id=producer_id,
            producer_epoch=self.state(producer_id)[0] + 1,
            coordinator_epoch=0,
            commit=commit,
            transaction_version=2,
            now_ms=self.now_ms,
        )
        assert result.error is ErrorCode.NONE
        for written in self._open_data.pop(producer_id, []):
            if commit:
                self._commit(*written)

    def _commit(self, key: bytes, offset: int, value: bytes) -> None:
        self.good.add(value)
        if offset > self.committed.get(key, (-1, b""))[0]:
            self.committed[key] = (offset, value)

    def compact(self) -> None:
        self.log.sync()
        if self.log.active.size:
            self.log.roll(now_ms=self.now_ms)
        self.log.sync()
        run_job(self.directory.compact(self.now_ms))

    def reopen(self, *, clean: bool, without_snapshots: bool = False) -> None:
        self.log.sync()
        if clean:
            self.directory.close()
        disk = self.disk if clean else self.disk.crash()
        if without_snapshots:
            contents = disk.contents()
            disk = SimDisk.of(
                {
                    name: data
                    for name, data in contents.items()
                    if not name.endswith((".snapshot", ".txnindex", ".lock"))
                }
            )
        self.disk = disk
        self.directory = self._open()
        self.log = self.directory.partitions[TP]

    def check(self, start: int) -> None:
        self.log.sync()
        stable = self.log.last_stable_offset
        seen = {record.key: record.value for record in read_committed(self.log)}
        for key, (offset, value) in self.committed.items():
            if offset < stable:
                assert seen.get(key) == value, (key, offset)
        for record in read_committed(self.log, start):
            assert record.value in self.good


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in read_committed(log)]


def controls(log: PartitionLog) -> list[tuple[int, int, int | None]]:
    """Offset, records and delete horizon of every control batch."""
    headers = [read_header(data) for data in read_batches(log).values()]
    return [
        (header.base_offset, header.record_count, header.delete_horizon_ms)
        for header in headers
        if header.is_control
    ]


def test_what_was_aborted_goes_and_hides_nothing() -> None:
    topic = Topic()
    topic.write_plain(b"k")
    topic.write(1, b"k")
    topic.end(1, commit=False)
    topic.compact()
    assert values(topic.log) == [b"0"], "the aborted record must not be the last of its key"
    assert 1 not in read_batches(topic.log) or read_header(read_batches(topic.log)[1]).is_control


def test_nothing_at_or_behind_an_open_transaction_is_compacted() -> None:
    topic = Topic()
    topic.write_plain(b"k")
    topic.compact()
    topic.write(1, b"k")
    for _ in range(5):
        topic.write_plain(b"k")
    topic.compact()
    assert [header.base_offset for header in _headers(topic.log)] == list(range(7))
    topic.end(1, commit=True)
    topic.compact()
    assert values(topic.log) == [b"6"]


def _headers(log: PartitionLog) -> list:
    return [read_header(data) for data in read_batches(log).values()]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_goes_after_its_batches_and_after_the_time_to_read_them(commit: bool) -> None:
    topic = Topic()
    topic.write(1, b"k")
    topic.end(1, commit=commit)
    topic.write(1, b"other")
    topic.end(1, commit=True)
    topic.log.producers.expire(NOW_MS + EXPIRED_MS)  # it will not be heard of again
    topic.write_plain(b"k")
    topic.compact()
    assert controls(topic.log)[0] == (1, 1, None), "its batch was there in this pass"
    topic.write_plain(b"k")
    topic.compact()
    horizon_ms = topic.now_ms + HORIZON_MS
    assert controls(topic.log)[0] == (1, 1, horizon_ms)
    assert topic.log.aborted_transactions(0, 99) == []
    topic.now_ms = horizon_ms - 1
    topic.write_plain(b"k")
    topic.compact()
    assert controls(topic.log)[0] == (1, 1, horizon_ms)
    topic.now_ms = horizon_ms
    topic.write_plain(b"k")
    topic.compact()
    assert [offset for offset, *_ in controls(topic.log)] == [3], "its batch is still read"


def test_the_last_sequence_of_an_aborted_batch_survives() -> None:
    topic = Topic()
    topic.write(1, b"k")
    topic.write(1, b"k")
    end = topic.log.append_marker(
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        commit=False,
        transaction_version=1,
        now_ms=NOW_MS,
    )
    assert end.error is ErrorCode.NONE
    topic.compact()
    found = {header.base_offset: header.record_count for header in _headers(topic.log)}
    assert found == {1: 0, 2: 1}
    topic.reopen(clean=False, without_snapshots=True)
    assert topic.state(1) == (0, 1)
    assert topic.log.last_stable_offset == 3


@pytest.mark.parametrize("restart", ["clean", "crash", "without snapshots"])
def test_the_marker_that_shuts_an_epoch_out_survives_empty(restart: str) -> None:
    topic = Topic()
    topic.write(1, b"k")
    topic.end(1, commit=False)
    for _ in range(3):
        topic.now_ms += HORIZON_MS
        topic.write_plain(b"other")
        topic.compact()
    assert controls(topic.log) == [(1, 0, None)]
    topic.write_plain(b"other")
    topic.compact()
    assert controls(topic.log) == [(1, 0, None)]
    topic.reopen(clean=restart == "clean", without_snapshots=restart == "without snapshots")
    assert topic.state(1) == (1, -1)


def test_retention_and_delete_records_take_the_start_of_an_open_transaction() -> None:
    directory = LogDirectory.open(
        SimDisk(),
        now_ms=NOW_MS,
        durability=Durability.OS,
        reserve_bytes=0,
        config_for=lambda _: LogConfig(segment_bytes=300, retention_ms=1000),
    )
    log = directory.create(TP, now_ms=NOW_MS)
    topic = Topic()
    topic.directory, topic.log = directory, log
    topic.write(1, b"k")
    for _ in range(8):
        topic.write_plain(b"k")
    assert log.last_stable_offset == 0
    run_job(directory.retain(NOW_MS + 5000))
    assert log.start_offset == log.last_stable_offset == log.end_offset == 9
    topic.write_plain(b"k")
    assert log.last_stable_offset == 9, "the producer may still add to it"
    topic.end(1, commit=False)
    assert log.last_stable_offset == log.end_offset == 11
    assert log.delete_records(None) is ErrorCode.NONE
    assert log.aborted_transactions(11, 11) == []


_KEYS = [b"a", b"b", b"c"]
_STEP = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 3), st.sampled_from(_KEYS)),
    st.tuples(st.just("write"), st.integers(1, 3), st.sampled_from(_KEYS)),
    st.tuples(st.just("plain"), st.just(0), st.sampled_from(_KEYS)),
    st.tuples(st.sampled_from(["commit", "abort"]), st.integers(1, 3), st.just(b"")),
    st.tuples(st.sampled_from(["compact", "later", "crash", "reopen"]), st.just(0), st.just(b"")),
    st.tuples(st.just("replay"), st.just(0), st.just(b"")),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(_STEP, max_size=60), st.integers(0, 60))
def test_readers_see_the_last_committed_value_of_every_key_and_nothing_aborted(
    steps: list[tuple[str, int, bytes]], start: int
) -> None:
    topic = Topic()
    for kind, producer_id, key in steps:
        known = {each: topic.state(each) for each in (1, 2, 3)}
        match kind:
            case "write":
                topic.write(producer_id, key)
            case "plain":
                topic.write_plain(key)
            case "commit" | "abort":
                topic.end(producer_id, commit=kind == "commit")
            case "compact":
                topic.compact()
            case "later":
                topic.now_ms += HORIZON_MS
            case "crash" | "reopen" | "replay":
                topic.reopen(clean=kind == "reopen", without_snapshots=kind == "replay")
                assert {each: topic.state(each) for each in (1, 2, 3)} == known
        topic.check(start)
