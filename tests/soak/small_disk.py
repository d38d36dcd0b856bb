"""A file system of its own, small enough to fill: an ext4 image on a loop device (needs root)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MISSING = "a full disk needs root and mkfs.ext4"


def can_mount() -> bool:
    return os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None


class SmallDisk:
    """``directory`` is where the broker's data goes; ``fill`` leaves not one byte of it."""

    def __init__(self, mounted: Path) -> None:
        self.directory = mounted / "data"
        self.directory.mkdir()
        self._ballast = mounted / "ballast"

    def fill(self) -> None:
        size = 1 << 20
        with self._ballast.open("ab", buffering=0) as file:
            while size:
                try:
                    file.write(b"\0" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def free(self) -> None:
        self._ballast.unlink()


@contextmanager
def small_disk(where: Path, size_bytes: int) -> Iterator[SmallDisk]:
    image, mounted = where / "disk.img", where / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(size_bytes)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=True)
    try:
        yield SmallDisk(mounted)
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)
