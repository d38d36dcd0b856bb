"""The only module of the log which opens, syncs, renames, maps or deletes files.

Rule: everything above talks to a ``Disk``, so the same code runs on a real directory, on one that
forgets what was not synced, on one that fails the n-th call (``shoal.testing.disk``). Paths are
relative to the disk's root, written with ``/``.

A write may be short without an exception (a full tmpfs, a file size limit): ``write_at`` returns
how much it took and ``write_fully`` completes it. A file closes when its last holder lets go, so a
reader may go on with a segment that was deleted meanwhile.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat as stat_module
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from shoal.errors import DataDirectoryInUseError, StorageError

Buffer = bytes | bytearray | memoryview


class DirectoryEntry(NamedTuple):
    """One name in a directory; ``kind`` is ``file``, ``directory`` or ``other`` (links, pipes)."""

    name: str
    kind: str
    size_bytes: int
    modified_ms: int


class File(Protocol):
    """An open file. Positions are explicit: nothing depends on a cursor."""

    @property
    def fd(self) -> int:
        """The descriptor for ``sendfile``; -1 if there is none (a simulated disk)."""
        ...

    def size(self) -> int: ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""
        ...

    def write_at(self, position: int, data: Buffer) -> int:
        """Write at ``position`` and return how many bytes were taken, maybe fewer than given."""
        ...

    def write_parts_at(self, position: int, parts: Sequence[Buffer]) -> int:
        """As ``write_at`` of all parts in a row, in one step."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make content and metadata durable (fsync)."""
        ...

    def sync_data(self) -> None:
        """Make content and length durable (fdatasync)."""
        ...

    def map(self) -> memoryview:
        """The whole content without copying. Only for files nobody truncates any more."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock; ``release`` lets the next one in."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A directory tree. A change of names is durable after ``sync_directory``."""

    @property
    def root(self) -> str:
        """For messages."""
        ...

    def open(self, path: str, *, create: bool = False, write: bool = True) -> File: ...

    def list(self, path: str = "") -> list[DirectoryEntry]: ...

    def stat(self, path: str) -> DirectoryEntry | None: ...

    def make_directory(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Replace ``target`` with ``source`` in one step."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None: ...

    def sync_directory(self, path: str = "") -> None: ...

    def free_bytes(self) -> int: ...

    def total_bytes(self) -> int: ...

    def lock(self, path: str) -> Lock: ...


class OsFile:
    """A file of the operating system."""

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self.fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]  # a signal or a network file system may cut a read short before the end
        left = size - len(data)
        while left:
            data = os.pread(self.fd, left, position + size - left)
            if not data:
                break
            parts.append(data)
            left -= len(data)
        return b"".join(parts)

    def write_at(self, position: int, data: Buffer) -> int:
        return os.pwrite(self.fd, data, position)

    def write_parts_at(self, position: int, parts: Sequence[Buffer]) -> int:
        return os.pwritev(self.fd, parts, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        os.fsync(self.fd)

    def sync_data(self) -> None:
        _sync_data(self.fd)

    def map(self) -> memoryview:
        if self.size() == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self.fd, 0, access=mmap.ACCESS_READ))

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


# macOS has no fdatasync, and its fsync does not reach the platter without F_FULLFSYNC.
def _full_sync(fd: int, /) -> None:  # pragma: no cover
    fcntl.fcntl(fd, getattr(fcntl, "F_FULLFSYNC", 51))


_sync_data: Callable[[int], None] = getattr(os, "fdatasync", _full_sync)


