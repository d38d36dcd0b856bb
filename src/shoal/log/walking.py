"""Walking over the bytes of a log file: batch after batch, and record after record.

Rule: plain functions on a file or on bytes; whoever calls decides what is done about bad ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shoal.errors import CorruptDataError
from shoal.log.disk import Buffer, File
from shoal.records.batch import HEADER_SIZE, BatchHeader, read_body, read_header
from shoal.types import TimestampType

_WINDOW: Final = 4096
_WALK_WINDOW: Final = 1 << 20


def walk(file: File, path: str, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Every batch in positions ``position..end`` of a file, read in large windows.

    Raises:
        CorruptDataError: there is something else; the batches before it were yielded.
    """
    data, origin = b"", position
    while position < end:
        at = position - origin
        if at + HEADER_SIZE > len(data):
            # Small first: most walks end soon.
            window = min(max(2 * len(data), _WINDOW), _WALK_WINDOW)
            data, origin, at = file.read_at(position, window), position, 0
        try:
            header = read_header(data, at)
        except CorruptDataError as error:
            raise CorruptDataError(error.reason, path=path, position=position) from None
        if position + header.size_bytes > end:
            raise CorruptDataError("the batch is cut off", path=path, position=position)
        yield position, header
        position += header.size_bytes


def first_record_at(
    data: Buffer, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """The first record of a batch at or after a time and an offset.

    Only the first numbers of each record are read, up to the one that is found.
    """
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and header.record_count:
        return max(header.base_offset, start_offset), header.max_timestamp_ms
    body = read_body(data, 0, header, check_crc=False)
    position = 0
    for _ in range(header.record_count):
        length, start = read_varint(body, position)
        delta_ms, after = read_varint(body, start + 1)
        if header.base_timestamp_ms + delta_ms >= timestamp_ms:
            offset = header.base_offset + read_varint(body, after)[0]
            if offset >= start_offset:
                return offset, header.base_timestamp_ms + delta_ms
        position = start + length
    return None


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag number and the position behind it."""
    value = shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position
            shift += 7
    except IndexError:
        raise CorruptDataError("a record is cut off", position=position) from None
