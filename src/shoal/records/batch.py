"""One record batch of Kafka's format v2: read it, check it, write it, patch it in place.

Rule: this file and record.py are the reference. They are plain Python on ``struct``; whatever the
C kernel does must come to the same result, and errors are always worded here.

Layout, big endian. ``length`` counts the bytes behind itself; the checksum covers bytes 21 to
the end, so that a broker may set the first 16 bytes without computing it again.

     0 base_offset i64        21 attributes i16          43 producer_id i64
     8 length i32             23 last_offset_delta i32   51 producer_epoch i16
    12 leader_epoch i32       27 base_timestamp i64      53 base_sequence i32
    16 magic i8 = 2           35 max_timestamp i64       57 record_count i32
    17 crc u32                                           61 records, compressed as one block

    attributes: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
    (base_timestamp then holds the horizon, and records count from it all the same)

What the records look like is written in record.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from shoal.errors import BatchTooLargeError, CorruptDataError, UnsupportedFormatError
from shoal.records import compression
from shoal.records.checksum import Buffer, crc32c
from shoal.records.record import (
    RECORD_SIZE_MIN,
    VARINT,
    Fields,
    encode_record,
    parse_body,
)
from shoal.types import Header, TimestampType

HEADER_SIZE: Final = 61
#: A batch may inflate to this many bytes; zstd reaches 32,000 : 1, so there must be a limit.
LIMIT_BYTES: Final = 64 * 1024 * 1024

_LENGTH_FROM: Final = 12  # what ``length`` counts begins here
_CRC_FROM: Final = 21
_MESSAGE_SIZE_MIN: Final = 14  # what formats 0 and 1 need behind ``length``
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
# Its two halves: the checksum is the end of the first and covers the second.
_FRONT: Final = struct.Struct(">qiibI")
_COVERED: Final = struct.Struct(">hiqqqhii")
_PREFIX: Final = struct.Struct(">qi")
_PLACE: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")

#: From so many records on the C kernel is faster, if there is one.
_KERNEL_FROM: Final = 32

_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40

_INT64_MAX: Final = 2**63 - 1

#: Key, value, headers, timestamp_ms: what a producer hands in.
NewRecord = tuple[bytes | None, bytes | None, Sequence[Header], int]


class RawRecord(NamedTuple):
    """One record, its deltas resolved."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class BatchHeader(NamedTuple):
    """The 61 bytes before the records. The fields stand in the order of the bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, its first twelve bytes included."""
        return self.length + _LENGTH_FROM

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence numbers wrap from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & _LOG_APPEND_TIME:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """A marker of the transaction coordinator; applications never see its records."""
        return bool(self.attributes & _CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & _DELETE_HORIZON)

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when compaction may drop the tombstones in this batch (KIP-534)."""
        return self.base_timestamp_ms if self.has_delete_horizon else None


# Reading ------------------------------------------------------------------------------------


def batch_size(data: Buffer, position: int = 0) -> int:
    """The size of the batch at ``position``, from its first twelve bytes alone."""
    if len(data) - position < _LENGTH_FROM:
        raise CorruptDataError(
            f"{max(0, len(data) - position)} bytes left, a batch's length needs {_LENGTH_FROM}",
            position=position,
        )
    length: int = _PREFIX.unpack_from(data, position)[1]
    if length < _MESSAGE_SIZE_MIN:
        raise CorruptDataError(f"batch length {length} is impossible", position=position)
    return length + _LENGTH_FROM


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``; the records behind it need not be there.

    Raises:
        UnsupportedFormatError: message format 0 or 1.
        CorruptDataError: too few bytes, or fields which contradict each other.
    """
    left = len(data) - position
    if left < HEADER_SIZE:
        # A whole message of an old format may be shorter than our header; say so if it is one.
        if left > 16 and data[position + 16] in (0, 1) and batch_size(data, position) <= left:
            raise _old_format(data[position + 16], position)
        raise CorruptDataError(
            f"{max(0, left)} bytes left, a batch header needs {HEADER_SIZE}", position=position
        )
    header = BatchHeader._make(_HEADER.unpack_from(data, position))
    if (
        header.magic == 2
        and header.length >= HEADER_SIZE - _LENGTH_FROM
        and 0 <= header.record_count <= header.last_offset_delta + 1
        and header.last_offset_delta >= 0
        and 0 <= header.base_offset < _INT64_MAX - header.last_offset_delta
    ):
        return header
    raise _header_fault(header, position)


def _old_format(magic: int, position: int) -> UnsupportedFormatError:
    return UnsupportedFormatError(
        f"message format {magic} (before Kafka 0.11) is not supported, only format 2; "
        "let a Kafka 3.x broker rewrite the topic",
        position=position,
    )


