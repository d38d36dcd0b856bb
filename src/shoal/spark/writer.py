"""Writing: batch and streaming sinks of ``format("shoal")``, by Arrow columns.

What is promised is written in docs/spark.md. In short: every row is acknowledged by all replicas
before its task ends; a batch write is at least once, because Spark repeats failed tasks; a stream
replays a failed micro-batch, and ``replay.py`` keeps the rows that are already there from being
written again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from shoal.errors import ConfigError
from shoal.spark import places
from shoal.spark.options import SinkOptions, parse_sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from shoal.client.accumulator import SendFuture

_ALLOWED: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
FLUSH_TIMEOUT_S: Final = 120.0


class Sent(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed for us
    """What one task wrote."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """The columns are ones a record has.

    Raises:
        ConfigError: a column is missing, of the wrong type, or nothing we could write.
    """
    names = list(schema.names)
    if "value" not in names:
        raise ConfigError("the data has no column 'value'; name the column to write so")
    for field in schema.fields:
        allowed = _ALLOWED.get(field.name)
        if allowed is None:
            known = ", ".join(_ALLOWED)
            raise ConfigError(f"column {field.name!r} is not part of a record; there are {known}")
        kind = field.dataType.simpleString()
        if kind not in allowed:
            raise ConfigError(f"column {field.name!r} is {kind}; it must be {' or '.join(allowed)}")
    if options.topic is None and "topic" not in names:
        raise ConfigError("no topic: set option topic, or give the data a column 'topic'")
    if "headers" in names and not options.include_headers:
        raise ConfigError("column 'headers' needs option includeHeaders=true")


class _Writing:
    """What both sinks share: options, and rows to records."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    @classmethod
    def create(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Self:
        """A writer with checked options and schema."""
        parsed = parse_sink(options)
        check_schema(schema, parsed)
        if overwrite and issubclass(cls, BatchWriter):
            raise ConfigError('a topic cannot be overwritten; use mode("append")')
        return cls(parsed)

    def write_rows(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Send every row and wait until all are acknowledged; the number of rows."""
        places.freeze_once(gc.freeze)
        producer = places.sink_producer(dict(self.options.properties))
        sent: list[SendFuture] = []
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            for topic, records in by_topic(batch, self.options.topic):
                partition = "partition" if "partition" in records.schema.names else None
                sent += producer.send_arrow(topic, records, partition=partition)
        producer.flush(FLUSH_TIMEOUT_S)
        for future in sent:
            future.result(0)
        return rows


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic; an option wins over a column, as in Spark's own sink."""
    import pyarrow.compute as pc

    if topic is not None:
        names = [name for name in batch.schema.names if name != "topic"]
        yield topic, batch.select(names)
        return
    column = batch.column("topic")
    if column.null_count:
        raise ConfigError("a row has no topic: set option topic, or fill the column 'topic'")
    names = [name for name in batch.schema.names if name != "topic"]
    for name in pc.unique(column).to_pylist():
        yield name, batch.filter(pc.equal(column, name)).select(names)


class BatchWriter(_Writing, DataSourceArrowWriter):  # type: ignore[misc]
    """``df.write.format("shoal")``: at least once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return Sent(self.write_rows(iterator))


class StreamWriter(_Writing, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """``df.writeStream.format("shoal")``."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return Sent(self.write_rows(iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: every row was acknowledged before its task ended."""

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back; the replay of this batch skips what is there."""
