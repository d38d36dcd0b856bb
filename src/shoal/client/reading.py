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
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from shoal.client.positions import PartitionState, Positions
from shoal.errors import BatchTooLargeError, CorruptDataError, RecordDeserializationError
from shoal.records.batch import HEADER_SIZE, iter_headers
from shoal.records.chunks import ChunkLike
from shoal.records.objects import iter_records
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


class Chunk:
    """Whole batches of one partition."""

    __slots__ = ("_opened", "_records", "data", "epochs", "lap", "next_offset", "start", "state")

    def __init__(
        self, state: PartitionState, data: memoryview, next_offset: int, epochs: Epochs = ()
    ) -> None:
        self.state = state
        self.lap = state.lap
        self.data = data
        self.next_offset = next_offset
        self.epochs = epochs
        self._opened: Iterator[list[AnyRecord]] | None = None
        self._records: list[AnyRecord] = []
        self.start = 0

    @property
    def is_stale(self) -> bool:
        return self.lap != self.state.lap

    def records(self, *, check_crcs: bool) -> list[AnyRecord]:
        """Some records, of which those from ``start`` on are not taken; none at the end."""
        while self.start >= len(self._records):
            if self._opened is None:
                topic, partition = self.state.tp
                chunk = (topic, partition, self.data, self.state.position or 0, None)
                self._opened = iter_records(chunk, check_crc=check_crcs)
            self._records = []
            self.start = 0
            records = next(self._opened, None)
            if records is None:
                return []
            self._records = records
        return self._records

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
        self.start = 0


def extent(data: bytes | memoryview, offset: int) -> tuple[int, Epochs]:
    """Where to fetch next after the whole batches in ``data``, and which epochs wrote them.

    Not the last record plus one: compaction leaves batches whose last offsets are gone. Hops from
    batch to batch in as few steps as it can; what looks odd is left to ``iter_headers`` to judge.

    Raises:
        CorruptDataError: something that is no batch begins at its ``position``.
    """
    epochs: list[tuple[int, int]] = []
    known, position, size = -1, 0, len(data)
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
        if base + delta >= offset:
            offset = base + delta + 1
    try:
        for _, header in iter_headers(memoryview(data)[position:]):
            raise AssertionError(f"a batch that is well was left out: {header}")
    except CorruptDataError as error:
        raise type(error)(error.reason, position=position) from None
    return offset, epochs


class Buffer:
    """Chunks in the order they came. The engine appends, the user's thread takes."""

    def __init__(self, positions: Positions, on_room: Callable[[], None]) -> None:
        self._positions = positions
        self._on_room = on_room
        self._chunks: deque[Chunk] = deque()

    def add(self, chunk: Chunk) -> None:
        chunk.state.added_bytes += len(chunk.data)
        self._chunks.append(chunk)

    @property
    def has_ready(self) -> bool:
        """Whether a take would return something."""
        return any(self._is_ready(chunk) for chunk in list(self._chunks))

    def _is_ready(self, chunk: Chunk) -> bool:
        state = chunk.state
        return not (chunk.is_stale or state.is_paused or state.is_held or state.is_doubtful)

    def next_chunk(self) -> Chunk | None:
        """The first chunk that may be read, left in place; stale ones before it are dropped."""
        for chunk in list(self._chunks):
            if chunk.is_stale:
                self.drop(chunk)
            elif self._is_ready(chunk):
                return chunk
        return None

    def drop(self, chunk: Chunk) -> None:
        """``chunk`` is used up."""
        self._chunks.remove(chunk)
        chunk.state.taken_bytes += len(chunk.data)
        self._on_room()

    def set_aside(self, chunk: Chunk) -> None:
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
                self.drop(chunk)

    def ready(self) -> list[Chunk]:
        """What may be read now, in order."""
        return [chunk for chunk in list(self._chunks) if self._is_ready(chunk)]


