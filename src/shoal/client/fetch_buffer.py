"""Fetched bytes waiting for the user, and how they become records or columns.

A *chunk* is what one answer held for one partition: whole batches, one after the other. Chunks
queue up in a ``Buffer`` (the engine puts them in) and are opened here, in the user's thread, when
a poll asks for them: no object is made for a record nobody asked for.

Rule: a record is returned only if its partition still stands where the chunk was fetched for (the
``lap``) and its offset is not before the position; so whatever happened since the fetch, no record
is returned twice and none of a partition that was given away.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from shoal.client.leases import Lease
from shoal.client.positions import AssignedPartition, Positions
from shoal.client.serializers import deserialize_str
from shoal.client.tallies import ConsumedTally
from shoal.errors import BatchTooLargeError, CorruptDataError, RecordDeserializationError
from shoal.records.batch import HEADER_SIZE, iter_headers
from shoal.records.chunks import Chunk
from shoal.records.objects import iter_records, put, texts_of
from shoal.types import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.client.config import ConsumerConfig


AnyRecord = Record[Any, Any]
Epochs = Sequence[tuple[int, int]]
"""First offset and leader epoch of each run of batches with the same epoch."""

# More than this is not decoded at a time: columns are a second copy of what is buffered.
_DECODE_BYTES: Final = 16 * 1024 * 1024
# And not more than about this comes of it: some data is compressed to a hundredth.
_COLUMNS_BYTES: Final = 256 * 1024 * 1024
# base_offset, length, leader_epoch, magic, last_offset_delta, record_count of a batch.
_HOP: Final = struct.Struct(">qiib6xi30xi")
_LENGTH_FROM: Final = 12
_OFFSET_MAX: Final = 2**63 - 1
_UNREADABLE: Final = (CorruptDataError, BatchTooLargeError, RecordDeserializationError)


class FetchedChunk:
    """Whole batches of one partition."""

    __slots__ = (
        "_opened",
        "_records",
        "aborted",
        "data",
        "deserialized",
        "epochs",
        "lap",
        "lease",
        "next_offset",
        "start",
        "state",
    )

    def __init__(
        self,
        state: AssignedPartition,
        data: memoryview,
        next_offset: int,
        epochs: Epochs = (),
        lease: Lease | None = None,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.state = state
        self.lap = state.lap
        self.data = data
        self.next_offset = next_offset
        self.epochs = epochs
        self.lease = lease
        """Of the memory ``data`` lies in; held until nobody reads this chunk any more."""
        self.aborted = aborted
        """Producer and first offset of the aborted transactions in it."""
        if lease is not None:
            lease.hold()
        self._opened: Iterator[list[AnyRecord]] | None = None
        self._records: list[AnyRecord] = []
        self.start = 0
        self.deserialized = 0
        """Records before this one have gone through the deserializers, which is done once."""

    @property
    def is_stale(self) -> bool:
        return self.lap != self.state.lap

    def records(self, *, check_crcs: bool) -> list[AnyRecord]:
        """Some records, of which those from ``start`` on are not taken; none at the end."""
        while self.start >= len(self._records):
            if self._opened is None:
                chunk = self.part(self.state.position or 0, None)
                self._opened = iter_records(chunk, check_crc=check_crcs)
            self._records = []
            self.start = self.deserialized = 0
            records = next(self._opened, None)
            if records is None:
                return []
            self._records = records
        return self._records

    def part(self, start: int, end: int | None) -> Chunk:
        """What is to be decoded of it for the offsets from ``start`` to ``end``."""
        topic, partition = self.state.tp
        return Chunk(topic, partition, self.data, start, end, self.aborted)

    def taken(self, count: int) -> None:
        """The user has ``count`` more of the records: the position moves past them."""
        self.start += count
        last = self._records[self.start - 1]
        self.state.leader_epoch = last.leader_epoch
        self.state.position = last.offset + 1

    def note_epoch(self) -> None:
        """Rows were taken as columns, which have no epochs: note the last row's."""
        position = self.state.position or 0
        for first, epoch in self.epochs:
            if first < position:
                self.state.leader_epoch = epoch

    def rewind(self) -> None:
        """Open the chunk again from the partition's position, next time."""
        self._opened = None
        self._records = []
        self.start = self.deserialized = 0


