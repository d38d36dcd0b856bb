"""Reading a range of a partition straight into Arrow, without a broker between.

Sealed segments are mapped, not read: nobody changes them any more, and a file that is deleted
meanwhile stays readable. The active segment is read, because it may be cut back by a failed append,
and touching a mapped page behind a file's end kills the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shoal.errors import CorruptDataError
from shoal.log.partition import PartitionLog
from shoal.records.batch import LIMIT_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_BYTES = 64 << 20


def iter_columns(
    log: PartitionLog,
    start_offset: int,
    end_offset: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    check_crc: bool = True,
    limit_bytes: int = LIMIT_BYTES,
    max_bytes: int = 16 << 20,
) -> Iterator[pa.RecordBatch]:
    """The visible records in ``start_offset..end_offset`` as Arrow record batches.

    Args:
        end_offset: the high watermark if None or larger.
        columns: names of ``shoal.records.columns.COLUMNS``; all by default.
        limit_bytes: how large one batch may become when inflated.
        max_bytes: about so much is decoded at a time.

    Raises:
        CorruptDataError: a batch in the range cannot be read; what lies before it was yielded.
        BatchTooLargeError: a batch inflates past ``limit_bytes``.
    """
    from shoal.records.columns import iter_columns as decode

    topic, partition = log.topic_partition
    end = log.high_watermark if end_offset is None else min(end_offset, log.high_watermark)
    for data, start in _chunks(log, start_offset, end):
        yield from decode(
            [(topic, partition, data, start, end)],
            columns=columns,
            check_crc=check_crc,
            limit_bytes=limit_bytes,
            max_bytes=max_bytes,
        )


def _chunks(log: PartitionLog, offset: int, end: int) -> Iterator[tuple[memoryview | bytes, int]]:
    """Runs of whole batches, and the first offset wanted of each."""
    while offset < end:
        result = log.read(offset, WINDOW_BYTES)
        if result.error:
            raise CorruptDataError(
                f"offset {offset} of {log.topic_partition}: {result.error.description}"
            )
        if result.file is None:
            return
        sealed = result.file is not log.active.file
        if sealed:
            data = result.file.map()[result.position : result.position + result.size]
            yield data, offset
        else:
            yield result.read_bytes(), offset
        offset = result.next_offset
