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
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from shoal.client.config import ProducerConfig
from shoal.errors import RequestTimeoutError
from shoal.records.batch import HEADER_SIZE, NewRecord
from shoal.types import Header, RecordMetadata, TopicPartition

NO_SEQUENCE: Final = -1


class SendFuture:
    """What became of one record. Thread-safe; cheap, because there is one per record."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: ProducerBatch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    def done(self) -> bool:
        batch, _ = self._batch.locate(self._index)
        return batch.is_done

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Why it failed, or ``None`` if it did not; waits like ``result``."""
        batch, _ = self._batch.wait(self._index, timeout)
        return batch.error

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record went. Waits up to ``timeout`` seconds (for ever if ``None``).

        Raises:
            RequestTimeoutError: not known in time; it may still be sent.
            BrokerError: it was refused, or all retries failed.
        """
        batch, index = self._batch.wait(self._index, timeout)
        if batch.error is not None:
            raise batch.error.with_traceback(None)  # it is raised once per record, and would grow
        return RecordMetadata(
            batch.tp.topic,
            batch.tp.partition,
            None if batch.base_offset is None else batch.base_offset + index,
            self._timestamp_ms if batch.log_append_time_ms is None else batch.log_append_time_ms,
        )

    def add_done_callback(self, function: Callable[[SendFuture], Any]) -> None:
        """Call ``function(future)`` when it is known: on the producer's thread, or here at once."""
        self._batch.add_callback(self._index, lambda: function(self))


Callback = Callable[[], None]


class ProducerBatch:
    """One batch of one partition, from its first record to its acknowledgement.

    A batch the broker finds too large is ``split``: its records live on in ``parts``.
    """

    __slots__ = (
        "_callbacks",
        "_event",
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "copies",
        "created_at",
        "error",
        "is_done",
        "log_append_time_ms",
        "number",
        "parts",
        "prebuilt",
        "record_count",
        "size_bytes",
        "tp",
    )
    _lock = threading.Lock()  # for the rare moments: a waiter or a callback is registered

    def __init__(self, tp: TopicPartition, created_at: float, number: int = 0) -> None:
        self.tp = tp
        self.created_at = created_at
        self.number = number
        """Batches of a partition are numbered in their order, the parts of one as it was."""
        self.builder: Builder | None = None
        self.prebuilt: memoryview | None = None
        self.record_count = 0
        self.size_bytes = 0
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.copies = 0
        """How often it was sent without an answer that says that it was not stored."""
        self.is_done = False
        self.error: Exception | None = None
        self.base_offset: int | None = None
        self.log_append_time_ms: int | None = None
        self.parts: list[ProducerBatch] = []
        self._event: threading.Event | None = None
        self._callbacks: list[tuple[int, Callback]] = []

    def locate(self, index: int) -> tuple[ProducerBatch, int]:
        """The batch that now holds our record number ``index``, and its number there."""
        for part in self.parts:
            if index < part.record_count:
                return part.locate(index)
            index -= part.record_count
        return self, index

    def wait(self, index: int, timeout: float | None) -> tuple[ProducerBatch, int]:
        """Where record ``index`` is, once that batch is settled."""
        until = None if timeout is None else time.monotonic() + min(timeout, threading.TIMEOUT_MAX)
        while True:
            batch, place = self.locate(index)
            if batch.is_done:
                return batch, place
            left = None if until is None else max(0.0, until - time.monotonic())
            if not batch._changed().wait(left):
                raise RequestTimeoutError(
                    f"a record for {self.tp} was not acknowledged within {timeout} s"
                )

    def add_callback(self, index: int, callback: Callback) -> None:
        batch, place = self.locate(index)
        with self._lock:
            if not batch.is_done and not batch.parts:
                batch._callbacks.append((place, callback))
                return
        if batch.is_done:
            callback()
        else:
            batch.add_callback(place, callback)

    def finish(self, error: Exception | None) -> list[Callback]:
        """Settle it; returns the callbacks to run."""
        assert not self.is_done
        self.error = error
        self.prebuilt = self.builder = None  # a future may be kept long, its bytes must not
        with self._lock:
            self.is_done = True
            callbacks, self._callbacks = self._callbacks, []
        if self._event is not None:
            self._event.set()
        return [callback for _, callback in callbacks]

    def split(self) -> list[ProducerBatch]:
        """Two halves, which take over records, waiters and callbacks."""
        assert self.builder is not None
        halves = self.builder.split()
        parts = []
        for builder in halves:
            part = ProducerBatch(self.tp, self.created_at, self.number)
            part.builder = builder
            part.record_count = len(builder)
            part.size_bytes = builder.size_bytes
            parts.append(part)
        with self._lock:
            self.parts = parts
            callbacks, self._callbacks = self._callbacks, []
        for index, callback in callbacks:
            self.add_callback(index, callback)
        if self._event is not None:
            self._event.set()
        return parts

    def _changed(self) -> threading.Event:
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
            if self.is_done or self.parts:
                self._event.set()
            return self._event


