"""Records on their way into batches: filled by the user's threads, emptied by the sender.

A *batch in the making* belongs to one partition. It is sent when it is full, when it has waited
``linger_ms``, or when somebody flushes. What was sent keeps its place until it is acknowledged,
because a retry must go out before anything younger.

Rule: the lock is held for a few list operations, never while bytes are encoded or sent.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from shoal.client.config import ProducerConfig
from shoal.client.leases import Lease
from shoal.client.metrics import MetricListing
from shoal.client.producer_batch import Builder, Intake, ProducerBatch, SendFuture
from shoal.client.tallies import SendTally
from shoal.errors import RequestTimeoutError
from shoal.types import Header, TopicPartition


class _Queue:
    """The batches of one partition, oldest first; the last may still be open."""

    __slots__ = ("batches", "left_unfilled_bytes", "open", "used_at")

    def __init__(self) -> None:
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        self.left_unfilled_bytes = 0
        """In batches that left before they were full, since the last full one."""
        self.used_at = 0.0


class Accumulator:
    """All unsent records of one producer; ``clock`` is the one the sender looks at."""

    def __init__(
        self,
        config: ProducerConfig,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        tally: SendTally | None = None,
    ) -> None:
        self._tally = tally or SendTally()
        self._clock = clock
        self._numbers = count()
        self._batch_size = min(config.batch_size, config.max_request_size)
        self._linger_s = config.linger_ms / 1000
        self._memory_bytes = config.buffer_memory
        self._max_block_s = min(config.max_block_ms / 1000, threading.TIMEOUT_MAX)
        self._wake = wake
        self._queues: dict[TopicPartition, _Queue] = {}
        self._condition = threading.Condition()
        self.intake = Intake(config.buffer_memory)
        """Its ``take`` is the short way of a usual record, which needs no lock."""
        self._unsettled: dict[int, int] = {}
        """Numbers of batches, oldest first, and how many bear each."""
        self._flushing = 0
        self._is_woken = False
        self._refusal: Callable[[], Exception] | None = None
        """Makes the error for whoever sends while nothing is taken."""
        self._next_due: float | None = None
        self.on_room: Callable[[], None] = lambda: None
        """Called, in the sender's thread, when ``append`` may not have to wait any more."""

    # --- the user's side ---

    def append(
        self,
        tp: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp_ms: int,
        on_delivery: Callable[[SendFuture], Any] | None = None,
    ) -> tuple[SendFuture, bool]:
        """Take one record; also whether its partition has got a batch full of them by now.

        That is one batch, or several that left half empty, as all do when records come slowly.

        Raises:
            RequestTimeoutError: ``buffer_memory`` stayed full for ``max_block_ms``.
            Exception: nothing is taken now, see ``refuse``.
        """
        with self._condition:
            if self.intake.used_bytes >= self._memory_bytes or self._refusal is not None:
                self._wait_for_room()
            queue = self._queues.get(tp)
            if queue is None:
                queue = self._queues[tp] = _Queue()
            batch = queue.open
            is_full = False
            index = -1
            if batch is not None:
                index = self._add(batch, key, value, headers, timestamp_ms)
            if batch is None or index < 0:
                is_full = batch is not None or queue.left_unfilled_bytes >= self._batch_size
                if is_full:
                    queue.left_unfilled_bytes = 0
                batch = self._open(queue, tp)
                index = self._add(batch, key, value, headers, timestamp_ms)
                self._opened(batch)
            future = SendFuture(batch, index, timestamp_ms)
            if on_delivery is not None:  # now, while the batch cannot be sent yet
                future.add_done_callback(on_delivery)
            return future, is_full

    def append_prebuilt(
        self, tp: TopicPartition, data: memoryview, lease: Lease, records: int
    ) -> ProducerBatch:
        """Take an encoded batch as it is; only its producer id and sequence will be set.

        Its memory is released when the batch is stored.
        """
        with self._condition:
            if self.intake.used_bytes >= self._memory_bytes or self._refusal is not None:
                self._wait_for_room()
            queue = self._queues.setdefault(tp, _Queue())
            self._close(queue, tp)
            batch = ProducerBatch(tp, self._clock(), next(self._numbers))
            queue.used_at = batch.created_at
            batch.prebuilt, batch.lease = data, lease
            batch.record_count = records
            batch.size_bytes = len(data)
            self.intake.change(len(data))
            queue.batches.append(batch)
            self._unsettled[batch.number] = 1
            self._call()
            return batch

    def flush(self, timeout_s: float | None) -> None:
        """Send everything now and wait until all of it is settled, failed ones too.

        Not for what others send meanwhile: they may never stop.

        Raises:
            RequestTimeoutError: something is unsettled after ``timeout_s``.
        """
        with self._condition:
            self.hurry()
            end = self.mark()
            try:
                self._condition.wait_for(lambda: not self.is_unsettled_before(end), timeout_s)
                self.need_settled_before(end, timeout_s)
            finally:
                self.calm_down()

    def mark(self) -> int:
        """The end of all that was taken so far."""
        with self._condition:
            return next(self._numbers)

    def is_unsettled_before(self, mark: int) -> bool:
        """Whether something that was taken before ``mark`` is not settled."""
        with self._condition:
            return next(iter(self._unsettled), mark) < mark

    def need_settled_before(self, mark: int, timeout_s: float | None) -> None:
        """Raises RequestTimeoutError if something is not that should be after ``timeout_s``."""
        with self._condition:
            if unsent := sum(n for number, n in self._unsettled.items() if number < mark):
                raise RequestTimeoutError(
                    f"flush: batches unsent after {timeout_s} s: {unsent}; give a longer timeout, "
                    "or see the futures of send() for the reason"
                )

    @property
    def is_empty(self) -> bool:
        """Whether everything is settled."""
        return not self._unsettled

    @property
    def makes_wait(self) -> bool:
        """Whether ``append`` would wait for room now; if so, the sender is asked to make some."""
        if self.intake.used_bytes < self._memory_bytes:
            return False
        with self._condition:
            is_full = self.intake.used_bytes >= self._memory_bytes and self._refusal is None
            if is_full:
                self._call(force=True)
            return is_full

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Somebody waits for room meanwhile."""
        began = self._clock()
        self._tally.waiting += 1
        try:
            yield
        finally:
            now = self._clock()
            self._tally.waiting -= 1
            self._tally.waits.record(1e9 * (now - began), now)

    def tell(self, listing: MetricListing, group: str) -> None:
        """How much room there is. Any thread."""
        listing.put(group, "buffer-total-bytes", self._memory_bytes)
        available = max(0, self._memory_bytes - self.intake.used_bytes)
        listing.put(group, "buffer-available-bytes", available)

    def stayed_full(self) -> RequestTimeoutError:
        """The error of a caller that waited too long for room."""
        self._tally.exhausted.record(1, self._clock())
        return RequestTimeoutError(
            f"buffer_memory ({self._memory_bytes} bytes) stayed full for max_block_ms; "
            "the cluster does not take records as fast as they are sent"
        )

    def hurry(self) -> None:
        """From now on every batch is due at once, until as many ``calm_down``."""
        with self._condition:
            self._flushing += 1
            self._call(force=True)

    def calm_down(self) -> None:
        with self._condition:
            self._flushing -= 1

    def _add(
        self,
        batch: ProducerBatch,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp_ms: int,
    ) -> int:
        assert batch.builder is not None
        return self.intake.add(batch, batch.builder, key, value, headers, timestamp_ms)

    def _open(self, queue: _Queue, tp: TopicPartition) -> ProducerBatch:
        batch = ProducerBatch(tp, self._clock(), next(self._numbers))
        queue.used_at = batch.created_at
        batch.builder = Builder(self._batch_size)
        queue.batches.append(batch)
        queue.open = batch
        self._unsettled[batch.number] = 1
        self._call()
        return batch

    def _opened(self, batch: ProducerBatch) -> None:
        """``batch`` has its first record: others may join it by the short way."""
        assert batch.builder is not None
        self.intake.open(batch.tp.topic, batch.tp.partition, batch, batch.builder)

    def _close(self, queue: _Queue, tp: TopicPartition) -> None:
        """Nothing more goes into its open batch, by either way."""
        queue.open = None
        self.intake.close(tp.topic, tp.partition)

    def _wait_for_room(self) -> None:
        self._call(force=True)
        with self.waiting():
            has_room = self._condition.wait_for(
                lambda: self.intake.used_bytes < self._memory_bytes or self._refusal is not None,
                self._max_block_s,
            )
        if self._refusal is not None:
            raise self._refusal()
        if not has_room:
            raise self.stayed_full()

    def _call(self, *, force: bool = False) -> None:
        """Wake the sender, unless it was woken and has not looked since."""
        if force or not self._is_woken:
            self._is_woken = True
            self._wake()

    # --- the sender's side ---

    def ready(self, is_free: Callable[[TopicPartition], int]) -> list[ProducerBatch]:
        """Batches due now, at most ``is_free(tp)`` per partition, oldest first; they leave."""
        due: list[ProducerBatch] = []
        now = self._clock()
        lingering: list[float] = []
        with self._condition:
            self._is_woken = False
            for tp, queue in self._queues.items():
                if not queue.batches:
                    continue
                free = is_free(tp)
                while free > 0 and queue.batches and self._is_due(queue, now):
                    batch = queue.batches.popleft()
                    if batch is queue.open:
                        self._close(queue, tp)
                        queue.left_unfilled_bytes += batch.size_bytes
                    due.append(batch)
                    free -= 1
                if free > 0 and queue.batches:
                    lingering.append(queue.batches[0].created_at)
            self._next_due = min(lingering) + self._linger_s if lingering else None
        return due

    def next_due_s(self) -> float | None:
        """Seconds until something lingers no more of what was left by the last ``ready``.

        ``None``: time alone makes nothing due. Partitions that were not free do not count: an
        answer frees them, and what they keep has lingered enough long ago.
        """
        return None if self._next_due is None else max(0.0, self._next_due - self._clock())

    def close(self) -> None:
        """Take no more records, ever."""
        self.refuse(lambda: RuntimeError("this client is closed"))

    def refuse(self, error: Callable[[], Exception]) -> None:
        """Take no more records; who waits for room is refused too."""
        with self._condition:
            self._refusal = error
            self.intake.is_refusing = True
            self._condition.notify_all()
        self.on_room()

    def accept(self) -> None:
        """Take records again."""
        with self._condition:
            self._refusal = None
            self.intake.is_refusing = False

    def drop_late(self, before: float) -> list[ProducerBatch]:
        """Batches that were never sent and are older than ``before``; they leave."""
        late: list[ProducerBatch] = []
        with self._condition:
            for tp, queue in self._queues.items():
                while queue.batches and queue.batches[0].created_at < before:
                    batch = queue.batches.popleft()
                    if batch is queue.open:
                        self._close(queue, tp)
                    late.append(batch)
        return late

    def topics_since(self, moment: float) -> set[str]:
        """Topics for which a batch was begun since then, or waits."""
        with self._condition:
            return {
                tp.topic
                for tp, queue in self._queues.items()
                if queue.batches or queue.used_at >= moment
            }

    def released(self, batch: ProducerBatch) -> None:
        """``batch`` is settled: its memory is free again."""
        with self._condition:
            self.intake.change(-batch.size_bytes)
            self._unsettled[batch.number] -= 1
            if not self._unsettled[batch.number]:
                del self._unsettled[batch.number]
            self._condition.notify_all()
        self.on_room()

    def replaced(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """``batch`` was cut into ``parts``, which the sender keeps."""
        with self._condition:
            self.intake.change(sum(part.size_bytes for part in parts) - batch.size_bytes)
            self._unsettled[batch.number] += len(parts) - 1

    def _is_due(self, queue: _Queue, now: float) -> bool:
        batch = queue.batches[0]
        return (
            batch is not queue.open
            or self._flushing > 0
            or self.intake.used_bytes >= self._memory_bytes
            or now >= batch.created_at + self._linger_s
        )
