"""Batches to Python objects: tuples, or ``Record``s as a consumer returns them.

Rule: the work per record is done by loops that are not written in Python. The C kernel finds the
records and objects.c makes a ``Record`` of each. Where that extension is not there, the kernel
writes a format string and ``struct`` cuts all keys and values in one call; offsets and timestamps
come as arrays; ``map`` builds the records. Without the kernel, record.py's parser does it.

For a few records the preparations cost more than they save, so those are always parsed.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from typing import Any, Final, NamedTuple

from shoal.errors import CorruptDataError
from shoal.records.batch import LIMIT_BYTES, BatchHeader
from shoal.records.checksum import Buffer
from shoal.records.chunks import (
    ChunkLike,
    DecodeLimits,
    as_chunks,
    native_groups,
    plain_groups,
)
from shoal.records.extension import extension
from shoal.records.kernel import (
    INDEX_BYTES,
    WANTED,
    Batch,
    Layout,
    Sizes,
    address_of,
    native,
    scratch,
)
from shoal.records.record import Fields
from shoal.types import Header, Record, TimestampType

#: So much is cut at a time; formats and tuples for more would only crowd the caches.
_GROUP_BYTES: Final = 256 * 1024
_CUT_SIZE_MAX: Final = 44  # as in kernel.c
_NO_END: Final = 2**63 - 1

_native: Final = extension("shoal.records._objects")
if _native is not None:
    _native.prepare(
        Record,
        tuple(Record.__slots__),
        TimestampType.CREATE_TIME,
        TimestampType.LOG_APPEND_TIME,
        CorruptDataError,
    )


class Lists(NamedTuple):
    """Records as one sequence per field."""

    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Iterable[Sequence[Header]]
    #: (rows, timestamp_type, leader_epoch) of each batch in turn
    batches: Sequence[tuple[int, TimestampType, int | None]]


def decode_records(
    chunk: ChunkLike, *, check_crc: bool = True, limit_bytes: int = LIMIT_BYTES
) -> list[Fields]:
    """The wanted records of a chunk as (offset, timestamp_ms, key, value, headers) tuples."""
    fields: list[Fields] = []
    for lists in _iter_lists(chunk, check_crc, limit_bytes):
        fields += zip(*lists[:5], strict=False)
    return fields


def iter_records(
    chunk: ChunkLike, *, check_crc: bool = True, limit_bytes: int = LIMIT_BYTES
) -> Iterator[list[Record[bytes | None, bytes | None]]]:
    """The wanted records of a chunk, some at a time, as a consumer returns them.

    Those before a bad batch are yielded before its error is raised.
    """
    topic, partition = chunk[0], chunk[1]
    library = native()
    if library is not None and _native is not None:
        chunks, limits = as_chunks([chunk]), _limits(check_crc, limit_bytes)
        for group in native_groups(library, chunks, limits):
            which = group.batches, group.first, group.batch_count, group.sizes
            yield _native.make(*which, topic, partition)
        return
    for lists in _iter_lists(chunk, check_crc, limit_bytes):
        kinds, epochs = _per_record(lists.batches)
        yield list(
            map(
                Record,
                repeat(topic),
                repeat(partition),
                lists.offsets,
                lists.timestamps_ms,
                kinds,
                lists.keys,
                lists.values,
                lists.headers,
                epochs,
            )
        )


def _put(record: Record[Any, Any], key: Any, value: Any) -> None:
    record.key, record.value = key, value


#: Give a record another key and value.
put: Final[Callable[[Record[Any, Any], Any, Any], None]] = _put if _native is None else _native.put


def texts_of(
    records: list[Record[Any, Any]], start: int, end: int, *, keys: bool, values: bool
) -> int:
    """Keys, values or both from bytes to text, in place, from ``start`` on.

    How far that went: to ``end``, or to a record that is not UTF-8, which is as it was; not at
    all, without the extension.
    """
    if _native is None:
        return start
    reached: int = _native.decode(records, start, end, keys, values)
    return reached


def _limits(check_crc: bool, limit_bytes: int) -> DecodeLimits:
    return DecodeLimits(check_crc, limit_bytes, _GROUP_BYTES, apart=True)


def _per_record(
    batches: Sequence[tuple[int, TimestampType, int | None]],
) -> tuple[Iterable[TimestampType], Iterable[int | None]]:
    if len({batch[1:] for batch in batches}) == 1:
        return repeat(batches[0][1]), repeat(batches[0][2])
    kinds = chain.from_iterable(repeat(kind, rows) for rows, kind, _ in batches)
    epochs = chain.from_iterable(repeat(epoch, rows) for rows, _, epoch in batches)
    return kinds, epochs


def _iter_lists(chunk: ChunkLike, check_crc: bool, limit_bytes: int) -> Iterator[Lists]:
    chunks = as_chunks([chunk])
    limits = _limits(check_crc, limit_bytes)
    library = native()
    if library is None:
        for rows in chain.from_iterable(plain_groups(chunks, limits)):
            described = _described(len(rows.records), rows.header)
            offsets, timestamps, keys, values, headers = zip(*rows.records, strict=True)
            yield Lists(offsets, timestamps, keys, values, headers, [described])
    else:
        for group in native_groups(library, chunks, limits):
            batches = group.batches[group.first : group.first + group.batch_count]
            source = group.inflated[0] if group.inflated else chunks[0].data
            cut = _cut(library, group.pointer, group.batch_count, group.sizes, source)
            yield Lists(*cut, [_described(batch.rows, batch) for batch in batches])


def _described(rows: int, batch: Any) -> tuple[int, TimestampType, int | None]:
    kind = TimestampType.LOG_APPEND_TIME if batch.attributes & 8 else TimestampType.CREATE_TIME
    return rows, kind, None if batch.leader_epoch < 0 else batch.leader_epoch


_Cut = tuple[
    Sequence[int],
    Sequence[int],
    Sequence[bytes | None],
    Sequence[bytes | None],
    Iterable[Sequence[Header]],
]


def _cut(library: Any, batches: Any, count: int, sizes: Any, source: Buffer) -> _Cut:
    """Offsets, timestamps, keys, values and headers of batches whose bodies lie in ``source``."""
    rows = sizes.rows
    layout = Layout()
    wanted = WANTED["offset"] | WANTED["timestamp"]
    size = library.lay_out(ctypes.byref(sizes), wanted, layout)
    with scratch(size) as arena:
        place = address_of(arena)
        library.shoal_decode(batches, count, ctypes.byref(sizes), layout, place, 1)
        with memoryview(arena)[:size].cast("q") as numbers:
            offsets = numbers[:rows].tolist()
            timestamps = numbers[layout[2] // 8 :][:rows].tolist()
    pairs = _unpacked(library, batches, count, sizes, source, None)
    keys, values = pairs[0::2], pairs[1::2]
    headers: Iterable[Sequence[Header]] = repeat(())
    if sizes.headers:
        headers = _headers(library, batches, count, sizes, source)
    return (
        offsets,
        timestamps,
        _with_nulls(keys) if sizes.key_nulls else keys,
        _with_nulls(values) if sizes.value_nulls else values,
        headers,
    )


def _unpacked(
    library: Any, batches: Any, count: int, sizes: Any, source: Buffer, header_counts: Any
) -> tuple[Any, ...]:
    """Keys and values in turn, of the records, or with ``header_counts`` of their headers."""
    pairs = sizes.rows if header_counts is None else sizes.headers
    with scratch(_CUT_SIZE_MAX * pairs) as text:
        length = library.shoal_cut(
            batches,
            count,
            ctypes.byref(sizes),
            address_of(source),
            header_counts,
            address_of(text),
            len(text),
        )
        if length < 0:
            raise CorruptDataError("the batches changed while they were being decoded")
        with memoryview(text) as whole, whole[:length] as used:
            return struct.Struct(b"=" + used).unpack_from(source)


def _with_nulls(fields: Sequence[Any]) -> list[bytes | None]:
    return [None if field.__class__ is bool else field for field in fields]


def _headers(
    library: Any, batches: Any, count: int, sizes: Any, source: Buffer
) -> list[Sequence[Header]]:
    counts = (ctypes.c_int32 * sizes.rows)()
    fields = _unpacked(library, batches, count, sizes, source, counts)
    counts = counts[:]
    names = {key: key.decode("utf-8", "replace") for key in set(fields[0::2])}
    pairs = tuple(zip(map(names.__getitem__, fields[0::2]), _with_nulls(fields[1::2]), strict=True))
    headers: list[Sequence[Header]] = [()] * sizes.rows
    start = 0
    for row in compress(range(sizes.rows), counts):
        end = start + counts[row]
        headers[row] = pairs[start:end]
        start = end
    return headers


def parse_body(body: bytes, header: BatchHeader) -> list[Fields] | None:
    """As record.py's; None if there is no kernel or the body is bad, so that it has to say why."""
    library = native()
    if library is None:
        return None
    batch = Batch(
        body=address_of(body),
        body_size=len(body),
        base_offset=header.base_offset,
        last_delta=header.last_offset_delta,
        attributes=header.attributes,
        base_timestamp=header.base_timestamp_ms,
        max_timestamp=header.max_timestamp_ms,
        record_count=header.record_count,
        end_offset=_NO_END,
    )
    pointer = ctypes.byref(batch)
    with scratch(INDEX_BYTES * header.record_count) as index:
        sizes = Sizes(index=address_of(index), index_size=header.record_count)
        if not library.shoal_measure(pointer, 1, ctypes.byref(sizes)):
            return None
        return list(zip(*_cut(library, pointer, 1, sizes, body), strict=False))
