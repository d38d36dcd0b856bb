"""Columns to batches: keys, values, timestamps and headers in, encoded batches out.

Rule: a column may be an Arrow array or a Python sequence; before the loop it becomes one of two
things, Arrow's memory layout for the C kernel or a list for Python. The bytes that come out are
the same: a batch ends before it would pass a limit, and every batch but a single oversized record
keeps within them. Rows that go to several partitions are not sorted by anybody: they are read in
the order in which they are to be written.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shoal.records import compression
from shoal.records.batch import HEADER_SIZE, NewRecord, read_header, seal
from shoal.records.checksum import Buffer
from shoal.records.kernel import Cut, TableIn, address_of, native, scratch
from shoal.records.record import encode_record
from shoal.types import Header

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES: Final = 1024 * 1024
_ROWS_MAX: Final = 2**31 - 1  # offset deltas have 32 bits
_COLUMN_BYTES_MAX: Final = 2**31 - 1  # and so have Arrow's offsets
_TRANSACTIONAL: Final = 0x10
_CUTS: Final = 256  # batches per call of the kernel, if nobody knows better
_SCRATCH_BYTES: Final = 1024 * 1024
_RECORD_OVERHEAD_MAX: Final = 36
_ARROW_OFFSET: Final = struct.Struct("=i")
_NO_KEY: Final = "a header has no key"
_CHANGED: Final = "a column changed, or is not as long as it says, while it was being encoded"
_TOO_MUCH: Final = "more than 2 GiB in one column; encode it in parts"


class Stamp(NamedTuple):
    """What a batch's header says apart from what follows from its records."""

    base_offset: int = 0
    codec: int = 0
    level: int | None = None
    leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False


class BatchLimits(NamedTuple):
    """A batch ends before it passes one of these; one record alone may pass ``size_bytes``."""

    size_bytes: int = BATCH_BYTES
    rows: int = _ROWS_MAX


class RowGroups(NamedTuple):
    """Rows that belong together, and are not to share a batch with others; 64-bit integers."""

    order: Any
    """Every row, in the order in which they are written."""
    ends: Any
    """Where each group ends in that order; none is empty."""


class GroupBatch(NamedTuple):
    """A batch, and where its rows come from."""

    group: int
    record_count: int
    base_timestamp_ms: int
    data: memoryview


