"""What of a partition is not durable yet, and one sync of it, between its thread and a worker.

Things leave the list when a sync that began after they came has succeeded, not when it begins: two
syncs may be under way, and the one that ends first must not vouch for what the other took on.

A sync that failed fails forever. The kernel tells an error once and then forgets the pages, so a
later sync of the same file would succeed without having written them.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.log.disk import Disk, File
from shoal.log.segment import Segment

if TYPE_CHECKING:
    from shoal.log.partition import PartitionLog


class _Names:
    """A change of names in a directory; two of the same directory are two changes."""

    __slots__ = ("directory",)

    def __init__(self, directory: str) -> None:
        self.directory = directory


class Unsynced:
    """The segments, small files and names of a partition that a power cut could take."""

    __slots__ = ("_disk", "_files", "_names", "_paths", "_segments", "failed", "lock")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._segments: list[Segment] = []
        self._files: list[File] = []
        self._paths: list[str] = []
        self._names: list[_Names] = []
        self.lock = threading.Lock()
        self.failed = False

    def __bool__(self) -> bool:
        return bool(self._segments or self._files or self._paths or self._names)

    def __contains__(self, segment: Segment) -> bool:
        return segment in self._segments

    def note(self, segment: Segment) -> None:
        """Something was appended."""
        segments = self._segments
        if not segments or segments[-1] is not segment:
            segments.append(segment)

    def add(
        self,
        *,
        files: Iterable[File] = (),
        paths: Iterable[str] = (),
        directories: Iterable[str] = (),
    ) -> None:
        """Small files, open or (to hold no descriptor) by their paths, and changed names."""
        self._files.extend(files)
        self._paths.extend(paths)
        self._names.extend(map(_Names, directories))

    def forget(self, segments: Iterable[Segment]) -> None:
        """They were deleted."""
        gone = set(segments)
        self._segments = [one for one in self._segments if one not in gone]

    def begin(self, log: PartitionLog, *, sealed_only: bool = False) -> SyncWork | None:
        """A sync of everything, or of all but the active segment; None if there is nothing."""
        active = log.active
        segments = [one for one in self._segments if not sealed_only or one is not active]
        if not segments and (sealed_only or not self):
            return None
        return SyncWork(
            log,
            self,
            self._disk,
            {segment: segment.size for segment in segments},
            list(self._files),
            list(self._names),
            list(self._paths),
            active.base_offset if sealed_only else log.end_offset,
            0 if sealed_only else active.size,
        )

    def done(self, work: SyncWork) -> None:
        """A sync succeeded; what was appended since it began stays."""
        self._segments = [one for one in self._segments if work.sizes.get(one) != one.size]
        self._files = [one for one in self._files if one not in work.files]
        self._names = [one for one in self._names if one not in work.names]
        self._paths = [one for one in self._paths if one not in work.paths]


class SyncWork:
    """What has to reach the disk, fixed at one moment. ``run`` in any thread."""

    __slots__ = (
        "_disk",
        "_unsynced",
        "end_offset",
        "files",
        "log",
        "names",
        "paths",
        "position",
        "segment",
        "sizes",
    )

    def __init__(
        self,
        log: PartitionLog,
        unsynced: Unsynced,
        disk: Disk,
        sizes: dict[Segment, int],
        files: list[File],
        names: list[_Names],
        paths: list[str],
        end_offset: int,
        position: int,
    ) -> None:
        self.log = log
        self._unsynced = unsynced
        self._disk = disk
        self.sizes = sizes
        self.files = [*(segment.file for segment in sizes), *files]
        self.names = names
        self.paths = paths
        self.end_offset = end_offset
        self.segment = log.active
        self.position = position

    def run(self, synced: set[str] | None = None) -> OSError | None:
        """Sync, and say what went wrong: after an error nothing here may be believed durable.

        Directories in ``synced`` are left out, and those that are synced now are added to it.
        """
        synced = set() if synced is None else synced
        with self._unsynced.lock:
            if self._unsynced.failed:
                return OSError(errno.EIO, "an earlier sync failed")
            try:
                for file in self.files:
                    file.sync_data()
                for path in self.paths:
                    self._disk.open(path).sync_data()
                for directory in {names.directory: None for names in self.names}:
                    if directory not in synced:
                        self._disk.sync_directory(directory)
                        synced.add(directory)
            except OSError as error:
                self._unsynced.failed = True
                return error
        return None
