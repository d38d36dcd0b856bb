"""Reading committed records straight from the files of a directory, in use or not."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from shoal.errors import ErrorCode
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.offline_reader import OfflineReader
from shoal.log.partition import PartitionLog
from shoal.records.batch import decode_batch, iter_headers
from shoal.records.chunks import AbortedTransactions
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch

TP = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300)


class Written:
    """A log under transactional producers, and which offsets hold what was committed."""

    def __init__(self, path: Path, seed: int) -> None:
        self.directory = LogDirectory.open(str(path), now_ms=NOW_MS, durability=Durability.OS)
        self.log: PartitionLog = self.directory.create(TP, now_ms=NOW_MS, config=CONFIG)
        self.committed: set[int] = set()
        self._random = random.Random(seed)
        self._open: dict[int, list[int]] = {}

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            producer_id = self._random.randrange(1, 5)
            if self._random.random() < 0.7:
                self._write(producer_id)
            elif self._random.random() < 0.3:
                offset = self.log.append(batch(b"plain"), now_ms=NOW_MS).base_offset
                self.committed.add(offset)
            else:
                self._end(producer_id, commit=self._random.random() < 0.5)

    def _state(self, producer_id: int) -> tuple[int, int]:
        entry = self.log.producers.entries.get(producer_id)
        return (0, -1) if entry is None else (entry.epoch, entry.last_sequence)

    def _write(self, producer_id: int) -> None:
        epoch, sequence = self._state(producer_id)
        data = batch(
            b"value" * self._random.randrange(1, 20),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence + 1,
            is_transactional=True,
        )
        result = self.log.append(data, now_ms=NOW_MS, transaction_version=2)
        assert result.error is ErrorCode.NONE
        self._open.setdefault(producer_id, []).append(result.base_offset)

    def _end(self, producer_id: int, *, commit: bool) -> None:
        self.log.append_marker(
            producer_id=producer_id,
            producer_epoch=self._state(producer_id)[0] + 1,
            coordinator_epoch=0,
            commit=commit,
            transaction_version=2,
            now_ms=NOW_MS,
        )
        written = self._open.pop(producer_id, [])
        if commit:
            self.committed.update(written)

    def stable(self) -> list[int]:
        return sorted(one for one in self.committed if one < self.log.last_stable_offset)


def read(reader: OfflineReader, start: int, end: int) -> list[int]:
    """The offsets of committed records in a range."""
    found: list[int] = []
    for data, first, last in reader.read(TP, start, end):
        aborted = AbortedTransactions(reader.aborted(TP, first, last))
        for position, header in iter_headers(data):
            if not aborted.hide(data, position, header) and not header.is_control:
                offsets = [record.offset for record in decode_batch(data, position)]
                found += [offset for offset in offsets if first <= offset < last]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_files_in_use_show_what_the_broker_would(tmp_path: Path, seed: int) -> None:
    written = Written(tmp_path, seed)
    reader = OfflineReader(str(tmp_path), committed_only=True)
    everything = OfflineReader(str(tmp_path))
    for _ in range(4):
        written.go_on(60)
        run_job(written.directory.checkpoint(NOW_MS))
        stable = written.log.last_stable_offset
        assert reader.latest([TP])[TP] == stable
        assert everything.latest([TP])[TP] == written.log.high_watermark
        assert everything.aborted(TP, 0, stable) == []
        assert read(reader, 0, stable) == written.stable()
        for start in range(0, stable, 17):
            expected = [one for one in written.stable() if start <= one < start + 40]
            assert read(reader, start, min(start + 40, stable)) == expected
        written.go_on(20)  # behind the checkpoint
    written.directory.close()


def test_a_copy_with_a_wrong_or_without_an_index_is_read_from_its_start(tmp_path: Path) -> None:
    written = Written(tmp_path / "live", 7)
    written.go_on(300)
    written.directory.close()
    for damage in ("lost snapshots", "wrong index", "short index"):
        copy = tmp_path / damage
        shutil.copytree(tmp_path / "live", copy)
        inside = copy / "orders-0"
        if damage == "lost snapshots":
            for path in inside.glob("*.snapshot"):
                path.unlink()
        for path in inside.glob("*.txnindex"):
            content = path.read_bytes()
            if damage == "wrong index":
                path.write_bytes(b"\1" + content[1:])
            elif damage == "short index" and path == max(inside.glob("*.txnindex")):
                path.write_bytes(content[:-34])
        reader = OfflineReader(str(copy), committed_only=True)
        assert read(reader, 0, reader.latest([TP])[TP]) == written.stable(), damage