def extent(data: bytes | memoryview, offset: int) -> tuple[int, Epochs, int]:
    """Where to fetch next after the whole batches in ``data``, which epochs wrote them, and how
    many records they hold.

    Not the last record plus one: compaction leaves batches whose last offsets are gone. Hops from
    batch to batch in as few steps as it can; what looks odd is left to ``iter_headers`` to judge.

    Raises:
        CorruptDataError: something that is not a batch begins at its ``position``.
    """
    epochs: list[tuple[int, int]] = []
    known, position, size, records = -1, 0, len(data), 0
    unpack = _HOP.unpack_from
    while size - position >= HEADER_SIZE:
        base, length, epoch, magic, delta, count = unpack(data, position)
        end = position + length + _LENGTH_FROM
        if magic != 2 or end > size or end - position < HEADER_SIZE:
            break
        if base < 0 or delta < 0 or base + delta >= _OFFSET_MAX or not 0 <= count <= delta + 1:
            break
        if epoch != known and epoch >= 0:
            known = epoch
            epochs.append((base, epoch))
        position = end
        records += count
        if base + delta >= offset:
            offset = base + delta + 1
    try:
        for _, header in iter_headers(memoryview(data)[position:]):
            raise AssertionError(f"a batch that is well was left out: {header}")
    except CorruptDataError as error:
        raise type(error)(error.reason, position=position) from None
    return offset, epochs, records


class Buffer:
    """Chunks in the order they came. The engine appends, the user's thread takes."""

    def __init__(self, positions: Positions, on_room: Callable[[], None]) -> None:
        self._positions = positions
        self._on_room = on_room
        self._chunks: deque[FetchedChunk] = deque()
        self._discarded: deque[FetchedChunk] = deque()
        """By the engine. Whoever was interrupted in a call may be reading one just then, so their
        memory is let go of in the thread that reads, between two reads."""

    def add(self, chunk: FetchedChunk) -> None:
        chunk.state.added_bytes += len(chunk.data)
        self._chunks.append(chunk)

    @property
    def has_ready(self) -> bool:
        """Whether a take would return something."""
        return any(self._is_ready(chunk) for chunk in list(self._chunks))

    def _is_ready(self, chunk: FetchedChunk) -> bool:
        state = chunk.state
        return not (chunk.is_stale or state.is_paused or state.is_held or state.is_doubtful)

    def next_chunk(self) -> FetchedChunk | None:
        """The first chunk that may be read, left in place; stale ones before it are dropped."""
        self._release_discarded()
        for chunk in list(self._chunks):
            if chunk.is_stale:
                self.drop(chunk)
            elif self._is_ready(chunk):
                return chunk
        return None

    def drop(self, chunk: FetchedChunk) -> None:
        """``chunk`` is used up."""
        self._remove(chunk)
        if chunk.lease is not None:
            chunk.lease.release()

    def _remove(self, chunk: FetchedChunk) -> None:
        self._chunks.remove(chunk)
        chunk.state.taken_bytes += len(chunk.data)
        self._on_room()

    def _release_discarded(self) -> None:
        while self._discarded:
            lease = self._discarded.popleft().lease
            if lease is not None:
                lease.release()

    def set_aside(self, chunk: FetchedChunk) -> None:
        """``chunk`` cannot be read: let the other partitions go first."""
        chunk.rewind()
        for other in list(self._chunks):
            if other.state is chunk.state:
                self._chunks.remove(other)
                self._chunks.append(other)

    def discard_revoked(self) -> None:
        """Drop what belongs to partitions we no longer have."""
        for chunk in list(self._chunks):
            if chunk.is_stale or self._positions.get(chunk.state.tp) is not chunk.state:
                self._remove(chunk)
                self._discarded.append(chunk)

    def ready(self) -> list[FetchedChunk]:
        """What may be read now, in order."""
        self._release_discarded()
        return [chunk for chunk in list(self._chunks) if self._is_ready(chunk)]


