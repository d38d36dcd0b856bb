"""The real disk and the forgetful one keep the same contract."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.errors import StorageError
from shoal.log.disk import Disk, OsDisk, read_file, remove_if_there, replace_file, write_fully
from shoal.testing.disk import DiskFault, FailingDisk, SimDisk, crash_images


@pytest.fixture(params=["os", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return OsDisk(str(tmp_path)) if request.param == "os" else SimDisk()


def test_files_are_read_where_they_were_written(disk: Disk) -> None:
    disk.make_directory("d")
    file = disk.open("d/f", create=True)
    write_fully(file, 0, b"hello world")
    write_fully(file, 6, memoryview(b"there"))
    write_fully(file, 15, bytearray(b"!"))
    assert file.read_at(0, 100) == b"hello there\0\0\0\0!"
    assert file.read_at(6, 5) == b"there"
    assert file.read_at(99, 5) == b""
    assert bytes(file.map()) == file.read_at(0, 100)
    file.truncate(5)
    assert file.size() == 5
    file.sync()
    file.sync_data()
    disk.sync_directory("d")
    disk.sync_directory()
    (entry,) = disk.list("d")
    assert (entry.name, entry.kind, entry.size_bytes) == ("f", "file", 5)
    assert disk.stat("d/f") is not None
    assert disk.stat("d/g") is None
    assert disk.free_bytes() > 0
    assert disk.total_bytes() >= disk.free_bytes()


def test_names_change_in_one_step(disk: Disk) -> None:
    replace_file(disk, "name", b"one")
    replace_file(disk, "name", b"two")
    assert read_file(disk, "name") == b"two"
    assert [entry.name for entry in disk.list()] == ["name"]
    disk.rename("name", "other")
    assert read_file(disk, "name") is None
    assert remove_if_there(disk, "other")
    assert not remove_if_there(disk, "other")


def test_a_removed_file_stays_readable_to_who_holds_it(disk: Disk) -> None:
    replace_file(disk, "name", b"content")
    file = disk.open("name")
    disk.remove("name")
    assert file.read_at(0, 7) == b"content"


def test_what_is_missing_is_said(disk: Disk) -> None:
    for call in (
        lambda: disk.open("none"),
        lambda: disk.remove("none"),
        lambda: disk.list("none"),
        lambda: disk.rename("none", "other"),
        lambda: disk.open("none/f", create=True),
    ):
        with pytest.raises(FileNotFoundError):
            call()


def test_an_absurdly_large_small_file_is_refused(disk: Disk) -> None:
    replace_file(disk, "name", b"x" * 100)
    with pytest.raises(StorageError, match="100 bytes, more than 10"):
        read_file(disk, "name", limit_bytes=10)


def test_a_directory_that_is_not_ours_is_never_followed_out_of(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    disk = OsDisk(str(tmp_path), read_only=True)
    assert {entry.name: entry.kind for entry in disk.list()} == {"link": "other", "pipe": "other"}
    with pytest.raises(OSError):
        disk.open("link")
    disk.open("pipe")  # does not block
    with pytest.raises(AssertionError):
        disk.make_directory("d")
    with pytest.raises(AssertionError):
        disk.open("../outside")


def test_descriptors_are_closed_with_their_last_holder(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    file = disk.open("f", create=True)
    again = file
    del file
    again.write_at(0, b"x")
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del again
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_forgetful_disk_forgets_what_was_not_synced() -> None:
    disk = SimDisk()
    file = disk.open("f", create=True)
    file.write_at(0, b"synced")
    file.sync()
    assert disk.crash().contents() == {}, "the name was not synced"
    disk.sync_directory()
    file.write_at(6, b" and not")
    assert disk.contents() == {"f": b"synced and not"}
    assert disk.crash().contents() == {"f": b"synced"}


def test_a_failed_sync_throws_the_writes_away() -> None:
    disk = FailingDisk(DiskFault("sync", 1))
    file = disk.open("f", create=True)
    disk.sync_directory()
    file.write_at(0, b"lost")
    with pytest.raises(OSError):
        file.sync()
    file.write_at(4, b"kept")
    file.sync()
    assert disk.contents() == {"f": b"lostkept"}
    assert disk.crash().contents() == {"f": b"\0\0\0\0kept"}


def test_crash_images_are_what_a_power_cut_may_leave() -> None:
    disk = SimDisk()
    file = disk.open("f", create=True)
    disk.sync_directory()
    file.write_at(0, b"ab")
    file.write_at(2, b"cd")
    images = {image["f"] for image in crash_images(disk, everything=True)}
    assert images == {b"", b"a", b"\0\0", b"ab", b"abc", b"ab\0\0", b"abcd", b"\0\0cd"}


def test_a_full_disk_takes_what_fits_and_then_refuses() -> None:
    disk = SimDisk(capacity_bytes=10)
    file = disk.open("f", create=True)
    assert file.write_at(0, b"x" * 8) == 8
    assert file.write_at(8, b"x" * 8) == 2
    with pytest.raises(OSError, match="No space"):
        file.write_at(10, b"x")
    with pytest.raises(OSError, match="No space"):
        write_fully(file, 5, b"x" * 20)
    file.truncate(0)
    assert disk.free_bytes() == 10
