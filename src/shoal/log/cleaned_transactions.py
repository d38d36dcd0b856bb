"""Which batches of transactions a pass of compaction may drop. Pure.

A pass meets decided transactions only: it ends below the last stable offset. Data of an aborted one
goes at once, whatever its keys. A marker stays as long as there is a batch of its transaction,
and for a while after: somebody who began to read inside needs it.

Rule: the batches of a pass are shown here in the order of the log, every one of them once.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.log.transaction_index import AbortedTransaction
from shoal.records.batch import BatchHeader
from shoal.records.checksum import Buffer
from shoal.records.markers import read_marker


class CleanedTransactions:
    """The transactions of one pass.

    Args:
        aborted: those with data in the part that is read, in any order.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        ordered = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._later = ordered  # the next one last
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        #: The entries of markers that stay with batches before them, for the new index.
        self.kept: list[AbortedTransaction] = []

    def drops(self, header: BatchHeader) -> bool:
        """Whether a batch of data belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin(header.last_offset)
        self._seen.add(header.producer_id)
        return header.producer_id in self._aborted

    def drops_marker(self, data: Buffer, header: BatchHeader) -> bool:
        """Whether a control batch has nothing before it that needs it."""
        self._begin(header.last_offset)
        marker = read_marker(data) if header.producer_id >= 0 else None
        if marker is None:
            return header.record_count == 0  # emptied before, or not a marker
        was_seen = header.producer_id in self._seen
        self._seen.discard(header.producer_id)
        entry = None if marker.commit else self._aborted.pop(header.producer_id, None)
        if was_seen and entry is not None:
            self.kept.append(entry)
        return not was_seen

    def _begin(self, offset: int) -> None:
        """Transactions which begin up to here are under way."""
        while self._later and self._later[-1].first_offset <= offset:
            entry = self._later.pop()
            self._aborted.setdefault(entry.producer_id, entry)