def _header_fault(header: BatchHeader, position: int) -> CorruptDataError:
    if header.length < _MESSAGE_SIZE_MIN:
        return CorruptDataError(f"batch length {header.length} is impossible", position=position)
    if header.magic in (0, 1):
        return _old_format(header.magic, position)
    if header.magic != 2:
        return CorruptDataError(f"magic {header.magic} is not a batch format", position=position)
    if header.length < HEADER_SIZE - _LENGTH_FROM:
        return CorruptDataError(f"batch length {header.length} is impossible", position=position)
    return CorruptDataError(
        f"{header.record_count} records do not fit the offsets from {header.base_offset} "
        f"with last delta {header.last_offset_delta}",
        position=position,
    )


def checksum_holds(data: Buffer, position: int = 0, size: int | None = None) -> bool:
    """Do the bytes of this batch match its checksum? False too if some are missing."""
    if size is None:
        size = batch_size(data, position)
    if size < HEADER_SIZE or len(data) - position < size:
        return False
    stored = int.from_bytes(data[position + 17 : position + 21], "big")
    return crc32c(memoryview(data)[position + _CRC_FROM : position + size]) == stored


def iter_headers(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the whole batches in ``data``.

    A fetch may end in the middle of a batch; that last one is left out. Anything else that is
    not a batch raises ``CorruptDataError`` with its position.
    """
    position, end = 0, len(data)
    while end - position >= _LENGTH_FROM and batch_size(data, position) <= end - position:
        header = read_header(data, position)
        yield position, header
        position += header.size_bytes


def next_offset(data: Buffer, offset: int) -> int:
    """Where to fetch next after the whole batches in ``data``; ``offset`` if there are none.

    Not the last record plus one: compaction leaves batches whose last offsets are gone.
    """
    for _, header in iter_headers(data):
        offset = max(offset, header.next_offset)
    return offset


def decode_batch(
    data: Buffer, position: int = 0, *, check_crc: bool = True, limit_bytes: int = LIMIT_BYTES
) -> list[RawRecord]:
    """Every record of the batch at ``position``, a control batch's too.

    Raises:
        CorruptDataError: the batch is cut, its checksum fails or its lengths disagree.
        BatchTooLargeError: it inflates to more than ``limit_bytes``.
    """
    header = read_header(data, position)
    body = read_body(data, position, header, check_crc=check_crc, limit_bytes=limit_bytes)
    return list(map(RawRecord._make, parse_records(body, header, position)))


def read_body(
    data: Buffer,
    position: int,
    header: BatchHeader,
    *,
    check_crc: bool = True,
    limit_bytes: int = LIMIT_BYTES,
) -> bytes:
    """The bytes of the records, inflated."""
    size = header.size_bytes
    if len(data) - position < size:
        raise corrupt(header, position, f"{len(data) - position} bytes of {size} are there")
    if check_crc and not checksum_holds(data, position, size):
        raise corrupt(header, position, "its checksum fails")
    packed = memoryview(data)[position + HEADER_SIZE : position + size]
    if header.codec == compression.Codec.NONE:
        body = bytes(packed)
    else:
        body = bytes(inflate(packed, position, header, limit_bytes))
    if header.record_count * RECORD_SIZE_MIN > len(body):
        reason = f"{header.record_count} records cannot fit into {len(body)} bytes"
        raise corrupt(header, position, reason)
    return body


def inflate(packed: Buffer, position: int, header: BatchHeader, limit_bytes: int) -> Buffer:
    """Decompress a batch's records; errors name the batch."""
    try:
        return compression.decompress(header.codec, packed, limit_bytes=limit_bytes)
    except BatchTooLargeError:
        raise BatchTooLargeError(limit_bytes, base_offset=header.base_offset) from None
    except CorruptDataError as error:
        raise corrupt(header, position, error.reason) from None


def corrupt(header: BatchHeader, position: int, reason: str) -> CorruptDataError:
    return CorruptDataError(f"batch at offset {header.base_offset}: {reason}", position=position)


def parse_records(body: bytes, header: BatchHeader, position: int = 0) -> list[Fields]:
    """The records of an inflated body, as plain tuples in the order of ``RawRecord``."""
    if header.record_count >= _KERNEL_FROM:
        from shoal.records import objects

        fields = objects.parse_body(body, header)
        if fields is not None:
            return fields
    by_broker = header.attributes & _LOG_APPEND_TIME
    try:
        return parse_body(
            body,
            header.record_count,
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            base_timestamp_ms=header.base_timestamp_ms,
            append_time_ms=header.max_timestamp_ms if by_broker else None,
        )
    except CorruptDataError as error:
        raise corrupt(header, position, error.reason) from None


# Writing ------------------------------------------------------------------------------------


def encode_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    offsets: Sequence[int] | None = None,
    last_offset: int | None = None,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    max_timestamp_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    leader_epoch: int = -1,
) -> bytes:
    """One batch of ``(key, value, headers, timestamp_ms)`` records.

    Args:
        offsets: each record's offset, rising; without it they count up from ``base_offset``.
        last_offset: what the batch reaches to when compaction took the records at its end (or
            all of them).
        max_timestamp_ms: under LOG_APPEND_TIME the time of every record. By default the
            largest timestamp given, as Kafka demands under CREATE_TIME.
        delete_horizon_ms: stored as the base timestamp (KIP-534).
    """
    if (
        len(records) >= _KERNEL_FROM
        and not (is_control or timestamp_type)
        and (offsets, last_offset, max_timestamp_ms, delete_horizon_ms) == (None,) * 4
    ):
        from shoal.records import encoding

        stamp = encoding.Stamp(
            base_offset,
            codec,
            level,
            leader_epoch,
            producer_id,
            producer_epoch,
            base_sequence,
            is_transactional,
        )
        batch = encoding.encode_records(records, stamp)
        if batch is not None:
            return batch
    if offsets is None:
        deltas: Sequence[int] = range(len(records))
    else:
        deltas = [offset - base_offset for offset in offsets]
    base_timestamp = records[0][3] if records else -1
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    if max_timestamp_ms is None:
        max_timestamp_ms = max((record[3] for record in records), default=-1)
    body = b"".join(
        [
            encode_record(delta, timestamp_ms - base_timestamp, key, value, headers)
            for delta, (key, value, headers, timestamp_ms) in zip(deltas, records, strict=True)
        ]
    )
    last_delta = deltas[-1] if records else 0
    if last_offset is not None:
        assert last_offset - base_offset >= last_delta
        last_delta = last_offset - base_offset
    attributes = (
        codec
        | (timestamp_type and _LOG_APPEND_TIME)
        | (is_transactional and _TRANSACTIONAL)
        | (is_control and _CONTROL)
        | (delete_horizon_ms is not None and _DELETE_HORIZON)
    )
    if codec != compression.Codec.NONE:
        body = compression.compress(codec, body, level)
    return seal(
        body,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last_delta,
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )


