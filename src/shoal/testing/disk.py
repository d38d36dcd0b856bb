"""Disks in memory that misbehave like real ones: they forget, they fail, they fill up.

``SimDisk`` keeps two views of every file and directory: what programs see, and what would survive
a power cut. A write reaches the second view at the file's sync, a name at the directory's sync. A
sync that fails throws the pending writes away and a later sync succeeds without them, which is
what Linux file systems do.

``FailingDisk`` fails the n-th call of a kind. ``crash_images`` lists what a power cut at this
moment could leave: every prefix, torn, dropped and reordered unsynced write, every pending change
of names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from shoal.errors import DataDirectoryInUseError
from shoal.log.disk import Buffer, DirectoryEntry

SECTOR: Final = 512


@dataclass(frozen=True, slots=True)
class Write:
    """One unsynced change of a file: bytes at a position, or a new size if ``data`` is None."""

    position: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.position :]
            content.extend(bytes(self.position - len(content)))
            return
        if self.position > len(content):
            content.extend(bytes(self.position - len(content)))  # a hole reads as zeros
        content[self.position : self.position + len(self.data)] = self.data


class _Inode:
    __slots__ = ("content", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.pending: list[Write] = []
        self.modified_ms = 0

    def change(self, write: Write) -> None:
        write.apply(self.content)
        self.pending.append(write)

    def sync(self) -> None:
        for write in self.pending:
            write.apply(self.durable)
        self.pending.clear()


class _Directory:
    """Names now and names that survive; ``pending`` are the changes between them, in order."""

    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.pending: list[dict[str, _Node | None]] = []

    def change(self, changes: dict[str, _Node | None]) -> None:
        _rename(self.names, changes)
        self.pending.append(changes)

    def sync(self) -> None:
        for changes in self.pending:
            _rename(self.durable, changes)
        self.pending.clear()


_Node = _Inode | _Directory


def _rename(names: dict[str, _Node], changes: dict[str, _Node | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class SimFile:
    """An open file of a simulated disk."""

    fd = -1

    def __init__(self, disk: SimDisk, path: str, inode: _Inode, *, write: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._may_write = write

    def size(self) -> int:
        return len(self._inode.content)

    def read_at(self, position: int, size: int) -> bytes:
        self._disk.called("read", self._path)
        return bytes(self._inode.content[position : position + size])

    def write_at(self, position: int, data: Buffer) -> int:
        assert self._may_write, "opened for reading"
        limit = self._disk.called("write", self._path, len(data))
        size = len(self._inode.content)
        room = self._disk.free_bytes() + max(0, size - position)
        taken = bytes(data)[: min(len(data), limit, max(0, room))]
        if not taken and len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._inode.change(Write(position, taken))
        self._disk.used_bytes += len(self._inode.content) - size
        self._inode.modified_ms = self._disk.now_ms
        self._disk.changed(self._inode)
        return len(taken)

    def write_parts_at(self, position: int, parts: Sequence[Buffer]) -> int:
        return self.write_at(position, b"".join(parts))

    def truncate(self, size: int) -> None:
        assert self._may_write, "opened for reading"
        self._disk.called("truncate", self._path)
        before = len(self._inode.content)
        self._inode.change(Write(size, None))
        self._disk.used_bytes += size - before
        self._disk.changed(self._inode)

    def sync(self) -> None:
        try:
            self._disk.called("sync", self._path)
        except OSError:
            self._inode.pending.clear()  # marked clean, never written
            raise
        self._inode.sync()
        self._disk.changed()

    sync_data = sync

    def map(self) -> memoryview:
        return memoryview(bytes(self._inode.content))

    def close(self) -> None:
        pass


class _SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimDisk:
    """A disk in memory that forgets what was not synced.

    Args:
        capacity_bytes: writes past it are cut short, then refused with ENOSPC.
    """

    def __init__(self, *, capacity_bytes: int = 1 << 50) -> None:
        self.root = "simulated"
        self.capacity_bytes = capacity_bytes
        self.now_ms = 0
        self.locks: set[str] = set()
        self.newest: _Node | None = None
        self.used_bytes = 0
        self._top = _Directory()

    # What subclasses may watch

    def called(self, call: str, path: str, size: int = 0) -> int:  # noqa: ARG002 - the interface names it
        """Before every call; may raise, and says how many bytes a write may take."""
        return size

    def changed(self, node: _Node | None = None) -> None:
        """After every change; ``node`` is what changed, None if something became durable."""
        self.newest = node

    # Disk

    def open(self, path: str, *, create: bool = False, write: bool = True) -> SimFile:
        self.called("open", path)
        parent, name = self._parent(path)
        node = parent.names.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = _Inode()
            node.modified_ms = self.now_ms
            parent.change({name: node})
            self.changed(parent)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return SimFile(self, path, node, write=write)

    def list(self, path: str = "") -> list[DirectoryEntry]:
        self.called("list", path)
        directory = self._find(path)
        if not isinstance(directory, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return [_entry(name, node) for name, node in sorted(directory.names.items())]

    def stat(self, path: str) -> DirectoryEntry | None:
        node = self._find(path)
        return None if node is None else _entry(path.rpartition("/")[2], node)

    def make_directory(self, path: str) -> None:
        self.called("make_directory", path)
        parent, name = self._parent(path)
        if name not in parent.names:
            parent.change({name: _Directory()})
            self.changed(parent)

    def rename(self, source: str, target: str) -> None:
        self.called("rename", source)
        parent, name = self._parent(source)
        target_parent, target_name = self._parent(target)
        assert parent is target_parent, "names change within one directory only"
        if name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._free(parent.names.get(target_name))
        parent.change({target_name: parent.names[name], name: None})
        self.changed(parent)

    def remove(self, path: str) -> None:
        self.called("remove", path)
        parent, name = self._parent(path)
        if not isinstance(parent.names.get(name), _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._free(parent.names[name])
        parent.change({name: None})
        self.changed(parent)

    def remove_directory(self, path: str) -> None:
        self.called("remove_directory", path)
        parent, name = self._parent(path)
        node = parent.names.get(name)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if node.names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        parent.change({name: None})
        self.changed(parent)

    def sync_directory(self, path: str = "") -> None:
        self.called("sync_directory", path)
        directory = self._find(path)
        if not isinstance(directory, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        directory.sync()
        self.changed()

    def free_bytes(self) -> int:
        return self.capacity_bytes - self.used_bytes

    def total_bytes(self) -> int:
        return self.capacity_bytes

    def lock(self, path: str) -> _SimLock:
        if path in self.locks:
            raise DataDirectoryInUseError(f"another process uses {self.root}")
        self.locks.add(path)
        return _SimLock(self, path)

    def _free(self, node: _Node | None) -> None:
        if isinstance(node, _Inode):
            self.used_bytes -= len(node.content)

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._top
        for part in path.split("/") if path else ():
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(part)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        directory, _, name = path.rpartition("/")
        found = self._find(directory)
        if not isinstance(found, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return found, name

    # Power cuts

    def crash(self) -> SimDisk:
        """The disk after a power cut in which everything unsynced was lost."""
        disk = SimDisk.of(_survivors(self._top, {}, {}))
        disk.capacity_bytes, disk.now_ms = self.capacity_bytes, self.now_ms
        return disk

    def contents(self) -> dict[str, bytes]:
        """Every file as programs see it."""
        return dict(_walk(self._top, ""))

    @classmethod
    def of(cls, contents: dict[str, bytes]) -> SimDisk:
        """A disk with these files, all of it durable. A path ending in ``/`` is a directory."""
        disk = cls()
        for path, content in contents.items():
            disk._plant(path, content)
        return disk

    def _plant(self, path: str, content: bytes) -> None:
        directory = self._top
        *parents, name = path.split("/")
        for part in parents:
            node = directory.names.setdefault(part, _Directory())
            assert isinstance(node, _Directory)
            directory.durable[part] = node
            directory = node
        if name:
            inode = _Inode()
            inode.content, inode.durable = bytearray(content), bytearray(content)
            directory.names[name] = directory.durable[name] = inode
            self.used_bytes += len(content)


def _entry(name: str, node: _Node) -> DirectoryEntry:
    if isinstance(node, _Directory):
        return DirectoryEntry(name, "directory", 0, 0)
    return DirectoryEntry(name, "file", len(node.content), node.modified_ms)


def _walk(directory: _Directory, prefix: str) -> Iterator[tuple[str, bytes]]:
    for name, node in directory.names.items():
        if isinstance(node, _Inode):
            yield prefix + name, bytes(node.content)
        else:
            yield f"{prefix}{name}/", b""
            yield from _walk(node, f"{prefix}{name}/")


# Failing the n-th call ----------------------------------------------------------------------


@dataclass(slots=True)
class DiskFault:
    """Fail calls of a kind from the ``nth`` on (once, or ``forever``).

    ``short_bytes`` makes a write take only that many bytes, without an exception.
    """

    call: str
    nth: int
    error: int = errno.EIO
    forever: bool = False
    short_bytes: int | None = None


class FailingDisk(SimDisk):
    """A disk on which one call fails. ``hits`` says how often it did."""

    def __init__(self, fault: DiskFault | None = None, *, capacity_bytes: int = 1 << 50) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.fault = fault
        self.hits = 0
        self._counts: dict[str, int] = {}

    def count(self, call: str) -> int:
        """How often a call was made so far."""
        return self._counts.get(call, 0)

    def called(self, call: str, path: str, size: int = 0) -> int:
        count = self._counts[call] = self._counts.get(call, 0) + 1
        fault = self.fault
        if fault is None or fault.call != call:
            return size
        if count == fault.nth or (fault.forever and count > fault.nth):
            self.hits += 1
            if fault.short_bytes is not None and size:
                return min(size, fault.short_bytes)
            raise OSError(fault.error, os.strerror(fault.error), path)
        return size


# What a power cut may leave -----------------------------------------------------------------


class RecordingDisk(SimDisk):
    """Calls ``on_change`` after every change, when ``crash_images`` has something new to say."""

    on_change: Callable[[], None] | None = None

    def changed(self, node: _Node | None = None) -> None:
        super().changed(node)
        if self.on_change is not None:
            self.on_change()


def crash_images(
    disk: SimDisk, *, step: int = 1, everything: bool = False
) -> Iterator[dict[str, bytes]]:
    """What a power cut at this moment could leave, as files for ``SimDisk.of``.

    The latest change is looked at in every way, once with all other unsynced changes kept and once
    with all of them lost: a write is torn at every ``step``-th byte, or one before it is lost, or
    the space is there but not the data; changes of names survive up to the n-th, or all but one.
    A caller who asks after every change has then seen each change so. ``everything`` looks at all
    that is unsynced.
    """
    files = [inode for inode in _all_inodes(disk._top) if inode.pending]
    directories = [one for one in _all_directories(disk._top) if one.pending]
    for keep in (True, False):
        names: dict[int, Sequence[int]] = {
            id(one): range(len(one.pending) if keep else 0) for one in directories
        }
        others = {id(inode): list(inode.pending) if keep else [] for inode in files}
        yield _survivors(disk._top, others, names)
        for directory in directories:
            if everything or directory is disk.newest:
                count = len(directory.pending)
                for kept in range(count + 1):
                    some = {**names, id(directory): range(kept)}
                    yield _survivors(disk._top, others, some)
                for lost in range(count):
                    some = {**names, id(directory): [*range(lost), *range(lost + 1, count)]}
                    yield _survivors(disk._top, others, some)
        for inode in files:
            if everything or inode is disk.newest:
                first = 0 if everything else len(inode.pending) - 1
                for left in _survivals(inode.pending, first, step):
                    yield _survivors(disk._top, {**others, id(inode): left}, names)


def _survivals(writes: list[Write], first: int, step: int) -> Iterator[list[Write]]:
    for count in range(first, len(writes)):
        write, before = writes[count], writes[:count]
        yield before
        if write.data is not None:
            for cut in range(1, len(write.data), step):
                yield [*before, Write(write.position, write.data[:cut])]
            # The file grew, the data did not arrive: all of it, or one sector. What was there
            # before stays: a sector is old or new, never blank.
            end = Write(write.position + len(write.data), b"")
            yield [*before, end]
            for start in range(0, len(write.data), SECTOR):
                rest = min(start + SECTOR, len(write.data))
                head = Write(write.position, write.data[:start])
                yield [*before, head, end, Write(write.position + rest, write.data[rest:])]
    for lost in range(len(writes) - 1):
        yield writes[:lost] + writes[lost + 1 :]


def _all_directories(top: _Directory) -> Iterator[_Directory]:
    yield top
    for node in {**top.durable, **top.names}.values():
        if isinstance(node, _Directory):
            yield from _all_directories(node)


def _all_inodes(top: _Directory) -> Iterator[_Inode]:
    seen: set[int] = set()
    for directory in _all_directories(top):
        for node in (*directory.durable.values(), *directory.names.values()):
            if isinstance(node, _Inode) and id(node) not in seen:
                seen.add(id(node))
                yield node


def _survivors(
    directory: _Directory,
    writes: dict[int, list[Write]],
    names: dict[int, Sequence[int]],
    prefix: str = "",
) -> dict[str, bytes]:
    found = dict(directory.durable)
    for change in names.get(id(directory), ()):
        _rename(found, directory.pending[change])
    result: dict[str, bytes] = {}
    for name, node in found.items():
        if isinstance(node, _Directory):
            result[f"{prefix}{name}/"] = b""
            result |= _survivors(node, writes, names, f"{prefix}{name}/")
        else:
            content = bytearray(node.durable)
            for write in writes.get(id(node), ()):
                write.apply(content)
            result[prefix + name] = bytes(content)
    return result
