"""What partitions hold open while they are used, and what a stop writes."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shoal.log.checkpoints import SEALS
from shoal.log.config import Durability
from shoal.log.directory import directory_name, run_job
from shoal.testing.disk import SimDisk
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch, read_records
from tests.log.test_directory import OTHER, TP, open_directory

LONG = b"v" * 5000


@pytest.mark.parametrize("durability", list(Durability))
def test_a_partition_in_use_holds_one_descriptor(tmp_path: Path, durability: Durability) -> None:
    before = len(os.listdir("/proc/self/fd"))
    directory = open_directory(str(tmp_path), durability=durability)
    held = len(os.listdir("/proc/self/fd")) - before
    for number in range(40):
        log = directory.create(TopicPartition("t", number), now_ms=NOW_MS, topic_id=UUID(int=1))
        log.append(batch(b"v"), now_ms=NOW_MS)
        if durability is not Durability.OS:
            log.sync()
    assert len(os.listdir("/proc/self/fd")) - before == held + 40
    directory.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_stop_makes_the_small_files_of_new_partitions_durable() -> None:
    disk = SimDisk()
    directory = open_directory(disk, durability=Durability.OS)
    for number in range(40):
        log = directory.create(TopicPartition("t", number), now_ms=NOW_MS, topic_id=UUID(int=1))
        log.append(batch(b"v"), now_ms=NOW_MS)
    directory.close()
    again = open_directory(disk.crash(), durability=Durability.OS)
    assert again.clean_start
    assert len(again.partitions) == 40
    assert {log.topic_id for log in again.partitions.values()} == {UUID(int=1)}
    assert {log.leader_epoch for log in again.partitions.values()} == {0}
    assert {len(read_records(log)) for log in again.partitions.values()} == {1}


def files_of(root: Path) -> dict[str, tuple[int, int]]:
    """Which file stands under every name, and when it was written to."""
    found = {path.name: path.stat() for path in root.iterdir()}
    return {name: (info.st_ino, info.st_mtime_ns) for name, info in found.items()}


def test_a_stop_writes_nothing_of_partitions_that_did_not_change(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    for tp in (TP, OTHER):
        directory.create(tp, now_ms=NOW_MS).append(batch(LONG), now_ms=NOW_MS)
    directory.close()
    before = {tp: files_of(tmp_path / directory_name(tp)) for tp in (TP, OTHER)}
    again = open_directory(str(tmp_path))
    again.partitions[OTHER].append(batch(LONG, timestamp_ms=NOW_MS + 1), now_ms=NOW_MS)
    assert len(read_records(again.partitions[TP])) == 1, "reading is no change"
    run_job(again.checkpoint(NOW_MS))
    again.close()
    assert files_of(tmp_path / directory_name(TP)) == before[TP]
    changed = files_of(tmp_path / directory_name(OTHER))
    assert changed != before[OTHER]
    last = open_directory(str(tmp_path))
    assert last.clean_start
    times = (tmp_path / directory_name(OTHER) / f"{0:020d}.timeindex").read_bytes()
    assert times[-12:] == struct.pack(">qI", NOW_MS + 1, 1), "a stop finishes the time index"
    last.close()


def test_a_stop_saves_what_a_start_had_to_derive(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    directory.create(TP, now_ms=NOW_MS).append(batch(LONG), now_ms=NOW_MS)
    directory.close()
    (tmp_path / directory_name(TP) / SEALS).unlink()
    open_directory(str(tmp_path)).close()
    assert (tmp_path / directory_name(TP) / SEALS).exists()


def test_a_log_of_a_few_records_is_not_worth_three_files(tmp_path: Path) -> None:
    root = tmp_path / directory_name(TP)
    directory = open_directory(str(tmp_path))
    directory.create(TP, now_ms=NOW_MS).append(batch(b"v"), now_ms=NOW_MS)
    run_job(directory.checkpoint(NOW_MS))
    directory.close()
    assert {path.name for path in root.iterdir()} == {f"{0:020d}.log", "leader-epoch-checkpoint"}
    for end_offset in (2, 3):
        again = open_directory(str(tmp_path))
        assert again.clean_start
        again.partitions[TP].append(batch(LONG, timestamp_ms=NOW_MS + end_offset), now_ms=NOW_MS)
        again.close()
        last = open_directory(str(tmp_path))
        log = last.partitions[TP]
        assert last.clean_start
        assert log.end_offset == end_offset
        assert log.saved.is_whole
        newest = log.latest_by_time()
        assert newest is not None
        assert (newest.offset, newest.timestamp_ms) == (end_offset - 1, NOW_MS + end_offset)
        last.close()


def test_producers_of_a_short_log_are_saved(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    numbers: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    directory.create(TP, now_ms=NOW_MS).append(batch(b"v", **numbers), now_ms=NOW_MS)
    directory.close()
    assert (tmp_path / directory_name(TP) / f"{1:020d}.snapshot").exists()
