"""OpenTelemetry's metrics in protobuf, as clients push them (KIP-714): a reader for what they send.

    MetricsData      1: ResourceMetrics, repeated
    ResourceMetrics  1: Resource   2: ScopeMetrics, repeated
    Resource         1: KeyValue, repeated
    ScopeMetrics     2: Metric, repeated
    Metric           1: name   5: Gauge   7: Sum   (9, 10, 11: histograms, summaries: passed over)
    Gauge            1: NumberDataPoint, repeated
    Sum              1: NumberDataPoint, repeated   2: 1 delta, 2 cumulative   3: is monotonic
    NumberDataPoint  4: double   6: sfixed64   7: KeyValue, repeated
    KeyValue         1: key   2: AnyValue
    AnyValue         1: text   2: bool   3: int64   4: double

Rule: fields that are not in this table are passed over, whatever they hold; what is not protobuf,
or holds more than the limits, is refused as a whole. Nothing is copied but names and numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Final, NamedTuple

from shoal.errors import InvalidMessageError

POINTS_MAX: Final = 10_000
ATTRIBUTES_MAX: Final = 32
TEXT_BYTES_MAX: Final = 1_000
_FIELDS_MAX: Final = 500_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = Struct("<d")
_SFIXED64: Final = Struct("<q")
_DELTA: Final = 1


class OtlpPoint(NamedTuple):
    """One number of one metric."""

    name: str
    value: float
    attributes: Mapping[str, str]
    is_counter: bool
    """It only grows; otherwise it is a value of the moment."""
    is_delta: bool
    """Of a counter: how much since the last push, not since the beginning."""


class OtlpResource(NamedTuple):
    """What one source pushed."""

    attributes: Mapping[str, str]
    points: list[OtlpPoint]


def decode_otlp_metrics(data: bytes | bytearray | memoryview) -> list[OtlpResource]:
    """Every number in a push.

    Raises:
        InvalidMessageError: these are not metrics, or more than anybody has.
    """
    reader = _Reader()
    found = []
    for number, value in reader.fields(memoryview(data).cast("B")):
        if number == 1 and isinstance(value, memoryview):
            found.append(reader.resource(value))
    return found


class _Reader:
    """Counts what it has read, so that a push cannot hold more than the limits."""

    def __init__(self) -> None:
        self._fields = 0
        self._points = 0

    def fields(self, data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
        """Number and value of each field; a value of fixed size as its bytes."""
        position, end = 0, len(data)
        while position < end:
            self._fields += 1
            if self._fields > _FIELDS_MAX:
                raise InvalidMessageError(f"there are more than {_FIELDS_MAX} fields")
            tag, position = _varint(data, position)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                raise InvalidMessageError("a field has the number 0")
            if kind == _VARINT:
                value, position = _varint(data, position)
                yield number, value
                continue
            if kind == _BYTES:
                size, position = _varint(data, position)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise InvalidMessageError(f"a field has the wire type {kind}")
            if size > end - position:
                raise InvalidMessageError("a field is cut off")
            yield number, data[position : position + size]
            position += size

    def resource(self, data: memoryview) -> OtlpResource:
        attributes: dict[str, str] = {}
        points: list[OtlpPoint] = []
        for number, value in self.fields(data):
            if not isinstance(value, memoryview):
                continue
            if number == 1:
                for inner, pair in self.fields(value):
                    if inner == 1 and isinstance(pair, memoryview):
                        self._attribute(pair, attributes)
            elif number == 2:
                for inner, metric in self.fields(value):
                    if inner == 2 and isinstance(metric, memoryview):
                        self._metric(metric, points)
        return OtlpResource(attributes, points)

    def _metric(self, data: memoryview, points: list[OtlpPoint]) -> None:
        name = ""
        bodies: list[tuple[int, memoryview]] = []
        for number, value in self.fields(data):
            if not isinstance(value, memoryview):
                continue
            if number == 1:
                name = _text(value)
            elif number in (5, 7):
                bodies.append((number, value))
        if not name:
            raise InvalidMessageError("a metric has no name")
        for number, body in bodies:
            raw, is_delta, is_monotonic = [], False, False
            for inner, value in self.fields(body):
                if inner == 1 and isinstance(value, memoryview):
                    raw.append(value)
                elif number == 7 and inner == 2:
                    is_delta = value == _DELTA
                elif number == 7 and inner == 3:
                    is_monotonic = value == 1
            for point in raw:
                self._point(point, name, points, is_counter=is_monotonic, is_delta=is_delta)

    def _point(
        self,
        data: memoryview,
        name: str,
        points: list[OtlpPoint],
        *,
        is_counter: bool,
        is_delta: bool,
    ) -> None:
        self._points += 1
        if self._points > POINTS_MAX:
            raise InvalidMessageError(f"there are more than {POINTS_MAX} numbers")
        number: float | None = None
        attributes: dict[str, str] = {}
        for field, value in self.fields(data):
            if not isinstance(value, memoryview):
                continue
            if field in (4, 6):
                if len(value) != 8:
                    raise InvalidMessageError("a number has not 8 bytes")
                number = (_DOUBLE if field == 4 else _SFIXED64).unpack(value)[0]
            elif field == 7:
                self._attribute(value, attributes)
        if number is not None:
            points.append(OtlpPoint(name, number, attributes, is_counter, is_delta))

    def _attribute(self, data: memoryview, into: dict[str, str]) -> None:
        key, text = "", None
        for number, value in self.fields(data):
            if not isinstance(value, memoryview):
                continue
            if number == 1:
                key = _text(value)
            elif number == 2:
                text = self._any(value)
        if key and text is not None:
            if len(into) >= ATTRIBUTES_MAX:
                raise InvalidMessageError(f"there are more than {ATTRIBUTES_MAX} attributes")
            into[key] = text

    def _any(self, data: memoryview) -> str | None:
        """A value as text; None if it is a list or the like."""
        found: str | None = None
        for number, value in self.fields(data):
            if isinstance(value, memoryview):
                if number == 1:
                    found = _text(value)
                elif number == 4 and len(value) == 8:
                    found = repr(_DOUBLE.unpack(value)[0])
            elif number == 2:
                found = "true" if value else "false"
            elif number == 3:
                found = str(value - (1 << 64) if value >= 1 << 63 else value)
        return found


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """At most 64 bits, and where it ends."""
    value = shift = 0
    for byte in data[position : position + 10]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
        shift += 7
    raise InvalidMessageError("a number is cut off or has more than 64 bits")


def _text(data: memoryview) -> str:
    if len(data) > TEXT_BYTES_MAX:
        raise InvalidMessageError(f"a text has more than {TEXT_BYTES_MAX} bytes")
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise InvalidMessageError("a text is not UTF-8") from None
