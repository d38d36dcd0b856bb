"""From one good request to all the odd ones beside it: every field, at its edges.

A field is changed on its own, everything else stays good, so that an answer tells about that
field. Labels are the same for both brokers although ids in the requests are not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shoal.wire.fields import UUID, ArrayOf, Blob, Field, Scalar, StructOf, Text, fields_of
from shoal.wire.schema import ZERO_UUID

UNKNOWN_UUID: Final = bytes(range(0x40, 0x50))
# Stands for a null where the declaration allows none; ``with_nulls`` puts the null in.
NULL: Final = "@@no-null-is-allowed-here@@"

Hints = Mapping[str, Sequence[Any]]

_INTEGERS: Final[dict[str, tuple[int, ...]]] = {
    "b": (-128, -1, 0, 1, 2, 3, 4, 127),
    "h": (-32768, -2, -1, 0, 1, 32767),
    "i": (-(1 << 31), -2, -1, 0, 1, (1 << 31) - 1),
    "q": (-(1 << 63), -2, -1, 0, 1, (1 << 63) - 1),
    "H": (0, 65535),
    "I": (0, (1 << 32) - 1),
}
# How long to wait: with nothing to wait for, the answer depends on how fast a machine is.
_ALWAYS: Final = {"timeout_ms!": (60_000, (1 << 31) - 1)}
_STRINGS: Final = ("", "nobody-knows-this", "odd name/with:signs", ".", "x" * 300, "ünï©ode")


def edges(request: Any, version: int, hints: Hints) -> Iterator[tuple[str, Any]]:
    """Every request that differs from ``request`` in one field, each with its label.

    ``hints`` are further values by field name; a name with an exclamation mark at its end gives
    all values of the field there are to be.
    """
    for label, steps, value in _changes(request, version, {**_ALWAYS, **hints}, "", ()):
        changed = copy.deepcopy(request)
        target = changed
        for step in steps[:-1]:
            target = target[step] if isinstance(step, int) else getattr(target, step)
        last = steps[-1]
        if isinstance(last, int):
            target[last] = value
        else:
            setattr(target, last, value)
        yield label, changed


def _changes(
    struct: Any, version: int, hints: Hints, path: str, steps: tuple[Any, ...]
) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    for field in fields_of(type(struct)):
        if not field.exists_in(version):
            continue
        value = getattr(struct, field.name)
        inner = f"{path}.{field.name}" if path else field.name
        here = (*steps, field.name)
        for label, edge in _values(field, value, version, hints):
            yield f"{inner} {label}", here, edge
        if isinstance(field.kind, StructOf) and value is not None:
            yield from _changes(value, version, hints, inner, here)
        if isinstance(field.kind, ArrayOf) and value:
            # A decoded array may be a tuple; ours are built as lists.
            first = value[0]
            if isinstance(field.kind.element, StructOf):
                yield from _changes(first, version, hints, f"{inner}[0]", (*here, 0))
            else:
                element = Field(field.name, field.kind.element, False, field.spec)
                for label, edge in _values(element, first, version, hints):
                    yield f"{inner}[0] {label}", (*here, 0), edge


def _values(field: Field, value: Any, version: int, hints: Hints) -> Iterator[tuple[str, Any]]:
    if f"{field.name}!" in hints:
        for other in hints[f"{field.name}!"]:
            yield f"= {_shown(other)}", other
        return
    if field.optional and field.nullable_in(version) and value is not None:
        yield "is null", None
    elif isinstance(field.kind, Text) and field.spec.tag is None:
        yield "is null against the rules", NULL
    match field.kind:
        case ArrayOf():
            if value:
                yield "is empty", []
                yield "has its first element twice", [value[0], *value]
            return
        case StructOf():
            return
        case Text():
            edges_of_kind: Sequence[Any] = _STRINGS
        case Blob():
            edges_of_kind = (b"", b"\0", b"\xff" * 40)
        case Scalar(format="?"):
            edges_of_kind = (True, False)
        case Scalar(format="d"):
            edges_of_kind = (-1.0, 0.0, 0.5, float("nan"), float("inf"))
        case Scalar() if field.kind is UUID:
            edges_of_kind = (ZERO_UUID, UNKNOWN_UUID, ZERO_UUID[:15] + b"\1")
        case Scalar():
            edges_of_kind = _INTEGERS[field.kind.format]
    for other in dict.fromkeys((*edges_of_kind, *hints.get(field.name, ()))):
        if other != value:
            yield f"= {_shown(other)}", other


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex() or "no bytes"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:20]}...({len(text) - 2} characters)"


def with_nulls(body: bytes, *, flexible: bool) -> bytes:
    """The bytes of a message with real nulls where ``NULL`` stood."""
    name = NULL.encode()
    if flexible:
        return body.replace(bytes([len(name) + 1]) + name, b"\0")
    return body.replace(len(name).to_bytes(2, "big") + name, b"\xff\xff")
