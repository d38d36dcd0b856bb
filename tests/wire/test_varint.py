"""Unsigned varints, also against kio's."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial.writers import write_unsigned_varint
from kio.static.primitive import uvarint

from shoal.errors import InvalidMessageError
from shoal.wire.varint import decode_uvarint, encode_uvarint

EDGES = [0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31 - 1, 2**32 - 1]


@given(st.sampled_from(EDGES) | st.integers(0, 2**32 - 1))
def test_a_varint_survives_the_trip(value):
    data = encode_uvarint(value)
    assert decode_uvarint(b"x" + data + b"y", 1) == (value, 1 + len(data))
    assert decode_uvarint(memoryview(data), 0) == (value, len(data))


@given(st.sampled_from(EDGES[:-1]) | st.integers(0, 2**31 - 1))
def test_bytes_are_those_of_kio(value):
    out = io.BytesIO()
    write_unsigned_varint(out, uvarint(value))
    assert encode_uvarint(value) == out.getvalue()


@pytest.mark.parametrize("data", ["ffffffffff", "ffffffff10", "808080808001", "ffffffff7f"])
def test_more_than_32_bits_are_refused(data):
    with pytest.raises(InvalidMessageError, match="32 bits"):
        decode_uvarint(bytes.fromhex(data), 0)


def test_an_end_inside_a_varint_is_an_index_error_for_the_caller():
    with pytest.raises(IndexError):
        decode_uvarint(b"\x80", 0)
