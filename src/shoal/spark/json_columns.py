"""Many JSON documents to one Arrow column: each value exactly one document.

Two ways lead there, with one meaning, that of Spark's ``from_json``. The fast one hands a run of
values to Arrow's parser at once and takes its answer only where it can be proved right; the slow
one (``json_rows.py``) reads one value. A run the fast way refuses is divided by sixteen until what
is left is single rows, so one bad row costs the parse of a small run, not of the batch.

Why the answer is right. Every value ``v`` becomes the line ``{"r":v}``. Arrow's parser reads
documents without regard to lines, but: a line that begins outside of any document begins one; and
a document cannot go on into the next line, for there ``{"r"`` would have to follow a value, or a
line break would have to stand in a string, and both are errors. So each line holds one document
or more, and if there are as many documents as lines, each holds one. The rest is refused: text
that is not UTF-8, the words NaN and Inf, zeros with a sign, values that are null, and whatever the
types of a column cannot prove. ``tests/spark/test_json.py`` holds both ways against ``from_json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
import pyarrow.types as types

from shoal.spark.json_rows import CORRUPT_RECORD, RowParser

RUN_ROWS: Final = 16_384
RUN_BYTES: Final = 4 * 1024 * 1024
"""How much is parsed at once. Larger runs are hardly faster, and cost more where one row is bad."""
SPLIT: Final = 16

_DATE: Final = "^(19[7-9][0-9]|20[0-9]{2})-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_DAY: Final = f"{_DATE}$"
_LOCAL: Final = f"{_DATE}{_TIME}$"
_ZONED: Final = f"{_DATE}{_TIME}(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])$"
# After 2037 Arrow knows no daylight saving.
_IN_SESSION_ZONE: Final = f"^(19[7-9][0-9]|20[0-2][0-9]|203[0-6])-[0-9]{{2}}-[0-9]{{2}}{_TIME}$"


class Malformed(NamedTuple):
    """A value that is not as the schema says."""

    row: int
    reason: str


class UnprovenError(ValueError):
    """The fast way cannot vouch for its answer."""


class JsonColumn:
    """Values to a struct column.

    Args:
        kind: The struct, as Arrow's type.
        zone: The time zone of timestamps that name none.
    """

    def __init__(self, kind: pa.DataType, zone: str) -> None:
        self._kind = kind
        self._zone = zone
        self._rows = RowParser(kind, zone)
        self._read_as = _read_as(kind)

    def convert(self, values: pa.Array) -> tuple[pa.Array, list[Malformed]]:
        """The column, and which of its rows are malformed (they hold what could be read)."""
        parts: list[pa.Array] = []
        malformed: list[Malformed] = []
        for start, run in _runs(values):
            self._convert_run(run, start, parts, malformed)
        if not parts:
            return pa.nulls(0, self._kind), malformed
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts), malformed

    def _convert_run(
        self, run: pa.Array, start: int, parts: list[pa.Array], malformed: list[Malformed]
    ) -> None:
        if len(run) > 1 or self._read_as is None:
            try:
                parts.append(self.at_once(run))
                return
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, UnprovenError):
                pass
        if len(run) <= SPLIT or self._read_as is None:
            parts.append(self.one_by_one(run, start, malformed))
            return
        size = -(-len(run) // SPLIT)
        for offset in range(0, len(run), size):
            self._convert_run(run.slice(offset, size), start + offset, parts, malformed)

    def one_by_one(self, run: pa.Array, start: int, malformed: list[Malformed]) -> pa.Array:
        rows: list[dict[str, Any] | None] = []
        for index, value in enumerate(run.to_pylist(), start):
            if value is None:
                rows.append(None)
                continue
            row = self._rows.parse(value)
            rows.append(row.value)
            if row.reason is not None:
                malformed.append(Malformed(index, row.reason))
        return pa.array(rows, self._kind)

    def at_once(self, run: pa.Array) -> pa.Array:
        """The whole run by Arrow's parser.

        Raises:
            UnprovenError: or one of Arrow's errors; the run has to be divided.
        """
        if self._read_as is None:
            raise UnprovenError("a type of the schema is not read at once")
        present = len(run) - run.null_count
        if not present:
            return pa.nulls(len(run), self._kind)
        run.cast(pa.string())  # not UTF-8: an error
        before, after, nothing = (pa.scalar(text, pa.binary()) for text in (b'{"r":', b"}\n", b""))
        lines = pc.binary_join_element_wise(before, run, after, nothing).buffers()[2].to_pybytes()
        if _has_word(lines, b"NaN") or _has_word(lines, b"Inf"):
            raise UnprovenError("Arrow and Spark disagree on numbers without an end")
        parsed = arrow_json.read_json(
            pa.BufferReader(lines),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema([("r", self._read_as)]),
                unexpected_field_behavior="ignore",
            ),
        )
        if parsed.num_rows != present:
            raise UnprovenError("a value is not exactly one document")
        struct = parsed.column("r").combine_chunks()
        if struct.null_count:
            raise UnprovenError("a document is null")
        struct = self._finished(struct, self._kind)
        if run.null_count:
            valid = pc.is_valid(run)
            place = pc.subtract(pc.cumulative_sum(pc.cast(valid, pa.int64())), 1)
            struct = struct.take(pc.if_else(valid, place, None))
        return struct

    def _finished(self, array: pa.Array, kind: pa.DataType) -> pa.Array:
        """What was read, as what it is to be.

        Raises:
            UnprovenError: Spark may see another value.
        """
        if types.is_struct(kind):
            children = [self._child(array, field) for field in kind]
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
        if types.is_list(kind):
            mask = array.is_null() if array.null_count else None
            values = self._finished(array.values, kind.value_type)
            return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=mask)
        if types.is_timestamp(kind):
            return self._moments(array, kind)
        if types.is_date32(kind):
            _check(pc.match_substring_regex(array, _DAY), "a date in another form")
            return array.cast(kind)
        if types.is_floating(kind):
            zero = array.filter(pc.equal(array, 0.0))
            _check(pc.greater(pc.divide(1.0, zero), 0.0), "Spark sees no sign before a whole zero")
        elif types.is_decimal128(kind):
            array.validate(full=True)  # Arrow's parser lets numbers pass that do not fit
        return array

    def _child(self, array: pa.Array, field: pa.Field) -> pa.Array:
        index = array.type.get_field_index(field.name)
        if index < 0:
            return pa.nulls(len(array), field.type)
        return self._finished(array.field(index), field.type)

    def _moments(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        if kind.tz is None:
            _check(pc.match_substring_regex(texts, _LOCAL), "a timestamp in another form")
            return texts.cast(kind)
        if pc.all(pc.match_substring_regex(texts, _ZONED), min_count=0).as_py():
            return texts.cast(kind)
        _check(pc.match_substring_regex(texts, _IN_SESSION_ZONE), "a timestamp in another form")
        local = texts.cast(pa.timestamp("us"))
        moments = pc.assume_timezone(local, self._zone, ambiguous="earliest", nonexistent="raise")
        return moments.cast(kind)


def _has_word(text: bytes, word: bytes) -> bool:
    """Whether it is there; the one byte it begins with is looked for first, ten times as fast."""
    start = text.find(word[:1])
    return start >= 0 and text.find(word, start) >= 0


def _check(holds: pa.Array, what: str) -> None:
    if not pc.all(holds, min_count=0).as_py():
        raise UnprovenError(what)


def _read_as(kind: pa.DataType) -> pa.DataType | None:
    """The type Arrow's parser is asked for; none where it has no fitting one."""
    if types.is_struct(kind):
        fields = [
            (field.name, _read_as(field.type)) for field in kind if field.name != CORRUPT_RECORD
        ]
        names = {name for name, _ in fields}
        if not fields or len(names) < len(fields) or any(read is None for _, read in fields):
            return None
        return pa.struct(fields)
    if types.is_list(kind):
        element = _read_as(kind.value_type)
        return None if element is None else pa.list_(element)
    if types.is_timestamp(kind) or types.is_date32(kind):
        return pa.string()
    is_plain = (
        types.is_string(kind)
        or types.is_boolean(kind)
        or types.is_floating(kind)
        or types.is_decimal128(kind)
        or types.is_signed_integer(kind)
    )
    return kind if is_plain else None


def _runs(values: pa.Array) -> Iterator[tuple[int, pa.Array]]:
    """The values in portions that are parsed at once."""
    rows = RUN_ROWS
    if len(values):
        rows = max(SPLIT, min(rows, RUN_BYTES * len(values) // max(1, values.nbytes)))
    for start in range(0, len(values), rows):
        yield start, values.slice(start, rows)