class _OsLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsDisk:
    """A directory of the operating system.

    ``read_only`` is for directories that are not ours: nothing is created, changed or followed
    out of the tree, and a pipe in it does not block us.
    """

    def __init__(self, root: str, *, read_only: bool = False) -> None:
        self.root = os.path.abspath(root)
        self.read_only = read_only
        if not read_only:
            try:
                os.makedirs(self.root, mode=0o700, exist_ok=True)
            except OSError as error:
                raise StorageError(
                    f"cannot use {self.root} as a data directory: {error.strerror}"
                ) from error

    def _path(self, path: str) -> str:
        assert ".." not in path.split("/"), path
        assert not path.startswith("/"), path
        return f"{self.root}/{path}" if path else self.root

    def open(self, path: str, *, create: bool = False, write: bool = True) -> OsFile:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW
        if self.read_only or not write:
            flags |= os.O_RDONLY | os.O_NONBLOCK
        else:
            flags |= os.O_RDWR | (os.O_CREAT if create else 0)
        full = self._path(path)
        return OsFile(os.open(full, flags, 0o600), full)

    def list(self, path: str = "") -> list[DirectoryEntry]:
        with os.scandir(self._path(path)) as entries:
            found = [_entry(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        found.sort()
        return found

    def stat(self, path: str) -> DirectoryEntry | None:
        try:
            return _entry(path.rpartition("/")[2], os.lstat(self._path(path)))
        except FileNotFoundError:
            return None

    def make_directory(self, path: str) -> None:
        self._refuse_if_read_only()
        os.makedirs(self._path(path), mode=0o700, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        self._refuse_if_read_only()
        os.rename(self._path(source), self._path(target))

    def remove(self, path: str) -> None:
        self._refuse_if_read_only()
        os.unlink(self._path(path))

    def remove_directory(self, path: str) -> None:
        self._refuse_if_read_only()
        os.rmdir(self._path(path))

    def sync_directory(self, path: str = "") -> None:
        fd = os.open(self._path(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self) -> int:
        info = os.statvfs(self.root)
        return info.f_bavail * info.f_frsize

    def total_bytes(self) -> int:
        info = os.statvfs(self.root)
        return info.f_blocks * info.f_frsize

    def lock(self, path: str) -> _OsLock:
        fd = os.open(self._path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The kind of lock that a Java broker takes on the same file; the two do not meet.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(fd)
            raise DataDirectoryInUseError(
                f"another process uses {self.root}; stop it or choose another data directory"
            ) from None
        except OSError:
            os.close(fd)
            raise
        return _OsLock(fd)

    def _refuse_if_read_only(self) -> None:
        assert not self.read_only, "a read-only disk is never changed"


def _entry(name: str, info: os.stat_result) -> DirectoryEntry:
    if stat_module.S_ISREG(info.st_mode):
        kind = "file"
    elif stat_module.S_ISDIR(info.st_mode):
        kind = "directory"
    else:
        kind = "other"
    return DirectoryEntry(name, kind, info.st_size, info.st_mtime_ns // 1_000_000)


def write_fully(file: File, position: int, data: Buffer) -> None:
    """Write all of ``data``; a short write is continued where it stopped.

    Raises:
        OSError: with some prefix of ``data`` written, maybe none.
    """
    taken = file.write_at(position, data)
    if taken != len(data):
        _write_rest(file, position, data, taken)


def write_parts_fully(file: File, position: int, parts: Sequence[Buffer]) -> None:
    """As ``write_fully`` of all parts in a row.

    One large write costs a file system half of what small ones cost.
    """
    size = sum(map(len, parts))
    taken = file.write_parts_at(position, parts)
    if taken != size:
        _write_rest(file, position, b"".join(parts), taken)


def _write_rest(file: File, position: int, data: Buffer, taken: int) -> None:
    view = memoryview(data)
    while taken < len(view):
        more = file.write_at(position + taken, view[taken:])
        if more == 0:
            raise OSError(28, "the disk took nothing of a write")
        taken += more


def read_file(disk: Disk, path: str, *, limit_bytes: int = 64 << 20) -> bytes | None:
    """The whole content, or None if there is no such file."""
    try:
        file = disk.open(path, write=False)
    except FileNotFoundError:
        return None
    size = file.size()
    if size > limit_bytes:
        raise StorageError(f"{disk.root}/{path} has {size} bytes, more than {limit_bytes}")
    return file.read_at(0, size)


def replace_file(disk: Disk, path: str, data: bytes, *, sync: bool = True) -> None:
    """Write a file so that after a crash it is the old one or the new one, never a mixture.

    Without ``sync`` a crash may leave an empty or half file: only for what can be derived again.
    """
    temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    file.truncate(0)
    write_fully(file, 0, data)
    if sync:
        file.sync()
    file.close()
    disk.rename(temporary, path)
    if sync:
        disk.sync_directory(path.rpartition("/")[0])


def overwrite_file(disk: Disk, path: str, data: bytes) -> File:
    """Write a file in place: quicker, but after a crash it may be a mixture of old and new."""
    file = disk.open(path, create=True)
    write_fully(file, 0, data)
    if file.size() != len(data):
        file.truncate(len(data))
    return file


def remove_if_there(disk: Disk, path: str) -> bool:
    """Whether there was something to remove."""
    try:
        disk.remove(path)
    except FileNotFoundError:
        return False
    return True


def remove_files(disk: Disk, paths: Iterable[str]) -> None:
    for path in paths:
        remove_if_there(disk, path)


def remove_trees(disk: Disk, directories: Iterable[str]) -> None:
    """Directories of partitions, which are flat."""
    for directory in directories:
        entries = disk.list(directory)
        paths = [f"{directory}/{each.name}" for each in entries if each.kind != "directory"]
        remove_files(disk, paths)
        disk.remove_directory(directory)