class RecordReader:
    """Takes records or columns out of a buffer and moves the positions on."""

    def __init__(
        self, buffer: Buffer, config: ConsumerConfig, tally: ConsumedTally | None = None
    ) -> None:
        self._buffer = buffer
        self._tally = tally or ConsumedTally()
        self._check_crcs = config.check_crcs
        self._key = config.key_deserializer
        self._value = config.value_deserializer
        self._is_text = all(
            each is None or each is deserialize_str for each in (self._key, self._value)
        )
        """Whether nothing else is deserialized than text, which has a short way."""
        self.is_raw = False
        """Whether keys and values stay bytes, because whoever takes them deserializes."""
        self._hand: tuple[FetchedChunk, list[AnyRecord], int] | None = None
        """What is handed out: its chunk, the records still there, and how many there were."""

    def take(self, limit: int) -> list[AnyRecord]:
        """At most ``limit`` records, without waiting.

        Raises:
            CorruptDataError: the next batch cannot be read; ``seek`` past it.
            RecordDeserializationError: a deserializer failed on the next record.
        """
        taken: list[AnyRecord] = []
        self.fill(taken, limit)
        return taken

    def fill(self, taken: list[AnyRecord], limit: int) -> None:
        """As ``take``, into an empty list."""
        while len(taken) < limit:
            try:
                found = self._next_part(limit - len(taken), is_first=not taken)
            except _UNREADABLE:
                if taken:
                    break  # first what is good; the next take meets the bad one at once
                raise
            if found is None:
                break
            chunk, part = found
            taken += part
            chunk.taken(len(part))
            self._tally.took(chunk.state, len(part))

    def hand_out(self, limit: int) -> list[AnyRecord]:
        """At most ``limit`` records for someone who pops them off the end, one by one.

        The position follows what was popped; ``settle`` brings it up to date. Raises as ``take``.
        """
        found = self._next_part(limit, is_first=True)
        if found is None:
            return []
        chunk, part = found
        hand = part[::-1]
        self._hand = (chunk, hand, len(hand))
        return hand

    def settle(self) -> None:
        """Take back what was handed out and not popped, before anything else looks at positions.

        The records stay decoded in their chunk: whoever reads next goes on with them.
        """
        if self._hand is not None:
            (chunk, hand, count), self._hand = self._hand, None
            count -= len(hand)
            hand.clear()
            if count and not chunk.is_stale:
                chunk.taken(count)
                self._tally.took(chunk.state, count)

    def _next_part(
        self, limit: int, *, is_first: bool
    ) -> tuple[FetchedChunk, list[AnyRecord]] | None:
        """The next records of one chunk, deserialized; they are not taken yet.

        Not to be changed: it may be the chunk's own list, as a copy of all of it costs its share.
        If they cannot be read and ``is_first``, other partitions go before them next time.
        """
        while (chunk := self._buffer.next_chunk()) is not None:
            try:
                records = chunk.records(check_crcs=self._check_crcs)
                if records:
                    if self.is_raw and chunk.deserialized > chunk.start:
                        chunk.rewind()  # handed out before, and not popped
                        continue
                    start, end = chunk.start, min(len(records), chunk.start + limit)
                    if not self.is_raw and (self._key is not None or self._value is not None):
                        end = self._deserialize(chunk, records, end)
                    is_all = end - start == len(records)
                    return chunk, records if is_all else records[start:end]
                self._finish(chunk)
            except _UNREADABLE as error:
                if is_first:
                    self._buffer.set_aside(chunk)
                else:
                    chunk.rewind()
                raise _named(error, chunk.state) from error.__cause__
        return None

    def _finish(self, chunk: FetchedChunk) -> None:
        state = chunk.state
        if not chunk.is_stale and state.position is not None:
            # Compaction may have removed the last records: the position goes past them.
            state.position = max(state.position, chunk.next_offset)
            self._tally.finished(state, len(chunk.data))
        self._buffer.drop(chunk)

    def _deserialize(self, chunk: FetchedChunk, records: list[AnyRecord], end: int) -> int:
        """Keys and values in place; returns where to stop: at ``end``, or before one that fails.

        Raises:
            RecordDeserializationError: already the first fails.
        """
        first = max(chunk.start, chunk.deserialized)
        if self._is_text:
            keys, values = self._key is not None, self._value is not None
            first = texts_of(records, first, end, keys=keys, values=values)
            chunk.deserialized = max(chunk.deserialized, first)
        for index in range(first, end):
            record = records[index]
            key, value, part = record.key, record.value, "key"
            try:
                if key is not None and self._key is not None:
                    key = self._key(key)
                part = "value"
                if value is not None and self._value is not None:
                    value = self._value(value)
            except Exception as error:
                if index > chunk.start:
                    return index
                raise RecordDeserializationError(chunk.state.tp, record.offset, part) from error
            put(record, key, value)
            chunk.deserialized = index + 1
        return end

    def take_arrow(self, limit: int) -> pa.RecordBatch | None:
        """At most ``limit`` rows as columns, at least one; or ``None`` if nothing is buffered.

        Raises:
            CorruptDataError: the next batch cannot be read; ``seek`` past it.
        """
        window = limit
        while True:
            chosen, wanted, ends = self._choose(window)
            if not chosen:
                return None
            arrow_batch = self._take_chosen(limit, chosen, wanted, ends)
            if arrow_batch.num_rows:
                return arrow_batch
            window *= 2  # compaction can leave very little of very many offsets

    def _take_chosen(
        self,
        limit: int,
        chosen: list[FetchedChunk],
        wanted: list[Chunk],
        ends: dict[AssignedPartition, int],
    ) -> pa.RecordBatch:
        """The first rows of what was chosen, and the positions behind them; perhaps no rows."""
        try:
            arrow_batch, is_all = self._first_part(wanted)
        except (CorruptDataError, BatchTooLargeError):
            # What is bad may lie in a later chunk, if the first ones have no rows.
            chosen, wanted = chosen[:1], wanted[:1]
            arrow_batch, is_all = self._first_part_of(chosen[0], wanted[0])
            ends = {chosen[0].state: max(wanted[0][3], wanted[0][4] or 0)}
        if arrow_batch.num_rows > limit:
            arrow_batch, is_all = arrow_batch.slice(0, limit), False
        if not is_all and 0 < arrow_batch.num_rows < _rows_at_most(wanted):
            chosen, ends = _reached(arrow_batch, chosen, wanted)
        before = {state: state.position or 0 for state in ends}
        for state, end in ends.items():
            state.position = end
        self._count_rows(arrow_batch, before)
        for chunk in chosen:
            chunk.note_epoch()
            if chunk.next_offset <= (chunk.state.position or 0):
                self._tally.finished(chunk.state, len(chunk.data))
                self._buffer.drop(chunk)
            else:
                chunk.rewind()
        return arrow_batch

    def _count_rows(
        self, arrow_batch: pa.RecordBatch, before: dict[AssignedPartition, int]
    ) -> None:
        """Tell how many rows are of which partition: as many as offsets, unless some are gone."""
        rows = {state: (state.position or 0) - start for state, start in before.items()}
        if sum(rows.values()) != arrow_batch.num_rows:
            rows = _rows_by_partition(arrow_batch, before)
        for state, count in rows.items():
            if count:
                self._tally.took(state, count)

    def _choose(
        self, limit: int
    ) -> tuple[list[FetchedChunk], list[Chunk], dict[AssignedPartition, int]]:
        """Chunks to decode together, what to take of each, and the positions afterwards.

        Offsets bound the rows from above: compaction and transactions only make them fewer.
        """
        chosen: list[FetchedChunk] = []
        wanted: list[Chunk] = []
        ends: dict[AssignedPartition, int] = {}
        size_bytes = 0
        for chunk in self._buffer.ready():
            state = chunk.state
            start = ends.get(state, state.position)
            if start is None or limit <= 0 or size_bytes >= _DECODE_BYTES:
                break
            end = min(chunk.next_offset, start + limit)
            chosen.append(chunk)
            wanted.append(chunk.part(start, end))
            ends[state] = max(start, end)
            limit -= max(0, end - start)
            size_bytes += len(chunk.data)
        return chosen, wanted, ends

    def _first_part(self, wanted: Sequence[Chunk]) -> tuple[pa.RecordBatch, bool]:
        """All rows, or those before a bad batch, or as many as one Arrow batch should hold.

        Also whether these are all for sure.
        """
        from shoal.records.columns import decode_first

        return decode_first(wanted, check_crc=self._check_crcs, max_bytes=_COLUMNS_BYTES)

    def _first_part_of(self, chunk: FetchedChunk, wanted: Chunk) -> tuple[pa.RecordBatch, bool]:
        try:
            return self._first_part([wanted])
        except (CorruptDataError, BatchTooLargeError) as error:
            self._buffer.set_aside(chunk)
            raise _named(error, chunk.state) from None


