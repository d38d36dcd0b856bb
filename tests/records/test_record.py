"""The records inside a body: numbers at the edges, every lie about a length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import CorruptDataError
from shoal.records.record import (
    RECORD_SIZE_MIN,
    Fields,
    encode_record,
    parse_body,
    record_size,
    varint,
    varint_size,
)
from tests.records.generate import header_lists, optional_bytes


def parse(body: bytes, count: int = 1, *, last: int = 2**31 - 1, base_ms: int = 0) -> list[Fields]:
    return parse_body(
        body,
        count,
        base_offset=100,
        last_offset_delta=last,
        base_timestamp_ms=base_ms,
        append_time_ms=None,
    )


def record(*fields: bytes, length: int | None = None) -> bytes:
    content = b"".join(fields)
    return varint(len(content) if length is None else length) + content


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_numbers_are_zigzag_varints(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded
    assert varint_size(value) == len(encoded) // 2


@given(st.integers(-(2**63), 2**63 - 1))
def test_the_size_of_a_number_is_known_beforehand(value: int) -> None:
    assert varint_size(value) == len(varint(value))


@pytest.mark.slow
@given(
    st.integers(0, 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    optional_bytes,
    optional_bytes,
    header_lists,
)
def test_a_record_comes_back_as_it_was(offset, timestamp, key, value, headers) -> None:
    encoded = encode_record(offset, timestamp, key, value, headers)
    assert len(encoded) == record_size(offset, timestamp, key, value, headers)
    assert parse(encoded) == [(100 + offset, timestamp, key, value, headers)]


@pytest.mark.parametrize(("key", "value"), [(b"", None), (None, b""), (b"", b"")])
def test_an_empty_key_or_value_is_not_null(key: bytes | None, value: bytes | None) -> None:
    headers = (("empty", b""), ("null", None))
    assert parse(encode_record(0, 0, key, value, headers)) == [(100, 0, key, value, headers)]


def test_the_size_of_a_record_counts_the_bytes_of_a_header_s_name() -> None:
    headers = (("é" * 40, b""), ("plain", None))
    assert record_size(0, 0, None, None, headers) == len(encode_record(0, 0, None, None, headers))


def test_the_smallest_record_is_as_small_as_we_think() -> None:
    assert len(encode_record(0, 0, None, None, ())) == RECORD_SIZE_MIN


def test_a_header_key_which_is_not_utf8_is_replaced_as_java_does() -> None:
    body = record(b"\0\0\0\1\1", varint(1), varint(2), b"\xff\xfe", varint(-1))
    assert parse(body)[0][4] == (("\ufffd\ufffd", None),)


def test_timestamps_too_far_apart_are_refused_when_written() -> None:
    with pytest.raises(ValueError, match="apart"):
        encode_record(0, 2**63, b"", b"", ())


GOOD = encode_record(0, 0, b"key", b"value", (("h", b"1"),))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "cut off"),
        (GOOD[:-1], "longer than the batch"),
        (GOOD + b"\0", "left over"),
        (record(length=-1), "longer than the batch"),
        (record(length=0), "cut off"),
        (record(b"\0\0\0\1\1\0", length=5) + b"\0", "length it says"),
        (record(b"\0\0\0\1\1\0\0"), "length it says"),
        (record(b"\0", varint(0), varint(-1), b"\1\1\0"), "offset delta -1"),
        (record(b"\0\0\0", varint(-2), b"\1\0"), "negative length"),
        (record(b"\0\0\0\1", varint(-2), b"\0"), "negative length"),
        (record(b"\0\0\0", varint(99), b"\1\0"), "cut off"),
        (record(b"\0\0\0\1", varint(99), b"\0"), "cut off"),
        (record(b"\0\0\0\1\1", varint(-1)), "more headers than bytes"),
        (record(b"\0\0\0\1\1", varint(2**31 - 1)), "more headers than bytes"),
        (record(b"\0\0\0\1\1", varint(1), b"\1\1"), "header without a key"),
        (record(b"\0\0\0\1\1", varint(1), b"\0", varint(-2)), "negative length"),
        (record(b"\0\0\0\1\1", varint(1), b"\0", varint(5)), "length it says"),
        (b"\x80\x80\x80\x80\x80\x00", "does not end"),
        (b"\xff\xff\xff\xff\x1f", "beyond 32 bits"),
        (record(b"\0" + b"\xff" * 10, b"\0\0\1\1\0"), "does not end"),
        (record(b"\0" + b"\xff" * 9 + b"\2", b"\0\1\1\0"), "beyond 64 bits"),
    ],
)
def test_every_lie_about_a_length_is_found(body: bytes, reason: str) -> None:
    with pytest.raises(CorruptDataError, match=reason):
        parse(body)


def test_offsets_must_rise_and_stay_below_the_last_one() -> None:
    twice = encode_record(1, 0, None, None, ()) * 2
    with pytest.raises(CorruptDataError, match="record 1 has offset delta 1"):
        parse(twice, 2)
    with pytest.raises(CorruptDataError, match="record 0 has offset delta 5"):
        parse(encode_record(5, 0, None, None, ()), last=4)


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="timestamp beyond 64 bits"):
        parse(encode_record(0, 1, None, None, ()), base_ms=2**63 - 1)


def test_numbers_longer_than_needed_are_read_as_java_reads_them() -> None:
    assert parse(b"\x8c\x80\x00" + b"\0\0\0\1\1\0") == [(100, 0, None, None, ())]
