"""Batches and whole-log reads for the tests of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.errors import ErrorCode
from shoal.log.partition import PartitionLog
from shoal.records.batch import NewRecord, RawRecord, decode_batch, encode_batch, iter_headers

NOW_MS = 1_700_000_000_000


def batch(
    *values: bytes | None, key: bytes | None = None, timestamp_ms: int = NOW_MS, **header: Any
):
    """One batch with a record per value, all with one key."""
    records: list[NewRecord] = [(key, value, (), timestamp_ms) for value in values]
    return encode_batch(records, **header)


def keyed(pairs: Sequence[tuple[bytes, bytes | None]], timestamp_ms: int = NOW_MS, **header: Any):
    """One batch with a record per pair."""
    return encode_batch([(key, value, (), timestamp_ms) for key, value in pairs], **header)


def read_batches(log: PartitionLog, *, max_bytes: int = 1 << 20) -> dict[int, bytes]:
    """Every readable batch by base offset; corrupt offsets are stepped over one by one."""
    found: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < log.high_watermark:
        result = log.read(offset, max_bytes)
        if result.error is ErrorCode.CORRUPT_MESSAGE:
            offset += 1
            continue
        assert result.error is ErrorCode.NONE, result
        data = result.read_bytes()
        if not data:
            break
        before = offset
        for position, header in iter_headers(data):
            found[header.base_offset] = data[position : position + header.size_bytes]
            offset = max(offset, header.next_offset)
        assert offset > before, "a read brings the reader forward"
    return found


def read_records(log: PartitionLog, *, max_bytes: int = 1 << 20) -> list[RawRecord]:
    """Every readable record from the log start on."""
    return [
        record
        for data in read_batches(log, max_bytes=max_bytes).values()
        for record in decode_batch(data)
        if record.offset >= log.start_offset
    ]
