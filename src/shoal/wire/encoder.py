"""A declaration and a version become a function from a message to bytes.

How it is fast: fields of fixed size that follow one another are packed by one call (a *run*), with
the length that follows them and the empty tag section at the end of a struct; only then come the
bytes of a string. Nested structs are inlined as loops. Generated code checks nothing that packing
checks anyway; when something fails, ``misfit.py`` walks the message slowly and says which field.

Rule: record batches are parts of their own and are never copied; all else is joined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct as Layout
from typing import Any, Final

from shoal.wire.fields import UUID, ArrayOf, Blob, Field, Kind, Scalar, StructOf, Text, fields_of
from shoal.wire.misfit import MAX_STRING_BYTES, default_instance, refuse
from shoal.wire.source import Block, GeneratedSource
from shoal.wire.varint import encode_uvarint

Part = bytes | bytearray | memoryview
# A message without record batches becomes bytes, one with them a list of parts.
Encoder = Callable[[Any], bytes | list[Part]]

# Smaller record batches are copied into their neighbours: one system call costs more.
ZERO_COPY_MIN_BYTES: Final = 4096
ONE_BYTE: Final = tuple(bytes([n]) for n in range(128))


def compile_encoder(struct: type, version: int, *, flexible: bool) -> Encoder:
    """The function which encodes ``struct`` in ``version``."""
    source = GeneratedSource(f"{struct.__qualname__} v{version} encoder")
    source.names.update(
        ONE_BYTE=ONE_BYTE,
        join=b"".join,
        refuse=refuse,
        bad_uuid=_bad_uuid,
        wide=encode_uvarint,
        wide_string=_string_length,
        tag_section=_tag_section,
    )
    emitter = _Emitter(source, "encode", version, flexible=flexible)
    emitter.value(StructOf(struct), "value", nullable=False)
    emitter.finish()
    return source.compile("encode")


class _Emitter:
    """Writes one function. ``run`` holds what the next pack call will write: (code, expression).

    Codes are those of ``struct``, and ``v``/``w`` for a varint (of a count, of a string's length)
    and ``*`` for the numbers of an array, whose count is the item before.
    """

    def __init__(self, source: GeneratedSource, name: str, version: int, *, flexible: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.block = Block(f"def {name}(value):")
        self.run: list[tuple[str, str]] = []
        self.block.line("parts = []; add = parts.append")
        self.cuts = False
        self.null_marker = -1

    def finish(self) -> None:
        self.flush()
        if self.cuts:
            self.block.lines.insert(2, "    out = []")
            with self.block.indented("if parts:"):
                self.block.line("out.append(join(parts))")
            self.block.line("return out")
        else:
            self.block.line("return join(parts)")
        self.source.add_function(self.block.lines)

    # ------------------------------------------------------------------ values

    def value(self, kind: Kind, expression: str, *, nullable: bool) -> None:
        match kind:
            case Scalar():
                self.run.append((kind.format, self.scalar(kind, expression)))
            case Text():
                self.sized("w", "h", expression, nullable=nullable, method=".encode()")
            case Blob():
                self.sized("v", "i", expression, nullable=nullable, zero_copy=kind.zero_copy)
            case ArrayOf():
                self.array(kind.element, expression, nullable=nullable)
            case _:
                self.struct(kind.struct, expression, nullable=nullable)

    def scalar(self, kind: Scalar, expression: str) -> str:
        if kind is not UUID:
            return expression
        # Packing would pad or cut a value of another length without a word.
        name = self.source.fresh("u")
        return f"({name} if len({name} := {expression}) == 16 else bad_uuid())"

    def length(self, expression: str, name: str, *, nullable: bool, method: str = "") -> str:
        """Emits ``name = expression`` and returns the variable of its length on the wire.

        A null gets an empty stand-in, so that what follows needs no second branch.
        """
        size = self.source.fresh("n")
        count = f"len({name}) + 1" if self.flexible else f"len({name})"
        if not nullable:
            self.block.line(f"{name} = {expression}{method}")
            self.block.line(f"{size} = {count}")
            return size
        self.block.line(f"{name} = {expression}")
        with self.block.indented(f"if {name} is None:"):
            self.block.line(f"{name} = b''; {size} = {0 if self.flexible else -1}")
        with self.block.indented("else:"):
            if method:
                self.block.line(f"{name} = {name}{method}")
            self.block.line(f"{size} = {count}")
        return size

    def sized(
        self,
        varint: str,
        fixed: str,
        expression: str,
        *,
        nullable: bool,
        method: str = "",
        zero_copy: bool = False,
    ) -> None:
        data = self.source.fresh("b")
        size = self.length(expression, data, nullable=nullable, method=method)
        self.run.append((varint if self.flexible else fixed, size))
        self.flush()
        if not zero_copy:
            self.block.line(f"add({data})")
            return
        self.cuts = True
        with self.block.indented(f"if len({data}) < {ZERO_COPY_MIN_BYTES}:"):
            self.block.line(f"add({data})")
        with self.block.indented("else:"):
            self.block.line(f"out.append(join(parts)); out.append({data}); parts.clear()")

    def array(self, element: Kind, expression: str, *, nullable: bool) -> None:
        items = self.source.fresh("a")
        count = self.length(expression, items, nullable=nullable)
        self.run.append(("v" if self.flexible else "i", count))
        if isinstance(element, Scalar) and element is not UUID:
            self.run.append(("*" + element.format, items))
            return
        self.flush()
        item = self.source.fresh("e")
        with self.block.indented(f"for {item} in {items}:"):
            self.value(element, item, nullable=False)
            self.flush()

    def struct(self, struct: type, expression: str, *, nullable: bool) -> None:
        if not nullable:
            self.fields(struct, expression)
            return
        self.flush()
        name = self.source.fresh("e")
        self.block.line(f"{name} = {expression}")
        with self.block.indented(f"if {name} is None:"):
            self.run.append(("b", str(self.null_marker)))
            self.flush()
        with self.block.indented("else:"):
            self.run.append(("b", "1"))
            self.fields(struct, name)
            self.flush()

    # ------------------------------------------------------------------ structs

    def fields(self, struct: type, name: str) -> None:
        if "." in name:
            local = self.source.fresh("e")
            self.block.line(f"{local} = {name}")
            name = local
        known = [field for field in fields_of(struct) if field.exists_in(self.version)]
        self.guard(struct, name)
        for field in known:
            if field.spec.tag is None:
                nullable = field.nullable_in(self.version)
                self.value(field.kind, f"{name}.{field.name}", nullable=nullable)
        if self.flexible:
            self.tags([field for field in known if field.spec.tag is not None], name)

    def guard(self, struct: type, name: str) -> None:
        """Refuses values that this version cannot carry (unless they are ignorable)."""
        lost = [
            self.differs(field, f"{name}.{field.name}")
            for field in fields_of(struct)
            if not field.exists_in(self.version) and not field.spec.ignorable
        ]
        if not self.flexible:
            lost.append(f"{name}.unknown_tagged_fields")
        if lost:
            with self.block.indented(f"if {' or '.join(lost)}:"):
                self.block.line("refuse()")

    def differs(self, field: Field, expression: str) -> str:
        """Source of: is the field's value another than its default?"""
        default = field.default
        if default is None:
            return f"{expression} is not None"
        if default in ((), "", b"") or default is False:
            return f"({expression} is None or {expression})" if field.optional else expression
        if isinstance(default, int | float):
            return f"{expression} != {default!r}"
        return f"{expression} != {self.source.bind(default, 'D')}"

    def tags(self, fields: list[Field], name: str) -> None:
        # The common case is an empty section: one zero byte at the end of the last run.
        self.run.append(("x", ""))
        self.flush()
        unknown = f"{name}.unknown_tagged_fields"
        checks = {field: self.tag_differs(field, f"{name}.{field.name}") for field in fields}
        with self.block.indented(f"if {' or '.join([*checks.values(), unknown])}:"):
            self.block.line("tags = {}")
            for field, check in checks.items():
                with self.block.indented(f"if {check}:"):
                    function = self.tag_function(field)
                    self.block.line(f"tags[{field.spec.tag}] = {function}({name}.{field.name})")
            self.block.line(f"parts[-1] = parts[-1][:-1] + tag_section(tags, {unknown})")

    def tag_differs(self, field: Field, expression: str) -> str:
        if not isinstance(field.kind, StructOf):
            return self.differs(field, expression)
        default = self.source.bind(default_instance(field.kind.struct), "D")
        if field.nullable_in(self.version):
            return f"({expression} is None or {expression} != {default})"
        return f"({expression} is not None and {expression} != {default})"

    def tag_function(self, field: Field) -> str:
        name = self.source.fresh("tag")
        emitter = _Emitter(self.source, name, self.version, flexible=True)
        # Inside a tag a null struct is 0 and not -1.
        emitter.null_marker = 0
        emitter.value(field.kind, "value", nullable=field.nullable_in(self.version))
        emitter.finish()
        return name

    # ------------------------------------------------------------------ runs

    def flush(self) -> None:
        run, self.run = self.run, []
        if not run:
            return
        if any(code[0] == "*" for code, _ in run):
            self.flush_with_arrays(run)
        elif run[-1][0] in "vw":
            self.flush_with_varint(run)
        elif run == [("x", "")]:
            self.block.line("add(b'\\0')")
        else:
            self.block.line(f"add({self.packed(run)})")

    def packed(self, run: list[tuple[str, str]]) -> str:
        layout = ">" + "".join(code for code, _ in run)
        pack = self.source.bind(_packer(layout), "pack")
        return f"{pack}({', '.join(expression for _, expression in run if expression)})"

    def flush_with_varint(self, run: list[tuple[str, str]]) -> None:
        code, size = run[-1]
        wide = "wide_string" if code == "w" else "wide"
        if run[:-1]:
            short = self.packed([*run[:-1], ("B", size)])
            self.block.line(
                f"add({short} if {size} < 128 else {self.packed(run[:-1])} + {wide}({size}))"
            )
        else:
            self.block.line(f"add(ONE_BYTE[{size}] if {size} < 128 else {wide}({size}))")

    def flush_with_arrays(self, run: list[tuple[str, str]]) -> None:
        rest: list[tuple[str, str]] = []
        if run[-1][0] in "vw":
            run, rest = run[:-1], run[-1:]
        counts = [run[index - 1][1] for index, (code, _) in enumerate(run) if code[0] == "*"]
        packers = self.source.bind(_ArrayPackers([code for code, _ in run]), "arrays")
        arguments = ", ".join(
            "*" + expression if code[0] == "*" else expression
            for code, expression in run
            if expression
        )
        self.block.line(f"add({packers}[{', '.join(counts)}]({arguments}))")
        self.run = rest
        self.flush()


class _ArrayPackers(dict[Any, Callable[..., bytes]]):
    """Pack functions of a run that holds arrays of numbers, by the arrays' counts on the wire.

    Counts repeat (replicas: three, three, none), so nearly every call is a lookup. Only this many
    are kept; a caller with ever new counts pays for building the function.
    """

    KEPT_MAX: Final = 512

    def __init__(self, codes: list[str]) -> None:
        self.codes = codes

    def __missing__(self, key: Any) -> Callable[..., bytes]:
        counts = list(key) if isinstance(key, tuple) else [key]
        pack = self._build(counts)
        if len(self) < self.KEPT_MAX:
            self[key] = pack
        return pack

    def _build(self, counts: list[int]) -> Callable[..., bytes]:
        layout = ">"
        wide: list[int] = []
        argument = 0
        pending = iter(counts)
        count = 0
        for index, code in enumerate(self.codes):
            if code[0] == "*":
                elements = max(count - 1 if self.codes[index - 1] == "v" else count, 0)
                layout += f"{elements}{code[1:]}"
                argument += elements
                continue
            if index + 1 < len(self.codes) and self.codes[index + 1][0] == "*":
                count = next(pending)
            if code != "v":
                layout += code
            elif count < 128:
                layout += "B"
            else:
                layout += f"{len(encode_uvarint(count))}s"
                wide.append(argument)
            argument += code != "x"
        pack = Layout(layout).pack
        return _with_wide_counts(pack, wide) if wide else pack


def _with_wide_counts(pack: Callable[..., bytes], wide: list[int]) -> Callable[..., bytes]:
    def pack_wide(*arguments: Any) -> bytes:
        values = list(arguments)
        for index in wide:
            values[index] = encode_uvarint(values[index])
        return pack(*values)

    return pack_wide


@cache
def _packer(layout: str) -> Callable[..., bytes]:
    """One function per layout, so that generated code binds it once."""
    return Layout(layout).pack


def _tag_section(known: dict[int, bytes], unknown: dict[int, bytes] | None) -> bytes:
    """The tag section of a struct: count, then tag, size and bytes of each in ascending order."""
    fields = {**unknown, **known} if unknown else known
    out = [encode_uvarint(len(fields))]
    for tag in sorted(fields):
        data = fields[tag]
        out += (encode_uvarint(tag), encode_uvarint(len(data)), data)
    return b"".join(out)


def _string_length(length: int) -> bytes:
    if length > MAX_STRING_BYTES + 1:
        refuse()
    return encode_uvarint(length)


def _bad_uuid() -> bytes:
    refuse()