def encode_columns(
    keys: pa.Array | Sequence[bytes | None] | None,
    values: pa.Array | Sequence[bytes | None],
    *,
    timestamps: pa.Array | Sequence[int] | None = None,
    headers: pa.Array | Sequence[Sequence[Header]] | None = None,
    timestamp_ms: int = -1,
    batch_bytes: int = BATCH_BYTES,
    batch_rows: int = _ROWS_MAX,
    max_message_bytes: int | None = None,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> list[bytes]:
    """Encode columns as batches, in order.

    Args:
        keys, values: Arrow binary or string arrays, or sequences of bytes; None is null.
        timestamps: Arrow timestamps (of any unit, rounded down) or milliseconds.
        timestamp_ms: for records without one.
        batch_bytes: how large a batch may be before compression.
        max_message_bytes: what the topic accepts; a batch which is larger after compression
            (one of a single large record, as a rule) is refused.
        base_offset, base_sequence: of the first batch; they count on in the others.

    Raises:
        ValueError: columns of different lengths, a batch above ``max_message_bytes``, or more
            than 2 GiB in one column.
    """
    stamp = Stamp(
        base_offset,
        codec,
        level,
        leader_epoch,
        producer_id,
        producer_epoch,
        base_sequence,
        is_transactional,
    )
    limits = BatchLimits(batch_bytes, batch_rows)
    library = native()
    encoded: Iterator[tuple[range, Buffer]]
    if library is None:
        records = _records(keys, values, timestamps, headers, timestamp_ms)
        encoded = _encode_plain(records, stamp, limits)
    else:
        table = _table(library, keys, values, timestamps, headers, timestamp_ms)
        encoded = _encode_briefly(table, stamp, limits)
    batches = []
    for rows, batch in encoded:
        if max_message_bytes is not None and len(batch) > max_message_bytes:
            raise ValueError(
                f"the batch from row {rows.start} to {rows.stop} has {len(batch)} bytes, "
                f"more than max_message_bytes={max_message_bytes}"
            )
        batches.append(bytes(batch))
    return batches


def encode_groups(
    keys: pa.Array | None,
    values: pa.Array,
    *,
    timestamps: pa.Array | None,
    headers: pa.Array | None,
    timestamp_ms: int,
    groups: RowGroups | None,
    batch_bytes: int,
    codec: int,
    level: int | None,
    take: Callable[[int], memoryview],
) -> Iterator[GroupBatch]:
    """Encode Arrow columns group by group, into memory of the caller.

    Args:
        groups: None is one group of all rows as they lie; else every row is in one.
        take: asked for memory of at least so many bytes. The batches that follow lie in what it
            gave last, beside each other.
    """
    stamp, limits = Stamp(codec=codec, level=level), BatchLimits(batch_bytes)
    library = native()
    if library is None:
        records = _records(keys, values, timestamps, headers, timestamp_ms)
        yield from _encode_plain_groups(records, groups, stamp, limits, take)
        return
    table = _table(library, keys, values, timestamps, headers, timestamp_ms)
    ends = [table.columns.rows] if groups is None else groups.ends.tolist()
    if groups is not None:
        assert len(groups.order) == table.columns.rows == ends[-1], "every row is in a group"
        table.columns.order = _address(table, groups.order)
        table.columns.ends = _address(table, groups.ends)
    group = 0
    if stamp.codec:
        encoded = _encode_briefly(table, stamp, limits)
    else:
        # Two batches that follow each other in a group pass the limit together.
        count = len(ends) + 2 * table.data_bytes // batch_bytes
        room = table.data_bytes + HEADER_SIZE * count
        encoded = _encode_native(table, stamp, limits, room, take, count)
    for rows, batch in encoded:
        while ends[group] <= rows.start:
            group += 1
        yield _group_batch(group, rows, batch, take if stamp.codec else None)


def _group_batch(
    group: int, rows: range, batch: Buffer, take: Callable[[int], memoryview] | None
) -> GroupBatch:
    if take is not None:
        memory = take(len(batch))
        memory[: len(batch)] = batch
        batch = memory[: len(batch)]
    return GroupBatch(group, len(rows), read_header(batch).base_timestamp_ms, memoryview(batch))


def encode_records(records: Sequence[NewRecord], stamp: Stamp) -> bytes | None:
    """One batch of one or more records, as batch.py would encode it; None without the kernel."""
    library = native()
    if library is None:
        return None
    keys, values, headers, timestamps = zip(*records, strict=True)
    table = _table(library, keys, values, timestamps, headers if any(headers) else None, -1)
    (batch,) = (bytes(batch) for _, batch in _encode_briefly(table, stamp, BatchLimits(2**31 - 1)))
    return batch


def _same_length(counts: Sequence[int]) -> int:
    if len(set(counts)) > 1:
        raise ValueError(f"the columns have different lengths: {', '.join(map(str, counts))}")
    return counts[0]


def _is_arrow(column: Any) -> bool:
    return hasattr(column, "type") and hasattr(column, "null_count")


# In Python ----------------------------------------------------------------------------------


def _records(
    keys: Any, values: Any, timestamps: Any, headers: Any, timestamp_ms: int
) -> list[NewRecord]:
    columns = [
        _bytes_list(keys),
        _bytes_list(values),
        _headers_list(headers),
        _timestamps_list(timestamps, timestamp_ms),
    ]
    rows = _same_length([len(column) for column in columns if column is not None])
    defaults = (None, None, (), timestamp_ms)
    filled = [
        [default] * rows if column is None else column
        for column, default in zip(columns, defaults, strict=True)
    ]
    return list(zip(*filled, strict=True))


def _bytes_list(column: Any) -> Any:
    return arrow_binary(column).to_pylist() if _is_arrow(column) else column


def _headers_list(column: Any) -> Any:
    if not _is_arrow(column):
        return column
    whole = _arrow_lists(column)
    name, content = _header_fields(whole)
    if _lacks_key(whole.flatten(), name):
        raise ValueError(_NO_KEY)
    rows = [[[*header.values()] for header in row or ()] for row in whole.to_pylist()]
    return [[(header[name], header[content]) for header in row] for row in rows]


def _timestamps_list(column: Any, timestamp_ms: int) -> Any:
    return _arrow_millis(column, timestamp_ms).tolist() if _is_arrow(column) else column


def _encode_plain(
    records: Sequence[NewRecord], stamp: Stamp, limits: BatchLimits
) -> Iterator[tuple[range, bytes]]:
    parts: list[bytes] = []
    first, size = 0, HEADER_SIZE
    for row, (key, value, headers, timestamp_ms) in enumerate(records):
        part = encode_record(row - first, timestamp_ms - records[first][3], key, value, headers)
        if parts and (size + len(part) > limits.size_bytes or len(parts) == limits.rows):
            yield range(first, row), _sealed(parts, records[first:row], stamp, first)
            first, size, parts = row, HEADER_SIZE, []
            part = encode_record(0, 0, key, value, headers)
        parts.append(part)
        size += len(part)
    if parts:
        yield range(first, len(records)), _sealed(parts, records[first:], stamp, first)


def _encode_plain_groups(
    records: Sequence[NewRecord],
    groups: RowGroups | None,
    stamp: Stamp,
    limits: BatchLimits,
    take: Callable[[int], memoryview],
) -> Iterator[GroupBatch]:
    ends = [len(records)]
    if groups is not None:
        records = [records[row] for row in groups.order.tolist()]
        ends = groups.ends.tolist()
    start = 0
    for group, end in enumerate(ends):
        for rows, batch in _encode_plain(records[start:end], stamp, limits):
            yield _group_batch(group, rows, batch, take)
        start = end


def _sealed(parts: list[bytes], records: Sequence[NewRecord], stamp: Stamp, row: int) -> bytes:
    timestamps = [record[3] for record in records]
    return packed(b"".join(parts), len(parts), timestamps[0], max(timestamps), stamp, row)


def packed(
    body: Buffer, rows: int, base_timestamp: int, max_timestamp: int, stamp: Stamp, row: int
) -> bytes:
    """One batch of encoded records: compressed, and with its header; ``row`` of all that follow."""
    return seal(
        compression.compress(stamp.codec, body, stamp.level),
        base_offset=stamp.base_offset + row,
        leader_epoch=stamp.leader_epoch,
        attributes=stamp.codec | (stamp.is_transactional and _TRANSACTIONAL),
        last_offset_delta=rows - 1,
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max_timestamp,
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        base_sequence=_sequence(stamp, row),
        record_count=rows,
    )


def _sequence(stamp: Stamp, row: int) -> int:
    """Sequence numbers wrap from 2^31 - 1 to 0."""
    return -1 if stamp.base_sequence < 0 else (stamp.base_sequence + row) & 0x7FFFFFFF


# With the C kernel --------------------------------------------------------------------------


class _Table(NamedTuple):
    """Columns in Arrow's layout. ``alive`` holds what the addresses point into."""

    library: Any
    columns: Any  # kernel.TableIn
    data_bytes: int
    alive: list[Any]


def _table(
    library: Any, keys: Any, values: Any, timestamps: Any, headers: Any, timestamp_ms: int
) -> _Table:
    given = (keys, values, timestamps, headers)
    rows = _same_length([len(column) for column in given if column is not None])
    columns = TableIn(rows=rows, fixed_timestamp=timestamp_ms)
    table = _Table(library, columns, 0, [])
    if not rows:
        return table
    total = _point(table, columns.key, keys, rows) + _point(table, columns.value, values, rows)
    if timestamps is not None:
        columns.timestamps = _timestamps(table, timestamps, timestamp_ms, rows)
    if headers is not None:
        total += _point_headers(table, headers)
    return table._replace(data_bytes=total + _RECORD_OVERHEAD_MAX * rows)


def _point(table: _Table, place: Any, column: Any, rows: int) -> int:
    """Let the kernel find a column of bytes; how many there are.

    The kernel believes what it is told. So nothing is told but what was counted on the bytes
    themselves: a list may be changed by another thread, and a class may lie about its length.
    """
    if column is None:
        return 0
    if _is_arrow(column):
        return _point_arrow(table, place, arrow_binary(column))
    try:
        lengths = array("i", map(len, column))
        data = b"".join(column)
    except TypeError:  # None has no length
        lengths = array("i", [-1 if value is None else len(value) for value in column])
        data = b"".join(filter(None, column))
    if len(lengths) != rows:
        raise ValueError(_CHANGED)
    offsets, validity = bytearray(4 * (rows + 1)), bytearray((rows + 7) // 8)
    place.offsets, place.validity = _address(table, offsets), _address(table, validity)
    place.data = _address(table, data)
    size: int = table.library.shoal_offsets(
        address_of(lengths), rows, place.offsets, place.validity
    )
    if size > _COLUMN_BYTES_MAX:
        raise ValueError(_TOO_MUCH)
    if size != len(data):
        raise ValueError(_CHANGED)
    return size


def _address(table: _Table, data: Any) -> int:
    table.alive.append(data)
    return address_of(data)


def _point_arrow(table: _Table, place: Any, column: Any) -> int:
    if not len(column):
        return 0  # it may have no buffers at all
    table.alive.append(column)
    return point_bytes(place, column)


def point_bytes(place: Any, column: Any) -> int:
    """Let the kernel find an Arrow column of bytes that has rows; how many bytes there are."""
    _point_offsets(place, column)
    _, offsets, data = column.buffers()
    place.data = data.address if data else None
    first, last = (
        _ARROW_OFFSET.unpack_from(offsets, 4 * row)[0]
        for row in (column.offset, column.offset + len(column))
    )
    return int(last - first)


def _point_offsets(place: Any, column: Any) -> None:
    validity, offsets = column.buffers()[:2]
    if column.null_count:
        place.validity, place.first_bit = validity.address, column.offset
    place.offsets = offsets.address + 4 * column.offset


def _timestamps(table: _Table, column: Any, timestamp_ms: int, rows: int) -> int:
    if _is_arrow(column):
        return _address(table, _arrow_millis(column, timestamp_ms))
    try:
        millis = array("q", column)
    except OverflowError:
        raise ValueError("a timestamp does not fit into 64 bits") from None
    if len(millis) != rows:
        raise ValueError(_CHANGED)
    return _address(table, millis)


def _point_headers(table: _Table, column: Any) -> int:
    columns = table.columns
    if _is_arrow(column):
        whole = _arrow_lists(column)
        name, content = _header_fields(whole)
        names, contents = (arrow_binary(whole.values.field(i)) for i in (name, content))
        # A missing key does no harm in a row which is null as a whole: flatten() leaves those out.
        if whole.values.null_count + names.null_count and _lacks_key(whole.flatten(), name):
            raise ValueError(_NO_KEY)
        table.alive.append(whole)
        _point_offsets(columns.headers, whole)
    else:
        flat = list(chain.from_iterable(column))
        names = [name.encode() for name, _ in flat]
        contents = [content for _, content in flat]
        ends = array("i", accumulate(map(len, column), initial=0))
        if len(ends) != columns.rows + 1 or ends[-1] != len(flat):
            raise ValueError(_CHANGED)
        columns.headers.offsets = _address(table, ends)
    count = len(names)
    size = _point(table, columns.header_key, names, count)
    return size + _point(table, columns.header_value, contents, count) + 10 * count


def _encode_briefly(
    table: _Table, stamp: Stamp, limits: BatchLimits
) -> Iterator[tuple[range, Buffer]]:
    """Each batch lies there until the next one is asked for, unless it was compressed."""
    room = min(HEADER_SIZE + table.data_bytes, max(limits.size_bytes, _SCRATCH_BYTES))
    with scratch(room) as piece:

        def take(size: int) -> Buffer:
            return piece if len(piece) >= size else bytearray(size)

        yield from _encode_native(table, stamp, limits, room, take)


def _encode_native(
    table: _Table,
    stamp: Stamp,
    limits: BatchLimits,
    room: int,
    take: Callable[[int], Buffer],
    batch_count: int = _CUTS,
) -> Iterator[tuple[range, Buffer]]:
    """``batch_count`` are made at once, if they find ``room``."""
    columns = table.columns
    columns.limit_bytes, columns.limit_rows = limits.size_bytes, limits.rows
    columns.seal = stamp.codec == compression.Codec.NONE
    columns.attributes = stamp.is_transactional and _TRANSACTIONAL
    columns.leader_epoch = stamp.leader_epoch
    columns.producer_id, columns.producer_epoch = stamp.producer_id, stamp.producer_epoch
    columns.base_offset, columns.base_sequence = stamp.base_offset, stamp.base_sequence
    next_row = ctypes.c_int64()
    cuts = (Cut * min(batch_count, columns.rows + 1))()
    while next_row.value < columns.rows:
        row = next_row.value
        out = memoryview(take(room))
        count = table.library.shoal_encode(
            ctypes.byref(columns),
            ctypes.byref(next_row),
            address_of(out),
            len(out),
            cuts,
            len(cuts),
        )
        if count < 0:
            raise ValueError("timestamps lie more than 2^63 ms apart")
        for cut in cuts[:count]:
            batch: Buffer = out[cut.position : cut.position + cut.size]
            if not columns.seal:
                times = cut.base_timestamp, cut.max_timestamp
                batch = packed(batch[HEADER_SIZE:], cut.rows, *times, stamp, row)
            yield range(row, row + cut.rows), batch
            row += cut.rows
        if count == 0:
            room = cuts[0].size


# Arrow columns ------------------------------------------------------------------------------


def _whole(column: Any) -> Any:
    """One array, if it came in chunks."""
    if not hasattr(column, "combine_chunks"):
        return column
    column = column.combine_chunks()
    if hasattr(column, "chunks"):
        raise ValueError(_TOO_MUCH)
    return column


def arrow_binary(column: Any) -> Any:
    """An Arrow column of bytes or text as one array of bytes with 32-bit offsets.

    Raises:
        TypeError: a column of something else.
    """
    import pyarrow as pa

    column = _whole(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    known = (
        pa.types.is_binary,
        pa.types.is_string,
        pa.types.is_large_binary,
        pa.types.is_large_string,
        pa.types.is_fixed_size_binary,
        _is_view,
    )
    if pa.types.is_null(kind) or any(is_known(kind) for is_known in known):
        return column.cast(pa.binary())
    raise TypeError(f"a column of {kind} cannot be written; cast it to binary or string")


def _is_view(kind: Any) -> bool:
    return str(kind) in ("binary_view", "string_view")  # older PyArrow has no predicate for them


def _arrow_lists(column: Any) -> Any:
    import pyarrow as pa

    column = _whole(column)
    if not (pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type)):
        raise TypeError(f"headers are list<struct<key: string, value: binary>>, not {column.type}")
    return column


def header_columns(column: Any) -> tuple[Any, Any, Any]:
    """A column of headers taken apart: its lists, and the keys and values of all of them in a row.

    Raises:
        TypeError: it is not a column of headers.
    """
    import pyarrow.compute as pc

    lists = _arrow_lists(column)
    name, content = _header_fields(lists)
    pairs = lists.flatten()
    # Not the bare fields: of a pair that is null they may hold anything.
    return lists, pc.struct_field(pairs, [name]), pc.struct_field(pairs, [content])


def _header_fields(lists: Any) -> tuple[int, int]:
    """Where key and value stand: by their names, in whatever order, else first and second."""
    pair = lists.type.value_type
    named = pair.get_field_index("key"), pair.get_field_index("value")
    return (0, 1) if -1 in named else named


def _lacks_key(pairs: Any, name: int) -> bool:
    return bool(pairs.null_count or pairs.field(name).null_count)


_PER_MS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


def _arrow_millis(column: Any, timestamp_ms: int) -> Any:
    """Milliseconds as a NumPy array; null becomes ``timestamp_ms``."""
    import pyarrow as pa

    column = _whole(column)
    times, per = 1, 1
    if pa.types.is_timestamp(column.type):
        times, per = _PER_MS[column.type.unit]
    elif not pa.types.is_int64(column.type):
        raise TypeError(
            f"a column of {column.type} is not a timestamp; int64 counts as milliseconds"
        )
    millis = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if (times, per) != (1, 1):
        millis = millis * times // per
    if column.null_count:
        millis = millis.copy()
        millis[column.is_null().to_numpy(zero_copy_only=False)] = timestamp_ms
    return millis
