"""What the log remembers of idempotent producers, so that a retried batch is stored once.

Per producer id: its epoch and its last five batches. The rules are Kafka's: a batch seen before
is answered with its first offset, anything else must follow without a gap. Pure: headers in,
verdicts out.

Snapshot file, big endian (``%020d.snapshot``, named after the offset it describes):
    i16 version = 1 | u32 CRC-32C of the rest | i32 count | per producer: i64 id, i16 epoch,
    i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp, i32 coordinator epoch,
    i64 first offset of the open transaction
That is Kafka's file, which knows only the last batch of a producer. Ours goes on (Kafka's reader
stops after the entries): "SHOL", i64 the offset again, then per producer in the same order u8
count and that many
    i32 first sequence, i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from shoal.errors import ErrorCode
from shoal.records.batch import BatchHeader
from shoal.records.checksum import crc32c

BATCHES_KEPT: Final = 5
EXPIRATION_MS: Final = 24 * 60 * 60 * 1000
_MAX_SEQUENCE: Final = 2**31 - 1

_HEAD = Struct(">hI")
_ENTRY = Struct(">qhiqiqiq")
_TAIL_MAGIC: Final = b"SHOL"
_TAIL = Struct(">4sq")
_BATCH = Struct(">iiqiq")


class StoredBatch(NamedTuple):
    """One batch of a producer, as far as duplicates are concerned."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """State of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "producer_id",
        "timestamp_ms",
    )

    def __init__(self, producer_id: int, epoch: int, timestamp_ms: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.timestamp_ms = timestamp_ms
        self.batches: list[StoredBatch] = []
        self.coordinator_epoch = -1
        self.current_txn_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class Producers:
    """All producers of one partition."""

    __slots__ = ("changed", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.changed = False

    def check(self, header: BatchHeader) -> ErrorCode | StoredBatch | None:
        """None if the batch may be appended, the stored one if it is a duplicate, else an error."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None  # an unknown producer may start anywhere: its state may have expired
        first = header.base_sequence
        if header.producer_epoch == entry.epoch:
            last = last_sequence(first, header.last_offset_delta)
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
            if not entry.batches or first == next_sequence(entry.last_sequence):
                return None
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if header.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return None if first == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def note(
        self, header: BatchHeader, last_offset: int, append_time_ms: int | None = None
    ) -> None:
        """Remember a batch that was appended, or is replayed from the log."""
        if header.base_sequence < 0:
            return  # control batches carry a producer id but no sequence
        entry = self.entries.get(header.producer_id)
        timestamp_ms = header.max_timestamp_ms if append_time_ms is None else append_time_ms
        if entry is None:
            entry = ProducerEntry(header.producer_id, header.producer_epoch, timestamp_ms)
            self.entries[header.producer_id] = entry
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.timestamp_ms = timestamp_ms
        delta = header.last_offset_delta
        first = header.base_sequence
        entry.batches.append(
            StoredBatch(first, last_sequence(first, delta), last_offset, delta, timestamp_ms)
        )
        if len(entry.batches) > BATCHES_KEPT:
            del entry.batches[0]
        self.changed = True

    def expire(self, now_ms: int, *, after_ms: int = EXPIRATION_MS) -> int:
        """Forget producers that have been silent; how many were forgotten."""
        gone = [
            producer_id
            for producer_id, entry in self.entries.items()
            if now_ms - entry.timestamp_ms > after_ms and entry.current_txn_first_offset is None
        ]
        for producer_id in gone:
            del self.entries[producer_id]
        self.changed = self.changed or bool(gone)
        return len(gone)

    def encode(self, offset: int) -> bytes:
        """The snapshot file of this state, which the log had at ``offset``."""
        entries = list(self.entries.values())
        parts: list[bytes] = []
        for entry in entries:
            last = entry.batches[-1] if entry.batches else StoredBatch(-1, -1, -1, 0, -1)
            transaction = entry.current_txn_first_offset
            parts.append(
                _ENTRY.pack(
                    entry.producer_id,
                    entry.epoch,
                    last.last_sequence,
                    last.last_offset,
                    last.offset_delta,
                    entry.timestamp_ms,
                    entry.coordinator_epoch,
                    -1 if transaction is None else transaction,
                )
            )
        parts.append(_TAIL.pack(_TAIL_MAGIC, offset))
        for entry in entries:
            parts.append(bytes([len(entry.batches)]))
            parts.extend(_BATCH.pack(*batch) for batch in entry.batches)
        body = len(entries).to_bytes(4, "big") + b"".join(parts)
        return _HEAD.pack(1, crc32c(body)) + body

    @classmethod
    def decode(cls, data: bytes, offset: int) -> Producers | None:
        """State from a snapshot, Kafka's or ours; None if it is damaged or of another offset."""
        try:
            version, crc = _HEAD.unpack_from(data)
            if version != 1 or crc32c(memoryview(data)[_HEAD.size :]) != crc:
                return None
            found = cls()
            position = _HEAD.size + 4
            count = int.from_bytes(data[_HEAD.size : position], "big")
            for _ in range(count):
                entry = _read_entry(data, position)
                found.entries[entry.producer_id] = entry
                position += _ENTRY.size
            if not _read_tail(data, position, offset, list(found.entries.values())):
                return None
        except (struct_error, IndexError):
            return None
        return found


def _read_entry(data: bytes, position: int) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator, transaction = (
        _ENTRY.unpack_from(data, position)
    )
    entry = ProducerEntry(producer_id, epoch, timestamp_ms)
    entry.coordinator_epoch = coordinator
    entry.current_txn_first_offset = transaction if transaction >= 0 else None
    if offset >= 0:
        first = first_sequence(sequence, delta)
        entry.batches.append(StoredBatch(first, sequence, offset, delta, timestamp_ms))
    return entry


def _read_tail(data: bytes, position: int, offset: int, entries: list[ProducerEntry]) -> bool:
    if position == len(data):
        return True  # Kafka's own ends here
    magic, described = _TAIL.unpack_from(data, position)
    if magic != _TAIL_MAGIC or described != offset:
        return False
    position += _TAIL.size
    for entry in entries:
        count = data[position]
        position += 1
        entry.batches = [
            StoredBatch(*_BATCH.unpack_from(data, position + index * _BATCH.size))
            for index in range(count)
        ]
        position += count * _BATCH.size
    return True


def next_sequence(sequence: int) -> int:
    return 0 if sequence == _MAX_SEQUENCE else sequence + 1


def last_sequence(first: int, delta: int) -> int:
    """Sequences wrap from 2^31 - 1 to 0."""
    return (first + delta) & _MAX_SEQUENCE


def first_sequence(last: int, delta: int) -> int:
    return (last - delta) & _MAX_SEQUENCE
