"""One sync of one partition, between the thread that owns the log and a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.log.disk import Disk, File
from shoal.log.segment import Segment

if TYPE_CHECKING:
    from shoal.log.partition import PartitionLog


class SyncWork:
    """What has to reach the disk, fixed at one moment. ``run`` in any thread."""

    __slots__ = ("_directories", "_disk", "_files", "end_offset", "log", "position", "segment")

    def __init__(
        self,
        log: PartitionLog,
        disk: Disk,
        files: list[File],
        directories: list[str],
        end_offset: int,
        segment: Segment,
        position: int,
    ) -> None:
        self.log = log
        self._disk = disk
        self._files = files
        self._directories = directories
        self.end_offset = end_offset
        self.segment = segment
        self.position = position

    def run(self) -> OSError | None:
        """Sync, and say what went wrong: after an error nothing here may be believed durable."""
        try:
            for file in self._files:
                file.sync_data()
            for directory in self._directories:
                self._disk.sync_directory(directory)
        except OSError as error:
            return error
        return None
