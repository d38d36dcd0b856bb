"""How a message is declared, and what every message can do.

A message is declared once for all its versions, and the declaration is its documentation::

    class HeartbeatRequest(
        Request["HeartbeatResponse"], api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4
    ):
        group_id: String
        generation_id: Int32
        member_id: String
        group_instance_id: String | None = since(3, default=None)  # static members, KIP-345

Field names are Kafka's in snake_case. A constructor takes keywords; a field without a default must
be given. The first use of a version compiles its codec (about a millisecond), later ones only run
it; importing a declaration costs nearly nothing.

Rule: a value is checked against a version when it is encoded, never when it is built, so that one
object can be sent to brokers of different age.
"""

from __future__ import annotations

import struct as packing
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, dataclass_transform

from shoal.errors import InvalidMessageError
from shoal.wire.decoder import FAULTS, Decoder, compile_decoder, holds_records
from shoal.wire.encoder import Encoder, Part, compile_encoder
from shoal.wire.fields import (
    MISSING,
    ZERO_UUID,
    Array,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    Spec,
    String,
    Uint16,
    Uint32,
    Uuid,
    nullable,
    since,
    tagged,
    until,
)
from shoal.wire.misfit import find_misfit

__all__ = [
    "REQUEST_BUDGET",
    "RESPONSE_BUDGET",
    "ZERO_UUID",
    "Array",
    "Bool",
    "Bytes",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Part",
    "Records",
    "Request",
    "String",
    "Struct",
    "Uint16",
    "Uint32",
    "Uuid",
    "nullable",
    "since",
    "tagged",
    "until",
]

# Elements (of arrays and tag sections) one message may hold. Anybody can send a request; a
# response comes from a broker the user chose, and that of a large cluster has many partitions.
REQUEST_BUDGET: Final = 100_000
RESPONSE_BUDGET: Final = 5_000_000

# What generated encoders raise when a value does not fit; misfit.py finds out which.
_ENCODE_FAULTS: Final = (packing.error, ValueError, TypeError, AttributeError)


