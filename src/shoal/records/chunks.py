"""Which batches of a fetch are to be decoded: the step before columns and objects.

A *chunk* is one partition's run of batches with the offsets wanted from it. This file leaves out
what applications must not see (control batches, aborted transactions, offsets outside the range)
and inflates the rest, in *groups* of bounded size, so that a poll of well-compressed batches
never lies in memory as a whole.

Two ways through, one per kernel, with the same result: ``plain_groups`` parses in Python;
``native_groups`` leaves parsing to C, aborted transactions too, and only visits batches that need
Python (compressed ones).
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from shoal.errors import BatchTooLargeError, CorruptDataError
from shoal.records.batch import (
    HEADER_SIZE,
    LIMIT_BYTES,
    BatchHeader,
    batch_size,
    checksum_holds,
    corrupt,
    inflate,
    iter_headers,
    parse_records,
    read_body,
    read_header,
)
from shoal.records.checksum import Buffer
from shoal.records.kernel import INDEX_BYTES, Batch, ChunkIn, Sizes, address_of, scratch
from shoal.records.markers import is_abort_marker
from shoal.records.record import RECORD_SIZE_MIN, Fields

_CODEC = 0x07
_NO_END = 2**63 - 1


class Chunk(NamedTuple):
    """One partition's batches, and which of their offsets are wanted.

    ``aborted`` are (producer_id, first_offset) of aborted transactions, as a fetch response with
    ``read_committed`` lists them; their records are left out.
    """

    topic: str
    partition: int
    data: Buffer
    start_offset: int = 0
    end_offset: int | None = None
    aborted: Sequence[tuple[int, int]] = ()


#: What the functions of this package accept as a chunk; the last field may be missing.
ChunkLike = Chunk | tuple[str, int, Buffer, int, int | None]


def as_chunks(chunks: Sequence[ChunkLike]) -> list[Chunk]:
    """Chunks whose bytes stay where they are: a view keeps a bytearray from being resized."""
    return [_as_chunk(chunk) for chunk in chunks]


def _as_chunk(chunk: ChunkLike) -> Chunk:
    given = chunk if isinstance(chunk, Chunk) else Chunk(*chunk)
    if isinstance(given.data, bytes):
        return given
    return given._replace(data=memoryview(given.data).cast("B"))


class DecodeLimits(NamedTuple):
    """What to check and how much to hold at once."""

    check_crc: bool = True
    limit_bytes: int = LIMIT_BYTES  # one batch, inflated
    group_bytes: int = 2**31 - 1  # one group, inflated; a single larger batch is one all the same
    apart: bool = False  # should each inflated body be a group of its own?


class AbortedTransactions:
    """Tells which batches of one chunk, in order, belong to aborted transactions."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._waiting = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._producers: set[int] = set()

    def hide(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        while self._waiting and self._waiting[-1][1] <= header.last_offset:
            self._producers.add(self._waiting.pop()[0])
        if header.producer_id not in self._producers or not header.is_transactional:
            return False
        if header.is_control and _is_abort(data, position, header):
            self._producers.discard(header.producer_id)
        return True


def _is_abort(data: Buffer, position: int, header: BatchHeader) -> bool:
    if header.codec and header.record_count:
        raise corrupt(header, position, "it is a control batch and compressed")
    return is_abort_marker(data, position, check_crc=False)


# In Python ----------------------------------------------------------------------------------


class PlainRows(NamedTuple):
    """The wanted records of one batch."""

    chunk: Chunk
    header: BatchHeader
    records: list[Fields]


def plain_groups(chunks: Sequence[Chunk], limits: DecodeLimits) -> Iterator[list[PlainRows]]:
    """Groups of parsed batches. What is good is yielded before the first bad one raises."""
    group: list[PlainRows] = []
    size = 0
    try:
        for rows, body_size in _plain_rows(chunks, limits):
            if size and size + body_size > limits.group_bytes:
                if group:
                    yield group
                group, size = [], 0
            if rows.records:
                group.append(rows)
            size += body_size
    except (CorruptDataError, BatchTooLargeError):
        if group:
            yield group
        raise
    if group:
        yield group


def _plain_rows(chunks: Sequence[Chunk], limits: DecodeLimits) -> Iterator[tuple[PlainRows, int]]:
    for chunk in chunks:
        data, start, end = chunk.data, chunk.start_offset, chunk.end_offset
        aborted = AbortedTransactions(chunk.aborted)
        for position, header in iter_headers(data):
            if limits.check_crc and not checksum_holds(data, position, header.size_bytes):
                raise corrupt(header, position, "its checksum fails")
            if aborted.hide(data, position, header) or _is_outside(chunk, header):
                continue
            body = read_body(
                data, position, header, check_crc=False, limit_bytes=limits.limit_bytes
            )
            records = parse_records(body, header, position)
            if header.base_offset < start:
                records = [record for record in records if record[0] >= start]
            if end is not None and header.last_offset >= end:
                records = [record for record in records if record[0] < end]
            yield PlainRows(chunk, header, records), len(body)


def _is_outside(chunk: Chunk, header: BatchHeader) -> bool:
    return (
        header.is_control
        or header.last_offset < chunk.start_offset
        or (chunk.end_offset is not None and header.base_offset >= chunk.end_offset)
    )


# With the C kernel --------------------------------------------------------------------------


class NativeGroup(NamedTuple):
    """Batches ready for the kernel's ``decode`` and ``cut``, and what it counted in them."""

    batches: Any  # array of kernel.Batch, of which the group is
    first: int
    batch_count: int
    sizes: Any  # kernel.Sizes
    inflated: Sequence[Buffer]  # the bodies which do not lie in a chunk; C reads them
    is_last: bool  # no wanted record and no bad batch comes after it (may be so if not set, too)

    @property
    def pointer(self) -> Any:
        return _pointer(self.batches, self.first)


def _pointer(batches: Any, first: int) -> Any:
    return ctypes.byref(batches, first * ctypes.sizeof(Batch))


def native_groups(
    library: Any, chunks: Sequence[Chunk], limits: DecodeLimits
) -> Iterator[NativeGroup]:
    """As ``plain_groups``, but the records stay bytes. A group is good until the next is taken."""
    lists = [_aborted(chunk.aborted) for chunk in chunks]
    listed = _listed(chunks, lists)
    seen = (ctypes.c_int64 * 3)()
    batch_bound = library.count_batches(listed, len(chunks), None, 0, 0, None, seen)
    batches, record_bound = (Batch * batch_bound)(), seen[0]
    asked = listed, len(chunks), batches, batch_bound, limits.check_crc
    is_one_group = _is_one_group(chunks, limits)
    if is_one_group:
        with scratch(INDEX_BYTES * record_bound) as index:
            sizes = _sizes(index, record_bound)
            count = library.shoal_scan(*asked, ctypes.byref(sizes), seen)
            if seen[0] & _CODEC == 0 and sizes.rows:
                yield NativeGroup(batches, 0, count, sizes, (), seen[1] < 0)
    else:
        count = library.shoal_scan(*asked, None, seen)
    attributes, bad_chunk, bad_position = seen
    if attributes & _CODEC or not is_one_group:
        yield from _visited(library, chunks, limits, batches, count, is_all=bad_chunk < 0)
    if bad_chunk >= 0:
        raise _explain(chunks[bad_chunk], bad_position, limits)


def _is_one_group(chunks: Sequence[Chunk], limits: DecodeLimits) -> bool:
    """May all batches be taken together, if none of them is compressed?"""
    return sum(len(chunk.data) for chunk in chunks) <= limits.group_bytes


def _aborted(aborted: Sequence[tuple[int, int]]) -> array[int]:
    """Aborted transactions as the kernel wants them, which uses the list up."""
    in_order = sorted(aborted, key=lambda pair: pair[1])
    return array("q", chain.from_iterable(in_order))


def _listed(chunks: Sequence[Chunk], lists: Sequence[array[int]]) -> Any:
    return (ChunkIn * len(chunks))(
        *(
            (
                address_of(data),
                len(data),
                start_offset,
                _NO_END if end_offset is None else end_offset,
                partition,
                address_of(aborted) if aborted else None,
                len(aborted) // 2,
            )
            for (_, partition, data, start_offset, end_offset, _), aborted in zip(
                chunks, lists, strict=True
            )
        )
    )


def _sizes(index: bytearray, rows: int) -> Any:
    return Sizes(index=address_of(index), index_size=rows)


def _visited(
    library: Any,
    chunks: Sequence[Chunk],
    limits: DecodeLimits,
    batches: Any,
    count: int,
    *,
    is_all: bool,
) -> Iterator[NativeGroup]:
    """Look at each batch: must it be inflated, is the group full?"""
    inflated: list[Buffer] = []
    first = size = index = 0
    try:
        for index in range(count):
            batch = batches[index]
            if batch.body is None:
                continue
            body: Buffer | None = None
            if batch.attributes & _CODEC:
                data, position = chunks[batch.chunk].data, batch.position
                header = read_header(data, position)
                packed = memoryview(data)[position + HEADER_SIZE : position + batch.size]
                body = inflate(packed, position, header, limits.limit_bytes)
                batch.body_size = len(body)
                batch.body = address_of(body)
            apart = limits.apart and (body is not None or inflated)
            if size and (apart or size + batch.body_size > limits.group_bytes):
                yield from _measured(library, chunks, limits, batches, first, index, inflated)
                first, size, inflated = index, 0, []
            if body is not None:
                inflated.append(body)
            size += batch.body_size
    except (CorruptDataError, BatchTooLargeError):
        yield from _measured(library, chunks, limits, batches, first, index, inflated)
        raise
    yield from _measured(library, chunks, limits, batches, first, count, inflated, is_last=is_all)


def _measured(
    library: Any,
    chunks: Sequence[Chunk],
    limits: DecodeLimits,
    batches: Any,
    first: int,
    end: int,
    inflated: Sequence[Buffer],
    *,
    is_last: bool = False,
) -> Iterator[NativeGroup]:
    """The batches from ``first`` to ``end`` as a group, up to the first one C finds wrong."""
    # What a batch announces is its own word: its body bounds how many records it can have.
    bound = sum(
        min(batch.record_count, batch.body_size // RECORD_SIZE_MIN)
        for batch in batches[first:end]
        if batch.body
    )
    with scratch(INDEX_BYTES * bound) as index:
        sizes = _sizes(index, bound)
        count = library.shoal_measure(_pointer(batches, first), end - first, ctypes.byref(sizes))
        if sizes.rows:
            is_last = is_last and first + count == end
            yield NativeGroup(batches, first, count, sizes, inflated, is_last)
    if first + count < end:
        batch = batches[first + count]
        raise _explain(chunks[batch.chunk], batch.position, limits)


def _explain(chunk: Chunk, position: int, limits: DecodeLimits) -> Exception:
    """Why the kernel refused the batch at ``position``, in the words of batch.py."""
    try:
        batch_size(chunk.data, position)
        header = read_header(chunk.data, position)
        body = read_body(
            chunk.data, position, header, check_crc=limits.check_crc, limit_bytes=limits.limit_bytes
        )
        parse_records(body, header, position)
        if header.is_control:
            _is_abort(chunk.data, position, header)
    except (CorruptDataError, BatchTooLargeError) as error:
        return error
    raise AssertionError(f"the kernels disagree about the batch at byte {position}")
