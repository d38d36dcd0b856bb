"""The records inside a batch's inflated body: parse them all, or encode one.

Rule: this file knows nothing of batches but the four numbers that deltas are relative to. It is
the reference for the C kernel's loops.

    record: length, attributes i8, timestamp_delta (64 bit), offset_delta, key length, key,
    value length, value, header count, then per header: key length, key, value length, value.

Numbers are zigzag varints of 32 bits where nothing else is said; a length of -1 is null, which
keys, values and header values may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shoal.errors import CorruptDataError
from shoal.types import Header

#: Offset, timestamp_ms, key, value, headers.
Fields = tuple[int, int, bytes | None, bytes | None, Sequence[Header]]

#: The smallest record: seven fields of one byte each.
RECORD_SIZE_MIN: Final = 7

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


def parse_body(
    body: bytes,
    count: int,
    *,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    append_time_ms: int | None,
) -> list[Fields]:
    """All records in an inflated body; every one of them has ``append_time_ms`` if it is set."""
    records: list[Fields] = []
    try:
        end = _parse(
            records, body, count, base_offset, last_offset_delta, base_timestamp_ms, append_time_ms
        )
    except IndexError:
        raise CorruptDataError(f"record {len(records)} is cut off") from None
    except _MalformedError as error:
        raise CorruptDataError(f"record {len(records)} {error}") from None
    if end != len(body):
        raise CorruptDataError(f"{len(body) - end} bytes are left over behind the last record")
    return records


def _parse(
    records: list[Fields],
    body: bytes,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    append_time_ms: int | None,
) -> int:
    """Append to ``records``; where the last one ends.

    The whole cost of reading without the C kernel is in this loop. So varints of one and two
    bytes are read in line, and one comparison at a record's end stands for all the lengths in
    it: the position only grows, so if it ends where the record ends it never left the record.
    """
    append = records.append
    size, previous, p = len(body), -1, 0
    for _ in range(count):
        if (n := body[p]) < 128:
            p += 1
        elif (high := body[p + 1]) < 128:
            n, p = n + (high << 7) - 128, p + 2
        else:
            n, p = _varint(body, p, 32)
        end = p + (n >> 1)
        if n & 1 or end > size:
            raise _MalformedError("is longer than the batch")
        p += 1  # attributes: none are defined

        if (n := body[p]) < 128:
            p += 1
        elif (high := body[p + 1]) < 128:
            n, p = n + (high << 7) - 128, p + 2
        else:
            n, p = _varint(body, p, 64)
        timestamp = base_timestamp_ms + ((n >> 1) ^ -(n & 1))

        if (n := body[p]) < 128:
            p += 1
        elif (high := body[p + 1]) < 128:
            n, p = n + (high << 7) - 128, p + 2
        else:
            n, p = _varint(body, p, 32)
        delta = (n >> 1) ^ -(n & 1)
        if not previous < delta <= last_offset_delta:
            raise _MalformedError(f"has offset delta {delta}")
        previous = delta

        if (n := body[p]) < 128:
            p += 1
        elif (high := body[p + 1]) < 128:
            n, p = n + (high << 7) - 128, p + 2
        else:
            n, p = _varint(body, p, 32)
        if n & 1:
            key = _null(n)
        else:
            start, p = p, p + (n >> 1)
            key = body[start:p]

        if (n := body[p]) < 128:
            p += 1
        elif (high := body[p + 1]) < 128:
            n, p = n + (high << 7) - 128, p + 2
        else:
            n, p = _varint(body, p, 32)
        if n & 1:
            value = _null(n)
        else:
            start, p = p, p + (n >> 1)
            value = body[start:p]

        headers: Sequence[Header] = ()
        if body[p]:
            headers, p = _read_headers(body, p, end)
        else:
            p += 1
        if p != end:
            raise _MalformedError("does not have the length it says")
        if append_time_ms is not None:
            timestamp = append_time_ms
        elif not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise _MalformedError("has a timestamp beyond 64 bits")
        append((base_offset + delta, timestamp, key, value, headers))
    return p


class _MalformedError(Exception):
    """Says what is wrong with a record; its caller knows which one it is."""


def _varint(body: bytes, p: int, bits: int) -> tuple[int, int]:
    """The unsigned number at ``p`` and the position behind it."""
    value = shift = 0
    while True:
        byte = body[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise _MalformedError("has a number which does not end")
    if value >> bits:
        raise _MalformedError(f"has a number beyond {bits} bits")
    return value, p


def _null(number: int) -> bytes | None:
    """An odd number is a negative length, of which only -1 has a meaning."""
    if number != 1:
        raise _MalformedError("has a negative length")
    return None


def _read_headers(body: bytes, p: int, end: int) -> tuple[Sequence[Header], int]:
    number, p = _varint(body, p, 32)
    count = number >> 1
    if number & 1 or count > (end - p) // 2:
        raise _MalformedError("has more headers than bytes")
    headers: list[Header] = []
    for _ in range(count):
        number, p = _varint(body, p, 32)
        if number & 1:
            raise _MalformedError("has a header without a key")
        start, p = p, p + (number >> 1)
        # Java's reader replaces what is not UTF-8; a consumer must not get stuck on it.
        key = body[start:p].decode("utf-8", "replace")
        number, p = _varint(body, p, 32)
        if number & 1:
            headers.append((key, _null(number)))
        else:
            start, p = p, p + (number >> 1)
            headers.append((key, body[start:p]))
    return tuple(headers), p


class _Varints(dict[int, bytes]):
    """Signed numbers as zigzag varints. Small ones, nearly all there are, are made once."""

    def __missing__(self, value: int) -> bytes:
        rest = (value << 1) ^ (value >> 63)
        out = bytearray()
        while rest > 0x7F:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
        if len(out) < 3:
            self[value] = bytes(out)
        return bytes(out)


VARINT: Final = _Varints()


def varint(value: int) -> bytes:
    """A signed number of up to 64 bits."""
    return VARINT[value]


_NULL: Final = (VARINT[-1], b"")


def varint_size(value: int) -> int:
    if -64 <= value < 64:
        return 1
    return (((value << 1) ^ (value >> 63)).bit_length() + 6) // 7


def record_size(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
) -> int:
    """How many bytes ``encode_batch`` will use for this record."""
    size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + varint_size(len(headers))
    size += 1 if key is None else varint_size(len(key)) + len(key)
    size += 1 if value is None else varint_size(len(value)) + len(value)
    for name, content in headers:
        length = len(name) if name.isascii() else len(name.encode())
        size += varint_size(length) + length
        size += 1 if content is None else varint_size(len(content)) + len(content)
    return size + varint_size(size)


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
) -> bytes:
    """One record. The deltas must fit: an offset's into 31 bits, a timestamp's into 64."""
    if not _INT64_MIN <= timestamp_delta <= _INT64_MAX:
        raise ValueError(f"timestamps lie {timestamp_delta} ms apart in one batch")
    key_parts = _NULL if key is None else (VARINT[len(key)], key)
    value_parts = _NULL if value is None else (VARINT[len(value)], value)
    numbers = (b"\0", VARINT[timestamp_delta], VARINT[offset_delta])
    body = b"".join((*numbers, *key_parts, *value_parts, VARINT[len(headers)]))
    for name, content in headers:
        encoded = name.encode()
        content_parts = _NULL if content is None else (VARINT[len(content)], content)
        body += b"".join((VARINT[len(encoded)], encoded, *content_parts))
    return VARINT[len(body)] + body
