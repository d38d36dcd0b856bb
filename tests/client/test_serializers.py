"""The built-in serializers against Java's layouts."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client import serializers as s


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_comes_back(value):
    data = s.serialize_long(value)
    assert len(data) == 8
    assert s.deserialize_long(data) == value


@pytest.mark.parametrize(
    ("serialize", "deserialize", "value", "data"),
    [
        (s.serialize_byte, s.deserialize_byte, -2, b"\xfe"),
        (s.serialize_short, s.deserialize_short, 258, b"\x01\x02"),
        (s.serialize_int, s.deserialize_int, -1, b"\xff\xff\xff\xff"),
        (s.serialize_float, s.deserialize_float, 1.5, b"\x3f\xc0\x00\x00"),
        (s.serialize_double, s.deserialize_double, 1.5, b"\x3f\xf8" + bytes(6)),
        (s.serialize_str, s.deserialize_str, "é", b"\xc3\xa9"),
        (s.serialize_bytes, s.deserialize_bytes, b"\0", b"\0"),
        (s.serialize_json, s.deserialize_json, {"a": [1, None]}, b'{"a":[1,null]}'),
        (
            s.serialize_uuid,
            s.deserialize_uuid,
            uuid.UUID(int=1),
            b"00000000-0000-0000-0000-000000000001",
        ),
    ],
)
def test_bytes_are_those_of_java(serialize, deserialize, value, data):
    assert serialize(value) == data
    assert deserialize(data) == value


def test_a_number_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="3 bytes instead of 4"):
        s.deserialize_int(b"abc")
    with pytest.raises(ValueError, match="does not fit"):
        s.serialize_short(70_000)
    with pytest.raises(ValueError, match="does not fit"):
        s.serialize_float(1e300)


@pytest.mark.parametrize("value", [5, [1, 2], "text"])
def test_what_is_no_bytes_is_not_made_into_some(value):
    with pytest.raises(TypeError, match="bytes, not"):
        s.serialize_bytes(value)


@given(st.lists(st.none() | st.text()))
def test_a_list_comes_back(values):
    data = s.list_serializer(s.serialize_str)(values)
    assert s.list_deserializer(s.deserialize_str)(data) == values


def test_a_list_of_fixed_size_items_as_java_writes_it():
    # strategy 0, one null at index 1, three items, two of them present
    data = b"\0" + b"\0\0\0\1\0\0\0\1" + b"\0\0\0\3" + b"\0\0\0\7" + b"\0\0\0\x08"
    assert s.list_deserializer(s.deserialize_int, item_size_bytes=4)(data) == [7, None, 8]


@given(st.binary(max_size=40))
def test_any_bytes_give_a_list_or_a_value_error(data):
    with contextlib.suppress(ValueError):
        s.list_deserializer(s.deserialize_bytes, item_size_bytes=2)(data)
