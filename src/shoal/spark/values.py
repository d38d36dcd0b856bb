"""Values as typed columns: ``valueFormat=utf8`` and ``valueFormat=json`` with ``valueSchema``.

Rule: a row is what Spark's ``from_json`` would make of its value (``json_columns.py``), whatever
rows it is read with. A *poison record*, whose value does not fit, fails the task by topic,
partition and offset; or it is kept with the fields that fit (``mode=PERMISSIVE``); or it goes to
the dead-letter topic (``dead_letters.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from shoal.errors import ShoalError
from shoal.spark import process_cache
from shoal.spark.json_columns import JsonColumn, Malformed
from shoal.spark.options import SourceOptions
from shoal.spark.row_filter import columns_to_filter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ORIGIN = ("topic", "partition", "offset")
"""Columns that tell where a row came from; read beside ``value`` while values are typed."""
LETTER = ("key", *ORIGIN, "timestamp", "headers")
"""What a dead letter holds beside the value."""


class PoisonRecordError(ShoalError):
    """A value does not fit the format the options name."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"the value of {topic}-{partition} offset {offset} is not as valueFormat says: "
            f"{reason}; set option deadLetterTopic to put such records aside"
        )


def columns_to_read(columns: list[str], options: SourceOptions) -> list[str]:
    """What to ask the decoder for: the user's columns, those that rows are chosen by, and what
    poison records are told by."""
    needed = columns_to_filter(options)
    if options.value_format != "binary" and "value" in columns:
        needed += ORIGIN if options.dead_letter_topic is None else LETTER
    return [*columns, *(name for name in dict.fromkeys(needed) if name not in columns)]


def typed(
    batches: Iterator[pa.RecordBatch], options: SourceOptions, schema: StructType, zone: str
) -> Iterator[pa.RecordBatch]:
    """The batches with their values typed and exactly the columns of ``schema``."""
    from pyspark.sql.pandas.types import to_arrow_schema

    names = list(schema.names)
    target = to_arrow_schema(schema, timezone="UTC")
    if options.value_format == "binary" or "value" not in names:
        for batch in batches:  # the same columns, said to be null where the schema says so
            columns = batch.columns[: len(names)]
            yield pa.RecordBatch.from_arrays(columns, schema=target)
        return
    kind = target.field("value").type
    convert = JsonColumn(kind, zone).convert if options.value_format == "json" else _texts
    for batch in batches:
        values, malformed = convert(batch.column("value"))
        good = batch
        if malformed and options.mode == "failfast":
            good, values = _set_aside(batch, values, malformed, options)
        columns = [
            values if name == "value" else good.column(name).cast(target.field(name).type)
            for name in names
        ]
        if good.num_rows:
            yield pa.RecordBatch.from_arrays(columns, schema=target)


def _texts(values: pa.Array) -> tuple[pa.Array, list[Malformed]]:
    try:
        return values.cast(pa.string()), []
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    malformed: list[Malformed] = []
    for index, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            malformed.append(Malformed(index, str(error)))
    return pa.array(texts, pa.string()), malformed


def _set_aside(
    batch: pa.RecordBatch,
    values: pa.Array,
    malformed: Sequence[Malformed],
    options: SourceOptions,
) -> tuple[pa.RecordBatch, pa.Array]:
    """The rows that are good; the others fail the task or go to the dead-letter topic."""
    if options.dead_letter_topic is None:
        index, reason = malformed[0]
        topic, partition, offset = (batch.column(name)[index].as_py() for name in ORIGIN)
        raise PoisonRecordError(topic, partition, offset, reason)
    bad = pa.array([index for index, _ in malformed], pa.int64())
    process_cache.dead_letters(options).bury(batch.take(bad), [reason for _, reason in malformed])
    keep = [True] * batch.num_rows
    for index, _ in malformed:
        keep[index] = False
    mask = pa.array(keep)
    return batch.filter(mask), values.filter(mask)
