"""May these bytes be appended? The checks of Kafka's LogValidator, in its order.

Pure: bytes and ``now_ms`` in, checked batches or an error out. A client's batch is looked at record
by record (``records/vetting.py``), without an object for any of them; what the broker writes itself
is taken as it is, or at its checksum. Records are decoded only to say which of them are wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from shoal.errors import BatchTooLargeError, CorruptDataError, ErrorCode, UnsupportedFormatError
from shoal.log.config import LogConfig
from shoal.records.batch import (
    HEADER_SIZE,
    LIMIT_BYTES,
    BatchHeader,
    RawRecord,
    batch_size,
    checksum_holds,
    decode_batch,
    read_body,
    read_header,
    set_max_timestamp,
)
from shoal.records.checksum import crc32c
from shoal.records.compression import Codec, compress
from shoal.records.vetting import Facts, vet, why_not
from shoal.types import TimestampType

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LOG_APPEND_TIME: Final = 0x08
_MAGIC_AT: Final = 16
_NO_TIMESTAMP: Final = -1
# So many records of a refused batch are told, and so many named in the message, as by Kafka.
_NAMED_MAX: Final = 3
# Of a refused batch with more records than this none is told: to find them takes too long.
_RECORDS_TOLD_MAX: Final = 10_000
# A batch may inflate to so many times what a topic allows it to be packed, and to a little always.
_INFLATION_MAX: Final = 32
_INFLATED_BYTES_MIN: Final = 1 << 20

# Base offset, length, magic, checksum, attributes, last offset delta, first and last time, producer
# id, epoch and sequence, record count.
_FACTS: Final = Struct(">qi4xbIhiqqqhii")
# Of these the length, the attributes, the last offset delta, the last time, the producer id.
_OWN_FACTS: Final = Struct(">8xi9xhi8xqq")
_TRANSACTIONAL: Final = 0x10
_LENGTH: Final = Struct(">i")
_ATTRIBUTES: Final = Struct(">h")
_CODEC_BITS: Final = 0x07
_LENGTH_FROM: Final = 12
_CRC_FROM: Final = 21

RecordErrors = tuple[tuple[int, str], ...]
"""Which records of a batch are wrong, by their place in it, and why (KIP-467)."""


class Refusal(NamedTuple):
    """Why a batch is not stored."""

    error: ErrorCode
    detail: str
    record_errors: RecordErrors = ()


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


def recompresses(config: LogConfig) -> bool:
    """Whether batches are stored in another codec than their producer's, which takes long."""
    return config.compression_type in _CODECS


def usual_batch(
    data: bytearray | memoryview,
    config: LogConfig,
    now_ms: int,
    latest_of: Callable[[bytearray | memoryview], int | None],
) -> tuple[int, int, int] | None:
    """Last offset delta, largest timestamp and producer id of the one good batch most appends are.

    None for anything else: ``check`` says what it is. This is the same check without an object,
    for plain batches in a log that stores them as they were sent. ``latest_of`` is a
    ``vetting.quick_vetter``.
    """
    size = len(data)
    if size < HEADER_SIZE:
        return None
    found = _FACTS.unpack_from(data)
    base_offset, length, magic, crc, attributes, delta, first_ms, last_ms = found[:8]
    producer_id, producer_epoch, base_sequence, count = found[8:]
    latest_ms = config.message_timestamp_after_max_ms
    if (
        base_offset
        or length != size - _LENGTH_FROM
        or magic != 2
        or (producer_id >= 0 and (producer_epoch < 0 or base_sequence < 0))
        or (attributes and (attributes != _TRANSACTIONAL or producer_id < 0))
        or delta < 0
        or count != delta + 1
        or size > config.max_message_bytes
        or size > config.segment_bytes
        or (latest_ms is not None and last_ms > now_ms + latest_ms)
        or (config.message_timestamp_before_max_ms is not None and first_ms >= 0)
        or (isinstance(data, memoryview) and data.readonly)
        or crc32c(memoryview(data)[_CRC_FROM:]) != crc
        or latest_of(data) != last_ms
    ):
        return None
    return delta, last_ms, producer_id


def own_batch(
    data: bytes | bytearray | memoryview, config: LogConfig
) -> tuple[int, int, int] | None:
    """As ``usual_batch``, for what the broker itself has encoded a moment ago.

    There is nothing to find out about such a batch but whether it fits. None for anything else than
    one plain batch. Not for logs that write their own times into them.
    """
    size = len(data)
    if size < HEADER_SIZE:
        return None
    length, attributes, delta, last_ms, producer_id = _OWN_FACTS.unpack_from(data)
    if (
        length != size - _LENGTH_FROM
        or attributes
        or producer_id >= 0
        or size > config.max_message_bytes
        or size > config.segment_bytes
    ):
        return None
    return delta, last_ms, producer_id


