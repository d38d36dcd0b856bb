"""Values as typed columns: ``valueFormat=utf8`` and ``valueFormat=json`` with ``valueSchema``.

Rule: a whole Arrow batch is converted at once; only when that fails are its rows looked at one by
one, to find the bad ones. A bad row (a *poison record*) fails the task by topic, partition and
offset, or goes to the dead-letter topic as it came, with headers that say where it was and why.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shoal.errors import ShoalError
from shoal.spark import places
from shoal.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ORIGIN = ("topic", "partition", "offset")
"""Columns that tell where a row came from; read beside ``value`` while values are typed."""


class PoisonRecordError(ShoalError):
    """A value does not fit the format the options name."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"the value of {topic}-{partition} offset {offset} is not as valueFormat says: "
            f"{reason}; set option deadLetterTopic to put such records aside"
        )


def columns_to_read(columns: list[str], options: SourceOptions) -> list[str]:
    """What to ask the decoder for: the user's columns, and the origin while values are typed."""
    if options.value_format == "binary" or "value" not in columns:
        return columns
    return [*columns, *(name for name in ORIGIN if name not in columns)]


def typed(
    batches: Iterator[pa.RecordBatch], options: SourceOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The batches with their values typed and exactly the columns of ``schema``."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    names = list(schema.names)
    target = to_arrow_schema(schema, timezone="UTC")
    if options.value_format == "binary" or "value" not in names:
        for batch in batches:  # the same columns, said to be null where the schema says so
            yield pa.RecordBatch.from_arrays(batch.columns, schema=target)
        return
    for batch in batches:
        good, values = _convert(batch, target.field("value").type, options)
        columns = [
            values if name == "value" else good.column(name).cast(target.field(name).type)
            for name in names
        ]
        if good.num_rows:
            yield pa.RecordBatch.from_arrays(columns, schema=target)


def _convert(
    batch: pa.RecordBatch, kind: pa.DataType, options: SourceOptions
) -> tuple[pa.RecordBatch, pa.Array]:
    import pyarrow as pa

    parse = _json_values if options.value_format == "json" else _text_values
    try:
        return batch, parse(batch.column("value"), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        good = _set_aside(batch, kind, options)
        return good, parse(good.column("value"), kind)


def _text_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.cast(kind)


def _json_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """All documents in one parse; a null value (a tombstone) is a null struct."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json as arrow_json

    present = values.drop_null()
    if not len(present):
        return pa.nulls(len(values), kind)
    # One JSON document per line; a line break inside a document would shift every row after it.
    if pc.any(pc.match_substring(present, "\n")).as_py():
        raise ValueError("line break in a document")
    lines = b"\n".join(present.to_pylist())
    parsed = arrow_json.read_json(
        io.BytesIO(lines),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"
        ),
    )
    if parsed.num_rows != len(present):
        raise ValueError("a value is not exactly one document")
    struct = parsed.select([field.name for field in kind]).to_struct_array().combine_chunks()
    if values.null_count:
        index = pc.subtract(pc.cumulative_sum(pc.cast(pc.is_valid(values), pa.int64())), 1)
        struct = struct.take(pc.if_else(pc.is_valid(values), index, None))
    return struct.cast(kind)


def _set_aside(batch: pa.RecordBatch, kind: pa.DataType, options: SourceOptions) -> pa.RecordBatch:
    """The rows that can be converted; the others fail the task or go to the dead-letter topic."""
    import pyarrow as pa

    keep: list[int] = []
    bad: list[tuple[int, str]] = []
    values = batch.column("value")
    rows: list[bytes | None] = values.to_pylist()
    cleaned: list[bytes | None] = []
    for index, row in enumerate(rows):
        try:
            cleaned.append(_one(row, kind, options))
            keep.append(index)
        except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            bad.append((index, str(error).splitlines()[0][:200]))
    if bad and options.dead_letter_topic is None:
        index, reason = bad[0]
        topic, partition, offset = (batch.column(name)[index].as_py() for name in ORIGIN)
        raise PoisonRecordError(topic, partition, offset, reason)
    if bad:
        _bury(batch, bad, options)
    good = batch.take(pa.array(keep, pa.int64()))
    position = good.schema.get_field_index("value")
    return good.set_column(position, "value", pa.array(cleaned, values.type))


def _one(row: bytes | None, kind: pa.DataType, options: SourceOptions) -> bytes | None:
    """One value, made fit for the bulk conversion, or an error that says why not."""
    import pyarrow as pa

    if row is None:
        return None
    if options.value_format == "utf8":
        row.decode()
        return row
    document = json.loads(row)
    if not isinstance(document, dict):
        raise ValueError(f"the document is not an object but {type(document).__name__}")
    compact = json.dumps(document).encode()
    _json_values(pa.array([compact], pa.binary()), kind)
    return compact


def _bury(batch: pa.RecordBatch, bad: list[tuple[int, str]], options: SourceOptions) -> None:
    assert options.dead_letter_topic is not None
    names = batch.schema.names
    dead: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = []
    for index, reason in bad:
        row: dict[str, Any] = {name: batch.column(name)[index].as_py() for name in names}
        headers = [(f"shoal.{name}", str(row[name]).encode()) for name in ORIGIN]
        headers.append(("shoal.error", reason.encode()))
        dead.append((row.get("key"), row["value"], [*headers]))
    places.produce(options, options.dead_letter_topic, dead)
