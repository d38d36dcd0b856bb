"""Which field of a message does not fit, said in one line.

The generated encoders stop at the first thing that cannot be packed without knowing what it was.
This walk is slow, clear and only taken then.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from shoal.wire.fields import (
    BOOL,
    MISSING,
    UUID,
    ArrayOf,
    Blob,
    Field,
    Kind,
    Scalar,
    StructOf,
    Text,
    fields_of,
)

MAX_STRING_BYTES: Final = 0x7FFF


class MisfitError(ValueError):
    """Raised by generated code; the caller turns it into a sentence."""


def refuse() -> NoReturn:
    raise MisfitError


def default_value(field: Field) -> Any:
    """The declared default, or Kafka's implicit one: zero, empty, false, null."""
    if field.default is not MISSING:
        return field.default
    if field.optional:
        return None
    match field.kind:
        case Scalar():
            return False if field.kind is BOOL else bytes(16) if field.kind is UUID else 0
        case Text():
            return ""
        case Blob():
            return b""
        case ArrayOf():
            return ()
        case StructOf(struct):
            return default_instance(struct)


def default_instance(struct: type) -> Any:
    return struct(**{field.name: default_value(field) for field in fields_of(struct)})


def find_misfits(value: Any, struct: type, version: int, *, flexible: bool) -> Iterator[str]:
    """Sentences about every field of ``value`` that ``version`` cannot carry."""
    if not isinstance(value, struct):
        yield f"must be {struct.__qualname__}, not {value!r:.60}"
        return
    if value.unknown_tagged_fields and not flexible:  # type: ignore[attr-defined]
        yield f"has unknown tagged fields, which version {version} cannot carry"
    for field in fields_of(struct):
        item = getattr(value, field.name)
        if field.exists_in(version):
            nullable = field.nullable_in(version) or (field.spec.tag is not None and field.optional)
            for text in _misfits(item, field.kind, version, nullable=nullable, flexible=flexible):
                yield f".{field.name}{text}" if text[0] in ".[" else f".{field.name} {text}"
        elif not field.spec.ignorable and not _is_default(item, field):
            yield (
                f".{field.name} is {item!r:.60}, but version {version} has no such field"
                f" (it exists {_range(field)})"
            )


def _range(field: Field) -> str:
    first, last = field.spec.since, field.spec.until
    if last is None:
        return f"from version {first} on"
    return f"in versions {first} to {last}"


def _is_default(item: Any, field: Field) -> bool:
    return bool(item == field.default or (field.default == () and item == []))


def _misfits(
    item: Any, kind: Kind, version: int, *, nullable: bool, flexible: bool
) -> Iterator[str]:
    if item is None:
        if not nullable:
            yield f"must not be None in version {version}"
        return
    match kind:
        case Scalar():
            yield from _scalar_misfits(item, kind)
        case Text():
            yield from _text_misfits(item)
        case Blob():
            if not isinstance(item, bytes | bytearray | memoryview):
                yield f"must be bytes, not {item!r:.60}"
        case ArrayOf(element):
            if not isinstance(item, list | tuple):
                yield f"must be a list or tuple, not {item!r:.60}"
                return
            for index, each in enumerate(item):
                for text in _misfits(each, element, version, nullable=False, flexible=flexible):
                    yield f"[{index}]{text}" if text[0] in ".[" else f"[{index}] {text}"
        case StructOf(struct):
            yield from find_misfits(item, struct, version, flexible=flexible)


def _scalar_misfits(item: Any, kind: Scalar) -> Iterator[str]:
    if kind is UUID:
        if not isinstance(item, bytes) or len(item) != UUID.size_bytes:
            yield f"must be 16 bytes, not {item!r:.60}"
        return
    try:
        packing.pack(">" + kind.format, item)
    except (packing.error, TypeError, OverflowError):
        yield f"must be {kind.name}, not {item!r:.60}"


def _text_misfits(item: Any) -> Iterator[str]:
    if not isinstance(item, str):
        yield f"must be a string, not {item!r:.60}"
        return
    try:
        size = len(item.encode())
    except UnicodeEncodeError:
        yield f"cannot be written as UTF-8: {item!r:.60}"
        return
    if size > MAX_STRING_BYTES:
        yield f"is {size} bytes long; a string has at most {MAX_STRING_BYTES}"
