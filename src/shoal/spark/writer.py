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

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from shoal.errors import ConfigError
from shoal.spark import places
from shoal.spark.ledger import TaskKey
from shoal.spark.options import SinkOptions, parse_sink
from shoal.spark.replay import Replay

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from shoal.client.accumulator import SendFuture
    from shoal.client.producer import Producer

_ALLOWED: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
FLUSH_TIMEOUT_S: Final = 120.0
GATHER_BYTES: Final = 4 * 1024 * 1024
"""Spark hands over 10,000 rows at a time; shared out to many partitions they would make small
batches. So much is put together first."""


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
        producer = places.sink_producer(self.options.properties)
        sent: list[SendFuture] = []
        rows = 0
        for topic, part in self._parts(batches):
            rows += part.num_rows
            sent += send(producer, topic, part)
        acknowledged(producer, sent)
        return rows

    def _parts(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in gathered(batches):
            for topic, rows in by_topic(batch, self.options.topic):
                for part in by_wish(rows):
                    yield topic, part


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in fewer batches."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= GATHER_BYTES:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)


def send(producer: Producer, topic: str, rows: pa.RecordBatch) -> list[SendFuture]:
    """Hand rows to the producer; a column ``partition`` decides where they go."""
    partition = "partition" if "partition" in rows.schema.names else None
    return producer.send_arrow(topic, rows, partition=partition)


def acknowledged(producer: Producer, sent: list[SendFuture]) -> None:
    """Wait until everything is acknowledged.

    Raises:
        ShoalError: something was not.
    """
    producer.flush(FLUSH_TIMEOUT_S)
    for future in sent:
        future.result(0)


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic; an option wins over a column, as in Spark's own sink."""
    import pyarrow.compute as pc

    names = [name for name in batch.schema.names if name != "topic"]
    if topic is not None:
        yield topic, batch.select(names)
        return
    column = batch.column("topic")
    if column.null_count:
        raise ConfigError("a row has no topic: set option topic, or fill the column 'topic'")
    for name in pc.unique(column).to_pylist():
        yield name, batch.filter(pc.equal(column, name)).select(names)


def by_wish(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows that name their partition, and rows that leave it to their key (a null there)."""
    if "partition" not in rows.schema.names:
        yield rows
        return
    wish = rows.column("partition")
    if wish.null_count < rows.num_rows:
        yield rows.filter(wish.is_valid()) if wish.null_count else rows
    if wish.null_count:
        yield rows.filter(wish.is_null()).drop_columns(["partition"])


class BatchWriter(_Writing, DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed for us
    """``df.write.format("shoal")``: at least once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return Sent(self.write_rows(iterator))


class StreamWriter(_Writing, DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not typed for us
    """``df.writeStream.format("shoal")``: a repeated micro-batch adds nothing (``replay.py``)."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        task = _this_task()
        if task is None or not self.options.idempotent:
            return Sent(self.write_rows(iterator))
        try:
            return Sent(self._write_once(iterator, *task))
        except BaseException:
            places.drop_producer(self.options.properties)
            raise

    def _write_once(self, batches: Iterator[pa.RecordBatch], key: TaskKey, batch_id: int) -> int:
        places.freeze_once(gc.freeze)
        replay: Replay | None = None
        producer = places.sink_producer(self.options.properties)
        sent: list[SendFuture] = []
        rows = 0
        for topic, part in self._parts(batches):
            if not part.num_rows:
                continue
            if replay is None:
                ledger = places.sink_ledger(self.options.properties)
                replay = Replay(ledger, producer, key, batch_id)
            replay.begin(topic)
            new = replay.missing(topic, part)
            rows += new.num_rows
            sent += send(producer, topic, new)
        acknowledged(producer, sent)
        if replay is not None:
            replay.finish()
        return rows

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: every row was acknowledged before its task ended."""

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark names it
        """Nothing can be taken back; the replay of this batch skips what is there."""


def _this_task() -> tuple[TaskKey, int] | None:
    """Which task of which micro-batch this is; nothing outside of a streaming query."""
    context = TaskContext.get()
    if context is None:
        return None
    query_id = context.getLocalProperty("sql.streaming.queryId")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    if query_id is None or batch_id is None:
        return None
    return TaskKey(query_id, context.partitionId()), int(batch_id)
