"""What of the records under way may be worked on now, and up to where all is done. Pure.

Records wait in *lanes*: those of one lane are worked on one after the other, in their order, and
different lanes at the same time. With order by key a lane is the records of a partition with one
key (records without a key have no order); by partition, all of a partition; with none, each is
alone. A record that is to be tried again keeps its lane closed until then.

What may be committed of a partition is the offset of the first record that is not done, whatever
was done behind it: so nothing is skipped by whoever goes on from there.

Rule: no threads, no clock, no consumer. ``processing.py`` runs handlers in threads,
``async_processing.py`` in tasks; both only ask here.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from shoal.types import OffsetAndMetadata, Record, TopicPartition

ORDERS: Final = ("key", "partition", "none")
_MOST_PENDING: Final = 1_000
_RETRY_DELAY_MAX_S: Final = 60.0


class ProcessOptions(NamedTuple):
    """How records are worked on; see ``Consumer.process``."""

    workers: int
    order: str
    retries: int
    retry_delay_s: float
    dead_letter_topic: str | None
    drain_timeout_s: float

    def check(self) -> None:
        """Raises ValueError for what cannot be."""
        if self.workers < 1:
            raise ValueError(f"process(): workers={self.workers} must be at least 1")
        if self.order not in ORDERS:
            raise ValueError(f"process(): order={self.order!r} is not one of {', '.join(ORDERS)}")
        if self.retries < 0:
            raise ValueError(f"process(): retries={self.retries} must not be negative")

    @property
    def most_pending(self) -> int:
        """So many records are taken ahead: enough to find work for everybody."""
        return max(_MOST_PENDING, 4 * self.workers)


class _Part:
    """One partition, from its assignment until it is given up."""

    __slots__ = ("begun", "committed", "done", "end", "epoch", "next_offset", "records", "running")

    def __init__(self, first_offset: int) -> None:
        self.records: deque[tuple[int, int | None]] = deque()
        """Offset and leader epoch of records that are not done, and of some behind them."""
        self.done: set[int] = set()
        """Offsets of those behind that are."""
        self.epoch: int | None = None
        self.next_offset = first_offset
        self.committed = first_offset
        self.running = 0
        self.begun = first_offset
        """Behind the last record that was begun."""
        self.end: int | None = None
        """No record from here on is begun; ``None``: there is no such end."""

    @property
    def position(self) -> int:
        return self.records[0][0] if self.records else self.next_offset

    @property
    def left(self) -> int:
        return len(self.records) - len(self.done)

    def finish(self, offset: int) -> None:
        self.done.add(offset)
        while self.records and self.records[0][0] in self.done:
            first, self.epoch = self.records.popleft()
            self.done.remove(first)


class RecordJob:
    """One record to be worked on."""

    __slots__ = ("attempts", "lane", "part", "record")

    def __init__(self, record: Record[Any, Any], part: _Part, lane: tuple[Any, ...] | None) -> None:
        self.record = record
        self.part = part
        self.lane = lane
        self.attempts = 0


class Progress:
    """All records under way of one consumer."""

    def __init__(self, options: ProcessOptions) -> None:
        self._options = options
        self._order = options.order
        self._parts: dict[TopicPartition, _Part] = {}
        self._lanes: dict[tuple[Any, ...], deque[RecordJob]] = {}
        """Who waits behind the one whose turn it is."""
        self._busy: set[tuple[Any, ...] | None] = set()
        """Lanes of which a record is being worked on, even if the partition is others' now."""
        self._ready: deque[RecordJob] = deque()
        self._later: list[tuple[float, int, RecordJob]] = []
        self._retries = 0
        self.failures: list[tuple[Record[Any, Any], Exception]] = []
        self.is_stopping = False

    @property
    def pending(self) -> int:
        """How many records are not done."""
        return sum(part.left for part in self._parts.values())

    def add(self, records: Iterable[Record[Any, Any]]) -> None:
        """Records as ``poll`` returned them: those of a partition by their offsets."""
        for record in records:
            tp = record.topic_partition
            part = self._parts.get(tp)
            if part is None or record.offset < part.next_offset:
                # New, or read again from further back: what was before does not count any more.
                self.forget([tp])
                part = self._parts[tp] = _Part(record.offset)
            part.records.append((record.offset, record.leader_epoch))
            part.next_offset = record.offset + 1
            self._enter(RecordJob(record, part, self._lane(record)))

    def take(self, now: float) -> RecordJob | None:
        """A record to be worked on now; ``None`` if there is none."""
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[2])
        while self._ready and not self.is_stopping:
            job = self._ready.popleft()
            if self._is_ours(job):
                job.part.running += 1
                job.part.begun = max(job.part.begun, job.record.offset + 1)
                job.attempts += 1
                self._busy.add(job.lane)
                return job
        return None

    def next_due(self) -> float | None:
        """When the next record is to be tried again."""
        return self._later[0][0] if self._later else None

    def done(self, job: RecordJob) -> None:
        """It was worked on; the next of its lane may be."""
        job.part.running -= 1
        job.part.finish(job.record.offset)
        self._leave(job)

    def failed(
        self, job: RecordJob, error: Exception, now: float, *, is_final: bool = False
    ) -> bool:
        """Its handler raised. Tried again later, or given up; whether it is to be put aside.

        One that is to be put aside is being worked on until ``done``, or ``fail``.
        """
        if job.attempts <= self._options.retries and not is_final:
            delay_s = self._options.retry_delay_s * 2.0 ** min(job.attempts - 1, 30)
            job.part.running -= 1
            if not self._is_ours(job):
                self._leave(job)
                return False
            self._busy.discard(job.lane)  # the lane stays closed all the same
            self._retries += 1
            due = now + min(delay_s, max(_RETRY_DELAY_MAX_S, self._options.retry_delay_s))
            heapq.heappush(self._later, (due, self._retries, job))
            return False
        if self._options.dead_letter_topic is not None:
            return True
        self.fail(job, error)
        return False

    def fail(self, job: RecordJob, error: Exception) -> None:
        """It failed for good: nothing more is begun, and it is not done."""
        job.part.running -= 1
        if self._is_ours(job):
            self.failures.append((job.record, error))
            self.is_stopping = True
        else:
            self._leave(job)

    def running(self, tps: Collection[TopicPartition] | None = None) -> int:
        """How many are being worked on, of these partitions or of all."""
        return sum(part.running for tp, part in self._parts.items() if tps is None or tp in tps)

    def positions(
        self, tps: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What may be committed, of these partitions or all, where that is more than was."""
        return {
            tp: OffsetAndMetadata(part.position, leader_epoch=part.epoch)
            for tp, part in self._parts.items()
            if part.position > part.committed and (tps is None or tp in tps)
        }

    def committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """These were."""
        for tp, one in offsets.items():
            part = self._parts.get(tp)
            if part is not None:
                part.committed = max(part.committed, one.offset)

    def close(self, tps: Collection[TopicPartition]) -> None:
        """Of these partitions nothing is begun that lies behind all that was.

        What lies before it still is: else whoever goes on from the first record that is not done
        would repeat those behind it that are.
        """
        for tp in tps:
            part = self._parts.get(tp)
            if part is not None and part.end is None:
                part.end = part.begun

    def is_open(self, tps: Collection[TopicPartition]) -> bool:
        """Whether something is still to be done in partitions that were closed."""
        parts = [self._parts[tp] for tp in tps if tp in self._parts]
        if self.is_stopping:
            return any(part.running for part in parts)
        return any(part.position < (part.end or 0) for part in parts)

    def forget(self, tps: Collection[TopicPartition]) -> None:
        """These partitions are others' now."""
        self._lanes = {lane: jobs for lane, jobs in self._lanes.items() if lane[0] not in tps}
        for tp in tps:
            self._parts.pop(tp, None)

    def _is_ours(self, job: RecordJob) -> bool:
        part = self._parts.get(job.record.topic_partition)
        if part is None or part is not job.part:
            return False
        return part.end is None or job.record.offset < part.end

    def _lane(self, record: Record[Any, Any]) -> tuple[Any, ...] | None:
        if self._order == "none" or (self._order == "key" and record.key is None):
            return None
        tp = record.topic_partition
        return (tp, record.key) if self._order == "key" else (tp,)

    def _enter(self, job: RecordJob) -> None:
        if job.lane is None:
            self._ready.append(job)
        elif job.lane in self._lanes:
            self._lanes[job.lane].append(job)
        elif job.lane in self._busy:
            # The partition was lost and is back, and a handler still has a record of before.
            self._lanes[job.lane] = deque([job])
        else:
            self._lanes[job.lane] = deque()
            self._ready.append(job)

    def _leave(self, job: RecordJob) -> None:
        """It is no longer worked on: the next of its lane may be."""
        self._busy.discard(job.lane)
        if job.lane is None:
            return
        waiting = self._lanes.get(job.lane)
        if waiting:
            self._ready.append(waiting.popleft())
        else:
            self._lanes.pop(job.lane, None)
