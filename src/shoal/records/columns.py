"""Many batches to Arrow columns in one step, and Arrow columns (or lists) to batches.

Rule: no object per record. With the C kernel the columns are written straight into one buffer of
exactly the size needed, which the Arrow arrays then share; without it the parsed rows are handed
to Arrow as lists. Both give equal arrays.

The types are those Spark wants from its Kafka source, to the letter (names too, if asked for by
Spark's spelling ``timestampType``): ``headers`` is null, not empty, where a record has none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa

from shoal.errors import CorruptDataError
from shoal.records.batch import LIMIT_BYTES
from shoal.records.chunks import (
    Chunk,
    ChunkLike,
    DecodeLimits,
    NativeGroup,
    PlainRows,
    as_chunks,
    native_groups,
    plain_groups,
)
from shoal.records.encoding import encode_columns as encode_columns
from shoal.records.kernel import PARTS, WANTED, Layout, native
from shoal.records.objects import decode_records as decode_records
from shoal.records.objects import iter_records as iter_records
from shoal.records.record import RECORD_SIZE_MIN

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "headers",
)
_SPARK_NAMES: Final = {"timestampType": "timestamp_type"}
#: Arrow's binary columns have 32-bit offsets. Bodies are larger than the columns cut from them.
COLUMN_BYTES_MAX: Final = 2**31 - 1
# Nobody changes a column, so many batches may share one that says the same topic row by row.
_KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
_MICROS_PER_MS: Final = 1000
_MS_MAX: Final = (2**63 - 1) // _MICROS_PER_MS


def arrow_schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of what ``decode_columns`` returns for these columns."""
    return _schema(COLUMNS if columns is None else tuple(columns))


@cache
def _schema(columns: tuple[str, ...]) -> pa.Schema:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_type": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([(name, types[_known(name)]) for name in columns])


def _known(name: str) -> str:
    name = _SPARK_NAMES.get(name, name)
    if name not in COLUMNS:
        raise ValueError(f"column {name!r} does not exist; there are {', '.join(COLUMNS)}")
    return name


def decode_columns(
    chunks: Sequence[ChunkLike],
    *,
    columns: Sequence[str] | None = None,
    check_crc: bool = True,
    limit_bytes: int = LIMIT_BYTES,
    max_rows: int | None = None,
) -> pa.RecordBatch:
    """All wanted records of all chunks as one Arrow record batch.

    A chunk is ``(topic, partition, data, start_offset, end_offset or None)`` or a ``Chunk``.
    Control batches and a cut batch at the end of ``data`` are left out.

    Args:
        columns: which, in this order; all by default. Fewer are faster.
        limit_bytes: how large one batch may become when inflated.
        max_rows: return no more than the first so many.

    Raises:
        CorruptDataError: a batch fails a check. ``iter_columns`` yields what lies before it.
        BatchTooLargeError: a batch inflates past ``limit_bytes``.
        ValueError: more than 2 GiB of records; ``iter_columns`` takes them in parts.
    """
    parts = iter_columns(
        chunks,
        columns=columns,
        check_crc=check_crc,
        limit_bytes=limit_bytes,
        max_bytes=COLUMN_BYTES_MAX,
    )
    arrow_batch = next(parts, None)
    if next(parts, None) is not None:
        raise ValueError("more than 2 GiB of records in one call; use iter_columns")
    if arrow_batch is None:
        return pa.RecordBatch.from_pylist([], schema=arrow_schema(columns))
    return arrow_batch if max_rows is None else arrow_batch.slice(0, max_rows)


