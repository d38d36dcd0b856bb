"""One JSON document to one row, as Spark's ``from_json`` does it; the slow and clear path.

A row that does not fit the schema is *malformed*: it has a reason, and still holds the fields that
could be read (Spark's partial results). What to do with it is decided by the caller.

Values come out in the form Arrow takes them: timestamps as microseconds, dates as days.
"""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.types as types

from shoal.errors import ConfigError
from shoal.spark import json_tokens as tk
from shoal.spark.json_times import date_of, local_timestamp_of, timestamp_of
from shoal.spark.json_tokens import Tokens, decoded, encodable

CORRUPT_RECORD: Final = "_corrupt_record"
"""A field of this name holds the text of a malformed row, as in ``from_json``."""

Converter = Callable[[Tokens], Any]

_WHOLE: Final = {8: (-(2**7), 2**8), 16: (-(2**15), 2**15)}
# BigDecimal's own grammar; commas are taken out before.
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,10})?")
_ENDLESS: Final = {
    "NaN": float("nan"),
    "+INF": float("inf"),
    "+Infinity": float("inf"),
    "Infinity": float("inf"),
    "-INF": float("-inf"),
    "-Infinity": float("-inf"),
}
_EXACT: Final = decimal.Context(prec=5000, rounding=decimal.ROUND_HALF_UP)


class DocumentRow(NamedTuple):
    """A document as a row; ``reason`` says why it is malformed, if it is."""

    value: dict[str, Any] | None
    reason: str | None = None


class UnfitError(ValueError):
    """A value does not fit its type."""


class PartialError(ValueError):
    """Part of a value does not fit; the rest of it is here."""

    def __init__(self, value: Any, reason: str) -> None:
        super().__init__(value, reason)
        self.value = value
        self.reason = reason


class RowParser:
    """Documents to rows of one struct type.

    Args:
        kind: The struct, as Arrow's type.
        zone: The time zone of timestamps that name none.

    Raises:
        ConfigError: the struct has a type that cannot be read from JSON here.
    """

    def __init__(self, kind: pa.DataType, zone: str) -> None:
        self._zone = zone
        self._names = [field.name for field in kind]
        self._has_text = CORRUPT_RECORD in self._names
        read = [field for field in kind if field.name != CORRUPT_RECORD]
        self._fields = {field.name: self._converter(field.type) for field in read}

    def parse(self, data: bytes) -> DocumentRow:
        """The row of one document."""
        try:
            value = self._root(Tokens(decoded(data)))
        except PartialError as error:
            return self._malformed(data, error.value, error.reason)
        except ValueError as error:
            return self._malformed(data, {}, str(error))
        return DocumentRow(value)

    def _root(self, tokens: Tokens) -> dict[str, Any] | None:
        token = tokens.next()
        if token is None:
            return None
        if token != tk.OBJECT:
            raise UnfitError(f"the document is not an object but {_shown(tokens)}")
        return _object(tokens, self._fields)

    def _malformed(self, data: bytes, value: dict[str, Any], reason: str) -> DocumentRow:
        if self._has_text:
            value = {**value, CORRUPT_RECORD: data.decode(errors="replace")}
        return DocumentRow(value, reason[:200])

    def _converter(self, kind: pa.DataType) -> Converter:
        """What makes values of one type; nulls and names before a value are seen to here."""
        convert = self._of_type(kind)

        def from_token(tokens: Tokens) -> Any:
            if tokens.token is tk.NAME:
                tokens.next()
            if tokens.token is None or tokens.token is tk.NULL:
                return None
            return convert(tokens)

        return from_token

    def _of_type(self, kind: pa.DataType) -> Converter:
        if types.is_struct(kind):
            fields = {field.name: self._converter(field.type) for field in kind}
            return _opened(tk.OBJECT, kind, lambda tokens: _object(tokens, fields))
        if types.is_list(kind):
            element = self._converter(kind.value_type)
            return _opened(tk.ARRAY, kind, lambda tokens: _array(tokens, element))
        if types.is_map(kind) and types.is_string(kind.key_type):
            item = self._converter(kind.item_type)
            return _opened(tk.OBJECT, kind, lambda tokens: _map(tokens, item))
        if types.is_timestamp(kind):
            return self._timestamp if kind.tz is not None else _local_timestamp
        if types.is_decimal128(kind):
            return lambda tokens: _decimal(tokens, kind.precision, kind.scale)
        if types.is_integer(kind):
            bits = kind.bit_width
            low, high = _WHOLE.get(bits, (-(2 ** (bits - 1)), 2 ** (bits - 1)))
            return lambda tokens: _whole(tokens, low, high, bits)
        for is_kind, convert in (
            (types.is_string, _text),
            (types.is_boolean, _flag),
            (types.is_float64, _double),
            (types.is_float32, _single),
            (types.is_date32, _date),
            (types.is_binary, _binary),
        ):
            if is_kind(kind):
                return convert
        raise ConfigError(f"option valueSchema has the type {kind}, which JSON is not read as here")

    def _timestamp(self, tokens: Tokens) -> int:
        if tokens.token is tk.INTEGER:
            micros = _whole(tokens, -(2**63), 2**63, 64) * 1_000_000
            return (micros + 2**63) % 2**64 - 2**63  # as Java multiplies
        return _from_text(tokens, "timestamp", lambda text: timestamp_of(text, self._zone))


