"""A data directory: who may use it, what a start finds, what a stop leaves."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import weakref
from pathlib import Path
from uuid import UUID

import pytest

from shoal.errors import DataDirectoryInUseError, ErrorCode, StorageError
from shoal.log.checkpoints import decode_offsets
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, directory_name, is_topic_name, partition_of, run_job
from shoal.log.partition import PartitionLog
from shoal.testing.disk import DiskFault, FailingDisk, SimDisk
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch, read_batches, read_records

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("a.b_c-d", 12)


def open_directory(root: str | SimDisk, **settings: object) -> LogDirectory:
    return LogDirectory.open(root, now_ms=NOW_MS, reserve_bytes=0, **settings)  # type: ignore[arg-type]  # each test passes what it needs


def test_a_real_directory_holds_kafkas_files(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path / "data"))
    topic_id = UUID(int=7)
    log = directory.create(
        TP, now_ms=NOW_MS, topic_id=topic_id, config=LogConfig(segment_bytes=500)
    )
    for index in range(20):
        assert log.append(batch(b"value %d" % index), now_ms=NOW_MS).error is ErrorCode.NONE
    directory.create(OTHER, now_ms=NOW_MS)
    log.sync()
    expected = read_records(log)
    directory.close()
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert {
        "orders-0",
        "a.b_c-d-12",
        "meta.properties",
        ".kafka_cleanshutdown",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "cleaner-offset-checkpoint",
    } <= names
    inside = {path.name for path in (tmp_path / "data" / "orders-0").iterdir()}
    assert {"leader-epoch-checkpoint", "partition.metadata", f"{0:020d}.log"} <= inside
    points = decode_offsets((tmp_path / "data" / "recovery-point-offset-checkpoint").read_bytes())
    assert points == {TP: 20, OTHER: 0}

    again = open_directory(str(tmp_path / "data"))
    assert again.clean_start
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert again.partitions[TP].topic_id == topic_id
    assert read_records(again.partitions[TP]) == expected
    assert again.partitions[TP].leader_epoch == 0
    again.close()


def test_reads_of_a_real_directory_name_a_descriptor(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path), durability=Durability.OS)
    log = directory.create(TP, now_ms=NOW_MS)
    log.append(batch(b"sent by the kernel"), now_ms=NOW_MS)
    result = log.read(0, 1000)
    assert result.file is not None
    assert os.pread(result.file.fd, result.size, result.position) == result.read_bytes()
    directory.close()


@pytest.mark.slow
def test_L13_a_second_process_is_refused(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    program = (
        "import sys; from shoal.log import LogDirectory; from shoal.errors import *\n"
        "try: LogDirectory.open(sys.argv[1], now_ms=0)\n"
        "except DataDirectoryInUseError as error: print(error); sys.exit(9)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 9, refused.stderr
    assert str(tmp_path) in refused.stdout
    assert refused.stdout.count("\n") == 1
    with pytest.raises(DataDirectoryInUseError):
        open_directory(str(tmp_path))
    directory.close()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_directory_of_another_node_or_cluster_is_refused() -> None:
    disk = SimDisk()
    open_directory(disk, node_id=1, cluster_id="abc").close()
    with pytest.raises(StorageError, match=r"cluster\.id abc, not xyz"):
        open_directory(disk, node_id=1, cluster_id="xyz")
    with pytest.raises(StorageError, match=r"node\.id 1, not 2"):
        open_directory(disk, node_id=2)
    again = open_directory(disk, node_id=1)
    assert again.meta["cluster.id"] == "abc"


def test_a_directory_with_other_things_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "holidays-delete").mkdir()  # a partition being deleted would be called so
    (tmp_path / "holidays-delete" / "photo.jpg").touch()
    with pytest.raises(StorageError, match=r"holds 'holidays-delete'.*empty one"):
        open_directory(str(tmp_path))
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == [
        "holidays-delete",
        "holidays-delete/photo.jpg",
    ]


def test_partitions_copied_from_elsewhere_are_opened(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    directory.create(TP, now_ms=NOW_MS)
    directory.close()
    (tmp_path / "meta.properties").unlink()
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "owner.json").touch()
    again = open_directory(str(tmp_path), companions=["owner.json"])
    assert set(again.partitions) == {TP}
    again.close()


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StorageError, match="cannot use"):
        open_directory(str(file / "data"))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\0b", "é", "x" * 250, "a b", "../etc", "a\n"]
)
def test_only_checked_names_become_paths(name: str) -> None:
    assert not is_topic_name(name)
    with pytest.raises(ValueError):
        directory_name(TopicPartition(name, 0))
    directory = open_directory(SimDisk())
    with pytest.raises(ValueError):
        directory.create(TopicPartition(name, 0), now_ms=NOW_MS)


def test_directory_names_are_read_back() -> None:
    for tp in (TP, OTHER, TopicPartition("x" * 249, 0), TopicPartition("a-1", 2)):
        assert partition_of(directory_name(tp)) == tp
    for name in ("orders", "orders-", "orders-01", "orders-x", "-1", "..-0x", "orders-99999999999"):
        assert partition_of(name) is None


def test_strange_things_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    open_directory(str(tmp_path)).close()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "orders-0").symlink_to("/etc")
    directory = open_directory(str(tmp_path))
    assert not directory.partitions
    directory.close()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "orders-0").is_symlink()


def test_a_partition_exists_once() -> None:
    directory = open_directory(SimDisk())
    directory.create(TP, now_ms=NOW_MS)
    with pytest.raises(ValueError, match="exists"):
        directory.create(TP, now_ms=NOW_MS)


def test_a_deleted_partition_is_gone_at_once_and_its_files_soon() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.create(TP, now_ms=NOW_MS)
    log.append(batch(b"x"), now_ms=NOW_MS)
    log.sync()
    reader = log.read(0, 1000)
    work = directory.delete(TP)
    assert TP not in directory.partitions
    assert log.append(batch(b"x"), now_ms=NOW_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    directory.create(TP, now_ms=NOW_MS)
    work()
    assert [entry.name for entry in disk.list() if entry.kind == "directory"] == ["orders-0"]
    assert reader.read_bytes(), "an open read is not disturbed"
    assert directory.partitions[TP].end_offset == 0


def test_the_files_of_a_deleted_partition_are_closed_without_a_collection() -> None:
    directory = open_directory(SimDisk())
    told = Told(directory.create(TP, now_ms=NOW_MS))
    assert told.log.append(batch(b"x"), now_ms=NOW_MS).error is ErrorCode.NONE
    alive = weakref.ref(told.log)
    gc.disable()
    try:
        directory.delete(TP)()
        del told
        assert alive() is None, "the disk would stay as full as it was"
    finally:
        gc.enable()


class Told:
    """Somebody who holds a log and is told of what happens to it, as the broker does."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        log.on_advance = self.on_advance

    def on_advance(self, log: PartitionLog) -> None:
        assert log is self.log