def check(
    data: bytes | bytearray | memoryview,
    config: LogConfig,
    *,
    now_ms: int,
    from_client: bool,
    facts: Facts | Refusal | Checked | None = None,
) -> Checked | Refusal:
    """Check whole batches back to back: exactly one if a client sends them.

    ``facts`` are what ``look_inside`` or ``prepare`` found, if somebody did that before.
    """
    if isinstance(facts, Checked):
        return facts
    if from_client:
        return _check_client(data, config, now_ms, facts)
    position, headers = 0, []
    try:
        while position < len(data):
            header = read_header(data, position)
            size = header.size_bytes
            if size > config.max_message_bytes:
                return _too_large(size, config)
            if not checksum_holds(data, position, size):
                return Refusal(ErrorCode.CORRUPT_MESSAGE, "a batch fails its checksum")
            headers.append(header)
            position += size
    except CorruptDataError as error:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, error.reason)
    if not headers:
        return Refusal(ErrorCode.INVALID_RECORD, "there is no batch")
    return _larger_than_a_segment(position, config) or Checked(_writable(data), headers)


def prepare(data: bytearray | memoryview, config: LogConfig, *, now_ms: int) -> Checked | Refusal:
    """All of ``check`` for a client's batch, in a thread: to inflate and recompress takes long."""
    limit_bytes = max(_INFLATED_BYTES_MIN, _INFLATION_MAX * config.max_message_bytes)
    try:
        facts = look_inside(data, limit_bytes=min(limit_bytes, LIMIT_BYTES))
    except BatchTooLargeError as error:
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    return _check_client(data, config, now_ms, facts)


def look_inside(
    data: bytes | bytearray | memoryview, *, limit_bytes: int = LIMIT_BYTES
) -> Facts | Refusal:
    """What the records of a client's batch are, or why it is refused. It may be anything at all.

    Takes as long as it takes to inflate them: large ones belong into a thread.

    Raises:
        BatchTooLargeError: it inflates to more than ``limit_bytes``, if that is less than allowed.
    """
    fault = _header_fault(data)
    if fault is not None:
        return fault
    if not checksum_holds(data):
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "a batch fails its checksum")
    try:
        facts = vet(data, limit_bytes=limit_bytes)
    except BatchTooLargeError as error:
        if limit_bytes < LIMIT_BYTES:
            raise
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    return facts if facts is not None else Refusal(ErrorCode.INVALID_RECORD, why_not(data))


def _header_fault(data: bytes | bytearray | memoryview) -> Refusal | None:
    """Why these bytes are not one batch that a client may send, as far as its header tells."""
    invalid = ErrorCode.INVALID_RECORD
    if len(data) <= _MAGIC_AT:
        return Refusal(invalid, "there is no whole batch")
    try:
        size = batch_size(data)
        if size > len(data):
            return Refusal(invalid, f"a batch of {size} bytes, of which {len(data)} are there")
        header = read_header(data)
    except UnsupportedFormatError as error:
        return Refusal(invalid, error.reason)
    except CorruptDataError as error:
        # A checksum that holds says that a client wrote what it meant.
        if data[_MAGIC_AT] == 2 and len(data) >= HEADER_SIZE and _holds(data):
            return Refusal(invalid, error.reason)
        return Refusal(ErrorCode.CORRUPT_MESSAGE, error.reason)
    if size < len(data):
        if not _holds(data):
            return Refusal(ErrorCode.CORRUPT_MESSAGE, "a batch fails its checksum")
        return Refusal(invalid, f"{len(data) - size} bytes behind the one batch that is expected")
    return _client_fault(header)


def _holds(data: bytes | bytearray | memoryview) -> bool:
    try:
        return checksum_holds(data)
    except CorruptDataError:
        return False


def _client_fault(header: BatchHeader) -> Refusal | None:
    """What Kafka does not allow a client, or nobody could read."""
    invalid = ErrorCode.INVALID_RECORD
    if header.base_offset != 0:
        return Refusal(invalid, "a producer's batch starts at offset 0")
    if header.record_count == 0 or header.last_offset_delta + 1 != header.record_count:
        return Refusal(invalid, "the record count does not match the offsets")
    attributes = header.attributes
    if not attributes:
        pass  # the usual batch: no codec, nothing special
    elif header.is_control:
        return Refusal(invalid, "clients may not write control batches")
    elif header.is_transactional and header.producer_id < 0:
        return Refusal(invalid, "a transactional batch needs a producer id")
    elif attributes & _LOG_APPEND_TIME:
        return Refusal(ErrorCode.INVALID_TIMESTAMP, "a client may not set the append time")
    elif header.codec > Codec.ZSTD:
        unknown = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return Refusal(unknown, f"codec {header.codec} is not known")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return Refusal(invalid, "an idempotent batch needs a sequence and an epoch")
    return None


