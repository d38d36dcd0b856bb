"""Many JSON documents to one Arrow column: each value exactly one document.

Two ways lead there, with one meaning, that of Spark's ``from_json``. The fast one reads a run of
values at once, in C (``json_kernel.py``) or by Arrow's parser where that was not built
(``json_arrow.py``); the slow one (``json_rows.py``) reads one value. What a fast reader leaves goes
the slow way. What it refuses as a whole, or what is a time in a form that only the slow way reads,
is divided by sixteen until what is left is single rows, so one bad row costs the reading of a small
run, not of the batch. ``tests/spark/test_json.py`` holds all ways against ``from_json``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from shoal.spark import json_kernel
from shoal.spark.json_arrow import ArrowReader, UnprovenError
from shoal.spark.json_kernel import DocumentReader
from shoal.spark.json_rows import CORRUPT_RECORD, RowParser

RUN_ROWS: Final = 16_384
RUN_BYTES: Final = 4 * 1024 * 1024
"""How much is parsed at once. Larger runs are hardly faster, and cost more where one row is bad."""
RUN_VALUES: Final = 1_000_000
"""There is room made for a value of each column in each row, whether it is there or not."""
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
        self._reader = _reader(kind)
        self._run_rows = max(SPLIT, min(RUN_ROWS, RUN_VALUES // _width(kind)))

    def convert(self, values: pa.Array) -> tuple[pa.Array, list[Malformed]]:
        """The column, and which of its rows are malformed (they hold what could be read)."""
        parts: list[pa.Array] = []
        malformed: list[Malformed] = []
        for start, run in _runs(values, self._run_rows):
            self._convert_run(run, start, parts, malformed)
        if not parts:
            return pa.nulls(0, self._kind), malformed
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts), malformed

    def _convert_run(
        self, run: pa.Array, start: int, parts: list[pa.Array], malformed: list[Malformed]
    ) -> None:
        try:
            column, left = self.at_once(run)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, UnprovenError):
            if len(run) <= SPLIT or self._reader is None:
                parts.append(self.one_by_one(run, range(start, start + len(run)), malformed))
                return
            size = -(-len(run) // SPLIT)
            for offset in range(0, len(run), size):
                self._convert_run(run.slice(offset, size), start + offset, parts, malformed)
            return
        if left:
            rows = run.take(pa.array(left))
            read = self.one_by_one(rows, [start + row for row in left], malformed)
            column = _with_rows(column, left, read)
        parts.append(column)

    def one_by_one(
        self, values: pa.Array, numbers: Sequence[int], malformed: list[Malformed]
    ) -> pa.Array:
        """Each value alone; ``numbers`` are those by which malformed ones are told."""
        rows: list[dict[str, Any] | None] = []
        for number, value in zip(numbers, values.to_pylist(), strict=True):
            if value is None:
                rows.append(None)
                continue
            row = self._rows.parse(value)
            rows.append(row.value)
            if row.reason is not None:
                malformed.append(Malformed(number, row.reason))
        return pa.array(rows, self._kind)

    def at_once(self, run: pa.Array) -> tuple[pa.Array, list[int]]:
        """The whole run by columns, and the rows that are null there because they were left.

        Raises:
            UnprovenError: or one of Arrow's errors; the run has to be divided.
        """
        if self._reader is None:
            raise UnprovenError("a type of the schema is not read at once")
        run.cast(pa.string())  # not UTF-8: an error
        struct, left = self._reader.read(run)
        return self._finished(struct, self._kind), left

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


def _with_rows(column: pa.Array, places: list[int], rows: pa.Array) -> pa.Array:
    """The column with ``rows`` at ``places``."""
    order = np.arange(len(column))
    order[places] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, rows]).take(pa.array(order))


def _check(holds: pa.Array, what: str) -> None:
    if not pc.all(holds, min_count=0).as_py():
        raise UnprovenError(what)


def _reader(kind: pa.DataType) -> DocumentReader | ArrowReader | None:
    """Who reads documents of this struct by columns; nobody if a type of it cannot be."""
    read_as = _read_as(kind)
    if read_as is None:
        return None
    library = json_kernel.native()
    return ArrowReader(read_as) if library is None else DocumentReader(library, read_as)


def _read_as(kind: pa.DataType) -> pa.DataType | None:
    """The type a reader is asked for; none where it has no fitting one."""
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


def _width(kind: pa.DataType) -> int:
    """How many columns it is made of."""
    return 1 + sum(_width(kind.field(index).type) for index in range(kind.num_fields))


def _runs(values: pa.Array, rows: int) -> Iterator[tuple[int, pa.Array]]:
    """The values in portions that are parsed at once, of so many rows at most."""
    if len(values):
        rows = max(SPLIT, min(rows, RUN_BYTES * len(values) // max(1, values.nbytes)))
    for start in range(0, len(values), rows):
        yield start, values.slice(start, rows)
