"""The last bytes of a disk are not for appends."""

from __future__ import annotations

from typing import Final

from shoal.log.disk import Disk


class Reserve:
    """Refuses appends before the disk is full, so that reads, retention and recovery go on.

    Asking the file system at every append would cost more than the append: between questions
    it lends out a part of what was free.
    """

    __slots__ = ("_disk", "_lent", "reserve_bytes")

    _LOAN_MAX: Final = 16 << 20

    def __init__(self, disk: Disk, reserve_bytes: int) -> None:
        self._disk = disk
        self._lent = 0
        self.reserve_bytes = reserve_bytes

    def admits(self, size: int) -> bool:
        if size <= self._lent:
            self._lent -= size
            return True
        left = self._disk.free_bytes() - self.reserve_bytes
        if left < size:
            self._lent = 0
            return False
        self._lent = min(max(left // 8 - size, 0), self._LOAN_MAX)
        return True
