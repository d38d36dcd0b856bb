"""What of a log stands on disk beside its batches, so that the next start need not derive it.

Rule: nothing here is needed to read the log. What is missing or stale costs a start time, and what
is not worth its files is not written at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shoal.log.partition import PartitionLog

# A log up to this size has no index entry, and a start reads it at once.
_SHORT_BYTES: Final = 4096


class Saved:
    """How far what was saved of one partition describes it."""

    __slots__ = ("_offsets", "epochs_changed", "is_whole")

    def __init__(self, start_offset: int, end_offset: int) -> None:
        self._offsets = start_offset, end_offset
        self.epochs_changed = False
        #: Whether a start finds all indexes finished and sealed, if nothing is appended.
        self.is_whole = False

    def is_stale(self, log: PartitionLog) -> bool:
        """Whether something changed that is worth saving."""
        if self.epochs_changed:
            return True
        moved = self._offsets != (log.start_offset, log.end_offset)
        return (moved or log.producers.changed) and not _is_read_quickly(log)

    def lacks_anything(self, log: PartitionLog) -> bool:
        """Whether the next start would have to derive what is worth saving."""
        return self.is_stale(log) or not (self.is_whole or _is_read_quickly(log))

    def renew(self, log: PartitionLog, *, finished: bool) -> Callable[[], None]:
        """The work that writes it; its content is fixed now."""
        self._offsets = log.start_offset, log.end_offset
        self.is_whole = finished
        writes: list[Callable[[], object]] = [
            segment.save_indexes(finished=finished or segment is not log.active)
            for segment in log.segments
            if segment is log.active or segment.seal is None
        ]
        writes += log.files.writers(log.segments, log.producers, log.end_offset)
        if self.epochs_changed:
            writes.append(log.files.epochs_writer(log.epochs))
            self.epochs_changed = False

        def run() -> None:
            for write in writes:
                write()

        return run


def _is_read_quickly(log: PartitionLog) -> bool:
    """Whether nothing was ever saved of the log and reading it is as quick."""
    active = log.active
    is_short = active is log.segments[0] and active.size <= _SHORT_BYTES
    return is_short and active.seal is None and not log.producers.entries