def test_a_deletion_that_was_interrupted_is_finished_at_the_next_start() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    directory.create(TP, now_ms=NOW_MS).sync()
    directory.delete(TP)  # the work is never run
    disk.locks.clear()
    again = open_directory(disk)
    assert not again.partitions
    assert not [entry.name for entry in disk.list() if entry.kind == "directory"]


def test_a_partition_made_again_inherits_nothing_though_the_old_one_is_not_cleared_away() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.create(TP, now_ms=NOW_MS)
    log.append(batch(*[b"old"] * 100), now_ms=NOW_MS)
    log.sync()
    log.delete_records(50)
    run_job(directory.checkpoint(NOW_MS))
    directory.delete(TP)  # the work waits for its turn
    log = directory.create(TP, now_ms=NOW_MS)
    log.append(batch(*[b"new"] * 10), now_ms=NOW_MS)
    log.sync()
    disk.locks.clear()
    again = open_directory(disk).partitions[TP]
    assert (again.start_offset, again.end_offset, again.state.corrupt) == (0, 10, [])


def test_the_name_of_a_deleted_topic_can_be_long() -> None:
    directory = open_directory(SimDisk())
    tp = TopicPartition("x" * 249, 0)
    directory.create(tp, now_ms=NOW_MS)
    directory.delete(tp)()
    assert not directory.partitions


def test_a_partition_that_cannot_be_opened_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    contents = SimDisk()
    directory = open_directory(contents)
    for tp in (TP, OTHER):
        directory.create(tp, now_ms=NOW_MS).append(batch(b"x"), now_ms=NOW_MS)
    directory.close()
    disk = FailingDisk()
    for path, data in contents.contents().items():
        disk._plant(path, data)

    class Broken(FailingDisk):
        def called(self, call: str, path: str, size: int = 0) -> int:
            if call == "list" and path == "orders-0":
                raise OSError(5, "Input/output error")
            return size

    disk.__class__ = Broken
    with caplog.at_level(logging.ERROR):
        again = open_directory(disk)
    assert set(again.partitions) == {OTHER}
    assert "Input/output error" in again.offline[TP]
    assert "orders-0" in caplog.text
    disk.__class__ = FailingDisk
    assert again.reopen(TP, now_ms=NOW_MS).end_offset == 1
    assert not again.offline
    again.close()


def test_a_fenced_partition_makes_the_stop_unclean() -> None:
    disk = FailingDisk()
    directory = open_directory(disk)
    log = directory.create(TP, now_ms=NOW_MS)
    log.append(batch(b"x"), now_ms=NOW_MS)
    disk.fault = DiskFault("sync", disk.count("sync") + 1)
    assert log.sync() is not None
    directory.close()
    assert not open_directory(disk).clean_start


