"""The smallest message of any API and version, built from its declaration."""

from __future__ import annotations

from typing import Any

from shoal.wire.fields import UUID as UUID_KIND
from shoal.wire.fields import ArrayOf, Blob, Scalar, StructOf, Text, fields_of
from shoal.wire.schema import ZERO_UUID


def minimal(struct: type, version: int) -> Any:
    """Every field of the version has a plain value; arrays have one element each."""
    values = {
        # Without an acknowledgement there would be no answer.
        field.name: -1 if field.name == "acks" else _value(field.kind, version)
        for field in fields_of(struct)
        if field.exists_in(version) and field.spec.tag is None
    }
    return struct(**values)


def _value(kind: Any, version: int) -> Any:
    match kind:
        case Scalar():
            if kind is UUID_KIND:
                return ZERO_UUID
            return False if kind.format == "?" else 0
        case Text():
            return "x"
        case Blob():
            return b""
        case ArrayOf():
            return [_value(kind.element, version)]
        case StructOf():
            return minimal(kind.struct, version)
    raise AssertionError(f"unknown kind {kind!r}")
