"""Which leader epoch wrote which offsets.

One node has no elections, but an epoch still says "the log may have been cut here": it grows at
every unclean start, so a client whose position lies beyond the cut finds out (KIP-320).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

# What a client says that does not know one.
UNKNOWN_EPOCH: Final = -1


class LeaderEpochs:
    """Entries ``(epoch, start_offset)``, both growing."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries = list(entries)

    @property
    def latest(self) -> int | None:
        return self.entries[-1][0] if self.entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` writes from ``start_offset`` on; False if that was known."""
        if self.entries:
            assert epoch >= self.entries[-1][0], "leader epochs never go back"
            if epoch == self.entries[-1][0]:
                return False
        # An epoch that wrote nothing is forgotten, as Kafka does.
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        return True

    def epoch_at(self, offset: int) -> int | None:
        """The epoch that wrote ``offset``; None before the first entry."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[at - 1][0] if at else None

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int] | None:
        """Kafka's OffsetForLeaderEpoch: the largest epoch up to ``epoch`` and where it ends."""
        if epoch == UNKNOWN_EPOCH:
            return None
        if epoch == self.latest:
            return epoch, log_end
        at = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if at == len(self.entries):
            return None
        known = self.entries[at - 1][0] if at else epoch
        return known, self.entries[at][1]

    def cut_end(self, end_offset: int) -> bool:
        """Forget epochs that began past ``end_offset``."""
        before = len(self.entries)
        while self.entries and self.entries[-1][1] > end_offset:
            self.entries.pop()
        return len(self.entries) != before

    def cut_start(self, start_offset: int) -> bool:
        """Forget what lies before ``start_offset``; the first kept entry starts there."""
        at = bisect_right(self.entries, start_offset, key=lambda entry: entry[1])
        if at == 0 or self.entries[at - 1][1] == start_offset == self.entries[0][1]:
            return False
        self.entries[: at - 1] = []
        self.entries[0] = (self.entries[0][0], start_offset)
        return True
