"""A declaration and a version become a function from bytes to a message.

Strictness without a check per field rests on three facts:

- Reading a number past the end raises (``struct.error``, ``IndexError``); a slice past the end is
  only short, but then the position stands beyond the end for good, because it never decreases:
  every negative length is refused. The caller compares it with the end once.
- A count is checked against the bytes that are left before a list is built, so what is allocated
  is bounded by what was received, whatever was announced.
- The element budget bounds the time and memory of one message: a frame of a hundred megabytes can
  hold fifty million empty strings, and one event loop has to read it.

Rule: generated code raises only ``FAULTS``; ``schema.py`` turns them into InvalidMessageError.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Callable
from functools import cache
from struct import Struct as Layout
from typing import Any, Final, NoReturn

from shoal.errors import InvalidMessageError
from shoal.wire.fields import UUID, ArrayOf, Blob, Field, Kind, Scalar, StructOf, Text, fields_of
from shoal.wire.misfit import MAX_STRING_BYTES, default_instance, default_value
from shoal.wire.source import Block, GeneratedSource
from shoal.wire.varint import decode_uvarint

# (data, position, element budget) -> (message, position after it)
Decoder = Callable[[Any, int, int], tuple[Any, int]]

FAULTS: Final = (packing.error, IndexError, InvalidMessageError)


def compile_decoder(struct: type, version: int, *, flexible: bool) -> Decoder:
    """The function which decodes ``struct`` in ``version``.

    It wants a memoryview if ``holds_records(struct)``, else bytes, which slice faster.
    """
    source = GeneratedSource(f"{struct.__qualname__} v{version} decoder")
    source.names.update(
        new=object.__new__,
        default=default_instance,
        not_there=object(),
        uvarint=decode_uvarint,
        string_length=_string_length,
        bad_length=_bad_length,
        bad_marker=_bad_marker,
        over_budget=_over_budget,
        too_many=_too_many,
        next_tag=_next_tag,
        tag_size=_tag_size,
        keep_unknown=_keep_unknown,
        unknown_tags=_unknown_tags,
    )
    emitter = _Emitter(source, struct, version, flexible=flexible)
    emitter.block = Block("def decode(d, p, budget):")
    emitter.block.line("end = len(d)")
    emitter.value(StructOf(struct), "value", "", nullable=False)
    emitter.flush()
    emitter.block.line("return value, p")
    source.add_function(emitter.block.lines)
    return source.compile("decode")


def holds_records(struct: type) -> bool:
    """Does the struct, or one inside it, have a field of record batches?"""
    return any(_is_records(field.kind) for field in fields_of(struct))


def _is_records(kind: Kind) -> bool:
    match kind:
        case Blob(zero_copy):
            return zero_copy
        case ArrayOf(element):
            return _is_records(element)
        case StructOf(struct):
            return holds_records(struct)
        case _:
            return False


class _Emitter:
    """Writes one function. ``run`` holds what the next unpack call reads: (code, target)."""

    block: Block

    def __init__(
        self, source: GeneratedSource, struct: type, version: int, *, flexible: bool
    ) -> None:
        self.source = source
        self.root = struct
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []
        self.views = holds_records(struct)
        self.null_marker = -1

    # ------------------------------------------------------------------ values

    def value(self, kind: Kind, target: str, path: str, *, nullable: bool) -> None:
        """Emits code that reads one value into ``target``; ``path`` names it in errors."""
        match kind:
            case Scalar():
                self.run.append((kind.format, target))
            case Text():
                # What is no UTF-8 is replaced, as Kafka does: a name in Latin-1 is no attack.
                text = (
                    "str({}, 'utf-8', 'replace')" if self.views else "{}.decode('utf-8', 'replace')"
                )
                self.sized("string_length", "h", text, target, path, nullable=nullable)
            case Blob(zero_copy):
                copied = "bytes({})" if self.views and not zero_copy else "{}"
                self.sized("uvarint", "i", copied, target, path, nullable=nullable)
            case ArrayOf(element):
                self.array(element, target, path, nullable=nullable)
            case _:
                self.struct(kind.struct, target, path, nullable=nullable)

    def sized(
        self, varint: str, code: str, convert: str, target: str, path: str, *, nullable: bool
    ) -> None:
        size = self.size(varint, code)
        with self.block.indented(f"if {size} {'> 0' if self.flexible else '>= 0'}:"):
            self.block.line(f"q = p + {size}{' - 1' if self.flexible else ''}")
            self.block.line(f"{target} = {convert.format('d[p:q]')}")
            self.block.line("p = q")
        with self.block.indented("else:"):
            self.null(size, target, path, nullable=nullable)

    def size(self, varint: str, code: str) -> str:
        """Emits code that reads a length or count, and returns its variable.

        In flexible versions it is one more than the length, and zero is null.
        """
        name = self.source.fresh("n")
        self.run.append(("B" if self.flexible else code, name))
        self.flush()
        if self.flexible:
            with self.block.indented(f"if {name} > 127:"):
                with self.block.indented("if d[p] < 128:"):
                    self.block.line(f"{name} = {name} & 127 | d[p] << 7; p += 1")
                with self.block.indented("else:"):
                    self.block.line(f"{name}, p = {varint}(d, p - 1)")
        return name

    def null(self, size: str, target: str, path: str, *, nullable: bool) -> None:
        """Emits what happens if a length says null, or nonsense."""
        if nullable and self.flexible:
            self.block.line(f"{target} = None")
        elif nullable:
            self.block.line(f"{target} = None if {size} == -1 else bad_length({path!r}, {size})")
        else:
            self.block.line(f"bad_length({path!r}, {size if not self.flexible else -1})")

    def array(self, element: Kind, target: str, path: str, *, nullable: bool) -> None:
        size = self.size("uvarint", "i")
        empty = 1 if self.flexible else 0
        with self.block.indented(f"if {size} > {empty}:"):
            if self.flexible:
                self.block.line(f"{size} -= 1")
            self.block.line(f"budget -= {size}")
            with self.block.indented("if budget < 0:"):
                self.block.line("over_budget()")
            if isinstance(element, Scalar):
                self.numbers(element, size, target)
            else:
                self.items(element, size, target, path)
        with self.block.indented(f"elif {size} == {empty}:"):
            self.block.line(f"{target} = ()")
        with self.block.indented("else:"):
            self.null(size, target, path, nullable=nullable)

    def numbers(self, element: Scalar, size: str, target: str) -> None:
        if element is UUID:
            with self.block.indented(f"if {size} * 16 > end - p:"):
                self.block.line("too_many()")
            convert = "bytes(d[q:q + 16])" if self.views else "d[q:q + 16]"
            self.block.line(f"{target} = [{convert} for q in range(p, p + {size} * 16, 16)]")
        else:
            unpack = self.source.bind(_array_unpackers(element.format), "unpack_array")
            self.block.line(f"{target} = {unpack}[{size}](d, p)")
        self.block.line(f"p += {size} * {element.size_bytes}")

    def items(self, element: Kind, size: str, target: str, path: str) -> None:
        least = self.least_bytes(element)
        with self.block.indented(f"if {size} * {least} > end - p:"):
            self.block.line("too_many()")
        items, item = self.source.fresh("a"), self.source.fresh("e")
        self.block.line(f"{target} = {items} = []")
        with self.block.indented(f"for _ in range({size}):"):
            self.value(element, item, path, nullable=False)
            self.flush()
            self.block.line(f"{items}.append({item})")

    def least_bytes(self, kind: Kind) -> int:
        """The fewest bytes a value of this kind can take in this version."""
        match kind:
            case Scalar():
                return kind.size_bytes
            case Text():
                return 1 if self.flexible else 2
            case Blob() | ArrayOf():
                return 1 if self.flexible else 4
            case _:
                sizes = [
                    1
                    if isinstance(field.kind, StructOf) and field.nullable_in(self.version)
                    else self.least_bytes(field.kind)
                    for field in fields_of(kind.struct)
                    if field.exists_in(self.version) and field.spec.tag is None
                ]
                return sum(sizes) + self.flexible

    def struct(self, struct: type, target: str, path: str, *, nullable: bool) -> None:
        if not nullable:
            self.fields(struct, target, path)
            return
        marker = self.source.fresh("n")
        self.run.append(("b", marker))
        self.flush()
        with self.block.indented(f"if {marker} == 1:"):
            self.fields(struct, target, path)
            self.flush()
        with self.block.indented(f"elif {marker} == {self.null_marker}:"):
            self.block.line(f"{target} = None")
        with self.block.indented("else:"):
            self.block.line(f"bad_marker({path!r}, {marker})")

    # ------------------------------------------------------------------ structs

    def fields(self, struct: type, target: str, path: str) -> None:
        name = target
        if "." in target:
            name = self.source.fresh("e")
            self.block.line(f"{target} = {name} = new({self.source.bind(struct, 'C')})")
        else:
            self.block.line(f"{name} = new({self.source.bind(struct, 'C')})")
        dot = f"{path}." if path else ""
        tagged: list[Field] = []
        absent = [("None", f"{name}.unknown_tagged_fields")]
        for field in fields_of(struct):
            if field.exists_in(self.version) and field.spec.tag is not None:
                tagged.append(field)
            if not field.exists_in(self.version) or (
                field.spec.tag is not None and not field.spec.nullable_struct
            ):
                absent.append((self.default(field), f"{name}.{field.name}"))
        self.assign_defaults(absent)
        for field in fields_of(struct):
            if field.exists_in(self.version) and field.spec.tag is None:
                nullable = field.nullable_in(self.version)
                inner = f"{dot}{field.name}"
                self.value(field.kind, f"{name}.{field.name}", inner, nullable=nullable)
        if self.flexible:
            self.tags(tagged, name, path)

    def default(self, field: Field) -> str:
        """Source of the value of a field that is not there."""
        if field.spec.nullable_struct:
            assert isinstance(field.kind, StructOf)
            return f"default({self.source.bind(field.kind.struct, 'C')})"
        value = default_value(field)
        plain = value is None or isinstance(value, bool | int | float | str | tuple)
        return repr(value) if plain else self.source.bind(value, "D")

    def assign_defaults(self, absent: list[tuple[str, str]]) -> None:
        """One chained assignment per distinct default."""
        chains: dict[str, list[str]] = {}
        for text, target in absent:
            chains.setdefault(text, []).append(target)
        for text, targets in chains.items():
            self.block.line(f"{' = '.join(targets)} = {text}")

    def tags(self, fields: list[Field], name: str, path: str) -> None:
        count = self.source.fresh("n")
        self.run.append(("B", count))
        self.flush()
        function = self.tag_function(fields, path) if fields else "unknown_tags"
        with self.block.indented(f"if {count}:"):
            self.block.line(f"p, budget = {function}(d, p - 1, budget, {name})")
        if own := [each for each in fields if each.spec.nullable_struct]:
            with self.block.indented("else:"):
                for field in own:
                    self.block.line(f"{name}.{field.name} = {self.default(field)}")

    def tag_function(self, fields: list[Field], path: str) -> str:
        """Emits a function that reads a tag section which is not empty into a struct."""
        name = self.source.fresh("tags")
        inner = _Emitter(self.source, self.root, self.version, flexible=True)
        inner.null_marker = 0  # Inside a tag a null struct is 0 and not -1.
        block = inner.block = Block(f"def {name}(d, p, budget, o):")
        block.line("end = len(d)")
        own = [field for field in fields if field.spec.nullable_struct]
        for field in own:
            block.line(f"o.{field.name} = not_there")
        block.line("count, p = uvarint(d, p)")
        block.line("budget -= count")
        with block.indented("if budget < 0:"):
            block.line("over_budget()")
        with block.indented("for _ in range(count):"):
            block.line("tag, p, stop = next_tag(d, p, end)")
            keyword = "if"
            for field in fields:
                with block.indented(f"{keyword} tag == {field.spec.tag}:"):
                    nullable = field.nullable_in(self.version)
                    where = f"{path}.{field.name}" if path else field.name
                    inner.value(field.kind, f"o.{field.name}", where, nullable=nullable)
                    inner.flush()
                    with block.indented("if p != stop:"):
                        block.line("tag_size(tag)")
                keyword = "elif"
            with block.indented("else:"):
                block.line("keep_unknown(o, tag, d[p:stop])")
                block.line("p = stop")
        for field in own:
            with block.indented(f"if o.{field.name} is not_there:"):
                block.line(f"o.{field.name} = {self.default(field)}")
        block.line("return p, budget")
        self.source.add_function(block.lines)
        return name

    # ------------------------------------------------------------------ runs

    def flush(self) -> None:
        run, self.run = self.run, []
        if not run:
            return
        layout = ">" + "".join(code for code, _ in run)
        targets = [target for _, target in run]
        if layout == ">B":
            self.block.line(f"{targets[0]} = d[p]")
        else:
            unpack = self.source.bind(_unpacker(layout), "unpack")
            self.block.line(f"{', '.join(targets)}, = {unpack}(d, p)")
        self.block.line(f"p += {packing.calcsize(layout)}")


class _ArrayUnpackers(dict[int, Callable[..., tuple[Any, ...]]]):
    """Unpack functions of arrays of numbers by count; big counts are rare and not kept."""

    KEPT_MAX: Final = 256

    def __init__(self, code: str) -> None:
        self.code = code

    def __missing__(self, count: int) -> Callable[..., tuple[Any, ...]]:
        unpack = Layout(f">{count}{self.code}").unpack_from
        if count < self.KEPT_MAX:
            self[count] = unpack
        return unpack


@cache
def _array_unpackers(code: str) -> _ArrayUnpackers:
    return _ArrayUnpackers(code)


@cache
def _unpacker(layout: str) -> Callable[..., tuple[Any, ...]]:
    return Layout(layout).unpack_from


def _string_length(data: Any, position: int) -> tuple[int, int]:
    length, position = decode_uvarint(data, position)
    if length > MAX_STRING_BYTES + 1:
        raise InvalidMessageError(f"a string of {length - 1} bytes; at most {MAX_STRING_BYTES}")
    return length, position


def _bad_length(path: str, length: int) -> NoReturn:
    null = "null" if length == -1 else f"of length {length}"
    raise InvalidMessageError(f"{path} is {null}")


def _bad_marker(path: str, marker: int) -> NoReturn:
    raise InvalidMessageError(f"{path} starts with {marker}; neither a struct nor null")


def _over_budget() -> NoReturn:
    raise InvalidMessageError("more elements than the budget of one message allows")


def _too_many() -> NoReturn:
    raise InvalidMessageError("an array announces more elements than bytes are left")


def _unknown_tags(data: Any, position: int, budget: int, struct: Any) -> tuple[int, int]:
    """Reads a tag section whose fields the declaration does not know."""
    count, position = decode_uvarint(data, position)
    budget -= count
    if budget < 0:
        _over_budget()
    for _ in range(count):
        tag, position, stop = _next_tag(data, position, len(data))
        _keep_unknown(struct, tag, data[position:stop])
        position = stop
    return position, budget


def _next_tag(data: Any, position: int, end: int) -> tuple[int, int, int]:
    """A tag, and where its bytes start and end.

    They should come in order and once; Kafka does not look, and of two the last one counts.
    """
    tag, position = decode_uvarint(data, position)
    size, position = decode_uvarint(data, position)
    if position + size > end:
        _tag_size(tag)
    return tag, position, position + size


def _keep_unknown(struct: Any, tag: int, data: bytes | memoryview) -> None:
    if struct.unknown_tagged_fields is None:
        struct.unknown_tagged_fields = {}
    struct.unknown_tagged_fields[tag] = bytes(data)


def _tag_size(tag: int) -> NoReturn:
    raise InvalidMessageError(f"tagged field {tag} does not have the size it announces")