class Reader:
    """Takes records or columns out of a buffer and moves the positions on."""

    def __init__(self, buffer: Buffer, config: ConsumerConfig) -> None:
        self._buffer = buffer
        self._check_crcs = config.check_crcs
        self._key = config.key_deserializer
        self._value = config.value_deserializer

    def take(self, limit: int) -> list[AnyRecord]:
        """At most ``limit`` records, without waiting.

        Raises:
            CorruptDataError: the next batch cannot be read; ``seek`` past it.
            RecordDeserializationError: a deserializer failed on the next record.
        """
        taken: list[AnyRecord] = []
        while len(taken) < limit:
            chunk = self._buffer.next_chunk()
            if chunk is None:
                break
            try:
                records = chunk.records(check_crcs=self._check_crcs)
                if records:
                    self._take_from(chunk, records, limit, taken)
                else:
                    self._finish(chunk)
            except (CorruptDataError, BatchTooLargeError, RecordDeserializationError) as error:
                if taken:
                    chunk.rewind()
                    break  # first what is good; the next take meets the bad one at once
                self._buffer.set_aside(chunk)
                raise _named(error, chunk.state) from error.__cause__
        return taken

    def _finish(self, chunk: Chunk) -> None:
        state = chunk.state
        if not chunk.is_stale and state.position is not None:
            # Compaction may have removed the last records: the position goes past them.
            state.position = max(state.position, chunk.next_offset)
        self._buffer.drop(chunk)

    def _take_from(
        self, chunk: Chunk, records: list[AnyRecord], limit: int, taken: list[AnyRecord]
    ) -> None:
        state = chunk.state
        start, end = chunk.start, min(len(records), chunk.start + limit - len(taken))
        part = records[start:end]
        if self._key is not None or self._value is not None:
            self._deserialize(state, part, taken)
        taken += part
        chunk.start = start + len(part)
        if part:
            state.leader_epoch = part[-1].leader_epoch
            state.position = part[-1].offset + 1

    def _deserialize(
        self, state: PartitionState, records: list[AnyRecord], before: list[AnyRecord]
    ) -> None:
        """Keys and values in place; a record that fails ends the list before it."""
        for index, record in enumerate(records):
            key, value, part = record.key, record.value, "key"
            try:
                if key is not None and self._key is not None:
                    key = self._key(key)
                part = "value"
                if value is not None and self._value is not None:
                    value = self._value(value)
            except Exception as error:
                if index or before:
                    del records[index:]
                    return
                raise RecordDeserializationError(state.tp, record.offset, part) from error
            record.key, record.value = key, value

    def take_arrow(self, limit: int) -> pa.RecordBatch | None:
        """At most ``limit`` rows as columns, or ``None`` if nothing is there.

        Raises:
            CorruptDataError: the next batch cannot be read; ``seek`` past it.
        """
        chosen, wanted, ends = self._choose(limit)
        if not chosen:
            return None
        try:
            arrow_batch = self._first_part(wanted)
        except (CorruptDataError, BatchTooLargeError):
            # What is bad may lie in a later chunk, if the first ones have no rows.
            chosen, wanted = chosen[:1], wanted[:1]
            arrow_batch = self._first_part_of(chosen[0], wanted[0])
            ends = {chosen[0].state: max(wanted[0][3], wanted[0][4] or 0)}
        if 0 < arrow_batch.num_rows < _rows_at_most(wanted):
            chosen, ends = _reached(arrow_batch, chosen, wanted)
        for state, end in ends.items():
            state.position = end
        for chunk in chosen:
            chunk.note_epoch()
            if chunk.state.position == chunk.next_offset or chunk.next_offset <= (
                chunk.state.position or 0
            ):
                self._buffer.drop(chunk)
            else:
                chunk.rewind()
        return arrow_batch

    def _choose(self, limit: int) -> tuple[list[Chunk], list[ChunkLike], dict[PartitionState, int]]:
        """Chunks to decode together, what to take of each, and the positions afterwards.

        Offsets bound the rows from above: compaction only makes them fewer.
        """
        chosen: list[Chunk] = []
        wanted: list[ChunkLike] = []
        ends: dict[PartitionState, int] = {}
        size_bytes = 0
        for chunk in self._buffer.ready():
            state = chunk.state
            start = ends.get(state, state.position)
            if start is None or limit <= 0 or size_bytes >= _DECODE_BYTES:
                break
            end = min(chunk.next_offset, start + limit)
            chosen.append(chunk)
            wanted.append((state.tp.topic, state.tp.partition, chunk.data, start, end))
            ends[state] = max(start, end)
            limit -= max(0, end - start)
            size_bytes += len(chunk.data)
        return chosen, wanted, ends

    def _first_part(self, wanted: Sequence[ChunkLike]) -> pa.RecordBatch:
        """All rows, or those before a bad batch, or as many as one Arrow batch should hold."""
        from shoal.records.columns import decode_columns, iter_columns

        parts = iter_columns(wanted, check_crc=self._check_crcs, max_bytes=_COLUMNS_BYTES)
        part = next(parts, None)
        return decode_columns([]) if part is None else part

    def _first_part_of(self, chunk: Chunk, wanted: ChunkLike) -> pa.RecordBatch:
        try:
            return self._first_part([wanted])
        except (CorruptDataError, BatchTooLargeError) as error:
            self._buffer.set_aside(chunk)
            raise _named(error, chunk.state) from None


def _rows_at_most(wanted: Sequence[ChunkLike]) -> int:
    """As many, if nothing was compacted away."""
    return sum(max(0, (chunk[4] or 0) - chunk[3]) for chunk in wanted)


def _reached(
    arrow_batch: pa.RecordBatch, chosen: list[Chunk], wanted: list[ChunkLike]
) -> tuple[list[Chunk], dict[PartitionState, int]]:
    """The chunks up to the last row, and the positions after it."""
    last = arrow_batch.slice(arrow_batch.num_rows - 1)
    topic, partition, offset = (
        last.column(name)[0].as_py() for name in ("topic", "partition", "offset")
    )
    ends: dict[PartitionState, int] = {}
    for index, (chunk, part) in enumerate(zip(chosen, wanted, strict=True)):
        start, end = part[3], part[4] or 0
        if chunk.state.tp == (topic, partition) and start <= offset < end:
            ends[chunk.state] = offset + 1
            return chosen[: index + 1], ends
        ends[chunk.state] = max(start, end)
    raise AssertionError(f"nobody asked for {topic}-{partition} at offset {offset}")


def _named(error: Exception, state: PartitionState) -> Exception:
    if isinstance(error, CorruptDataError):
        return type(error)(
            f"{error.reason} (in {state.tp} at offset {state.position}; seek past it to go on)",
            position=error.position,
        )
    return error
