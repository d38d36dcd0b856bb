"""The log against a list: whatever is done to it, it answers like the list."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shoal.errors import ErrorCode
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.records.batch import encode_batch, iter_headers
from shoal.testing.disk import SimDisk
from shoal.types import OffsetAndTimestamp, TopicPartition
from tests.log.batches import NOW_MS, read_records

TP = TopicPartition("orders", 0)
Row = tuple[int, int, bytes, bytes | None]  # offset, timestamp, key, value

keys = st.sampled_from([b"a", b"b", b"c", b"d"])
payloads = st.none() | st.binary(max_size=120)
records = st.tuples(keys, payloads, st.integers(-50, 50))


class LogModel(RuleBasedStateMachine):
    """``rows`` is every record a reader must see, in order; ``gone`` those that may be gone."""

    @initialize(
        durability=st.sampled_from(Durability),
        segment_bytes=st.sampled_from([300, 700, 5000]),
        compacts=st.booleans(),
        codec=st.sampled_from([0, 0, 1, 2, 3, 4]),
    )
    def start(self, durability: Durability, segment_bytes: int, compacts: bool, codec: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=150,
            retention_ms=None,
            message_timestamp_after_max_ms=None,
            min_cleanable_dirty_ratio=0.0,
            cleanup_policy=frozenset({"compact"} if compacts else {"delete"}),
        )
        self.durability = durability
        self.codec = codec
        self.disk = SimDisk()
        self.clock_ms = NOW_MS
        self.rows: OrderedDict[int, Row] = OrderedDict()
        self.visible = 0
        self.start_offset = 0
        self.sequence = 0
        self.end_offset = 0
        self.last_sent: tuple[bytes, int] | None = None
        self.directory = self.open()
        self.log = self.directory.create(TP, now_ms=self.clock_ms)

    def open(self) -> LogDirectory:
        return LogDirectory.open(
            self.disk,
            now_ms=self.clock_ms,
            durability=self.durability,
            config_for=lambda _: self.config,
            reserve_bytes=0,
        )

    @rule(rows=st.lists(records, min_size=1, max_size=5), step_ms=st.integers(-30, 60))
    def append(self, rows: list[tuple[bytes, bytes | None, int]], step_ms: int) -> None:
        self.clock_ms += step_ms  # wall clocks jump
        stamped = [(key, value, self.clock_ms + jitter) for key, value, jitter in rows]
        data = encode_batch(
            [(key, value, (), timestamp_ms) for key, value, timestamp_ms in stamped],
            codec=self.codec,
            producer_id=4,
            producer_epoch=1,
            base_sequence=self.sequence,
        )
        if len(data) > self.config.segment_bytes:
            assert self.log.append(data, now_ms=NOW_MS).error is ErrorCode.RECORD_LIST_TOO_LARGE
            return
        result = self.log.append(data, now_ms=self.clock_ms)
        assert result.error is ErrorCode.NONE
        assert result.base_offset == self.end_offset, "L2: dense offsets"
        for index, (key, value, timestamp_ms) in enumerate(stamped):
            offset = result.base_offset + index
            self.rows[offset] = (offset, timestamp_ms, key, value)
        self.end_offset = result.end_offset
        self.sequence += len(rows)
        self.last_sent = data, result.base_offset
        if not self.durability.waits:
            self.visible = self.end_offset

    @precondition(lambda self: self.last_sent is not None)
    @rule()
    def retry(self) -> None:
        assert self.last_sent is not None
        data, offset = self.last_sent
        result = self.log.append(data, now_ms=self.clock_ms)
        assert (result.error, result.duplicate) == (ErrorCode.NONE, True), "L9"
        assert result.base_offset == offset

    @rule()
    def sync(self) -> None:
        assert self.log.sync() is None
        self.visible = self.end_offset

    @precondition(lambda self: self.log.active.size > 0)
    @rule()
    def roll(self) -> None:
        self.log.roll(now_ms=self.clock_ms)

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.directory.close()
        else:
            self.disk.locks.clear()  # the process is gone, the page cache is not
        before = self.log.leader_epoch
        self.directory = self.open()
        self.log = self.directory.partitions[TP]
        self.visible = self.end_offset
        assert self.directory.clean_start == clean
        assert self.directory.reports[-1].is_good_news
        assert self.log.leader_epoch == before + (not clean)

    @rule()
    def checkpoint(self) -> None:
        run_job(self.directory.checkpoint(NOW_MS))
        # Sealed segments are synced on the way, so more may be visible now.
        assert self.visible <= self.log.high_watermark <= self.end_offset
        self.visible = self.log.high_watermark

    @rule()
    def release(self) -> None:
        self.directory.release_idle_files()

    @precondition(lambda self: not self.config.compacts)
    @rule(keep=st.sampled_from([0, 400, 2000]))
    def retain_by_size(self, keep: int) -> None:
        self.log.config = replace(self.config, retention_bytes=keep)
        run_job(self.directory.retain(self.clock_ms))
        self.log.config = self.config
        assert self.log.start_offset >= self.start_offset
        assert self.log.size_bytes <= max(keep + self.config.segment_bytes, 0) or (
            self.log.start_offset <= self.visible
        )
        self.forget_before(self.log.start_offset)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start_offset + int(share * (self.visible - self.start_offset))
        assert self.log.delete_records(offset) is ErrorCode.NONE
        self.checkpoint()  # as a broker does before it answers
        self.forget_before(offset)

    def forget_before(self, offset: int) -> None:
        assert offset <= max(self.visible, self.start_offset), "L10: nothing unseen is removed"
        self.start_offset = max(offset, self.start_offset)
        for old in [old for old in self.rows if old < self.start_offset]:
            del self.rows[old]

    @precondition(lambda self: self.config.compacts)
    @rule()
    def compact(self) -> None:
        readers = self.log.read(self.start_offset, 10_000)
        before = readers.read_bytes()
        run_job(self.directory.compact(self.clock_ms))
        assert readers.read_bytes() == before, "L10: an open read is not disturbed"
        left = {record.offset for record in read_records(self.log)}
        latest = {row[2]: offset for offset, row in self.rows.items()}
        for offset, row in list(self.rows.items()):
            if offset < self.visible and offset not in left:
                assert latest[row[2]] != offset, "L10: the last value of a key"
                del self.rows[offset]

    @invariant()
    def reads_equal_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.start_offset, log.end_offset) == (self.start_offset, self.end_offset)
        assert log.high_watermark == self.visible
        for max_bytes in (1, 500, 1 << 20):
            found = [
                (record.offset, record.timestamp_ms, record.key, record.value)
                for record in read_records(log, max_bytes=max_bytes)
            ]
            assert found == [row for row in self.rows.values() if row[0] < self.visible]

    @rule(at_ms=st.integers(-200, 400))
    def look_up_a_time(self, at_ms: int) -> None:
        at_ms += NOW_MS
        expected = next(
            (
                (row[0], row[1])
                for row in self.rows.values()
                if row[1] >= at_ms and row[0] < self.visible
            ),
            None,
        )
        found = self.log.offset_for_time(at_ms)
        assert (found and (found.offset, found.timestamp_ms)) == expected, "L11"

    @rule()
    def find_the_latest(self) -> None:
        seen = [row for row in self.rows.values() if row[0] < self.visible]
        found = self.log.latest_by_time()
        if seen:
            newest = max(row[1] for row in seen)
            assert isinstance(found, OffsetAndTimestamp)
            assert found.timestamp_ms == newest
            assert found.offset == next(row[0] for row in seen if row[1] == newest)
        else:
            assert found is None

    @rule(share=st.floats(0, 1), size=st.integers(1, 2000))
    def read_below_a_limit(self, share: float, size: int) -> None:
        limit = self.start_offset + int(share * (self.visible - self.start_offset))
        result = self.log.read(self.start_offset, size, max_offset=limit)
        assert result.error is ErrorCode.NONE
        assert all(offset < limit for offset in _offsets(result.read_bytes()))

    @rule()
    def read_outside(self) -> None:
        for offset in (self.start_offset - 1, self.end_offset + 1):
            assert self.log.read(offset, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert self.log.read(self.end_offset, 100).error is ErrorCode.NONE


def _offsets(data: bytes) -> list[int]:
    return [header.last_offset for _, header in iter_headers(data)]


def _run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        LogModel, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    )


@pytest.mark.slow
def test_the_log_equals_a_list_whatever_is_done_to_it() -> None:
    _run(examples=250, steps=40)


@pytest.mark.long
def test_the_log_equals_a_list_for_a_long_time() -> None:
    _run(examples=6000, steps=60)