def encode_single(key: bytes, value: bytes | None, timestamp_ms: int) -> bytes:
    """``encode_batch`` of one record without headers, as coordinators write them all the time."""
    value_parts = (VARINT[-1], b"") if value is None else (VARINT[len(value)], value)
    record = b"".join((b"\0\0\0", VARINT[len(key)], key, *value_parts, b"\0"))
    covered = _COVERED.pack(0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1)
    covered += VARINT[len(record)] + record
    return front(covered) + covered


def front(covered: bytes, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
    """What stands in front of all that the checksum covers."""
    length = _CRC_FROM - _LENGTH_FROM + len(covered)
    return _FRONT.pack(base_offset, length, leader_epoch, 2, crc32c(covered))


def seal(
    body: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytes:
    """Put the header and the checksum in front of encoded (and compressed) records."""
    try:
        covered = _COVERED.pack(
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
        crc = crc32c(body, crc32c(covered))
        length = HEADER_SIZE - _LENGTH_FROM + len(body)
        front = _FRONT.pack(base_offset, length, leader_epoch, 2, crc)
    except struct.error as error:
        raise ValueError(f"a field of the batch does not fit: {error}") from None
    return b"".join((front, covered, body))


def _write_checksum(buffer: bytearray | memoryview, position: int, size: int) -> None:
    with memoryview(buffer)[position + _CRC_FROM : position + size] as covered:
        crc = crc32c(covered)
    struct.pack_into(">I", buffer, position + 17, crc)


def set_max_timestamp(buffer: bytearray | memoryview, max_timestamp_ms: int) -> None:
    """Write the largest timestamp of a batch's records into its header, in place."""
    struct.pack_into(">q", buffer, 35, max_timestamp_ms)
    _write_checksum(buffer, 0, batch_size(buffer))


def assign_offsets(
    buffer: bytearray | memoryview,
    position: int = 0,
    *,
    base_offset: int,
    leader_epoch: int,
    log_append_time_ms: int | None = None,
) -> None:
    """Give a produced batch its place in the log, in place.

    Offset and leader epoch lie outside the checksum. Only a topic with LogAppendTime changes
    bytes under it (timestamp type, max timestamp), and only then is it computed again.
    """
    _PLACE.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + 12, leader_epoch)
    if log_append_time_ms is not None:
        attributes = struct.unpack_from(">h", buffer, position + 21)[0] | _LOG_APPEND_TIME
        struct.pack_into(">h", buffer, position + 21, attributes)
        struct.pack_into(">q", buffer, position + 35, log_append_time_ms)
        _write_checksum(buffer, position, batch_size(buffer, position))
