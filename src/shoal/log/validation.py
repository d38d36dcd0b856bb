"""May these bytes be appended? The checks of Kafka's LogValidator, in its order.

Pure: bytes and ``now_ms`` in, checked batches or an error out. Only the header and the checksum
are looked at, one object per batch. Records are decoded only where the topic demands it: keys of
a compacted topic, and a topic that wants another compression than the producer chose.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from shoal.errors import BatchTooLargeError, CorruptDataError, ErrorCode, UnsupportedFormatError
from shoal.log.config import LogConfig
from shoal.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    checksum_holds,
    decode_batch,
    encode_batch,
    read_header,
)
from shoal.records.checksum import crc32c
from shoal.records.compression import Codec
from shoal.types import TimestampType

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_CODEC_MAX: Final = int(Codec.ZSTD)
_LOG_APPEND_TIME: Final = 0x08

# Base offset, length, magic, checksum, attributes, last offset delta, first and last time, producer
# id, record count.
_FACTS: Final = Struct(">qi4xbIhiqqq6xi")
_LENGTH_FROM: Final = 12
_CRC_FROM: Final = 21

Refusal = tuple[ErrorCode, str]


class Checked(NamedTuple):
    """Batches that may be appended; ``data`` may be changed in place."""

    data: bytearray | memoryview
    headers: list[BatchHeader]


def stores_as_sent(config: LogConfig) -> bool:
    """Whether batches need no change but their offsets, and their records no look."""
    return (
        not config.compacts
        and config.compression_type == "producer"
        and config.message_timestamp_type is TimestampType.CREATE_TIME
    )


def usual_batch(
    data: bytearray | memoryview, config: LogConfig, now_ms: int
) -> tuple[int, int] | None:
    """Last offset delta and largest timestamp of the one good batch that most appends are.

    None for anything else: ``check`` says what it is. This is the same check without an object,
    for batches of a producer without an id, in a log that stores them as they were sent.
    """
    size = len(data)
    if size < HEADER_SIZE:
        return None
    base_offset, length, magic, crc, attributes, delta, first_ms, last_ms, producer_id, count = (
        _FACTS.unpack_from(data)
    )
    latest_ms = config.message_timestamp_after_max_ms
    if (
        base_offset
        or length != size - _LENGTH_FROM
        or magic != 2
        or producer_id >= 0
        or not 0 <= attributes <= _CODEC_MAX
        or delta < 0
        or count != delta + 1
        or size > config.max_message_bytes
        or size > config.segment_bytes
        or (latest_ms is not None and last_ms > now_ms + latest_ms)
        or (config.message_timestamp_before_max_ms is not None and first_ms >= 0)
        or (isinstance(data, memoryview) and data.readonly)
        or crc32c(memoryview(data)[_CRC_FROM:]) != crc
    ):
        return None
    return delta, last_ms


def check(
    data: bytes | bytearray | memoryview, config: LogConfig, *, now_ms: int, from_client: bool
) -> Checked | Refusal:
    """Check whole batches back to back: exactly one if a client sends them."""
    position, headers = 0, []
    try:
        while position < len(data):
            header = read_header(data, position)
            size = header.size_bytes
            if size > config.max_message_bytes:
                return (
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}",
                )
            if not checksum_holds(data, position, size):
                return ErrorCode.CORRUPT_MESSAGE, "a batch fails its checksum"
            refusal = _check_times(header, config, now_ms)
            if refusal is None and from_client:
                refusal = _check_client(header)
            if refusal is not None:
                return refusal
            headers.append(header)
            position += size
    except UnsupportedFormatError as error:
        return ErrorCode.INVALID_RECORD, error.reason
    except CorruptDataError as error:
        return ErrorCode.CORRUPT_MESSAGE, error.reason
    if not headers or (from_client and len(headers) != 1):
        return ErrorCode.INVALID_RECORD, f"{len(headers)} batches where one is expected"
    if position > config.segment_bytes:
        return (
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{position} bytes; segment.bytes is {config.segment_bytes}",
        )
    if from_client and (config.compacts or config.compression_type != "producer"):
        return _check_records(data, headers[0], config)
    return Checked(_writable(data), headers)


def _check_times(header: BatchHeader, config: LogConfig, now_ms: int) -> Refusal | None:
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return None  # the broker's clock replaces them
    latest = config.message_timestamp_after_max_ms
    if latest is not None and header.max_timestamp_ms > now_ms + latest:
        return ErrorCode.INVALID_TIMESTAMP, "a timestamp lies too far in the future"
    earliest = config.message_timestamp_before_max_ms
    if earliest is not None and 0 <= header.base_timestamp_ms < now_ms - earliest:
        return ErrorCode.INVALID_TIMESTAMP, "a timestamp lies too far in the past"
    return None


def _check_client(header: BatchHeader) -> Refusal | None:
    if header.base_offset != 0:
        return ErrorCode.INVALID_RECORD, "a producer's batch starts at offset 0"
    if header.record_count == 0 or header.last_offset_delta + 1 != header.record_count:
        return ErrorCode.INVALID_RECORD, "the record count does not match the offsets"
    attributes = header.attributes
    if not attributes:
        pass  # the usual batch: no codec, nothing special
    elif header.is_control:
        return ErrorCode.INVALID_RECORD, "clients may not write control batches"
    elif header.is_transactional:
        return ErrorCode.INVALID_TXN_STATE, "no transaction is open"
    elif attributes & _LOG_APPEND_TIME:
        return ErrorCode.INVALID_TIMESTAMP, "a client may not set the append time"
    elif header.codec > Codec.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {header.codec} is not known"
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return ErrorCode.INVALID_RECORD, "an idempotent batch needs a sequence and an epoch"
    return None


def _check_records(
    data: bytes | bytearray | memoryview, header: BatchHeader, config: LogConfig
) -> Checked | Refusal:
    wanted = _CODECS.get(config.compression_type, header.codec)
    if not config.compacts and wanted == header.codec:
        return Checked(_writable(data), [header])
    try:
        records = decode_batch(data, check_crc=False)
    except BatchTooLargeError as error:
        return ErrorCode.MESSAGE_TOO_LARGE, str(error)
    except CorruptDataError as error:
        return ErrorCode.CORRUPT_MESSAGE, error.reason
    if config.compacts and any(record.key is None for record in records):
        return ErrorCode.INVALID_RECORD, "a compacted topic takes only records with a key"
    if wanted != header.codec:
        data = encode_batch(
            [(one.key, one.value, one.headers, one.timestamp_ms) for one in records],
            codec=wanted,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
        if len(data) > config.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, f"{len(data)} bytes after recompression"
        header = read_header(data)
    return Checked(_writable(data), [header])


def _writable(data: bytes | bytearray | memoryview) -> bytearray | memoryview:
    if isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
        return bytearray(data)
    return data
