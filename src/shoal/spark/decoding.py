"""Batches to Arrow for Spark: sizes that suit it, and errors that say which record is bad."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from shoal.errors import BatchTooLargeError, CorruptDataError, ShoalError
from shoal.records.batch import iter_headers, read_body
from shoal.records.chunks import ChunkLike, as_chunks
from shoal.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX: Final = 50_000
BYTES_MAX: Final = 16 * 1024 * 1024
"""Spark converts Arrow batches row by row; beyond this size nothing is gained (docs/spark.md)."""


class BadBatchError(ShoalError):
    """A record batch cannot be read; nothing of it is shown."""

    def __init__(self, tp: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(f"the batch at {tp} offset {offset} cannot be read: {reason}")


def as_columns(
    chunks: Sequence[ChunkLike], columns: Sequence[str], limit_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The records of chunks, exactly these columns; no batch may inflate past the limit.

    Raises:
        BadBatchError: one of them cannot be read.
    """
    from shoal.records.columns import iter_columns

    try:
        yield from iter_columns(
            chunks,
            columns=columns,
            limit_bytes=limit_bytes,
            max_rows=ROWS_MAX,
            max_bytes=BYTES_MAX,
        )
    except (CorruptDataError, BatchTooLargeError) as error:
        raise _explained(chunks, limit_bytes, error) from error


def _explained(chunks: Sequence[ChunkLike], limit_bytes: int, error: Exception) -> Exception:
    """The error with the place of the first bad batch, found by trying one after the other."""
    for chunk in as_chunks(chunks):
        offset = chunk.start_offset
        try:
            for position, header in iter_headers(chunk.data):
                offset = max(offset, header.base_offset)
                read_body(chunk.data, position, header, limit_bytes=limit_bytes)
                offset = header.next_offset
        except BatchTooLargeError as reason:
            advice = f"{reason}; raise option maxBatchBytes if that is meant"
            return BadBatchError(TopicPartition(chunk.topic, chunk.partition), offset, advice)
        except CorruptDataError as reason:
            return BadBatchError(TopicPartition(chunk.topic, chunk.partition), offset, str(reason))
    return error
