"""What the log remembers of producers: so that a retried batch is stored once, and which of their
transactions are open.

Per producer id: its epoch, its last five batches, where its open transaction began. The rules are
Kafka's: a batch seen before is answered with its first offset, anything else must follow without
a gap; a marker ends the transaction. Pure: headers in, verdicts out.

Snapshot file, big endian (``%020d.snapshot``, named after the offset it describes):
    i16 version = 1 | u32 CRC-32C of the rest | i32 count | per producer: i64 id, i16 epoch,
    i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp, i32 coordinator epoch,
    i64 first offset of the open transaction
That is Kafka's file, which knows only the last batch of a producer. Ours goes on (Kafka's reader
stops after the entries): "SHOL", i64 the offset again, then per producer in the same order u8
count and that many
    i32 first sequence, i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp
and last i32 size, u32 CRC-32C of the transaction index of the segment that the offset lies in.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from shoal.errors import ErrorCode
from shoal.log.transaction_index import AbortedTransaction, IndexSize
from shoal.records.batch import BatchHeader
from shoal.records.checksum import crc32c
from shoal.records.markers import EndMarker

BATCHES_KEPT: Final = 5
EXPIRATION_MS: Final = 24 * 60 * 60 * 1000
_MAX_SEQUENCE: Final = 2**31 - 1
#: From this version on a producer has a new epoch for every transaction (KIP-890).
_EPOCH_PER_TRANSACTION: Final = 2
_NO_INDEX: Final = IndexSize(0, 0)

_HEAD = Struct(">hI")
_ENTRY = Struct(">qhiqiqiq")
_TAIL_MAGIC: Final = b"SHOL"
_TAIL = Struct(">4sq")
_BATCH = Struct(">iiqiq")
_INDEX_SIZE = Struct(">iI")


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


_REFUSED_MAX: Final = 1_000


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


class OpenTransaction(NamedTuple):
    """A transaction that no marker has ended yet in this partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    coordinator_epoch: int
    """Of the last marker of this producer here; -1 if there was none."""
    timestamp_ms: int
    """When the producer was heard of last."""