class Builder:
    """Records until they are encoded. Sizes are estimated from above, cheaply.

    Kept apart from ``records.batch.BatchBuilder`` for speed: this runs once per record in the
    user's thread, and an estimate is enough to decide when a batch is full.
    """

    __slots__ = ("limit_bytes", "records", "size_bytes")

    # Length, attributes, timestamp and offset deltas, key, value and header lengths: at most.
    _OVERHEAD_BYTES: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
    _HEADER_OVERHEAD_BYTES: Final = 10

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = HEADER_SIZE
        self.records: list[NewRecord] = []

    def __len__(self) -> int:
        return len(self.records)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp_ms: int,
    ) -> int:
        """The bytes added, or 0 if the record does not fit; the first always fits."""
        size = self._OVERHEAD_BYTES
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        for name, content in headers:
            size += 4 * len(name) + len(content or b"") + self._HEADER_OVERHEAD_BYTES
        if self.records and self.size_bytes + size > self.limit_bytes:
            return 0
        self.size_bytes += size
        self.records.append((key, value, headers, timestamp_ms))
        return size

    def split(self) -> list[Builder]:
        """Two builders with half of the records each."""
        middle = len(self.records) // 2
        halves = []
        for records in (self.records[:middle], self.records[middle:]):
            half = Builder(self.limit_bytes)
            for record in records:
                half.limit_bytes = self.size_bytes
                half.append(*record)
            halves.append(half)
        return halves


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
    ) -> None:
        self._clock = clock
        self._numbers = count()
        self._batch_size = min(config.batch_size, config.max_request_size)
        self._linger_s = config.linger_ms / 1000
        self._memory_bytes = config.buffer_memory
        self._max_block_s = min(config.max_block_ms / 1000, threading.TIMEOUT_MAX)
        self._wake = wake
        self._queues: dict[TopicPartition, _Queue] = {}
        self._condition = threading.Condition()
        self._used_bytes = 0
        self._unsettled: dict[int, int] = {}
        """Numbers of batches, oldest first, and how many bear each."""
        self._flushing = 0
        self._is_woken = False
        self._is_closed = False
        self._next_due: float | None = None

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

        That is one batch, or several that left half empty: of who sends slowly, all do.

        Raises:
            RequestTimeoutError: ``buffer_memory`` stayed full for ``max_block_ms``.
        """
        with self._condition:
            if self._used_bytes >= self._memory_bytes or self._is_closed:
                self._wait_for_room()
            queue = self._queues.get(tp)
            if queue is None:
                queue = self._queues[tp] = _Queue()
            batch = queue.open
            is_full = False
            if batch is None or not self._fits(batch, key, value, headers, timestamp_ms):
                is_full = batch is not None or queue.left_unfilled_bytes >= self._batch_size
                if is_full:
                    queue.left_unfilled_bytes = 0
                batch = self._open(queue, tp)
                self._fits(batch, key, value, headers, timestamp_ms)
            future = SendFuture(batch, batch.record_count, timestamp_ms)
            batch.record_count += 1
            if on_delivery is not None:  # now, while the batch cannot be sent yet
                future.add_done_callback(on_delivery)
            return future, is_full

    def append_prebuilt(self, tp: TopicPartition, data: memoryview, records: int) -> ProducerBatch:
        """Take an encoded batch as it is; only its producer id and sequence will be set."""
        with self._condition:
            if self._used_bytes >= self._memory_bytes or self._is_closed:
                self._wait_for_room()
            queue = self._queues.setdefault(tp, _Queue())
            queue.open = None
            batch = ProducerBatch(tp, self._clock(), next(self._numbers))
            queue.used_at = batch.created_at
            batch.prebuilt = data
            batch.record_count = records
            batch.size_bytes = len(data)
            self._used_bytes += len(data)
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
            end = next(self._numbers)
            try:
                self._condition.wait_for(lambda: next(iter(self._unsettled), end) >= end, timeout_s)
                if unsent := sum(n for number, n in self._unsettled.items() if number < end):
                    raise RequestTimeoutError(f"flush: {unsent} batches unsent after {timeout_s} s")
            finally:
                self.calm_down()

    @property
    def is_empty(self) -> bool:
        """Whether everything is settled."""
        return not self._unsettled

    def hurry(self) -> None:
        """From now on every batch is due at once, until as many ``calm_down``."""
        with self._condition:
            self._flushing += 1
            self._call(force=True)

    def calm_down(self) -> None:
        with self._condition:
            self._flushing -= 1

    def _fits(
        self,
        batch: ProducerBatch,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp_ms: int,
    ) -> bool:
        assert batch.builder is not None
        added = batch.builder.append(key, value, headers, timestamp_ms)
        batch.size_bytes += added
        self._used_bytes += added
        return added > 0

    def _open(self, queue: _Queue, tp: TopicPartition) -> ProducerBatch:
        batch = ProducerBatch(tp, self._clock(), next(self._numbers))
        queue.used_at = batch.created_at
        batch.builder = Builder(self._batch_size)
        queue.batches.append(batch)
        queue.open = batch
        self._unsettled[batch.number] = 1
        self._call()
        return batch

    def _wait_for_room(self) -> None:
        self._call(force=True)
        has_room = self._condition.wait_for(
            lambda: self._used_bytes < self._memory_bytes or self._is_closed, self._max_block_s
        )
        if self._is_closed:
            raise RuntimeError("this client is closed")
        if not has_room:
            raise RequestTimeoutError(
                f"buffer_memory ({self._memory_bytes} bytes) stayed full for max_block_ms; "
                "the cluster does not take records as fast as they are sent"
            )

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
                        queue.open = None
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
        """Take no more records; who waits for room is refused too."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def drop_late(self, before: float) -> list[ProducerBatch]:
        """Batches that were never sent and are older than ``before``; they leave."""
        late: list[ProducerBatch] = []
        with self._condition:
            for queue in self._queues.values():
                while queue.batches and queue.batches[0].created_at < before:
                    batch = queue.batches.popleft()
                    if batch is queue.open:
                        queue.open = None
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
            self._used_bytes -= batch.size_bytes
            self._unsettled[batch.number] -= 1
            if not self._unsettled[batch.number]:
                del self._unsettled[batch.number]
            self._condition.notify_all()

    def replaced(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """``batch`` was cut into ``parts``, which the sender keeps."""
        with self._condition:
            self._used_bytes += sum(part.size_bytes for part in parts) - batch.size_bytes
            self._unsettled[batch.number] += len(parts) - 1

    def _is_due(self, queue: _Queue, now: float) -> bool:
        batch = queue.batches[0]
        return (
            batch is not queue.open
            or self._flushing > 0
            or self._used_bytes >= self._memory_bytes
            or now >= batch.created_at + self._linger_s
        )
