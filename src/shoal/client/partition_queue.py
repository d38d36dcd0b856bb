"""What the sender holds of one partition: batches in order, and the sequence they are counted by.

A broker stores a batch of an idempotent producer if its sequence follows the last one, answers one
it has stored with its place, and refuses everything else. So as long as a batch keeps its number it
can be sent again and again and is stored once, also if a copy of it that was believed lost arrives
late. Under another number that copy would be a second record.

Rule: a batch that may be in the log is never renumbered. If the sequence is broken (the broker
misses a batch that was given up, or has lost its memory), it is failed; what was never stored for
sure goes on under the next producer epoch, which shuts out whatever is still under way under the
old one.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from shoal.client.deadlines import RetryBackoff
from shoal.client.producer_batch import NO_SEQUENCE, ProducerBatch

_SEQUENCES: Final = 2**31
_EPOCH_MAX: Final = 2**15 - 1


class PartitionQueue:
    """Every batch is in exactly one of ``waiting``, ``in_flight`` and ``failed``."""

    __slots__ = (
        "backoff",
        "failed",
        "in_flight",
        "is_known",
        "is_recovering",
        "next_sequence",
        "producer",
        "resume_at",
        "sequence_is_broken",
        "spent_id",
        "topic_id",
        "waiting",
    )

    def __init__(self, backoff: RetryBackoff) -> None:
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.failed: list[ProducerBatch] = []
        self.producer: tuple[int, int] | None = None
        """Producer id and epoch."""
        self.spent_id: int | None = None
        """A producer id of which this partition has used every epoch."""
        self.next_sequence = 0
        self.sequence_is_broken = False
        # Whether the broker has acknowledged a batch of this producer: it takes any sequence
        # from a producer it does not know, so the first batch must not be overtaken.
        self.is_known = False
        self.topic_id: bytes | None = None
        self.is_recovering = False
        self.resume_at = 0.0
        self.backoff = backoff

    def number(self, batch: ProducerBatch) -> None:
        """Give ``batch`` its sequence, once; a retry keeps it."""
        if self.producer is not None and batch.base_sequence == NO_SEQUENCE:
            batch.base_sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + batch.record_count) % _SEQUENCES

    def renew(self, producer: tuple[int, int]) -> None:
        """A transaction is over, and the next one has another epoch: counts begin at zero."""
        assert not any((self.in_flight, self.waiting, self.failed))
        self.producer = producer
        self.next_sequence = 0
        self.is_known = self.is_recovering = False
        self.resume_at = 0.0

    def goes_to(self, topic_id: bytes | None) -> None:
        """A topic that was recreated does not know any producer."""
        if topic_id != self.topic_id:
            self.topic_id = topic_id
            self.is_known = False

    def is_oldest(self, batch: ProducerBatch) -> bool:
        """Whether nothing that was sent before it is unsettled."""
        return self.in_flight[0] is batch and not self.failed

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Two halves instead of a batch that is too large; they share its sequence."""
        self.in_flight.remove(batch)
        parts = batch.split()
        if batch.base_sequence != NO_SEQUENCE:
            sequence = batch.base_sequence
            for part in parts:
                part.base_sequence = sequence
                sequence = (sequence + part.record_count) % _SEQUENCES
        self.failed.extend(parts)
        self.is_recovering = True
        return parts

    def recover(self) -> list[ProducerBatch]:
        """Every answer is in: the failed batches go again, in their order.

        Returns the ones that cannot.
        """
        assert not self.in_flight
        # In the order they were made, which is also the order of their sequences.
        self.failed.sort(key=lambda batch: batch.number)
        self.waiting.extendleft(reversed(self.failed))
        self.failed.clear()
        lost = self._start_over() if self.sequence_is_broken else []
        if not self.waiting:
            self.is_recovering = False
        return lost

    def _start_over(self) -> list[ProducerBatch]:
        """The next epoch begins; what may be in the log under the old one stays behind."""
        lost = [batch for batch in self.waiting if batch.copies]
        self.waiting = deque(batch for batch in self.waiting if not batch.copies)
        if self.producer is not None:
            producer_id, epoch = self.producer
            if epoch < _EPOCH_MAX:
                self.producer = (producer_id, epoch + 1)
            else:
                self.producer, self.spent_id = None, producer_id
        self.next_sequence = 0
        self.sequence_is_broken = False
        self.is_known = False
        for batch in self.waiting:
            batch.base_sequence = NO_SEQUENCE
        return lost
