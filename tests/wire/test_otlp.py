"""The reader of pushed metrics: what clients send is read, what anybody may send does no harm."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.errors import InvalidMessageError
from shoal.wire import otlp
from shoal.wire.otlp import OtlpPoint, decode_otlp_metrics


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: float | str | bytes) -> bytes:
    """As protobuf writes it: numbers as varints, floats in 8 bytes, the rest with a size."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(key: str, value: bytes) -> bytes:
    return field(1, key) + field(2, value)


def point(value: float | bytes, **attributes: str) -> bytes:
    number = field(4, value) if isinstance(value, float) else value
    return number + b"".join(
        field(7, attribute(key, field(1, text))) for key, text in attributes.items()
    )


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name) + field(5, b"".join(field(1, each) for each in points))


def counter(name: str, *points: bytes, temporality: int = 1, monotonic: int = 1) -> bytes:
    body = b"".join(field(1, each) for each in points)
    return field(1, name) + field(7, body + field(2, temporality) + field(3, monotonic))


def push(*metrics: bytes, **attributes: str) -> bytes:
    """The bytes of MetricsData with one resource."""
    source = b"".join(field(1, attribute(key, field(1, text))) for key, text in attributes.items())
    scope = b"".join(field(2, each) for each in metrics)
    return field(1, field(1, source) + field(2, field(1, b"") + scope))


def test_gauges_and_counters_are_read_with_their_attributes() -> None:
    as_int = varint(6 << 3 | 1) + struct.pack("<q", -5)
    data = push(
        gauge("lag", point(3.5, topic="orders"), point(as_int)),
        counter("sent", point(7.0)),
        counter("size", point(8.0), temporality=2, monotonic=0),
        group_id="g",
    )
    (found,) = decode_otlp_metrics(data)
    assert found.attributes == {"group_id": "g"}
    assert found.points == [
        OtlpPoint("lag", 3.5, {"topic": "orders"}, False, False),
        OtlpPoint("lag", -5, {}, False, False),
        OtlpPoint("sent", 7.0, {}, True, True),
        OtlpPoint("size", 8.0, {}, False, False),
    ]


def test_attributes_of_every_kind_become_text() -> None:
    values = {
        "text": field(1, "x"),
        "yes": field(2, 1),
        "no": field(2, 0),
        "number": field(3, -3),
        "half": field(4, 0.5),
        "list": field(5, b""),
    }
    inside = b"".join(field(1, attribute(key, value)) for key, value in values.items())
    (found,) = decode_otlp_metrics(field(1, field(1, inside)))
    assert found.attributes == {
        "text": "x",
        "yes": "true",
        "no": "false",
        "number": "-3",
        "half": "0.5",
    }


def test_what_is_not_in_the_table_is_passed_over() -> None:
    histogram = field(1, "h") + field(9, b"\x00\x01\x02")
    unknown = field(99, 1) + field(98, 1.5) + field(97, b"??") + varint(96 << 3 | 5) + b"1234"
    metric = gauge("lag", point(1.0) + unknown) + unknown
    data = push(histogram, metric) + unknown
    (found,) = decode_otlp_metrics(data)
    assert [one.name for one in found.points] == ["lag"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a", "a number is cut off"),
        (b"\x0a\x05ab", "a field is cut off"),
        (b"\x0b", "wire type 3"),
        (b"\x02\x00", "the number 0"),
        (b"\x08" + b"\xff" * 9 + b"\x7f", "more than 64 bits"),
        (b"\x08" + b"\xff" * 20, "more than 64 bits"),
        (push(field(1, b"\xff") + field(5, b"")), "not UTF-8"),
        (push(field(5, field(1, point(1.0)))), "has no name"),
        (push(gauge("x" * 1_001, point(1.0))), "a text has more than"),
        (push(gauge("x", field(4, b"1234"))), "not 8 bytes"),
        (push(gauge("x", point(1.0, **{f"a{n}": "v" for n in range(33)}))), "33|attributes"),
    ],
)
def test_what_is_no_push_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidMessageError, match=why):
        decode_otlp_metrics(data)


def test_there_is_an_end_to_numbers_and_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "POINTS_MAX", 3)
    assert decode_otlp_metrics(push(gauge("x", *[point(1.0)] * 3)))
    with pytest.raises(InvalidMessageError, match="more than 3 numbers"):
        decode_otlp_metrics(push(gauge("x", *[point(1.0)] * 2), gauge("y", *[point(1.0)] * 2)))
    monkeypatch.setattr(otlp, "_FIELDS_MAX", 100)
    with pytest.raises(InvalidMessageError, match="more than 100 fields"):
        decode_otlp_metrics(field(9, 0) * 101)


@given(st.binary(max_size=200))
@example(push(gauge("x", point(1.0))))
def test_anything_is_read_or_refused(data: bytes) -> None:
    with suppress(InvalidMessageError):
        decode_otlp_metrics(data)


@given(st.data())
def test_a_push_that_is_cut_or_changed_is_read_or_refused(data: st.DataObject) -> None:
    whole = push(gauge("lag", point(1.5, topic="t")), counter("sent", point(2.0)), group_id="g")
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] = data.draw(st.integers(0, 255))
    for bad in (whole[:at], bytes(changed)):
        with suppress(InvalidMessageError):
            decode_otlp_metrics(bad)
