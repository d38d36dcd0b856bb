"""Which field of a message does not fit, said in one line.

The generated encoders stop at the first thing that cannot be packed without knowing what it was.
This walk is slow, clear and only taken then.
"""

from __future__ import annotations

import struct as packing
from functools import cache
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
        case _:
            return default_instance(field.kind.struct)


def default_instance(struct: type) -> Any:
    plain, structs = _defaults(struct)
    return struct(**plain, **{name: default_instance(each) for name, each in structs.items()})


@cache
def _defaults(struct: type) -> tuple[dict[str, Any], dict[str, type]]:
    """What instances may share, and what each needs one of its own of."""
    plain: dict[str, Any] = {}
    structs: dict[str, type] = {}
    for field in fields_of(struct):
        value = default_value(field)
        if isinstance(field.kind, StructOf) and value is not None:
            structs[field.name] = field.kind.struct
        else:
            plain[field.name] = value
    return plain, structs


def find_misfit(value: Any, struct: type, version: int, *, flexible: bool) -> str | None:
    """A sentence about the first field of ``value`` that ``version`` cannot carry."""
    if not isinstance(value, struct):
        return f" must be {struct.__qualname__}, not {value!r:.60}"
    if value.unknown_tagged_fields and not flexible:  # type: ignore[attr-defined]  # every message has it
        return f" has unknown tagged fields, which version {version} cannot carry"
    for field in fields_of(struct):
        text = _field_misfit(getattr(value, field.name), field, version, flexible=flexible)
        if text is not None:
            return f".{field.name}{text}"
    return None


def _field_misfit(item: Any, field: Field, version: int, *, flexible: bool) -> str | None:
    if field.exists_in(version):
        nullable = field.nullable_in(version) or (field.spec.tag is not None and field.optional)
        return _misfit(item, field.kind, version, nullable=nullable, flexible=flexible)
    is_default = item == field.default or (field.default == () and item == [])
    if field.spec.ignorable or is_default:
        return None
    first, last = field.spec.since, field.spec.until
    where = f"from version {first} on" if last is None else f"in versions {first} to {last}"
    return f" is {item!r:.60}, but version {version} has no such field (it exists {where})"


def _misfit(item: Any, kind: Kind, version: int, *, nullable: bool, flexible: bool) -> str | None:
    if item is None:
        return None if nullable else f" must not be None in version {version}"
    match kind:
        case Scalar():
            return _scalar_misfit(item, kind)
        case Text():
            return _text_misfit(item)
        case Blob():
            fits = isinstance(item, bytes | bytearray | memoryview)
            return None if fits else f" must be bytes, not {item!r:.60}"
        case ArrayOf(element):
            return _array_misfit(item, element, version, flexible=flexible)
        case _:
            return find_misfit(item, kind.struct, version, flexible=flexible)


def _array_misfit(items: Any, element: Kind, version: int, *, flexible: bool) -> str | None:
    if not isinstance(items, list | tuple):
        return f" must be a list or tuple, not {items!r:.60}"
    for index, item in enumerate(items):
        text = _misfit(item, element, version, nullable=False, flexible=flexible)
        if text is not None:
            return f"[{index}]{text}"
    return None


def _scalar_misfit(item: Any, kind: Scalar) -> str | None:
    if kind is UUID:
        fits = isinstance(item, bytes) and len(item) == UUID.size_bytes
        return None if fits else f" must be 16 bytes, not {item!r:.60}"
    try:
        packing.pack(">" + kind.format, item)
    except (packing.error, TypeError, OverflowError):
        return f" must be {kind.name}, not {item!r:.60}"
    return None


def _text_misfit(item: Any) -> str | None:
    if not isinstance(item, str):
        return f" must be a string, not {item!r:.60}"
    try:
        size = len(item.encode())
    except UnicodeEncodeError:
        return f" cannot be written as UTF-8: {item!r:.60}"
    if size > MAX_STRING_BYTES:
        return f" is {size} bytes long; a string has at most {MAX_STRING_BYTES}"
    return None
