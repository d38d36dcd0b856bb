"""Rows on their way through a shuffle: Arrow tables in cells, a few per bucket.

Everything about one group (or one partition of a topic) must meet in one place. Rows are sorted
into buckets by a hash, and what a batch has for a bucket travels as one cell of Arrow bytes: the
JVM moves a few blobs and never converts a row, and an analysis gets thousands of groups at once.

Rule: the hash is CRC-32, which is the same in every process and every release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from shoal.fleet.tables import schema

PACKED: Final = "bucket int, kind string, payload binary"


def pack(table: pa.Table, kind: str, by: tuple[str, ...], buckets: int) -> pa.RecordBatch:
    """The rows of ``table`` in cells, by the hash of the columns ``by``."""
    rows = []
    if table.num_rows:
        bucket = _buckets(table, by, buckets)
        order = np.argsort(bucket, kind="stable")
        ordered = table.take(pa.array(order))
        found, begins = np.unique(bucket[order], return_index=True)
        ends = [*begins[1:].tolist(), table.num_rows]
        for number, begin, end in zip(found.tolist(), begins.tolist(), ends, strict=True):
            payload = to_bytes(ordered.slice(begin, end - begin))
            rows.append({"bucket": number, "kind": kind, "payload": payload})
    kinds = pa.schema([("bucket", pa.int32()), ("kind", pa.string()), ("payload", pa.binary())])
    return pa.RecordBatch.from_pylist(rows, kinds)


def _buckets(
    table: pa.Table, by: tuple[str, ...], buckets: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The bucket of each row; every distinct value is hashed once."""
    total = np.zeros(table.num_rows, np.int64)
    for name in by:
        column = table.column(name).combine_chunks()
        if name == "partition":
            total += np.asarray(column, dtype=np.int64) * 2654435761
            continue
        encoded = column.dictionary_encode()
        encoded = encoded.combine_chunks() if hasattr(encoded, "chunks") else encoded
        hashes = np.array([crc32(v.encode()) for v in encoded.dictionary.to_pylist()], np.int64)
        total += hashes[np.asarray(encoded.indices, dtype=np.int64)]
    return total % buckets


def to_bytes(table: pa.Table) -> bytes:
    """A table as Arrow's stream format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(payloads: Iterable[bytes], table: str) -> pa.Table:
    """All rows of the payloads, which are of the same table."""
    parts = [pa.ipc.open_stream(one).read_all() for one in payloads]
    return pa.concat_tables(parts) if parts else schema(table).empty_table()


def unpacked(batches: Iterable[pa.RecordBatch], table: str) -> Iterator[pa.RecordBatch]:
    """The rows in the cells of ``batches``."""
    for batch in batches:
        yield from from_bytes(batch.column("payload").to_pylist(), table).to_batches()
