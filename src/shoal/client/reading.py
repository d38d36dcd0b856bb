"""Fetched bytes waiting for the user, and how they become records or columns.

A *chunk* is what one answer held for one partition: whole batches, one after the other. Chunks
queue up in a ``Buffer`` (the engine puts them in) and are opened here, in the user's thread, when
a poll asks for them: no object is made for a record nobody asked for.

Rule: a record is returned only if its partition still stands where the chunk was fetched for (the
``lap``) and its offset is not before the position; so whatever happened since the fetch, no record
is returned twice and none of a partition that was given away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from shoal.client.positions import PartitionState, Positions
from shoal.errors import BatchTooLargeError, CorruptDataError, RecordDeserializationError
from shoal.records.batch import iter_headers, parse_records, read_body
from shoal.records.chunks import ChunkLike
from shoal.records.record import Fields
from shoal.types import Record, TimestampType

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.client.config import ConsumerConfig


# More than this is not decoded at a time: columns are a second copy of what is buffered.
_DECODE_BYTES: Final = 16 * 1024 * 1024


class Chunk:
    """Whole batches of one partition."""

    __slots__ = ("_rows", "_source", "data", "lap", "next_offset", "state")

    def __init__(self, state: PartitionState, data: memoryview, next_offset: int) -> None:
        self.state = state
        self.lap = state.lap
        self.data = data
        self.next_offset = next_offset
        self._source: Iterator[_Rows] | None = None
        self._rows: _Rows | None = None

    @property
    def is_stale(self) -> bool:
        return self.lap != self.state.lap

    def rows(self, *, check_crcs: bool) -> _Rows | None:
        """The batch the reader is in; ``None`` when there is no other."""
        if self._rows is not None and self._rows.is_done:
            self._rows = None
        if self._rows is None:
            if self._source is None:
                self._source = _batches(self.data, self.state, check_crcs)
            self._rows = next(self._source, None)
        return self._rows

    def rewind(self) -> None:
        """Open the chunk again from the partition's position, next time."""
        self._source = self._rows = None


class _Rows:
    """The records of one batch, handed out from the front."""

    __slots__ = ("fields", "leader_epoch", "next_offset", "start", "timestamp_type")

    def __init__(
        self,
        fields: list[Fields],
        timestamp_type: TimestampType,
        leader_epoch: int | None,
        next_offset: int,
    ) -> None:
        self.fields = fields
        self.timestamp_type = timestamp_type
        self.leader_epoch = leader_epoch
        self.next_offset = next_offset
        self.start = 0

    @property
    def is_done(self) -> bool:
        return self.start >= len(self.fields)


def _batches(data: memoryview, state: PartitionState, check_crcs: bool) -> Iterator[_Rows]:
    for position, header in iter_headers(data):
        wanted = state.position
        if header.is_control or wanted is None or header.next_offset <= wanted:
            continue
        body = read_body(data, position, header, check_crc=check_crcs)
        fields = parse_records(body, header, position)
        rows = _Rows(
            fields,
            header.timestamp_type,
            None if header.leader_epoch < 0 else header.leader_epoch,
            header.next_offset,
        )
        if fields and fields[0][0] < wanted:
            # The batch begins before the position: a fetch always returns whole batches.
            rows.start = sum(1 for row in fields if row[0] < wanted)
        if not rows.is_done:
            yield rows


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
        return not (chunk.is_stale or state.is_paused or state.is_held)

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

    def take(self, limit: int) -> list[Record[Any, Any]]:
        """At most ``limit`` records, without waiting.

        Raises:
            CorruptDataError: the next batch cannot be read; ``seek`` past it.
            RecordDeserializationError: a deserializer failed on the next record.
        """
        taken: list[Record[Any, Any]] = []
        while len(taken) < limit:
            chunk = self._buffer.next_chunk()
            if chunk is None:
                break
            try:
                rows = chunk.rows(check_crcs=self._check_crcs)
                if rows is None:
                    self._finish(chunk)
                    continue
                self._records(chunk.state, rows, limit, taken)
            except (CorruptDataError, BatchTooLargeError, RecordDeserializationError) as error:
                if taken:
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

    def _records(
        self, state: PartitionState, rows: _Rows, limit: int, taken: list[Record[Any, Any]]
    ) -> None:
        start = rows.start
        end = min(len(rows.fields), start + limit - len(taken))
        topic, partition = state.tp
        kind, epoch = rows.timestamp_type, rows.leader_epoch
        key, value = self._key, self._value
        if key is None and value is None:
            taken += [
                Record(topic, partition, offset, time, kind, k, v, headers, epoch)
                for offset, time, k, v, headers in rows.fields[start:end]
            ]
        else:
            end = self._deserialized(state, rows, end, taken)
        rows.start = end
        state.leader_epoch = epoch
        state.position = rows.next_offset if rows.is_done else rows.fields[end][0]

    def _deserialized(
        self, state: PartitionState, rows: _Rows, end: int, taken: list[Record[Any, Any]]
    ) -> int:
        """Append until ``end`` or until a deserializer fails; where it stopped."""
        topic, partition = state.tp
        kind, epoch = rows.timestamp_type, rows.leader_epoch
        for index in range(rows.start, end):
            offset, time, raw_key, raw_value, headers = rows.fields[index]
            part = "key"
            try:
                key = raw_key if raw_key is None or self._key is None else self._key(raw_key)
                part = "value"
                value = (
                    raw_value
                    if raw_value is None or self._value is None
                    else self._value(raw_value)
                )
            except Exception as error:
                if taken:
                    return index
                raise RecordDeserializationError(state.tp, offset, part) from error
            taken.append(Record(topic, partition, offset, time, kind, key, value, headers, epoch))
        return end

    def take_arrow(self, limit: int) -> pa.RecordBatch | None:
        """At most ``limit`` rows as columns, or ``None`` if nothing is there.

        Raises:
            CorruptDataError: the next batch cannot be read; ``seek`` past it.
        """
        from shoal.records.columns import decode_columns

        chosen, wanted, ends = self._choose(limit)
        if not chosen:
            return None
        try:
            arrow_batch = decode_columns(wanted, check_crc=self._check_crcs)
        except (CorruptDataError, BatchTooLargeError):
            arrow_batch = self._first_part(chosen[0], wanted[0])
            ends = {chosen[0].state: arrow_batch.column("offset")[-1].as_py() + 1}
            chosen = []
        for state, end in ends.items():
            state.position = end
        for chunk in chosen:
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

    def _first_part(self, chunk: Chunk, wanted: ChunkLike) -> pa.RecordBatch:
        """What can be read of a chunk with a bad batch in it."""
        from shoal.records.columns import iter_columns

        try:
            return next(iter_columns([wanted], check_crc=self._check_crcs))
        except (CorruptDataError, BatchTooLargeError) as error:
            self._buffer.set_aside(chunk)
            raise _named(error, chunk.state) from None


def _named(error: Exception, state: PartitionState) -> Exception:
    if isinstance(error, CorruptDataError):
        return type(error)(
            f"{error.reason} (in {state.tp} at offset {state.position}; seek past it to go on)",
            position=error.position,
        )
    return error
