"""Random messages of any declared class and version.

The builder takes a ``random.Random``: a seeded one where many messages are compared with other
libraries, one from Hypothesis where a failure should shrink.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from shoal.wire.apis.registry import API
from shoal.wire.fields import (
    BOOL,
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
from shoal.wire.misfit import default_instance
from shoal.wire.schema import Message

# Chooses the value of a scalar of a field, or returns None for the usual choice.
Override = Callable[[Random, Field], Any]

ALL_PAIRS = [
    (kind, version)
    for spec in API.values()
    for kind in (spec.request, spec.response)
    for version in range(kind.MIN_VERSION, kind.MAX_VERSION + 1)
]
PAIR_IDS = [f"{kind.__name__}-{version}" for kind, version in ALL_PAIRS]

_ALPHABET = "ab-._0Zé\x00ß漢\U0001f41f"


class Builder:
    """Builds values that fit ``version``; what the version lacks stays at its default."""

    def __init__(self, random: Random, version: int, override: Override | None = None) -> None:
        self.random = random
        self.version = version
        self.override = override

    def message(self, kind: type[Message]) -> Message:
        built: Message = self.struct(kind)
        return built

    def struct(self, struct: type) -> Any:
        present = [field for field in fields_of(struct) if field.exists_in(self.version)]
        values = {field.name: self.field(field) for field in present}
        instance = default_instance(struct)
        for name, value in values.items():
            setattr(instance, name, value)
        return instance

    def field(self, field: Field) -> Any:
        if self.override is not None:
            chosen = self.override(self.random, field)
            if chosen is not None:
                return chosen
        if field.spec.tag is not None and self.random.randrange(2):
            return field.default
        if field.nullable_in(self.version) and self.random.randrange(4) == 0:
            return None
        value = self.value(field.kind)
        if isinstance(field.kind, StructOf) and field.spec.tag is not None:
            # A struct of defaults and None are the same bytes; None is how it is read back.
            return None if value == default_instance(field.kind.struct) else value
        return value

    def value(self, kind: Kind) -> Any:
        match kind:
            case Scalar():
                return self.scalar(kind)
            case Text():
                return "".join(self.random.choice(_ALPHABET) for _ in range(self.length(140)))
            case Blob():
                return self.random.randbytes(self.length(140))
            case ArrayOf(element):
                longest = 140 if isinstance(element, Scalar) else 3
                return [self.value(element) for _ in range(self.length(longest))]
            case StructOf(struct):
                return self.struct(struct)

    def scalar(self, kind: Scalar) -> Any:
        if kind is BOOL:
            return self.random.randrange(2) == 1
        if kind is UUID:
            return self.random.randbytes(16)
        if kind.format == "d":
            return float(self.random.randrange(-(2**40), 2**40)) / 8
        bits = 8 * kind.size_bytes
        low, high = 0, (1 << bits) - 1
        if kind.format.islower():
            low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        return self.random.choice((0, 1, low, high, self.random.randint(low, high)))

    def length(self, longest: int) -> int:
        """Mostly short; now and then long enough for a length of two bytes."""
        return longest if self.random.randrange(30) == 29 else self.random.randrange(4)