def _check_client(
    data: bytes | bytearray | memoryview,
    config: LogConfig,
    now_ms: int,
    facts: Facts | Refusal | None,
) -> Checked | Refusal:
    if len(data) >= _LENGTH_FROM:
        size = int.from_bytes(data[8:12], "big", signed=True) + _LENGTH_FROM
        if size == len(data) and size > config.max_message_bytes:
            return _too_large(size, config)
    if facts is None:
        facts = look_inside(data)
    if isinstance(facts, Refusal):
        return facts
    header = read_header(data)
    refusal = _larger_than_a_segment(len(data), config) or _check_records(
        data, facts, config, now_ms
    )
    if refusal is not None:
        return refusal
    wanted = _CODECS.get(config.compression_type, header.codec)
    if wanted != header.codec:
        return _recompressed(data, header, wanted, facts, config)
    data = _writable(data)
    if (
        config.message_timestamp_type is TimestampType.CREATE_TIME
        and facts.timestamp_max_ms != header.max_timestamp_ms
    ):
        # Whoever looks for a time relies on it, so what the producer says does not count.
        set_max_timestamp(data, facts.timestamp_max_ms)
        header = read_header(data)
    return Checked(data, [header])


def _check_records(
    data: bytes | bytearray | memoryview, facts: Facts, config: LogConfig, now_ms: int
) -> Refusal | None:
    """Keys and times, of which each record may have a wrong one."""
    earliest_ms, latest_ms = _allowed_times(config, now_ms)
    is_good = earliest_ms <= facts.timestamp_min_ms and facts.timestamp_max_ms <= latest_ms
    if is_good and not (config.compacts and facts.null_keys):
        return None
    header = read_header(data)
    if header.record_count > _RECORDS_TOLD_MAX:
        invalid, what = ErrorCode.INVALID_RECORD, "a record without a key in a compacted topic"
        if not (config.compacts and facts.null_keys):
            invalid, what = ErrorCode.INVALID_TIMESTAMP, "invalid timestamp"
            if facts.timestamp_max_ms <= latest_ms and facts.timestamp_min_ms == _NO_TIMESTAMP:
                return None  # some have no time, which is allowed
        return Refusal(invalid, f"One or more records have been rejected due to {what}")
    errors: list[tuple[int, str]] = []
    has_bad_time = False
    for number, record in enumerate(decode_batch(data, check_crc=False)):
        if config.compacts and record.key is None:
            errors.append((number, "Compacted topic cannot accept message without key"))
        elif not _is_in_time(record, earliest_ms, latest_ms):
            has_bad_time = True
            errors.append(
                (
                    number,
                    f"Timestamp {record.timestamp_ms} of message with offset {number} is out of "
                    f"range. The timestamp should be within [{earliest_ms}, {latest_ms}]",
                )
            )
    if has_bad_time:
        text = "One or more records have been rejected due to invalid timestamp"
        return Refusal(ErrorCode.INVALID_TIMESTAMP, text, tuple(errors))
    if not errors:
        return None
    named = "; ".join(f"record {number}: {reason}" for number, reason in errors[:_NAMED_MAX])
    text = f"One or more records have been rejected due to {len(errors)} record errors: {named}"
    return Refusal(ErrorCode.INVALID_RECORD, text, tuple(errors))


def _allowed_times(config: LogConfig, now_ms: int) -> tuple[int, int]:
    earliest_ms, latest_ms = -(2**63), 2**63 - 1
    if config.message_timestamp_type is TimestampType.CREATE_TIME:
        if config.message_timestamp_before_max_ms is not None:
            earliest_ms = now_ms - config.message_timestamp_before_max_ms
        if config.message_timestamp_after_max_ms is not None:
            latest_ms = now_ms + config.message_timestamp_after_max_ms
    return earliest_ms, latest_ms


def _is_in_time(record: RawRecord, earliest_ms: int, latest_ms: int) -> bool:
    return record.timestamp_ms == _NO_TIMESTAMP or earliest_ms <= record.timestamp_ms <= latest_ms


def _recompressed(
    data: bytes | bytearray | memoryview,
    header: BatchHeader,
    wanted: int,
    facts: Facts,
    config: LogConfig,
) -> Checked | Refusal:
    """The same records in another codec. They are not decoded: their bytes stay as they are."""
    body = read_body(data, 0, header, check_crc=False)
    changed = bytearray(data[:HEADER_SIZE])
    changed += compress(wanted, body)
    if len(changed) > config.max_message_bytes:
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"{len(changed)} bytes after recompression")
    _LENGTH.pack_into(changed, 8, len(changed) - _LENGTH_FROM)
    _ATTRIBUTES.pack_into(changed, _CRC_FROM, header.attributes & ~_CODEC_BITS | wanted)
    set_max_timestamp(changed, facts.timestamp_max_ms)  # and the checksum
    return Checked(changed, [read_header(changed)])


def _too_large(size: int, config: LogConfig) -> Refusal:
    return Refusal(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of {size} bytes; max.message.bytes is {config.max_message_bytes}",
    )


def _larger_than_a_segment(size: int, config: LogConfig) -> Refusal | None:
    if size <= config.segment_bytes:
        return None
    return Refusal(
        ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes; segment.bytes is {config.segment_bytes}"
    )


def _writable(data: bytes | bytearray | memoryview) -> bytearray | memoryview:
    if isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
        return bytearray(data)
    return data
