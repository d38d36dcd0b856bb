"""The built-in serializers and deserializers: plain functions between values and bytes.

Rule: a serializer is any callable ``value -> bytes`` and a deserializer any ``bytes -> value``;
neither ever sees ``None``, which stays null. Numbers are big-endian as Java's serializers write
them, so both sides may be Java.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def _number(layout: str) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    packer = struct.Struct(layout)

    def serialize(value: Any) -> bytes:
        try:
            return packer.pack(value)
        except (struct.error, OverflowError) as error:  # the second, of floats
            raise ValueError(f"{value!r} does not fit {packer.size} bytes: {error}") from None

    def deserialize(data: bytes) -> Any:
        if len(data) != packer.size:
            raise ValueError(f"{len(data)} bytes instead of {packer.size}")
        return packer.unpack(data)[0]

    serialize.__doc__ = f"A number as {packer.size} bytes, big-endian."
    deserialize.__doc__ = f"A number from {packer.size} bytes, big-endian."
    return serialize, deserialize


serialize_byte, deserialize_byte = _number(">b")
serialize_short, deserialize_short = _number(">h")
serialize_int, deserialize_int = _number(">i")
serialize_long, deserialize_long = _number(">q")
serialize_float, deserialize_float = _number(">f")
serialize_double, deserialize_double = _number(">d")


def serialize_bytes(value: bytes) -> bytes:
    """Bytes as they are, from anything that holds bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"bytes, not {type(value).__name__}")  # of a number, bytes() makes zeros
    return bytes(value)


def deserialize_bytes(data: bytes) -> bytes:
    return data


def serialize_str(value: str) -> bytes:
    """UTF-8."""
    return value.encode()


def deserialize_str(data: bytes) -> str:
    """UTF-8."""
    return data.decode()


def serialize_uuid(value: uuid.UUID) -> bytes:
    """As Java's: the 36 characters, not the 16 bytes."""
    return str(value).encode()


def deserialize_uuid(data: bytes) -> uuid.UUID:
    return uuid.UUID(data.decode())


def serialize_json(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def deserialize_json(data: bytes) -> Any:
    return json.loads(data)


def list_serializer(item: Callable[[T], bytes]) -> Callable[[Sequence[T | None]], bytes]:
    """A serializer for lists of what ``item`` serializes; items may be ``None``.

    Layout (big-endian), as Java's ListSerializer writes for items of varying size: a flag
    byte 1, the count, then per item its size or -1 for null, then its bytes.
    """

    def serialize(values: Sequence[T | None]) -> bytes:
        parts = [struct.pack(">bi", 1, len(values))]
        for value in values:
            if value is None:
                parts.append(struct.pack(">i", -1))
            else:
                data = item(value)
                parts += [struct.pack(">i", len(data)), data]
        return b"".join(parts)

    return serialize


def list_deserializer(
    item: Callable[[bytes], T], *, item_size_bytes: int | None = None
) -> Callable[[bytes], list[T | None]]:
    """The inverse of ``list_serializer``; hostile counts and sizes are refused.

    Args:
        item: deserializes one item.
        item_size_bytes: give it to read lists which Java wrote with one of its fixed-size
            inner serializers (short 2, int 4, float 4, long 8, double 8, UUID 36): they carry
            no sizes, but a list of the positions of nulls (flag byte 0).
    """

    def deserialize(data: bytes) -> list[T | None]:
        try:
            if data[:1] == b"\x01":
                return _sized_items(data, item)
            if data[:1] == b"\x00" and item_size_bytes is not None:
                return _fixed_items(data, item, item_size_bytes)
        except struct.error:
            raise ValueError("a serialized list is cut off") from None
        raise ValueError("not a serialized list, or one of fixed-size items (item_size_bytes)")

    return deserialize


def _sized_items(data: bytes, item: Callable[[bytes], T]) -> list[T | None]:
    (count,) = struct.unpack_from(">i", data, 1)
    if not 0 <= count <= len(data) // 4:
        raise ValueError(f"a count of {count} cannot be right for {len(data)} bytes")
    position = 5
    values: list[T | None] = []
    for _ in range(count):
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if size == -1:
            values.append(None)
            continue
        if size < 0 or position + size > len(data):
            raise ValueError("a serialized list is cut off")
        values.append(item(data[position : position + size]))
        position += size
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes too many after a serialized list")
    return values


def _fixed_items(data: bytes, item: Callable[[bytes], T], size: int) -> list[T | None]:
    (null_count,) = struct.unpack_from(">i", data, 1)
    if not 0 <= null_count <= len(data) // 4:
        raise ValueError(f"{null_count} nulls cannot be right for {len(data)} bytes")
    nulls = frozenset(struct.unpack_from(f">{null_count}i", data, 5))
    position = 5 + 4 * null_count
    (count,) = struct.unpack_from(">i", data, position)
    position += 4
    if count < 0 or len(data) - position != (count - len(nulls)) * size:
        raise ValueError(f"{count} items of {size} bytes do not fit {len(data)} bytes")
    values: list[T | None] = []
    for index in range(count):
        if index in nulls:
            values.append(None)
        else:
            values.append(item(data[position : position + size]))
            position += size
    return values