def iter_columns(
    chunks: Sequence[ChunkLike],
    *,
    columns: Sequence[str] | None = None,
    check_crc: bool = True,
    limit_bytes: int = LIMIT_BYTES,
    max_bytes: int = 16 * 1024 * 1024,
    max_rows: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """As ``decode_columns`` in parts, none of them empty.

    Args:
        max_bytes: inflate and decode about so much at a time; a single larger batch is one part.
        max_rows: cut parts into slices of at most this many rows, without copying.

    The records before a bad batch are yielded before its error is raised.
    """
    for part, _ in _parts(chunks, arrow_schema(columns), check_crc, limit_bytes, max_bytes):
        step = max_rows or part.num_rows
        for start in range(0, part.num_rows, step):
            yield part.slice(start, step) if step < part.num_rows else part


def decode_first(
    chunks: Sequence[ChunkLike], *, check_crc: bool = True, max_bytes: int
) -> tuple[pa.RecordBatch, bool]:
    """The first part of ``iter_columns``, without rows if there is none, and whether it is all.

    "No" may only mean that this is not known: what follows was not looked at.
    """
    schema = arrow_schema()
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    return next(_parts(chunks, schema, check_crc, LIMIT_BYTES, max_bytes), (empty, True))


def rows_by_partition(arrow_batch: pa.RecordBatch) -> dict[tuple[str, int], int]:
    """How many rows are of which topic and partition. Those of one mostly stand together."""
    topics = arrow_batch.column("topic").dictionary_encode()
    partitions = arrow_batch.column("partition").to_numpy()
    pairs = topics.indices.to_numpy().astype(np.int64) << 32 | partitions
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    counts: dict[tuple[str, int], int] = {}
    for pair, rows in zip(
        pairs[starts].tolist(), np.diff(starts, append=len(pairs)).tolist(), strict=True
    ):
        name = (topics.dictionary[pair >> 32].as_py(), pair & 0xFFFF_FFFF)
        counts[name] = counts.get(name, 0) + rows
    return counts


def _parts(
    chunks: Sequence[ChunkLike],
    schema: pa.Schema,
    check_crc: bool,
    limit_bytes: int,
    max_bytes: int,
) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Parts, each with whether it is the last for sure."""
    found = as_chunks(chunks)
    limits = DecodeLimits(check_crc, limit_bytes, min(max_bytes, _group_bytes(found, schema)))
    library = native()
    if library is None:
        return ((_from_rows(group, schema), False) for group in plain_groups(found, limits))
    groups = native_groups(library, found, limits)
    return ((_from_kernel(library, group, found, schema), group.is_last) for group in groups)


def _group_bytes(chunks: Sequence[Chunk], schema: pa.Schema) -> int:
    """How many bytes of records fit into one Arrow batch, whatever is in them.

    All columns but one are cut from the records, so each is smaller. A topic may be longer than
    the shortest record.
    """
    if "topic" not in schema.names:
        return COLUMN_BYTES_MAX
    longest = max((len(chunk.topic.encode()) for chunk in chunks), default=0)
    return COLUMN_BYTES_MAX * RECORD_SIZE_MIN // max(RECORD_SIZE_MIN, longest)


def _check_timestamps(lowest: int, highest: int) -> None:
    """Kafka's milliseconds have room for more than Arrow's (and Spark's) microseconds."""
    for timestamp_ms in (lowest, highest):
        if not -_MS_MAX <= timestamp_ms <= _MS_MAX:
            raise CorruptDataError(f"timestamp {timestamp_ms} ms does not fit into microseconds")


# From parsed rows ---------------------------------------------------------------------------


def _from_rows(group: Sequence[PlainRows], schema: pa.Schema) -> pa.RecordBatch:
    records = list(chain.from_iterable(rows.records for rows in group))
    makers: dict[str, Callable[[], list[Any]]] = {
        "key": lambda: [record[2] for record in records],
        "value": lambda: [record[3] for record in records],
        "topic": lambda: [rows.chunk.topic for rows in group for _ in rows.records],
        "partition": lambda: [rows.chunk.partition for rows in group for _ in rows.records],
        "offset": lambda: [record[0] for record in records],
        "timestamp": lambda: _micros([record[1] for record in records]),
        "timestamp_type": lambda: [
            int(rows.header.timestamp_type) for rows in group for _ in rows.records
        ],
        "headers": lambda: [
            [{"key": key, "value": value} for key, value in record[4]] if record[4] else None
            for record in records
        ],
    }
    arrays = [pa.array(makers[_known(field.name)](), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _micros(timestamps_ms: list[int]) -> list[int]:
    _check_timestamps(min(timestamps_ms), max(timestamps_ms))
    return [timestamp_ms * _MICROS_PER_MS for timestamp_ms in timestamps_ms]


# From the kernel ----------------------------------------------------------------------------


def _from_kernel(
    library: Any, group: NativeGroup, chunks: Sequence[Chunk], schema: pa.Schema
) -> pa.RecordBatch:
    sizes = ctypes.byref(group.sizes)
    layout = Layout()
    fields, wanted = _plan(tuple(schema.names))
    if wanted & WANTED["timestamp"]:
        _check_timestamps(group.sizes.timestamp_min, group.sizes.timestamp_max)
    arena = pa.allocate_buffer(library.lay_out(sizes, wanted, layout))
    rows = library.shoal_decode(
        group.pointer, group.batch_count, sizes, layout, arena.address, _MICROS_PER_MS
    )
    if rows < 0:
        raise CorruptDataError("the batches changed while they were being decoded")
    places = layout[:]
    parts = {
        name: arena.slice(start, size)
        for name, start, size in zip(PARTS, places[0::2], places[1::2], strict=True)
        if start >= 0
    }
    arrays = [_array(pa, parts, group, chunks, name, kind) for name, kind in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@cache
def _plan(columns: tuple[str, ...]) -> tuple[list[tuple[str, Any]], int]:
    """Our names and Arrow's types of the columns, and their flags or'ed together."""
    fields = [(_known(field.name), field.type) for field in _schema(columns)]
    return fields, sum(WANTED.get(name, 0) for name in {name for name, _ in fields})


Parts = dict[str, Any]  # name of a part to its piece of the arena


def _array(
    pa: Any, parts: Parts, group: NativeGroup, chunks: Sequence[Chunk], name: str, kind: Any
) -> Any:
    sizes = group.sizes
    match name:
        case "key":
            return _binary(pa, kind, parts, name, sizes.rows, sizes.key_nulls)
        case "value":
            return _binary(pa, kind, parts, name, sizes.rows, sizes.value_nulls)
        case "topic":
            return _topics(pa, group, chunks)
        case "headers":
            return _headers(pa, parts, sizes, kind)
        case _:
            return pa.Array.from_buffers(kind, sizes.rows, [None, parts[name]], 0)


def _binary(pa: Any, kind: Any, parts: Parts, name: str, rows: int, nulls: int) -> Any:
    buffers = [parts.get(f"{name}_validity"), parts[f"{name}_offsets"], parts[f"{name}_data"]]
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


def _topics(pa: Any, group: NativeGroup, chunks: Sequence[Chunk]) -> Any:
    if len({chunk.topic for chunk in chunks}) == 1:
        return _repeated(pa, chunks[0].topic, group.sizes.rows)
    batches = group.batches[group.first : group.first + group.batch_count]
    runs = [
        _repeated(pa, chunks[index].topic, sum(batch.rows for batch in run))
        for index, run in groupby(batches, key=lambda batch: batch.chunk)
    ]
    return pa.concat_arrays(runs)


def _repeated(pa: Any, text: str, rows: int) -> Any:
    """As pa.repeat, but not row by row, and a column like the last one is the same memory."""
    data = text.encode()
    room = 1 << (rows - 1).bit_length()
    is_small = room * (len(data) + 4) <= _KEPT_BYTES_MAX
    ends, repeated = _kept_repeated(data, room) if is_small else _make_repeated(data, rows)
    parts = [None, ends.slice(0, 4 * (rows + 1)), repeated.slice(0, len(data) * rows)]
    return pa.Array.from_buffers(pa.string(), rows, parts, 0)


def _make_repeated(data: bytes, rows: int) -> tuple[Any, Any]:
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.py_buffer(ends), pa.py_buffer(data * rows)


_kept_repeated = lru_cache(maxsize=2)(_make_repeated)


def _headers(pa: Any, parts: Parts, sizes: Any, kind: Any) -> Any:
    count, struct = sizes.headers, kind.value_type
    if not count:
        return _no_headers(sizes.rows)
    keys = _binary(pa, struct[0].type, parts, "header_key", count, 0)
    if sizes.header_keys_beyond_ascii:
        keys = _repaired(pa, keys)
    nulls = sizes.header_value_nulls
    values = _binary(pa, struct[1].type, parts, "header_value", count, nulls)
    pairs = pa.Array.from_buffers(struct, count, [None], 0, children=[keys, values])
    buffers = [parts["header_validity"], parts["header_offsets"]]
    nulls = sizes.rows - sizes.headed_rows
    return pa.Array.from_buffers(kind, sizes.rows, buffers, nulls, children=[pairs])


def _no_headers(rows: int) -> Any:
    """A column of nulls; one like the last is the same memory."""
    room = 1 << (rows - 1).bit_length()
    nulls = _kept_nulls(room) if room * 4 <= _KEPT_BYTES_MAX else _make_nulls(rows)
    return nulls.slice(0, rows)


def _make_nulls(rows: int) -> Any:
    return pa.nulls(rows, arrow_schema(("headers",))[0].type)


_kept_nulls = lru_cache(maxsize=2)(_make_nulls)


def _repaired(pa: Any, keys: Any) -> Any:
    """Header keys are text; what is not UTF-8 is replaced, as Java's reader does."""
    raw = keys.cast(pa.binary()).to_pylist()
    return pa.array([key.decode("utf-8", "replace") for key in raw], pa.string())
