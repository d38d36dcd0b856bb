"""JSON documents to columns by Arrow's parser, where ``json_kernel.c`` was not built.

Its answer is taken only where it can be proved that Spark's ``from_json`` would give the same.

Every value ``v`` becomes the line ``{"r":v}``. Arrow's parser reads documents without regard to
lines, but: a line that begins outside of any document begins one; and a document cannot go on into
the next line, for there ``{"r"`` would have to follow a value, or a line break would have to stand
in a string, and both are errors. So each line holds one document or more, and if there are as many
documents as lines, each holds one. The rest is refused: the words NaN and Inf, zeros with a sign,
and values that are null.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
import pyarrow.types as types


class UnprovenError(ValueError):
    """Nobody can vouch for the answer."""


class ArrowReader:
    """Documents to a struct of types that JSON has."""

    def __init__(self, kind: pa.DataType) -> None:
        self._options = arrow_json.ParseOptions(
            explicit_schema=pa.schema([("r", kind)]), unexpected_field_behavior="ignore"
        )
        self._kind = kind

    def read(self, run: pa.Array) -> tuple[pa.Array, list[int]]:
        """The column; it leaves no rows to others, but refuses the run.

        Raises:
            UnprovenError: or one of Arrow's errors; the run has to be divided.
        """
        present = len(run) - run.null_count
        if not present:
            return pa.nulls(len(run), self._kind), []
        before, after, nothing = (pa.scalar(text, pa.binary()) for text in (b'{"r":', b"}\n", b""))
        lines = pc.binary_join_element_wise(before, run, after, nothing).buffers()[2].to_pybytes()
        if _has_word(lines, b"NaN") or _has_word(lines, b"Inf"):
            raise UnprovenError("Arrow and Spark disagree on numbers without an end")
        parsed = arrow_json.read_json(
            pa.BufferReader(lines),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=self._options,
        )
        if parsed.num_rows != present:
            raise UnprovenError("a value is not exactly one document")
        struct = parsed.column("r").combine_chunks()
        if struct.null_count:
            raise UnprovenError("a document is null")
        for leaf in _leaves(struct):
            _check(leaf)
        if run.null_count:
            valid = pc.is_valid(run)
            place = pc.subtract(pc.cumulative_sum(pc.cast(valid, pa.int64())), 1)
            struct = struct.take(pc.if_else(valid, place, None))
        return struct, []


def _has_word(text: bytes, word: bytes) -> bool:
    """Whether it is there; the one byte it begins with is looked for first, ten times as fast."""
    start = text.find(word[:1])
    return start >= 0 and text.find(word, start) >= 0


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    if types.is_struct(array.type):
        for index in range(array.type.num_fields):
            yield from _leaves(array.field(index))
    elif types.is_list(array.type):
        yield from _leaves(array.values)
    else:
        yield array


def _check(array: pa.Array) -> None:
    if types.is_floating(array.type):
        zero = array.filter(pc.equal(array, 0.0))
        if not pc.all(pc.greater(pc.divide(1.0, zero), 0.0), min_count=0).as_py():
            raise UnprovenError("Spark sees no sign before a whole zero")
    elif types.is_decimal128(array.type):
        array.validate(full=True)  # Arrow's parser lets numbers pass that do not fit
