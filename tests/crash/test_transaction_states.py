"""Every power cut of scenarios with transactions: what is open, aborted and stable is what the log
that is left says, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from shoal.errors import ErrorCode
from shoal.log.config import LogConfig
from shoal.log.directory import run_job
from shoal.log.partition import PartitionLog
from shoal.log.producers import Producers
from shoal.log.replaying import derive_aborted
from shoal.records.batch import read_header
from shoal.records.markers import encode_marker, read_marker
from tests.crash.states import TP, Witness, same_bytes
from tests.log.batches import NOW_MS, keyed
from tests.log.test_cleaned_transactions import read_committed
from tests.log.test_transactions import Oracle

pytestmark = pytest.mark.slow

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=200)
COMPACTED = replace(
    SMALL,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)


@dataclass
class TransactionWitness(Witness):
    """A witness of transactional producers, each with a new epoch for every transaction."""

    def write(self, log: PartitionLog, producer_id: int, key: bytes = b"k") -> None:
        entry = log.producers.entries.get(producer_id)
        data = keyed(
            [(key, b"%d" % log.end_offset)],
            producer_id=producer_id,
            producer_epoch=0 if entry is None else entry.epoch,
            base_sequence=0 if entry is None else entry.last_sequence + 1,
            is_transactional=True,
        )
        self._expect(log, data)
        result = log.append(data, now_ms=NOW_MS, transaction_version=2)
        assert result.error is ErrorCode.NONE
        self.acknowledge(log)

    def end(self, log: PartitionLog, producer_id: int, *, commit: bool) -> None:
        epoch = log.producers.entries[producer_id].epoch + 1
        self._expect(
            log,
            encode_marker(
                commit=commit,
                producer_id=producer_id,
                producer_epoch=epoch,
                timestamp_ms=NOW_MS,
                coordinator_epoch=5,
            ),
        )
        result = log.append_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=5,
            commit=commit,
            transaction_version=2,
            now_ms=NOW_MS,
        )
        assert result.error is ErrorCode.NONE
        self.acknowledge(log)

    def _expect(self, log: PartitionLog, data: bytes) -> None:
        stored = bytearray(data)
        stored[0:8] = log.end_offset.to_bytes(8, "big")
        stored[12:16] = log.leader_epoch.to_bytes(4, "big")
        self.appended[log.end_offset] = bytes(stored)


def as_the_log_says(log: PartitionLog, found: dict[int, bytes]) -> None:
    """Everything that is kept about transactions equals what the batches say."""
    oracle = Oracle([found[offset] for offset in sorted(found)])
    assert log.last_stable_offset == oracle.last_stable_offset(log.end_offset, log.start_offset)
    opened = [(each.first_offset, each.producer_id) for each in log.open_transactions()]
    assert opened == oracle.open()
    for start in range(log.start_offset, log.end_offset, 3):
        for end in (start + 1, start + 5, log.end_offset):
            assert sorted(log.aborted_transactions(start, end)) == oracle.aborted(start, end)
    for segment in log.segments:
        derived = derive_aborted(log.disk, log.directory, log.segments, segment)
        index = segment.aborted
        assert (b"" if index is None else index.encode()) == derived.encode()
    assert log.producers.encode(log.end_offset) == replayed(found).encode(log.end_offset)


def replayed(found: dict[int, bytes]) -> Producers:
    """The producers as a run over the batches from the start has them."""
    producers = Producers()
    for _, data in sorted(found.items()):
        header = read_header(data)
        marker = read_marker(data) if header.is_control else None
        if marker is None:
            producers.note(header, header.last_offset)
        else:
            producers.note_marker(header, marker, header.last_offset)
    return producers


def check(witness: Witness, log: PartitionLog, found: dict[int, bytes]) -> None:
    same_bytes(witness, log, found)
    as_the_log_says(log, found)


def test_open_and_aborted_transactions_are_what_every_power_cut_left() -> None:
    witness = TransactionWitness(SMALL, check, step=7)
    witness.watch()
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    for turn in range(10):
        for producer_id in (1, 2, 3):
            witness.write(log, producer_id)
        if turn % 2:
            witness.end(log, 1, commit=turn % 3 == 0)
        if turn % 3 == 1:
            witness.end(log, 2, commit=False)
        if turn % 2 == 0:
            witness.sync(log)
        if turn % 4 == 3:
            run_job(directory.checkpoint(NOW_MS))
        if turn == 6:
            directory.close()
            witness.acknowledge(log)
            directory = witness.open()
            log = directory.partitions[TP]
    assert len(log.segments) > 2
    assert witness.states >= 1500


def test_compaction_shows_readers_the_same_after_every_power_cut() -> None:
    expected: dict[bytes | None, bytes | None] = {}

    def same_values(_witness: Witness, log: PartitionLog, _found: dict[int, bytes]) -> None:
        assert {record.key: record.value for record in read_committed(log)} == expected

    witness = TransactionWitness(COMPACTED, same_values, step=50)
    directory = witness.open()
    log = directory.create(TP, now_ms=NOW_MS)
    for turn in range(8):
        for producer_id in (1, 2):
            for key in (b"a", b"b", b"c"):
                witness.write(log, producer_id, key)
        witness.end(log, 2, commit=turn % 3 == 0)
        witness.end(log, 1, commit=turn % 2 == 0)
    witness.sync(log)
    log.roll(now_ms=NOW_MS)
    witness.sync(log)
    run_job(directory.checkpoint(NOW_MS))
    expected.update({record.key: record.value for record in read_committed(log)})
    assert set(expected) == {b"a", b"b", b"c"}
    witness.watch()
    for _ in range(3):
        run_job(directory.compact(NOW_MS))
        log.cleaned_offset = log.start_offset  # the next pass reads everything again
    assert witness.states >= 50
    assert log.size_bytes < 2000