def _rows_by_partition(
    arrow_batch: pa.RecordBatch, states: Iterable[AssignedPartition]
) -> dict[AssignedPartition, int]:
    from shoal.records.columns import rows_by_partition

    counts = rows_by_partition(arrow_batch)
    return {state: counts.get(state.tp, 0) for state in states}


def _rows_at_most(wanted: Sequence[Chunk]) -> int:
    """As many, if nothing was compacted away or aborted."""
    return sum(max(0, (chunk[4] or 0) - chunk[3]) for chunk in wanted)


def _reached(
    arrow_batch: pa.RecordBatch, chosen: list[FetchedChunk], wanted: list[Chunk]
) -> tuple[list[FetchedChunk], dict[AssignedPartition, int]]:
    """The chunks up to the last row, and the positions after it."""
    last = arrow_batch.slice(arrow_batch.num_rows - 1)
    topic, partition, offset = (
        last.column(name)[0].as_py() for name in ("topic", "partition", "offset")
    )
    ends: dict[AssignedPartition, int] = {}
    for index, (chunk, part) in enumerate(zip(chosen, wanted, strict=True)):
        start, end = part[3], part[4] or 0
        if chunk.state.tp == (topic, partition) and start <= offset < end:
            ends[chunk.state] = offset + 1
            return chosen[: index + 1], ends
        ends[chunk.state] = max(start, end)
    raise AssertionError(f"nobody asked for {topic}-{partition} at offset {offset}")


def _named(error: Exception, state: AssignedPartition) -> Exception:
    if isinstance(error, CorruptDataError):
        return type(error)(
            f"{error.reason} (in {state.tp} at offset {state.position}; seek past it to go on)",
            position=error.position,
        )
    return error