def _object(tokens: Tokens, fields: dict[str, Converter]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    reason: str | None = None
    while tokens.next() not in (None, tk.END_OBJECT):
        convert = fields.get(name) if (name := tokens.name) is not None else None
        if convert is None:
            tokens.skip_children()
            continue
        assert name is not None
        try:
            row[name] = convert(tokens)
        except PartialError as error:
            row[name] = error.value
            reason = reason or error.reason
        except ValueError as error:
            reason = reason or f"{name}: {error}"
            tokens.skip_children()
    if reason is not None:
        raise PartialError(row, reason)
    return row


def _array(tokens: Tokens, element: Converter) -> list[Any]:
    values: list[Any] = []
    reason: str | None = None
    while tokens.next() not in (None, tk.END_ARRAY):
        try:
            values.append(element(tokens))
        except PartialError as error:
            values.append(error.value)
            reason = reason or error.reason
    if reason is not None:
        raise PartialError(values, reason)
    return values


def _map(tokens: Tokens, item: Converter) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    partial: str | None = None
    bad: str | None = None
    while tokens.next() not in (None, tk.END_OBJECT):
        key = encodable(tokens.name or "")
        try:
            pairs.append((key, item(tokens)))
        except PartialError as error:
            pairs.append((key, error.value))
            partial = partial or error.reason
        except ValueError as error:
            bad = bad or f"{key}: {error}"
            tokens.skip_children()
    if bad is not None:
        raise UnfitError(bad)
    if partial is not None:
        raise PartialError(pairs, partial)
    return pairs


def _opened(wanted: str, kind: pa.DataType, convert: Converter) -> Converter:
    """A conversion of what begins with a certain token."""

    def from_token(tokens: Tokens) -> Any:
        if tokens.token is not wanted:
            raise _unfit(tokens, str(kind))
        return convert(tokens)

    return from_token


def _unfit(tokens: Tokens, kind: str) -> UnfitError:
    return UnfitError(f"{_shown(tokens)} is not of type {kind}")


def _shown(tokens: Tokens) -> str:
    if tokens.token in (tk.OBJECT, tk.ARRAY):
        return "an object" if tokens.token is tk.OBJECT else "an array"
    if tokens.token is tk.STRING:
        return f"the text {tokens.string()[:40]!r}"
    if tokens.token in (tk.INTEGER, tk.FLOAT):
        return f"the number {tokens.number[:40]}"
    return str(tokens.token)


def _flag(tokens: Tokens) -> bool:
    if tokens.token not in (tk.TRUE, tk.FALSE):
        raise _unfit(tokens, "boolean")
    return tokens.token is tk.TRUE


def _whole(tokens: Tokens, low: int, high: int, bits: int) -> int:
    if tokens.token is not tk.INTEGER:
        raise _unfit(tokens, "whole number")
    number = int(tokens.number)
    if not low <= number < high:
        raise _unfit(tokens, f"whole number of {bits} bits")
    # Jackson takes bytes without a sign too, up to 255.
    return number - 256 if bits == 8 and number > 127 else number


def _double(tokens: Tokens) -> float:
    if tokens.token in (tk.INTEGER, tk.FLOAT):
        if tokens.token is tk.INTEGER and not int(tokens.number):
            return 0.0  # a whole zero has no sign
        return float(tokens.number)
    return _endless(tokens)


def _single(tokens: Tokens) -> float:
    number = _double(tokens)
    if number - number != 0.0 or tokens.token is tk.STRING:
        return number
    # The nearest single of the text itself: by way of a double it may be its neighbour.
    nearest: float = pa.scalar(tokens.number).cast(pa.float32()).as_py()
    return nearest if number else number


def _endless(tokens: Tokens) -> float:
    if tokens.token is tk.STRING and tokens.string() in _ENDLESS:
        return _ENDLESS[tokens.string()]
    raise _unfit(tokens, "number")


def _decimal(tokens: Tokens, precision: int, scale: int) -> Decimal:
    if tokens.token in (tk.INTEGER, tk.FLOAT):
        text = tokens.number
    elif tokens.token is tk.STRING and tokens.has_text:
        text = tokens.string().replace(",", "")
    else:
        raise _unfit(tokens, "decimal")
    if not _DECIMAL.fullmatch(text):
        raise _unfit(tokens, "decimal")
    number = Decimal(text)
    # One with more digits before the point than fit need not be spelt out.
    if number and number.adjusted() >= precision - scale:
        raise _unfit(tokens, f"decimal({precision},{scale})")
    if not number or number.adjusted() < -scale - 1:
        return Decimal(0).scaleb(-scale)
    rounded = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    if len(rounded.as_tuple().digits) > precision:
        raise _unfit(tokens, f"decimal({precision},{scale})")
    return rounded


def _from_text(tokens: Tokens, kind: str, read: Callable[[str], int | None]) -> int:
    if tokens.token is tk.STRING and tokens.has_text:
        found = read(tokens.string())
        if found is not None:
            return found
    raise _unfit(tokens, kind)


def _local_timestamp(tokens: Tokens) -> int:
    return _from_text(tokens, "timestamp without a zone", local_timestamp_of)


def _date(tokens: Tokens) -> int:
    return _from_text(tokens, "date", date_of)


def _binary(tokens: Tokens) -> bytes:
    if tokens.token is not tk.STRING:
        raise _unfit(tokens, "text in base 64")
    return tokens.base64()


def _text(tokens: Tokens) -> str:
    if tokens.token is tk.STRING:
        return encodable(tokens.string())
    parts: list[str] = []
    _write(tokens, parts)
    return "".join(parts)


def _write(tokens: Tokens, parts: list[str]) -> None:
    """The token, and all that belongs to it, written again as Jackson writes JSON."""
    token = tokens.token
    if token is tk.OBJECT or token is tk.ARRAY:
        end = tk.END_OBJECT if token is tk.OBJECT else tk.END_ARRAY
        parts.append(token)
        first = True
        while (inner := tokens.next()) != end:
            if inner is None:
                raise UnfitError("the document ends too early")
            parts.append("" if first else ",")
            first = False
            if inner is tk.NAME:
                parts.append(_quoted(tokens.name or "") + ":")
                tokens.next()
            _write(tokens, parts)
        parts.append(end)
    elif token is tk.STRING:
        parts.append(_quoted(tokens.string()))
    elif token is tk.INTEGER:
        parts.append(str(int(tokens.number)))
    elif token is tk.FLOAT:
        parts.append(_as_java_writes(float(tokens.number)))
    elif token in (tk.TRUE, tk.FALSE, tk.NULL):
        parts.append(token)
    else:
        raise UnfitError("an end stands where a value should")


def _quoted(text: str) -> str:
    """Jackson escapes with capital digits, and each half of what is outside of 16 bits."""
    quoted = json.dumps(text, ensure_ascii=False)
    quoted = re.sub(r"\\u00([0-9a-f]{2})", lambda match: "\\u00" + match[1].upper(), quoted)
    return re.sub("[\ud800-\udfff\U00010000-\U0010ffff]", _halves, quoted)


def _halves(match: re.Match[str]) -> str:
    data = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex().upper()}" for at in range(0, len(data), 2))


def _as_java_writes(number: float) -> str:
    """``Double.toString``: 1.0E7 from ten million on, plain down to a thousandth."""
    if number != number or number in (float("inf"), float("-inf")):
        name = "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
        return f'"{name}"'
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        shown = format(Decimal(repr(number)), "f")
        return shown if "." in shown else shown + ".0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    if len(digits) == 1:  # Java looks for the nearest with two
        sign, digits, exponent = Decimal(f"{number:.1e}").as_tuple()
    assert isinstance(exponent, int)
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"
