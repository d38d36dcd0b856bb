"""One batch of a producer, from its first record to what became of it.

Rule: whoever waits for a record waits for its batch, so a record costs a small future and no more.

What is done for every record exists twice: here, and in sending.c, which does it for usual records
where that extension is there. ``SendFuture``, ``Builder`` and ``Intake`` are the ones in use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from shoal.client.leases import Lease
from shoal.errors import RequestTimeoutError
from shoal.records.batch import HEADER_SIZE, NewRecord, encode_batch
from shoal.records.encoding import Stamp, packed
from shoal.records.extension import extension
from shoal.records.record import parse_body
from shoal.types import Header, RecordMetadata, TopicPartition

NO_SEQUENCE: Final = -1
_native: Final = extension("shoal.client._sending")


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
        """Where the record went. Waits up to ``timeout`` seconds (forever if ``None``).

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
        self._batch.add_callback(self, function)


PlainSendFuture: Final = SendFuture
Told = Callable[[SendFuture], Any]


class BatchState:
    """What futures, and ``send``, look at in a batch; sending.c has the same."""

    __slots__ = (
        "_callbacks",
        "base_offset",
        "error",
        "is_done",
        "log_append_time_ms",
        "parts",
        "record_count",
        "size_bytes",
        "tp",
    )
    tp: TopicPartition
    record_count: int
    size_bytes: int
    is_done: bool
    error: Exception | None
    base_offset: int | None
    log_append_time_ms: int | None
    parts: list[ProducerBatch]
    _callbacks: list[Any]
    """Futures and whom to tell, in turn: a pair of them would cost an object per record."""


PlainBatchState: Final = BatchState
if _native is not None and not TYPE_CHECKING:
    BatchState = _native.BatchState


class ProducerBatch(BatchState):
    """One batch of one partition, from its first record to its acknowledgement.

    A batch the broker finds too large is ``split``: its records live on in ``parts``.
    """

    __slots__ = (
        "_event",
        "attempts",
        "base_sequence",
        "builder",
        "copies",
        "created_at",
        "lease",
        "number",
        "prebuilt",
    )
    _lock = threading.Lock()  # for the rare moments: a waiter or a callback is registered

    def __init__(self, tp: TopicPartition, created_at: float, number: int = 0) -> None:
        self.tp = tp
        self.created_at = created_at
        self.number = number
        """Batches of a partition are numbered in their order, the parts of one as it was."""
        self.builder: Builder | None = None
        self.prebuilt: memoryview | None = None
        self.lease: Lease | None = None
        """Of the memory of ``prebuilt``."""
        self.record_count = 0
        self.size_bytes = 0
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.copies = 0
        """How often it was sent without an answer that says that it was not stored."""
        self.is_done = False
        self.error = None
        self.base_offset = None
        self.log_append_time_ms = None
        self.parts = []
        self._event: threading.Event | None = None
        self._callbacks = []

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

    def add_callback(self, future: SendFuture, function: Told) -> None:
        """Tell ``function`` of one of our records, as soon as it is known: perhaps now."""
        while True:
            batch, _ = self.locate(future._index)
            with self._lock:
                if not batch.is_done and not batch.parts:
                    batch._callbacks += (future, function)
                    return
            if batch.is_done:
                function(future)
                return

    def finish(self, error: Exception | None) -> list[Any]:
        """Settle it; returns the callbacks, for ``run_all``."""
        assert not self.is_done
        self.error = error
        if self.lease is not None and error is None:
            # Stored, so it was read to its end. Of one that failed a connection may still send.
            self.lease.release()
        # A future may be kept long, its bytes must not.
        self.prebuilt = self.builder = self.lease = None
        with self._lock:
            self.is_done = True
            callbacks, self._callbacks = self._callbacks, []
        if self._event is not None:
            self._event.set()
        return callbacks

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
        for future, function in in_pairs(callbacks):
            # The future may be of a batch that this one is a part of: it knows its way.
            future._batch.add_callback(future, function)
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


def in_pairs(callbacks: list[Any]) -> Iterator[tuple[SendFuture, Told]]:
    """Callbacks of batches: each future, and whom to tell."""
    items = iter(callbacks)
    return zip(items, items, strict=True)


class Builder:
    """Records until they are encoded. Sizes are estimated from above, cheaply.

    This runs once per record in the user's thread, and an estimate is enough to decide when a
    batch is full.
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
            half = type(self)(self.limit_bytes)
            for record in records:
                half.limit_bytes = self.size_bytes
                half.append(*record)
            halves.append(half)
        return halves

    def encoded(self, stamp: Stamp) -> bytes:
        """The batch, with this in its header."""
        return encode_batch(
            self.records,
            codec=stamp.codec,
            level=stamp.level,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            base_sequence=stamp.base_sequence,
            is_transactional=stamp.is_transactional,
        )


class Intake:
    """Puts records into open batches, and counts the bytes of all that are unsettled.

    ``add`` is a step that its caller keeps others out of. ``take`` is the short way of sending.c,
    beside which nobody is kept out: here there is none.
    """

    __slots__ = ("has_callbacks", "is_refusing", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.is_refusing = False
        """``take`` does nothing."""
        self.has_callbacks = False
        """``take`` may be given an ``on_delivery``: there is a thread that will call it."""

    def add(
        self,
        batch: ProducerBatch,
        builder: Builder,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp_ms: int,
    ) -> int:
        """One record into ``batch``: its number there, or -1 if it does not fit."""
        added = builder.append(key, value, headers, timestamp_ms)
        if not added:
            return -1
        batch.size_bytes += added
        self.used_bytes += added
        batch.record_count += 1
        return batch.record_count - 1

    def change(self, difference: int) -> None:
        """So many bytes more are used, or less."""
        self.used_bytes += difference

    def open(self, topic: str, partition: int, batch: ProducerBatch, builder: Builder) -> None:
        """From now on ``take`` puts records of this partition into ``batch``."""

    def close(self, topic: str, partition: int) -> None:
        """Nothing more goes into its open batch, once this has returned."""

    def serve(self, counts: dict[str, int], current: dict[str, int], max_record_bytes: int) -> None:
        """Let ``take`` know how many partitions there are, and where records without keys go."""

    def take(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        on_delivery: Any,
    ) -> SendFuture | None:
        """A record into its open batch; None if that takes more than this can do."""


PlainBuilder: Final = Builder
PlainIntake: Final = Intake

if _native is not None and not TYPE_CHECKING:
    SendFuture = _native.SendFuture
    Intake = _native.Intake
    _native.prepare(
        PlainSendFuture, RecordMetadata, ("topic", "partition", "offset", "timestamp_ms")
    )

    class Builder(_native.Builder):
        """Records encoded one by one as they come: less is left to do when they are sent."""

        __slots__ = ()
        split = PlainBuilder.split

        @property
        def records(self) -> list[NewRecord]:
            """Back from their bytes, for the rare batch that is too large and must be split."""
            parsed = parse_body(
                self.body(),
                len(self),
                base_offset=0,
                last_offset_delta=max(0, len(self) - 1),
                base_timestamp_ms=self.base_timestamp_ms,
                append_time_ms=None,
            )
            return [(key, value, headers, time_ms) for _, time_ms, key, value, headers in parsed]

        def encoded(self, stamp: Stamp) -> bytes:
            if stamp.codec:
                times = self.base_timestamp_ms, self.max_timestamp_ms
                return packed(self.body(), len(self), *times, stamp, 0)
            return self.sealed(
                stamp.producer_id,
                stamp.producer_epoch,
                stamp.base_sequence,
                stamp.is_transactional,
            )
