"""The same messages in two other libraries: kio (one class per version) and kafka-python.

Both are generated from Kafka's own message definitions, independently of us and of each other, so
equal bytes mean that our declaration is right in names' order, types, versions, defaults and tags.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib
import io
import uuid
from collections.abc import Iterator
from random import Random
from typing import Any

from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from shoal.wire.fields import ArrayOf, Field, Scalar, StructOf, fields_of
from shoal.wire.schema import ZERO_UUID, Message, Struct

EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)
ERROR_CODES = [code.value for code in ErrorCode]
KAFKA_PYTHON_MODULES = [
    "kafka.protocol.admin",
    "kafka.protocol.consumer",
    "kafka.protocol.metadata",
    "kafka.protocol.producer",
    "kafka.protocol.sasl",
]


def is_request(kind: type[Message]) -> bool:
    return kind.__name__.endswith("Request")


# ---------------------------------------------------------------------- kio


def kio_class(kind: type[Message], version: int) -> Any | None:
    load = load_request_schema if is_request(kind) else load_response_schema
    assert kind.API_KEY is not None
    try:
        return load(kind.API_KEY, version)
    except UnknownEntity:
        return None


def values_kio_can_hold(random: Random, field: Field) -> Any:
    """kio has enums, dates and intervals where Kafka has numbers."""
    if not isinstance(field.kind, Scalar):
        return None
    if field.name.endswith("error_code"):
        return random.choice(ERROR_CODES)
    if "timestamp" in field.name or (field.name.endswith("_ms") and field.kind.size_bytes == 8):
        return random.randrange(0, 2**41)
    return None


def kio_decode(kio_type: Any, data: bytes) -> Any:
    entity, size = entity_reader(kio_type)(data, 0)
    assert size == len(data), "kio read another number of bytes"
    return entity


def kio_encode(entity: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(entity))(out, entity)
        return out.getvalue()


def assert_kio_holds_the_same(ours: Struct, theirs: Any, version: int) -> None:
    fields = [field for field in fields_of(type(ours)) if field.exists_in(version)]
    other_fields = dataclasses.fields(theirs)
    assert len(fields) == len(other_fields)
    for field, other in zip(fields, other_fields, strict=True):
        stem = other.name.rstrip("_")
        assert field.name.startswith(stem), f"{field.name} stands where kio has {other.name}"
        value, expected = getattr(ours, field.name), getattr(theirs, other.name)
        if isinstance(value, Struct):
            assert_kio_holds_the_same(value, expected, version)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            assert len(value) == len(expected)
            for each, expected_each in zip(value, expected, strict=True):
                assert_kio_holds_the_same(each, expected_each, version)
        elif value is None and dataclasses.is_dataclass(expected):
            # Our None is Kafka's struct of defaults in a tagged field.
            assert field.spec.tag is not None
        else:
            # kio's None of a UUID is Kafka's of zeros.
            zeros = value == ZERO_UUID and expected is None
            assert zeros or _plain(value) == _plain_kio(expected), field.name


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return value


def _plain_kio(value: Any) -> Any:
    match value:
        case tuple() | list():
            return [_plain_kio(each) for each in value]
        case ErrorCode():
            return value.value
        case uuid.UUID():
            return value.bytes
        case dt.datetime():
            return (value - EPOCH) // MILLISECOND
        case dt.timedelta():
            return value // MILLISECOND
        case _:
            return value


# ---------------------------------------------------------------------- kafka-python


def kafka_python_class(kind: type[Message], version: int) -> Any | None:
    for name in KAFKA_PYTHON_MODULES:
        found = getattr(importlib.import_module(name), kind.__name__, None)
        if found is not None:
            return found if version <= found.max_version else None
    return None


def kafka_python_message(ours: Struct, their_class: Any, version: int) -> Any:
    """Their message with our values."""
    values: dict[str, Any] = {}
    for field, other in _kafka_python_fields(ours, their_class, version):
        value = getattr(ours, field.name)
        # They write every tagged field they are given; Kafka and we leave out the defaults.
        if field.spec.tag is None or value != field.default:
            values[other.name] = _kafka_python_value(value, other, version)
    return their_class(version=version, **values)


def assert_kafka_python_holds_the_same(ours: Struct, theirs: Any, version: int) -> None:
    for field, other in _kafka_python_fields(ours, type(theirs), version):
        value, expected = getattr(ours, field.name), getattr(theirs, other.name)
        if isinstance(value, Struct):
            assert_kafka_python_holds_the_same(value, expected, version)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for each, expected_each in zip(value, expected, strict=True):
                assert_kafka_python_holds_the_same(each, expected_each, version)
        elif field.spec.tag is None or value != field.default:
            assert _kafka_python_value(value, other, version) == _listed(expected), field.name


def _kafka_python_fields(
    ours: Struct, their_class: Any, version: int
) -> Iterator[tuple[Field, Any]]:
    theirs = {_squeezed(name): field for name, field in their_class._struct.fields.items()}
    for field in fields_of(type(ours)):
        if field.exists_in(version):
            name = _squeezed(field.name)
            # They dropped "cluster" and "topic" from these names.
            yield field, theirs.get(name) or theirs["authorizedoperations"]


def partial_fields(kind: type, their_class: Any) -> Iterator[tuple[Field, Any]]:
    """The fields of a struct, and of those inside, which some version lacks."""
    theirs = {_squeezed(name): field for name, field in their_class._struct.fields.items()}
    for field in fields_of(kind):
        other = theirs.get(_squeezed(field.name)) or theirs["authorizedoperations"]
        if (field.spec.since, field.spec.until) != (0, None):
            yield field, other
        element = field.kind.element if isinstance(field.kind, ArrayOf) else field.kind
        if isinstance(element, StructOf):
            yield from partial_fields(element.struct, other.data_class)


def plain_default(field: Field) -> Any:
    """Our default as theirs: an empty list, and zeros for a UUID that is not set."""
    if field.default in ((), ZERO_UUID):
        return None if field.default else []
    return field.default


def plain(value: Any) -> Any:
    # A struct that is not given is a struct of defaults for them and None for us.
    return None if hasattr(value, "_struct") or isinstance(value, dict) else value


def _kafka_python_value(value: Any, field: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return kafka_python_message(value, field.data_class, version)
    if isinstance(value, list | tuple):
        return [_kafka_python_value(each, field, version) for each in value]
    if isinstance(value, bytes) and "uuid" in field.type_str:
        return uuid.UUID(bytes=value)
    if field.type_str == "bitfield":
        bits = {bit for bit in range(32) if value >> bit & 1}
        return None if bits == {31} else bits
    return value


def _listed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_listed(each) for each in value]
    return bytes(value) if isinstance(value, memoryview) else value


def _squeezed(name: str) -> str:
    return name.replace("_", "").lower()
