"""The vocabulary of a declaration: Kafka's types, and in which versions a field exists.

A type such as ``Int32`` is an annotated alias: for a type checker it is ``int``, for the codec it
names the bytes. A field specifier (``since``, ``until``, ``nullable``, ``tagged``) returns the
field's default to the type checker and a ``Spec`` to the codec.

Rule: this module knows what a field *is*; how it becomes bytes is in ``encoder.py`` and
``decoder.py`` and nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar, cast, get_args

T = TypeVar("T")


# Tuples, because a data class takes five times as long to make and every start makes these.


class Scalar(NamedTuple):
    """A type of fixed size; ``format`` is its code in the ``struct`` module."""

    name: str
    format: str
    size_bytes: int


class Text:
    """UTF-8 with a length of 16 bits, or a varint in flexible versions."""

    __slots__ = ()


class Blob(NamedTuple):
    """Bytes with a length of 32 bits, or a varint in flexible versions.

    ``zero_copy`` marks record batches: they are never copied, neither into a message nor out of
    the frame it came in.
    """

    zero_copy: bool


class ArrayOf(NamedTuple):
    element: Kind


class StructOf(NamedTuple):
    struct: type


Kind: TypeAlias = Scalar | Text | Blob | ArrayOf | StructOf

BOOL: Final = Scalar("bool", "?", 1)
UUID: Final = Scalar("uuid", "16s", 16)

Bool: TypeAlias = Annotated[bool, BOOL]
Int8: TypeAlias = Annotated[int, Scalar("int8", "b", 1)]
Int16: TypeAlias = Annotated[int, Scalar("int16", "h", 2)]
Int32: TypeAlias = Annotated[int, Scalar("int32", "i", 4)]
Int64: TypeAlias = Annotated[int, Scalar("int64", "q", 8)]
Uint16: TypeAlias = Annotated[int, Scalar("uint16", "H", 2)]
Uint32: TypeAlias = Annotated[int, Scalar("uint32", "I", 4)]
Float64: TypeAlias = Annotated[float, Scalar("float64", "d", 8)]
# Sixteen raw bytes: they are compared and looked up, never computed with.
Uuid: TypeAlias = Annotated[bytes, UUID]
String: TypeAlias = Annotated[str, Text()]
Bytes: TypeAlias = Annotated[bytes, Blob(zero_copy=False)]
Records: TypeAlias = Annotated[bytes | bytearray | memoryview, Blob(zero_copy=True)]
# Callers may pass a list or a tuple; a decoded array is either, whichever is cheaper to build.
Array: TypeAlias = Sequence[T]

ZERO_UUID: Final = bytes(16)


# The default of a field that has none.
MISSING: Final = object()


class Spec(NamedTuple):
    """What a specifier says about a field beside its type.

    ``ignorable`` is Kafka's word: a value that the version cannot carry is dropped silently; for
    all other fields it is an error, because the receiver would act on half of a request.
    """

    default: Any = MISSING
    since: int = 0
    until: int | None = None
    nullable_since: int = 0
    tag: int | None = None
    ignorable: bool = False
    nullable_struct: bool = False


def since(
    version: int,
    *,
    default: T,
    until: int | None = None,
    nullable_since: int = 0,
    ignorable: bool = False,
) -> T:
    """A field that exists from ``version`` on (up to ``until``, inclusive)."""
    spec = Spec(default, version, until, nullable_since, None, ignorable)
    return cast("T", spec)


def until(version: int, *, default: T, nullable_since: int = 0, ignorable: bool = False) -> T:
    """A field that newer versions dropped; ``version`` is the last one that has it."""
    return cast("T", Spec(default, 0, version, nullable_since, None, ignorable))


def nullable(*, since: int, default: T) -> T:
    """A field that is in every version but may be null only from ``since`` on."""
    return cast("T", Spec(default, nullable_since=since))


def tagged(
    tag: int, *, since: int, default: T, ignorable: bool = False, nullable_struct: bool = False
) -> T:
    """An optional field of flexible versions (KIP-482); its default takes no bytes at all.

    Kafka's default of a tagged struct is a struct of defaults; here it is ``None``. The rare one
    which can be null as well is marked ``nullable_struct``: then ``None`` is that null, and a
    struct of defaults is what takes no bytes.
    """
    return cast("T", Spec(default, since, None, 0, tag, ignorable, nullable_struct))


class Field(NamedTuple):
    """One field of a struct, its annotation resolved."""

    name: str
    kind: Kind
    optional: bool
    spec: Spec

    def exists_in(self, version: int) -> bool:
        last = self.spec.until
        return self.spec.since <= version and (last is None or version <= last)

    def nullable_in(self, version: int) -> bool:
        """May the field be null on the wire? See ``tagged`` about structs."""
        if self.spec.tag is not None and isinstance(self.kind, StructOf):
            return self.spec.nullable_struct
        return self.optional and version >= self.spec.nullable_since

    @property
    def default(self) -> Any:
        return self.spec.default


def fields_of(struct: type) -> tuple[Field, ...]:
    """The fields of a declaration in order, resolved once and kept on the class.

    Resolving is lazy because annotations name structs that are declared further down, and because
    most programs use a few of the sixty APIs. They are read by hand, and not by the ``typing``
    module, which takes as long as the compilation of the codec.
    """
    known: tuple[Field, ...] | None = struct.__dict__.get("_fields")
    if known is None:
        declared: dict[str, Spec] = struct._declared  # type: ignore[attr-defined]  # every struct has it
        hints = struct.__annotations__
        known = tuple(_field(struct, name, hints[name], spec) for name, spec in declared.items())
        struct._fields = known  # type: ignore[attr-defined]  # kept on the class
    return known


def _field(struct: type, name: str, hint: str, spec: Spec) -> Field:
    required = hint.removesuffix(" | None")
    return Field(name, _kind(struct, required), required != hint, spec)


def _kind(struct: type, hint: str) -> Kind:
    """The kind that a hint names: ``Int32``, ``Topic``, ``Request.Topic`` or ``Array[...]``."""
    if hint.startswith("Array["):
        return ArrayOf(_kind(struct, hint[len("Array[") : -1]))
    first, *rest = hint.split(".")
    named = struct.__dict__.get(first) or sys.modules[struct.__module__].__dict__[first]
    for attribute in rest:
        named = getattr(named, attribute)
    if isinstance(named, type):
        return StructOf(named)
    kind: Kind = get_args(named)[1]
    return kind
