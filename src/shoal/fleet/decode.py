"""Records of ``__consumer_offsets`` as columns, many at once.

Nearly all of them are offset commits, and those have a fixed layout:

    key     int16 0 or 1 | int16 length, group | int16 length, topic | int32 partition
    value   int16 version | int64 offset | int32 leader epoch (from v3)
            | metadata: int16 length (v4: one byte, length + 1), text
            | int64 commit time | int64 expiry (v1 alone) | tagged fields (v4)

so they are read with NumPy: an integer is gathered from all records at its place in each, checked
against the length of its record, and never one record at a time.

Rule: what the fast path cannot prove to be whole goes through ``wire.offsets_topic``, whose word is
final: both give the same rows, or the same refusal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from shoal.errors import InvalidMessageError
from shoal.fleet.tables import schema
from shoal.wire.offsets_topic import OffsetCommitKey, OffsetCommitValue, decode_key, decode_value

if TYPE_CHECKING:
    import pyarrow as pa

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

COMMIT_TYPES: Final = (0, 1)
_NO_EPOCH: Final = -1
_UUID_BYTES: Final = 16
_COMPACT_MAX: Final = 127
"""The longest length that a varint holds in one byte."""


class Cells:
    """A binary column as one run of bytes and the place of each cell in it."""

    def __init__(self, column: pa.Array) -> None:
        import pyarrow as pa

        if not pa.types.is_binary(column.type):
            column = column.cast(pa.binary())
        self.column = column
        _, offsets, data = column.buffers()
        count, first = len(column), column.offset
        bounds = np.frombuffer(offsets, np.int32)[first : first + count + 1].astype(np.int64)
        # Eight bytes more, so that an integer may be gathered at any place before it is checked.
        body = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        low, high = (int(bounds[0]), int(bounds[-1])) if count else (0, 0)
        self.data = np.concatenate([body[low:high], np.zeros(8, np.uint8)])
        self.starts = bounds[:-1] - low
        self.lengths = bounds[1:] - bounds[:-1]
        self.present: Mask = (
            np.asarray(column.is_valid(), dtype=np.bool_)
            if column.null_count
            else np.ones(count, np.bool_)
        )

    def integers(self, positions: Ints, kind: str) -> Ints:
        """The big-endian integers at these positions; anything where a position is outside."""
        width = np.dtype(kind).itemsize
        view = np.ndarray((len(self.data) - width + 1,), kind, self.data, strides=(1,))
        inside = np.clip(positions, 0, len(view) - 1)
        return view[inside].astype(np.int64)

    def texts(self, starts: Ints, lengths: Ints) -> tuple[pa.Array, bool]:
        """The text of each cell from ``starts``, and whether all of it is UTF-8."""
        import pyarrow as pa

        ends = np.cumsum(lengths)
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        body = self.data[_spread(starts, lengths, offsets)]
        array = pa.Array.from_buffers(
            pa.string(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(body)]
        )
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            return array, False
        return array, True


def _spread(starts: Ints, lengths: Ints, offsets: npt.NDArray[np.int32]) -> Ints:
    """The index of every byte of every cell, cell after cell."""
    total = int(offsets[-1]) if len(offsets) else 0
    return np.repeat(starts - offsets[:-1], lengths) + np.arange(total, dtype=np.int64)


def record_types(keys: Cells) -> Ints:
    """The type of each record, from the first two bytes of its key; -1 where there are none."""
    types = keys.integers(keys.starts, ">i2")
    return np.where(keys.present & (keys.lengths >= 2), types, -1)


@dataclass
class _Keys:
    """Commit keys: columns, and which of them the fast path has read."""

    group: pa.Array
    topic: pa.Array
    partition: Ints
    read: Mask


def _read_keys(cells: Cells) -> _Keys:
    start, length = cells.starts, cells.lengths
    group_length = cells.integers(start + 2, ">i2")
    topic_at = start + 4 + np.maximum(group_length, 0)
    topic_length = cells.integers(topic_at, ">i2")
    whole = (length >= 10) & (group_length >= 0) & (topic_at - start + 6 <= length)
    whole &= topic_at - start + 2 + topic_length + 4 == length
    group_length, topic_length = (np.where(whole, n, 0) for n in (group_length, topic_length))
    group, groups_fit = cells.texts(np.where(whole, start + 4, 0), group_length)
    topic, topics_fit = cells.texts(np.where(whole, topic_at + 2, 0), topic_length)
    if not (groups_fit and topics_fit):
        # Somewhere in here is no text: the codec says where.
        whole = np.zeros_like(whole)
        group, topic = _blank(len(whole)), _blank(len(whole))
    partition = cells.integers(topic_at + 2 + topic_length, ">i4")
    return _Keys(group, topic, partition, whole)


def _blank(count: int) -> pa.Array:
    import pyarrow as pa

    return pa.array([""] * count, pa.string())


@dataclass
class _Values:
    """Commit values: columns, and which of them the fast path has read."""

    offset: Ints
    leader_epoch: Ints
    metadata: pa.Array
    commit_ms: Ints
    expire_ms: Ints
    has_topic_id: Mask
    topic_id_at: Ints
    read: Mask


def _read_values(cells: Cells) -> _Values:
    start, length = cells.starts, cells.lengths
    end = start + length
    version = np.where(length >= 2, cells.integers(start, ">i2"), -1)
    text_at = start + np.where(version >= 3, 14, 10)
    plain, compact = (version >= 0) & (version <= 3), version == 4
    short = cells.data[np.clip(text_at, 0, len(cells.data) - 1)].astype(np.int64)
    text_length = np.where(plain, cells.integers(text_at, ">i2"), short - 1)
    time_at = text_at + np.where(plain, 2, 1) + np.maximum(text_length, 0)
    whole = (text_length >= 0) & (text_at < end)
    tags = cells.data[np.clip(time_at + 8, 0, len(cells.data) - 1)]
    has_topic_id = compact & (tags == 1) & _is_topic_id(cells, time_at + 9)
    rest = np.where(version == 1, 16, np.where(plain, 8, np.where(has_topic_id, 9 + 18, 9)))
    whole &= (time_at + rest == end) & (plain | (compact & (short <= _COMPACT_MAX)))
    whole &= plain | has_topic_id | (tags == 0)
    whole &= cells.present
    text_length = np.where(whole, text_length, 0)
    metadata, fits = cells.texts(time_at - text_length, text_length)
    if not fits:
        whole &= text_length == 0
        metadata = _blank(len(whole))
    return _Values(
        offset=cells.integers(start + 2, ">i8"),
        leader_epoch=np.where(version >= 3, cells.integers(start + 10, ">i4"), _NO_EPOCH),
        metadata=metadata,
        commit_ms=cells.integers(time_at, ">i8"),
        expire_ms=np.where(version == 1, cells.integers(time_at + 8, ">i8"), -1),
        has_topic_id=has_topic_id & whole,
        topic_id_at=time_at + 11,
        read=whole,
    )


def _is_topic_id(cells: Cells, at: Ints) -> Mask:
    """Tag 0 with sixteen bytes, which is all that version 4 has so far."""
    last = len(cells.data) - 1
    tag, size = (cells.data[np.clip(at + n, 0, last)] for n in (0, 1))
    return np.asarray((tag == 0) & (size == _UUID_BYTES))


@dataclass
class Decoded:
    """The commits of a batch, and what nobody could read of them."""

    commits: pa.RecordBatch
    unreadable: pa.RecordBatch


def decode_commits(records: pa.RecordBatch) -> Decoded:
    """The offset commits among ``records``; other records are left out."""
    import pyarrow as pa

    keys = Cells(_column(records, "key"))
    types = record_types(keys)
    rows = np.flatnonzero(np.isin(types, COMMIT_TYPES))
    if len(rows) < records.num_rows:
        records = records.take(pa.array(rows))
    key_of = _column(records, "key").dictionary_encode()
    key_index = np.asarray(key_of.indices, dtype=np.int64)
    names = _read_keys(Cells(key_of.dictionary))
    values = Cells(_column(records, "value"))
    found = _read_values(values)
    fast = names.read[key_index] & (found.read | ~values.present)
    batch = _assemble(records, names, key_of.indices, values, found)
    if fast.all():
        return Decoded(batch, _empty("unreadable"))
    slow, unreadable = _by_codec(records.filter(pa.array(~fast)))
    return Decoded(_merged(batch.filter(pa.array(fast)), slow), unreadable)


def _column(records: pa.RecordBatch, name: str) -> pa.Array:
    column = records.column(name)
    return column.combine_chunks() if hasattr(column, "chunks") else column


def _assemble(
    records: pa.RecordBatch, names: _Keys, index: pa.Array, values: Cells, found: _Values
) -> pa.RecordBatch:
    """The columns of ``commits``; rows that were not read hold anything."""
    import pyarrow as pa

    gone = ~values.present
    times = pa.timestamp("us", "UTC")

    def nullable(numbers: Ints, kind: Any, null: Mask) -> pa.Array:
        return pa.array(numbers, pa.int64(), mask=null | gone).cast(kind, safe=False)

    def time(ms: Ints, null: Mask) -> pa.Array:
        # Years beyond what microseconds hold are no times that a broker writes.
        return nullable(np.where(null, 0, ms) * 1000, times, null)

    partition = pa.array(names.partition, pa.int64()).cast(pa.int32(), safe=False)
    metadata = found.metadata
    if gone.any():
        import pyarrow.compute as pc

        metadata = pc.if_else(pa.array(gone), pa.scalar(None, pa.string()), metadata)
    columns = [
        names.group.take(index),
        names.topic.take(index),
        partition.take(index),
        nullable(found.offset, pa.int64(), gone),
        nullable(found.leader_epoch, pa.int32(), found.leader_epoch < 0),
        metadata,
        time(found.commit_ms, gone),
        time(found.expire_ms, found.expire_ms < 0),
        _topic_ids(values, found),
        *_place(records),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema("commits"))


def _place(records: pa.RecordBatch) -> list[pa.Array]:
    import pyarrow as pa

    kinds = {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    return [_column(records, name).cast(kind) for name, kind in kinds.items()]


def _topic_ids(values: Cells, found: _Values) -> pa.Array:
    import pyarrow as pa

    rows = np.flatnonzero(found.has_topic_id)
    if not len(rows):
        return pa.nulls(len(found.read), pa.binary())
    at = found.topic_id_at[rows]
    ids = [values.data[start : start + _UUID_BYTES].tobytes() for start in at.tolist()]
    cells: list[bytes | None] = [None] * len(found.read)
    for row, topic_id in zip(rows.tolist(), ids, strict=True):
        cells[row] = _known_id(topic_id)
    return pa.array(cells, pa.binary())


def _known_id(topic_id: bytes) -> bytes | None:
    return topic_id if any(topic_id) else None


def _by_codec(records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """One record at a time, for what is rare; and those that cannot be read, with the reason."""
    import pyarrow as pa

    rows: list[dict[str, Any]] = []
    bad: list[dict[str, Any]] = []
    for one in _pylist(records):
        place = {f"log_{name}": one[field] for name, field in _PLACES.items()}
        try:
            rows.append(_commit_row(one["key"], one["value"]) | place)
        except InvalidMessageError as error:
            bad.append({"reason": str(error), "key": one["key"], "value": one["value"]} | place)
    return (
        pa.RecordBatch.from_pylist(rows, schema("commits")),
        pa.RecordBatch.from_pylist(bad, schema("unreadable")),
    )


_PLACES: Final = {"partition": "partition", "offset": "offset", "time": "timestamp"}


def _pylist(records: pa.RecordBatch) -> list[dict[str, Any]]:
    import pyarrow as pa

    names = ["key", "value", "partition", "offset"]
    columns = [_column(records, name) for name in names]
    times = _column(records, "timestamp").cast(pa.timestamp("us", "UTC"))
    wanted = pa.RecordBatch.from_arrays([*columns, times], names=[*names, "timestamp"])
    rows: list[dict[str, Any]] = wanted.to_pylist()
    return rows


def _commit_row(key: bytes, value: bytes | None) -> dict[str, Any]:
    name = decode_key(key)
    assert isinstance(name, OffsetCommitKey), "only commits come here"
    row: dict[str, Any] = {"group": name.group, "topic": name.topic, "partition": name.partition}
    commit = decode_value(name, value)
    if commit is None:
        return row
    assert isinstance(commit, OffsetCommitValue)
    return row | {
        "offset": commit.offset,
        "leader_epoch": None if commit.leader_epoch < 0 else commit.leader_epoch,
        "metadata": commit.metadata,
        "commit_time": micros(commit.commit_timestamp),
        "expire_time": None if commit.expire_timestamp < 0 else micros(commit.expire_timestamp),
        "topic_id": _known_id(bytes(commit.topic_id)),
    }


def micros(ms: int) -> int:
    """A time of Kafka's as Arrow takes it; wraps around as the fast path does."""
    return (ms * 1000 + 2**63) % 2**64 - 2**63


def _merged(fast: pa.RecordBatch, slow: pa.RecordBatch) -> pa.RecordBatch:
    """Both, in the order of the log."""
    import pyarrow as pa

    if not slow.num_rows:
        return fast
    both = pa.Table.from_batches([fast, slow]).combine_chunks()
    ordered = both.sort_by([("log_partition", "ascending"), ("log_offset", "ascending")])
    return ordered.to_batches()[0]


def _empty(table: str) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema(table))