class Producers:
    """All producers of one partition."""

    __slots__ = ("_ended", "_refused", "changed", "entries", "has_undecided", "open")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        #: First offset → producer id of the open transactions, the oldest first.
        self.open: OrderedDict[int, int] = OrderedDict()
        # (first offset, marker's offset) of those whose marker a reader may not see yet: a heap.
        self._ended: list[tuple[int, int]] = []
        #: Whether ``first_unstable`` is worth asking: most logs have no transactions.
        self.has_undecided = False
        self.changed = False
        # Producer id → epoch and sequence of a batch there was no room for; not in the log.
        self._refused: dict[int, tuple[int, int]] = {}

    # Checking

    def check(
        self, header: BatchHeader, *, transaction_version: int | None = None
    ) -> ErrorCode | StoredBatch | None:
        """None if a client's batch may be appended, the stored one if it is a duplicate.

        ``transaction_version`` is the one its producer follows, if the transaction coordinator
        knows that the batch belongs to a transaction; None if nobody asked it.
        """
        entry = self.entries.get(header.producer_id)
        first, epoch = header.base_sequence, header.producer_epoch
        if entry is not None and epoch == entry.epoch:
            last = last_sequence(first, header.last_offset_delta)
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
        is_transactional = header.is_transactional
        if is_transactional:
            is_open = self.has_open(header.producer_id, epoch)
            if not is_open and transaction_version is None:
                return ErrorCode.INVALID_TXN_STATE
        if self._refused and self._follows_refused(header):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if entry is None:
            # An unknown producer may start anywhere, for its state may have expired. One that gets
            # a new epoch with every transaction always begins at 0.
            is_fresh = first == 0 or not (transaction_version or 0) >= _EPOCH_PER_TRANSACTION
            return None if is_fresh else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        # After a marker of a higher epoch there is no batch either, and the next one is number 0.
        expected = 0 if epoch > entry.epoch else next_sequence(entry.last_sequence)
        if first != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if entry.current_txn_first_offset is not None and not is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def note_refused(self, header: BatchHeader) -> None:
        """The disk had no room for a batch: those sent behind it cannot be stored before it.

        They are refused for the same reason. Told that they are out of order, which is what Apache
        Kafka says after any error, librdkafka goes on in a new epoch, and sends what it never heard
        of again, of all partitions: records that were stored are stored twice.
        """
        if len(self._refused) >= _REFUSED_MAX:
            self._refused.clear()
        known = self._refused.get(header.producer_id)
        # Only a newer epoch takes the place of the first: its batches begin anew.
        if known is None or known[0] < header.producer_epoch:
            self._refused[header.producer_id] = header.producer_epoch, header.base_sequence

    def _follows_refused(self, header: BatchHeader) -> bool:
        refused = self._refused.get(header.producer_id)
        if refused is None:
            return False
        epoch, sequence = refused
        return header.producer_epoch == epoch and header.base_sequence != sequence

    def check_epoch(self, header: BatchHeader) -> ErrorCode | None:
        """What the broker itself writes for a producer (its offsets) has no sequence."""
        entry = self.entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return None

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> ErrorCode | None:
        """Whether a marker may be appended; one that was written before may be written again.

        From version 2 on a marker's epoch is above that of the transaction it ends: one with the
        same epoch is a late one, and must not end the transaction that is open by now.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return None
        if producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_late = producer_epoch == entry.epoch and entry.current_txn_first_offset is not None
        if is_late and transaction_version >= _EPOCH_PER_TRANSACTION:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None

    # Noting what was appended, or is replayed from the log

    def note(
        self, header: BatchHeader, last_offset: int, append_time_ms: int | None = None
    ) -> None:
        """Remember a batch of data."""
        timestamp_ms = header.max_timestamp_ms if append_time_ms is None else append_time_ms
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = self._entry(header.producer_id, header.producer_epoch, timestamp_ms)
        entry.timestamp_ms = timestamp_ms
        self.changed = True
        if self._refused:
            self._refused.pop(header.producer_id, None)
        delta = header.last_offset_delta
        entry.batches.append(
            StoredBatch(
                header.base_sequence, header.last_sequence, last_offset, delta, timestamp_ms
            )
        )
        if len(entry.batches) > BATCHES_KEPT:
            del entry.batches[0]
        if header.is_transactional and entry.current_txn_first_offset is None:
            entry.current_txn_first_offset = last_offset - delta
            self.open[last_offset - delta] = entry.producer_id
            self.has_undecided = True

    def note_marker(
        self,
        header: BatchHeader,
        marker: EndMarker,
        offset: int,
        append_time_ms: int | None = None,
    ) -> AbortedTransaction | None:
        """Remember a marker; returns the transaction if it aborts one that has data here."""
        timestamp_ms = header.max_timestamp_ms if append_time_ms is None else append_time_ms
        entry = self._entry(header.producer_id, header.producer_epoch, timestamp_ms)
        if marker.coordinator_epoch is not None:
            entry.coordinator_epoch = marker.coordinator_epoch
        first_offset = entry.current_txn_first_offset
        if first_offset is None:
            return None  # written again, or only to shut an older epoch out
        entry.current_txn_first_offset = None
        del self.open[first_offset]
        heappush(self._ended, (first_offset, offset))
        if marker.commit:
            return None
        stable = next(iter(self.open), offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, offset, stable)

    def note_epoch(self, header: BatchHeader) -> None:
        """Remember a marker that compaction emptied: older epochs stay shut out."""
        self._entry(header.producer_id, header.producer_epoch, header.max_timestamp_ms)

    def _entry(self, producer_id: int, epoch: int, timestamp_ms: int) -> ProducerEntry:
        """The entry of a producer, which has this epoch from now on."""
        self.changed = True
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch, timestamp_ms)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.timestamp_ms = timestamp_ms
        return entry

    # Transactions

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this producer, in this epoch, has data here and no end."""
        entry = self.entries.get(producer_id)
        return (
            entry is not None
            and entry.current_txn_first_offset is not None
            and entry.epoch == producer_epoch
        )

    def open_transactions(self) -> list[OpenTransaction]:
        """The oldest first."""
        return [
            OpenTransaction(
                producer_id, entry.epoch, first_offset, entry.coordinator_epoch, entry.timestamp_ms
            )
            for first_offset, producer_id in self.open.items()
            if (entry := self.entries[producer_id])
        ]

    def first_unstable(self, high_watermark: int) -> int | None:
        """Where the oldest transaction begins whose end a reader cannot see yet."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            heappop(ended)
        oldest = next(iter(self.open), None)
        if ended and (oldest is None or ended[0][0] < oldest):
            return ended[0][0]
        self.has_undecided = oldest is not None
        return oldest

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

    # Snapshots

    def encode(self, offset: int, index_size: IndexSize = _NO_INDEX) -> bytes:
        """The snapshot file of this state, which the log had at ``offset``.

        ``index_size`` is what the transaction index of the segment was then.
        """
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
        parts.append(_INDEX_SIZE.pack(*index_size))
        body = len(entries).to_bytes(4, "big") + b"".join(parts)
        return _HEAD.pack(1, crc32c(body)) + body

    @classmethod
    def decode(cls, data: bytes, offset: int) -> tuple[Producers, IndexSize | None] | None:
        """State from a snapshot, Kafka's or ours; None if it is damaged or of another offset.

        Beside it the size of the transaction index, if the snapshot tells it.
        """
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
            entries = list(found.entries.values())
            position = _read_tail(data, position, offset, entries)
            if position < 0:
                return None
            index_size = None
            if position < len(data):
                index_size = IndexSize(*_INDEX_SIZE.unpack_from(data, position))
        except (struct_error, IndexError):
            return None
        begun = [
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in entries
            if entry.current_txn_first_offset is not None
        ]
        found.open = OrderedDict(sorted(begun))
        found.has_undecided = bool(begun)
        return found, index_size


def _read_entry(data: bytes, position: int) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator, transaction = (
        _ENTRY.unpack_from(data, position)
    )
    entry = ProducerEntry(producer_id, epoch, timestamp_ms)
    entry.coordinator_epoch = coordinator
    entry.current_txn_first_offset = transaction if transaction >= 0 else None
    if offset >= 0:
        first = first_sequence(sequence, delta) if sequence >= 0 else sequence
        entry.batches.append(StoredBatch(first, sequence, offset, delta, timestamp_ms))
    return entry


def _read_tail(data: bytes, position: int, offset: int, entries: list[ProducerEntry]) -> int:
    """Take the batches behind the entries; where they end, -1 if they are of another offset."""
    if position == len(data):
        return position  # Kafka's own ends here
    magic, described = _TAIL.unpack_from(data, position)
    if magic != _TAIL_MAGIC or described != offset:
        return -1
    position += _TAIL.size
    for entry in entries:
        count = data[position]
        position += 1
        entry.batches = [
            StoredBatch(*_BATCH.unpack_from(data, position + index * _BATCH.size))
            for index in range(count)
        ]
        position += count * _BATCH.size
    return position


def next_sequence(sequence: int) -> int:
    return 0 if sequence == _MAX_SEQUENCE else sequence + 1


def last_sequence(first: int, delta: int) -> int:
    """Sequences wrap from 2^31 - 1 to 0."""
    return (first + delta) & _MAX_SEQUENCE


def first_sequence(last: int, delta: int) -> int:
    return (last - delta) & _MAX_SEQUENCE