def test_unclean_starts_raise_the_epoch_and_clean_ones_do_not() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.create(TP, now_ms=NOW_MS)
    for expected, clean in [(0, True), (1, False), (1, True), (2, False), (3, False), (3, True)]:
        log.append(batch(b"x"), now_ms=NOW_MS)
        log.sync()
        if clean:
            directory.close()
        disk.locks.clear()
        directory = open_directory(disk)
        log = directory.partitions[TP]
        assert log.leader_epoch == expected
    assert [epoch for epoch, _ in log.epochs.entries] == [0, 1, 2, 3]
    assert log.end_offset_for_epoch(1) == (1, 4)


def test_recovery_is_reported_loudly(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.create(TP, now_ms=NOW_MS)
    for _ in range(3):
        log.append(batch(b"x" * 50), now_ms=NOW_MS)
    log.sync()
    contents = disk.contents()
    path = "orders-0/00000000000000000000.log"
    torn = contents[path][:-20]
    with caplog.at_level(logging.ERROR):
        again = open_directory(SimDisk.of({**contents, path: torn}))
    assert "kept in orders-0/" in caplog.text
    (report,) = again.reports
    assert not report.is_good_news
    (cut,) = report.cuts
    assert cut.position == log.active.size // 3 * 2
    quarantine = again.disk.contents()[cut.quarantine]  # type: ignore[attr-defined]  # the simulated disk
    assert torn.endswith(quarantine), "L3: what was cut is kept"
    assert len(quarantine) == cut.size_bytes

    caplog.clear()
    flipped = bytearray(contents[path])
    flipped[70] ^= 1
    with caplog.at_level(logging.ERROR):
        again = open_directory(SimDisk.of({**contents, path: bytes(flipped)}))
    assert "nothing was deleted" in caplog.text
    assert again.partitions[TP].read(0, 1000).error is ErrorCode.CORRUPT_MESSAGE
    assert sorted(read_batches(again.partitions[TP])) == [1, 2]


def test_a_tail_of_zeros_is_cut_without_a_quarantine_file() -> None:
    disk = SimDisk()
    log = open_directory(disk).create(TP, now_ms=NOW_MS)
    log.append(batch(b"x"), now_ms=NOW_MS)
    log.sync()
    contents = disk.contents()
    path = "orders-0/00000000000000000000.log"
    contents[path] += bytes(5000)  # space set aside in advance
    again = open_directory(SimDisk.of(contents))
    assert again.reports[0].cuts[0].quarantine is None
    assert again.partitions[TP].end_offset == 1


def test_many_partitions_share_one_checkpoint() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    logs = [directory.create(TopicPartition("t", n), now_ms=NOW_MS) for n in range(20)]
    for number, log in enumerate(logs):
        for _ in range(number):
            log.append(batch(b"x"), now_ms=NOW_MS)
        log.sync()
    run_job(directory.checkpoint(NOW_MS))
    again = open_directory(disk.crash())
    assert [again.partitions[log.topic_partition].end_offset for log in logs] == list(range(20))
    assert sum(report.scanned_bytes for report in again.reports) <= 20 * len(batch(b"x")) * 20


def closed(count: int = 40) -> dict[str, bytes]:
    """The files of a closed directory with several segments."""
    disk = SimDisk()
    directory = open_directory(disk)
    config = LogConfig(segment_bytes=900, index_interval_bytes=100)
    log = directory.create(TP, now_ms=NOW_MS, config=config)
    for index in range(count):
        log.append(batch(b"value %d" % index), now_ms=NOW_MS)
    directory.close()
    return disk.contents()


def test_a_log_start_past_the_end_starts_an_empty_log_there() -> None:
    contents = closed()
    contents["log-start-offset-checkpoint"] = b"0\n1\norders 0 500\n"
    log = open_directory(SimDisk.of(contents)).partitions[TP]
    assert (log.start_offset, log.end_offset) == (500, 500)
    assert log.append(batch(b"next"), now_ms=NOW_MS).base_offset == 500
    log.sync()
    assert list(read_batches(log)) == [500]


def test_L4_a_missing_segment_is_told_and_the_rest_is_served() -> None:
    contents = closed()
    del contents[".kafka_cleanshutdown"]
    del contents["recovery-point-offset-checkpoint"]
    paths = sorted(path for path in contents if path.endswith(".log"))
    missing = int(paths[1][-24:-4])
    following = int(paths[2][-24:-4])
    del contents[paths[1]]
    log = open_directory(SimDisk.of(contents)).partitions[TP]
    assert log.read(missing, 1000).error is ErrorCode.CORRUPT_MESSAGE
    expected = [offset for offset in range(40) if not missing <= offset < following]
    assert sorted(read_batches(log)) == expected


def test_bytes_below_the_recovery_point_are_read_again_if_the_index_leads_nowhere() -> None:
    contents = closed(count=10)
    del contents[".kafka_cleanshutdown"]
    path = "orders-0/00000000000000000000.log"
    size = len(contents[path]) // 10
    damaged = bytearray(contents[path])
    damaged[size * 9 : size * 9 + 8] = b"\xff" * 8  # the last batch, which the index names
    log = open_directory(SimDisk.of({**contents, path: bytes(damaged)})).partitions[TP]
    assert sorted(read_batches(log)) == list(range(9))
    assert log.end_offset == 10, "it was synced, so its offset stays taken"


def test_a_compaction_that_a_crash_interrupted_is_completed() -> None:
    contents = closed()
    paths = sorted(path for path in contents if path.endswith(".log"))
    merged = b"".join(contents[path] for path in paths[:3])
    swapped = {**contents, f"{paths[0]}.swap": merged, "orders-0/x.cleaned": b"half"}
    disk = SimDisk.of(swapped)
    log = open_directory(disk).partitions[TP]
    assert sorted(read_batches(log)) == list(range(40))
    names = [entry.name for entry in disk.list("orders-0")]
    assert paths[1].partition("/")[2] not in names
    assert not [name for name in names if name.endswith((".swap", ".cleaned"))]


def test_idle_partitions_hold_no_descriptors(tmp_path: Path) -> None:
    directory = open_directory(str(tmp_path))
    for number in range(30):
        log = directory.create(TopicPartition("t", number), now_ms=NOW_MS)
        log.append(batch(b"x"), now_ms=NOW_MS)
    directory.close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in ("clean", "killed"):
        directory = open_directory(str(tmp_path))
        assert len(os.listdir("/proc/self/fd")) <= before + 1, "only the lock"
        for log in directory.partitions.values():
            assert read_batches(log)
        assert len(os.listdir("/proc/self/fd")) > before + 20
        directory.release_idle_files()
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        directory.abandon()


def test_many_partitions_are_closed_together_and_found_clean() -> None:
    disk = SimDisk()
    directory = open_directory(disk)
    for number in range(40):
        log = directory.create(TopicPartition("wide", number), now_ms=NOW_MS)
        log.on_advance = lambda _: pytest.fail("nobody may be called from another thread")
        log.append(batch(b"value %d" % number), now_ms=NOW_MS)
    directory.close()
    again = open_directory(disk)
    assert again.clean_start
    assert {log.end_offset for log in again.partitions.values()} == {1}
    assert all(report.clean for report in again.reports)


def test_a_checkpoint_that_was_overtaken_does_not_come_back() -> None:
    disk = SimDisk()
    directory = open_directory(disk, durability=Durability.OS)
    log = directory.create(TP, now_ms=NOW_MS)
    log.append(batch(b"a", b"b", b"c"), now_ms=NOW_MS)
    log.delete_records(1)
    slow = next(directory.save_starts())
    log.delete_records(2)
    run_job(directory.save_starts())
    assert slow is not None
    slow()
    starts = decode_offsets(disk.open("log-start-offset-checkpoint").read_at(0, 1000))
    assert starts == {TP: 2}


@pytest.mark.parametrize("torn_bytes", [0, 5])
def test_a_new_segment_without_the_end_of_the_old_one_leaves_no_hole(torn_bytes: int) -> None:
    """Found by the simulated producers: a power cut right after a roll kept only a name."""
    disk = SimDisk()
    log = open_directory(disk).create(TP, now_ms=NOW_MS, config=LogConfig(segment_bytes=300))
    for number in range(3):
        log.append(batch(b"%d" % number), now_ms=NOW_MS)
    assert log.sync() is None
    kept = dict(disk.contents())
    log.append(batch(b"the last of its segment"), now_ms=NOW_MS)
    log.append(batch(b"the first of the next"), now_ms=NOW_MS)
    assert len(log.segments) == 2
    name = f"{log.directory}/{log.active.base_offset:020d}.log"
    torn = disk.contents()[name][:torn_bytes]
    again = open_directory(SimDisk.of({**kept, name: torn})).partitions[TP]
    assert again.end_offset == 3
    assert not again.state.corrupt
    assert again.append(batch(b"3"), now_ms=NOW_MS).base_offset == 3
    assert again.append(batch(b"4"), now_ms=NOW_MS).base_offset == 4
    assert again.sync() is None
    assert [record.value for record in read_records(again)] == [b"0", b"1", b"2", b"3", b"4"]
    assert isinstance(again.disk, SimDisk)
    last = open_directory(SimDisk.of(again.disk.crash().contents())).partitions[TP]
    assert [record.value for record in read_records(last)] == [b"0", b"1", b"2", b"3", b"4"]