@dataclass_transform(kw_only_default=True, field_specifiers=(since, until, nullable, tagged))
class StructType(type):
    """Gives a declaration its slots. They must be known before the class exists."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any
    ) -> StructType:
        declared: dict[str, Spec] = {}
        for field, hint in namespace.get("__annotations__", {}).items():
            if hint.startswith("ClassVar"):
                continue
            value = namespace.pop(field, MISSING)
            declared[field] = value if isinstance(value, Spec) else Spec(value)
        namespace["__slots__"] = tuple(declared)
        namespace["_declared"] = declared
        return super().__new__(mcs, name, bases, namespace, **keywords)


class Struct(metaclass=StructType):
    """A part of a message: a plain object with slots, compared by value."""

    # Tagged fields of a newer version than ours, kept so that they can be written back.
    unknown_tagged_fields: dict[int, bytes] | None = None

    _declared: ClassVar[dict[str, Spec]]

    def __init__(self, **values: Any) -> None:
        # The first instance builds the real constructor: most declarations are never used.
        cls = type(self)
        cls.__init__ = _constructor(cls)  # type: ignore[method-assign]  # see above
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            _same(getattr(self, name), getattr(other, name))
            for name in (*self._declared, "unknown_tagged_fields")
        )

    def __repr__(self) -> str:
        """Fields that are at their default are left out: messages are long."""
        shown = [
            f"{name}={value!r}"
            for name, spec in self._declared.items()
            if not _same(value := getattr(self, name), spec.default)
        ]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _constructor(cls: type[Struct]) -> Any:
    specs = {**cls._declared, "unknown_tagged_fields": Spec(None)}
    names: dict[str, Any] = {}
    parameters = ["self", "*"]
    for field, spec in specs.items():
        if spec.default is MISSING:
            parameters.append(field)
        else:
            names[f"default_{field}"] = spec.default
            parameters.append(f"{field}=default_{field}")
    body = "; ".join(f"self.{field} = {field}" for field in specs)
    text = f"def __init__({', '.join(parameters)}):\n    {body}"
    exec(compile(text, f"<{cls.__qualname__}>", "exec"), names)  # noqa: S102  (our own text)
    return names["__init__"]


class Message(Struct):
    """A request, a response or another thing with a version of its own."""

    API_KEY: ClassVar[int | None]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int | None]
    BUDGET: ClassVar[int]
    _encoders: ClassVar[dict[int, Encoder]]
    _decoders: ClassVar[dict[int, Decoder]]
    _wants_view: ClassVar[bool]

    def __init_subclass__(
        cls, *, versions: tuple[int, int], flexible: int | None, api_key: int | None = None
    ) -> None:
        super().__init_subclass__()
        cls.API_KEY = api_key
        cls.MIN_VERSION, cls.MAX_VERSION = versions
        cls.FLEXIBLE_FROM = flexible
        cls.BUDGET = RESPONSE_BUDGET if cls.__name__.endswith("Response") else REQUEST_BUDGET
        cls._encoders = {}
        cls._decoders = {}

    @classmethod
    def has_version(cls, version: int) -> bool:
        return cls.MIN_VERSION <= version <= cls.MAX_VERSION

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Does the version use compact lengths and tagged fields (KIP-482)?"""
        return cls.FLEXIBLE_FROM is not None and version >= cls.FLEXIBLE_FROM

    def encode(self, version: int) -> bytes:
        """The bytes of this message; ValueError names the field that ``version`` cannot carry."""
        try:
            encoded = (self._encoders.get(version) or self._compile_encoder(version))(self)
        except _ENCODE_FAULTS as fault:
            raise self._misfit(version, fault) from fault
        return encoded if isinstance(encoded, bytes) else b"".join(encoded)

    def encode_parts(self, version: int) -> list[Part]:
        """The same bytes in pieces: large record batches are passed on and not copied.

        Of such a batch only the length is looked at, so it may be a range of a file as well, which
        the sender knows how to send.
        """
        try:
            encoded = (self._encoders.get(version) or self._compile_encoder(version))(self)
        except _ENCODE_FAULTS as fault:
            raise self._misfit(version, fault) from fault
        return encoded if isinstance(encoded, list) else [encoded]

    @classmethod
    def decode(
        cls,
        data: bytes | bytearray | memoryview,
        version: int,
        *,
        start: int = 0,
        budget: int | None = None,
    ) -> Self:
        """The message in ``data`` from ``start`` to its end; else an InvalidMessageError.

        Record batches are views of ``data``. ``budget`` limits the number of elements.
        """
        # The same as ``decode_prefix``, once more: a restart decodes hundreds of thousands.
        decoder = cls._decoders.get(version) or cls._compile_decoder(version)
        source = memoryview(data) if cls._wants_view else bytes(data)
        try:
            decoded = decoder(source, start, cls.BUDGET if budget is None else budget)
        except FAULTS as fault:
            raise InvalidMessageError(f"{cls.__name__} v{version}: {_reason(fault)}") from fault
        message: Self = decoded[0]
        if decoded[1] != len(source):
            raise cls._wrong_end(version, len(source) - decoded[1])
        return message

    @classmethod
    def decode_prefix(
        cls,
        data: bytes | bytearray | memoryview,
        version: int,
        position: int = 0,
        budget: int | None = None,
    ) -> tuple[Self, int]:
        """As ``decode``, from ``position`` on; returns the position after the message too."""
        decoder = cls._decoders.get(version) or cls._compile_decoder(version)
        source = memoryview(data) if cls._wants_view else bytes(data)
        try:
            decoded = decoder(source, position, cls.BUDGET if budget is None else budget)
        except FAULTS as fault:
            raise InvalidMessageError(f"{cls.__name__} v{version}: {_reason(fault)}") from fault
        if decoded[1] > len(source):
            raise cls._wrong_end(version, len(source) - decoded[1])
        return decoded

    @classmethod
    def _wrong_end(cls, version: int, left: int) -> InvalidMessageError:
        text = f"{left} bytes left over" if left > 0 else "ends too early"
        return InvalidMessageError(f"{cls.__name__} v{version}: {text}")

    @classmethod
    def _compile_encoder(cls, version: int) -> Encoder:
        if not cls.has_version(version):
            raise ValueError(cls._no_version(version))
        encoder = compile_encoder(cls, version, flexible=cls.is_flexible(version))
        return cls._encoders.setdefault(version, encoder)

    @classmethod
    def _compile_decoder(cls, version: int) -> Decoder:
        if not cls.has_version(version):
            raise InvalidMessageError(cls._no_version(version))
        cls._wants_view = holds_records(cls)
        decoder = compile_decoder(cls, version, flexible=cls.is_flexible(version))
        return cls._decoders.setdefault(version, decoder)

    @classmethod
    def _no_version(cls, version: int) -> str:
        return f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}"

    def _misfit(self, version: int, fault: Exception) -> Exception:
        text = find_misfit(self, type(self), version, flexible=self.is_flexible(version))
        # Nothing found: the fault is a bug of ours and must not be dressed up.
        return fault if text is None else ValueError(f"{type(self).__name__}{text}")


ResponseT = TypeVar("ResponseT", bound=Message)


class Request(Message, Generic[ResponseT], versions=(0, -1), flexible=None):
    """A message that is answered by a ``ResponseT``: who sends it gets that and nothing else."""


def _reason(fault: Exception) -> str:
    if isinstance(fault, InvalidMessageError):
        return fault.reason
    return "ends too early"
