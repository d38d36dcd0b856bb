"""Runs a scenario on a recording disk and opens every state a power cut could have left.

A scenario writes through a ``Witness``, which knows what was appended and what was acknowledged.
After every single change of the disk, all possible crash images of that moment are opened and
checked. Images seen before are skipped, so ``states`` counts distinct ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.errors import ErrorCode
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory
from shoal.log.partition import PartitionLog
from shoal.records.batch import decode_batch, read_header
from shoal.testing.disk import RecordingDisk, SimDisk, crash_images
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch, read_batches

TP = TopicPartition("orders", 0)
STATES_MIN = 16_000

Check = Callable[["Witness", PartitionLog, dict[int, bytes]], None]


@dataclass
class Witness:
    """What happened so far, and what must therefore be true after a crash."""

    config: LogConfig
    check_content: Check
    durability: Durability = Durability.GROUP
    step: int = 1
    disk: RecordingDisk = field(default_factory=RecordingDisk)
    appended: dict[int, bytes] = field(default_factory=dict)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    min_start: int = 0
    max_start: int = 0
    may_be_gone: bool = True
    states: int = 0
    _seen: set[int] = field(default_factory=set)

    def open(self, disk: SimDisk | None = None) -> LogDirectory:
        return LogDirectory.open(
            self.disk if disk is None else disk,
            now_ms=NOW_MS,
            durability=self.durability,
            config_for=lambda _: self.config,
            reserve_bytes=0,
        )

    def append(self, log: PartitionLog, data: bytes) -> int:
        """Append; not acknowledged yet. A crash may come before this returns."""
        stored = bytearray(data)
        stored[0:8] = log.end_offset.to_bytes(8, "big")
        stored[12:16] = log.leader_epoch.to_bytes(4, "big")
        self.appended[log.end_offset] = bytes(stored)
        result = log.append(data, now_ms=NOW_MS)
        assert result.error is ErrorCode.NONE, result
        self.acknowledge(log)
        return result.base_offset

    def sync(self, log: PartitionLog) -> None:
        assert log.sync() is None
        self.acknowledge(log)

    def acknowledge(self, log: PartitionLog) -> None:
        """What the log shows to readers counts as acknowledged."""
        for offset, data in self.appended.items():
            if offset < log.high_watermark:
                self.acknowledged[offset] = data
                self.may_be_gone = not self.durability.waits

    def watch(self) -> None:
        """From here on every change of the disk is followed by every possible power cut."""
        self.disk.on_change = self.cut_everywhere

    def cut_everywhere(self) -> None:
        for contents in crash_images(self.disk, step=self.step):
            key = hash((frozenset(contents.items()), len(self.acknowledged), self.max_start))
            if key not in self._seen:
                self._seen.add(key)
                self.states += 1
                self.check(SimDisk.of(contents))

    def check(self, image: SimDisk) -> None:
        directory = self.open(image)
        assert not directory.offline
        log = directory.partitions.get(TP)
        if log is None:
            assert self.may_be_gone, "L1: an acknowledged partition is gone"
            return
        if self.acknowledged and self.durability.waits:
            assert self.min_start <= log.start_offset <= self.max_start, "L10: the log start"
        found = read_batches(log)
        self.check_content(self, log, found)
        newest = max((read_header(data).leader_epoch for data in found.values()), default=-1)
        if found and not directory.clean_start:
            assert log.leader_epoch > newest, "an unclean start begins a new leader epoch"
        assert log.leader_epoch >= newest, "the leader epoch never goes back"


def same_bytes(witness: Witness, log: PartitionLog, found: dict[int, bytes]) -> None:
    """L1, L2, L5: what is there is what was appended, and all that was acknowledged is there."""
    for offset, data in found.items():
        assert witness.appended.get(offset) == data, f"L2: other bytes at offset {offset}"
    for offset, data in witness.acknowledged.items():
        if offset >= log.start_offset:
            assert found.get(offset) == data, f"L1: acknowledged offset {offset} is lost"
    assert log.end_offset <= max(witness.appended, default=-1) + 1, "L2: offsets are skipped"


def same_records(witness: Witness, log: PartitionLog, found: dict[int, bytes]) -> None:
    """L10: compaction drops records, but never the last one of a key, and changes none."""
    appended = _records(witness.appended)
    records = _records(found)
    for offset, record in records.items():
        assert appended[offset] == record, f"L2: another record at offset {offset}"
    last: dict[bytes | None, int] = {}
    for offset, (key, _) in appended.items():
        last[key] = offset
    for offset, (key, _) in _records(witness.acknowledged).items():
        if last[key] == offset:
            assert offset in records, f"L10: the last record of {key!r} is lost"


def _records(batches: dict[int, bytes]) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {
        record.offset: (record.key, record.value)
        for data in batches.values()
        for record in decode_batch(data)
    }


def values(count: int, size: int = 900) -> list[bytes]:
    """Batches of different sizes."""
    return [batch(b"%d:" % index + b"x" * (index * 197 % size)) for index in range(count)]
