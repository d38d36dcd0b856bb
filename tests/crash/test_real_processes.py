"""A real process on a real disk, killed with -9, or left behind on a disk whose power went."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.log.directory import LogDirectory
from shoal.types import TopicPartition
from tests.crash.appender import CONFIG
from tests.log.batches import NOW_MS, read_records

ROOT = Path(__file__).parents[2]
Acknowledged = dict[tuple[int, int], bytes]


@contextmanager
def appender(directory: Path, *, partitions: int = 2) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.crash.appender", str(directory), str(partitions)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def read_lines(process: subprocess.Popen[bytes], count: int) -> Acknowledged:
    """The next acknowledgements, at least ``count``."""
    assert process.stdout is not None
    found: Acknowledged = {}
    while len(found) < count:
        line = process.stdout.readline()
        assert line.endswith(b"\n"), "the program died by itself"
        note(line, found)
    return found


def note(line: bytes, found: Acknowledged) -> None:
    if line != b"ready\n":
        partition, offset, value = line.rstrip(b"\n").split(b" ")
        found[int(partition), int(offset)] = value


def rest_of(process: subprocess.Popen[bytes]) -> Acknowledged:
    """What was said before the end; the last line may be half."""
    assert process.stdout is not None
    found: Acknowledged = {}
    for line in process.stdout.read().splitlines(keepends=True):
        if line.endswith(b"\n"):
            note(line, found)
    return found


def check(directory: Path, acknowledged: Acknowledged) -> int:
    """L1: everything acknowledged is there; returns how many records there are."""
    opened = LogDirectory.open(str(directory), now_ms=NOW_MS, config_for=lambda _: CONFIG)
    found = {
        (tp.partition, record.offset): record.value
        for tp, log in opened.partitions.items()
        for record in read_records(log)
    }
    ends = {tp: log.end_offset for tp, log in opened.partitions.items()}
    corrupt = [log.state.corrupt for log in opened.partitions.values() if log.state.corrupt]
    opened.abandon()
    for key, value in acknowledged.items():
        assert found.get(key) == value, f"L1: acknowledged record {key} is lost"
    for tp, end in ends.items():
        offsets = sorted(offset for partition, offset in found if partition == tp.partition)
        assert offsets == list(range(end)), "L2: offsets are dense"
    assert not corrupt
    return len(found)


def kill_many(directory: Path, kills: int) -> None:
    chance = random.Random(kills)
    acknowledged: Acknowledged = {}
    for _ in range(kills):
        with appender(directory) as process:
            acknowledged |= read_lines(process, chance.randrange(1, 300))
            process.send_signal(signal.SIGKILL)
            acknowledged |= rest_of(process)
        check(directory, acknowledged)


@pytest.mark.slow
def test_L1_L2_nothing_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    kill_many(tmp_path, 6)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_L1_L2_nothing_is_lost_in_a_hundred_kills(tmp_path: Path) -> None:
    kill_many(tmp_path, 100)


@pytest.mark.slow
def test_L13_the_directory_of_a_killed_process_is_free_again(tmp_path: Path) -> None:
    with appender(tmp_path) as process:
        read_lines(process, 1)
    opened = LogDirectory.open(str(tmp_path), now_ms=NOW_MS)
    assert not opened.clean_start
    assert opened.partitions[TopicPartition("t", 0)].leader_epoch == 1
    opened.close()


# A power cut on a real file system -----------------------------------------------------------


@contextmanager
def mounted(image: Path, where: Path) -> Iterator[Path]:
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(where)], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def cut_power(tmp_path: Path, cuts: int) -> None:
    """Copy the image of a mounted ext4 while a process appends: what is not synced is not in it."""
    chance = random.Random(cuts)
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    for number in range(cuts):
        copy = tmp_path / f"copy-{number}.img"
        with mounted(image, tmp_path / "live") as live:
            data = live / f"data-{number}"
            with appender(data, partitions=1 + number % 3) as process:
                acknowledged = read_lines(process, chance.randrange(50, 400))
                # Nothing is acknowledged any more, so the copy holds a state after all of these.
                process.send_signal(signal.SIGSTOP)
                shutil.copyfile(image, copy)
        with mounted(copy, tmp_path / "after") as after:
            check(after / f"data-{number}", acknowledged)
        copy.unlink()


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mkfs.ext4") is None, reason="needs root and mkfs.ext4"
)


@pytest.mark.root
@pytest.mark.slow
@needs_root
def test_L1_L3_nothing_is_lost_when_the_power_goes(tmp_path: Path) -> None:
    cut_power(tmp_path, 4)


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(1800)
@needs_root
def test_L1_L3_nothing_is_lost_in_fifty_power_cuts(tmp_path: Path) -> None:
    cut_power(tmp_path, 50)


@pytest.mark.root
@pytest.mark.slow
@needs_root
def test_a_full_file_system_refuses_and_resumes(tmp_path: Path) -> None:
    """L7 on a real tmpfs: short writes come first, without an exception."""
    from shoal.errors import ErrorCode
    from tests.log.batches import batch

    where = tmp_path / "small"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(where)], check=True)
    try:
        opened = LogDirectory.open(str(where / "data"), now_ms=NOW_MS, reserve_bytes=-(1 << 40))
        log = opened.create(TopicPartition("t", 0), now_ms=NOW_MS)
        taken = 0
        while log.append(batch(b"x" * 3001), now_ms=NOW_MS).error is ErrorCode.NONE:
            taken += 1
        assert taken > 20
        assert log.fenced is None
        assert log.sync() is None
        assert len(read_records(log)) == taken
        subprocess.run(["mount", "-o", "remount,size=2m", str(where)], check=True)
        assert log.append(batch(b"y"), now_ms=NOW_MS).base_offset == taken
        log.sync()
        opened.abandon()
        again = LogDirectory.open(str(where / "data"), now_ms=NOW_MS)
        assert len(read_records(again.partitions[TopicPartition("t", 0)])) == taken + 1
        assert again.reports[0].is_good_news
        again.close()
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)
