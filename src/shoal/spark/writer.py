"""Writing: batch and streaming sinks of ``format("shoal")``, by Arrow columns.

What is promised is written in docs/spark.md. In short: every row is acknowledged by all replicas
before its task ends; a batch write is at least once, because Spark repeats failed tasks; a stream
replays a failed micro-batch, and ``replay.py`` keeps the rows that are already there from being
written again. With ``exactlyOnce=true`` both write in transactions, see ``exactly_once.py``.
"""

from __future__ import annotations

import gc
import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from shoal.errors import ConfigError
from shoal.spark import process_cache
from shoal.spark.exactly_once import TIMEOUT, TIMEOUT_MS, PreparedTask, SinkDriver, TaskOrigin
from shoal.spark.first_line import first_line
from shoal.spark.ledger import Bookmark, TaskKey
from shoal.spark.options import SinkOptions, parse_sink
from shoal.spark.replay import Replay
from shoal.spark.sink_decisions import AttemptReport

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shoal.client.producer import Producer
    from shoal.client.producer_batch import SendFuture

logger = logging.getLogger(__name__)

_ALLOWED: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
BROKERS_OWN: Final = ("offset", "timestamp", "timestampType")
"""Columns of a table that nobody can write."""
FLUSH_TIMEOUT_S: Final = 120.0
BOOKMARK_EVERY: Final = 20
"""Micro-batches between two bookmarks in the ledger: so few a new worker has to read."""
API_TIMEOUT: Final = "default.api.timeout.ms"
ABORT_TIMEOUT_MS: Final = 10_000
GATHER_BYTES: Final = 4 * 1024 * 1024
"""Spark hands over 10,000 rows at a time; shared out to many partitions they would make small
batches. So much is put together first."""


class Prepared(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed for us
    """What one task wrote in a transaction that is still open."""

    def __init__(self, query_id: str, report: AttemptReport, started_ms: int) -> None:
        self.query_id = query_id
        self.report = report
        self.started_ms = started_ms


class Sent(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed for us
    """What one task wrote."""

    def __init__(self, rows: int, bookmark: Bookmark | None = None) -> None:
        self.rows = rows
        self.bookmark = bookmark


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """The columns are ones a record has.

    Raises:
        ConfigError: a column is missing, of the wrong type, or nothing we could write.
    """
    names = list(schema.names)
    if "value" not in names:
        raise ConfigError("the data has no column 'value'; name the column to write so")
    for field in schema.fields:
        if field.name in BROKERS_OWN and field.nullable:
            continue  # a table's column that an INSERT leaves out
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
        process_cache.freeze_once(gc.freeze)
        producer = process_cache.sink_producer(self.options.properties)
        sent: list[SendFuture] = []
        rows = 0
        for topic, part in self._parts(batches):
            process_cache.sink_client(self.options.properties).need_topic(topic)
            rows += part.num_rows
            sent += send(producer, topic, part)
        acknowledged(producer, sent)
        return rows

    def prepare_rows(self, batches: Iterator[pa.RecordBatch], origin: TaskOrigin) -> Prepared:
        """Store every row in a transaction that the driver commits."""
        process_cache.freeze_once(gc.freeze)
        started_ms = _now_ms()
        properties = self.options.properties
        task = PreparedTask(process_cache.sink_ledger(properties), properties, origin, send)
        return Prepared(origin.query_id, task.write(self._parts(batches)), started_ms)

    def commit_rows(self, messages: Sequence[Prepared], batch_id: int) -> SinkDriver | None:
        """Make all rows visible; who did it, if there was anything to do."""
        driver = self._driver(messages)
        if driver is not None:
            self._warn_if_slow(messages)
            driver.commit(batch_id, [one.report for one in messages])
        return driver

    def abort_rows(self, messages: Sequence[Prepared], batch_id: int, query_id: str) -> None:
        """As far as it can be done; what stays open ends by itself, or by the next micro-batch."""
        properties = self.options.properties
        if not messages:
            # Perhaps nothing was written because no broker answers: do not wait for it again.
            properties = {**properties, API_TIMEOUT: str(_abort_timeout_ms(properties))}
        try:
            driver = SinkDriver(process_cache.sink_ledger(properties), query_id)
            is_over = driver.abort(batch_id, [one.report for one in messages])
            if is_over and isinstance(self, BatchWriter):
                driver.forget()
        except Exception as error:  # noqa: BLE001 - Spark would show it instead of what went wrong
            logger.warning("transactions that do not count stay open for now: %s", error)

    def _driver(self, messages: Sequence[Prepared]) -> SinkDriver | None:
        if not messages:
            return None
        ledger = process_cache.sink_ledger(self.options.properties)
        return SinkDriver(ledger, messages[0].query_id)

    def _warn_if_slow(self, messages: Sequence[Prepared]) -> None:
        lasted_ms = _now_ms() - min(one.started_ms for one in messages)
        timeout_ms = int(self.options.properties.get(TIMEOUT, TIMEOUT_MS))
        if lasted_ms > timeout_ms / 2:
            logger.warning(
                "a micro-batch was open for %d s; after %d s its transactions are aborted and it "
                "is written again: make it smaller, or raise kafka.%s and the broker's "
                "transaction.max.timeout.ms",
                lasted_ms // 1000,
                timeout_ms // 1000,
                TIMEOUT,
            )

    def _parts(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in gathered(map(_without_brokers_own, batches)):
            for topic, rows in by_topic(batch, self.options.topic):
                for part in by_wish(rows):
                    yield topic, part


def _without_brokers_own(batch: pa.RecordBatch) -> pa.RecordBatch:
    given = [name for name in BROKERS_OWN if name in batch.schema.names]
    for name in given:
        if batch.column(name).null_count < batch.num_rows:
            raise ConfigError(f"column {name!r} is the broker's to decide; leave it out")
    return batch.drop_columns(given) if given else batch


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in fewer batches."""
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
    """``df.write.format("shoal")``: at least once, or with ``exactlyOnce`` all or nothing."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self._job_id = f"batch-{uuid.uuid4()}"

    @first_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent | Prepared:
        if not self.options.exactly_once:
            return Sent(self.write_rows(iterator))
        context = TaskContext.get()
        assert context is not None, "Spark writes in tasks"
        origin = TaskOrigin(self._job_id, "0", 0, context.partitionId(), context.attemptNumber())
        return self.prepare_rows(iterator, origin)

    @first_line
    def commit(self, messages: list[Any]) -> None:
        prepared = [one for one in messages if isinstance(one, Prepared)]
        driver = self.commit_rows(prepared, 0)
        if driver is not None and driver.claimed_at is not None:
            driver.forget()

    def abort(self, messages: list[Any]) -> None:
        """Also without messages: what has ended in a failure may have left something open."""
        if self.options.exactly_once:
            prepared = [one for one in messages if isinstance(one, Prepared)]
            self.abort_rows(prepared, 0, self._job_id)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not typed for us
    """``df.writeStream.format("shoal")``: a repeated micro-batch adds nothing (``replay.py``)."""

    @first_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent | Prepared:
        task = _this_task()
        if self.options.exactly_once:
            assert task is not None, "a stream has queries"
            return self.prepare_rows(iterator, _origin(*task))
        if task is None or not self.options.idempotent:
            return Sent(self.write_rows(iterator))
        try:
            return self._write_once(iterator, *task)
        except BaseException:
            process_cache.drop_producer(self.options.properties)
            raise

    def _write_once(self, batches: Iterator[pa.RecordBatch], key: TaskKey, batch_id: int) -> Sent:
        process_cache.freeze_once(gc.freeze)
        replay: Replay | None = None
        producer = process_cache.sink_producer(self.options.properties)
        sent: list[SendFuture] = []
        rows = 0
        for topic, part in self._parts(batches):
            if not part.num_rows:
                continue
            process_cache.sink_client(self.options.properties).need_topic(topic)
            if replay is None:
                ledger = process_cache.sink_ledger(self.options.properties)
                decision = ledger.journal(key.query_id).decision
                if decision is not None and decision.batch_id == batch_id and decision.is_done:
                    return Sent(0)  # written with exactlyOnce, which was then switched off
                replay = Replay(ledger, producer, key, batch_id)
            new = replay.to_send(topic, part)
            rows += new.num_rows
            if new.num_rows:
                sent += send(producer, topic, new)
        acknowledged(producer, sent)
        if replay is None:
            return Sent(rows)
        replay.finish()
        return Sent(rows, replay.bookmark)

    @first_line
    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Every row was acknowledged before its task ended; the ledger gets a bookmark at times."""
        prepared = [one for one in messages if isinstance(one, Prepared)]
        driver = self.commit_rows(prepared, batchId)
        if driver is not None:
            self._keep_place(driver, prepared[0].query_id, batchId)
            return
        marks = [one.bookmark for one in messages if one is not None and one.bookmark is not None]
        if marks and batchId % BOOKMARK_EVERY == 0:
            ledger = process_cache.sink_ledger(self.options.properties)
            ledger.keep(min(marks, key=lambda mark: mark.offset))

    def _keep_place(self, driver: SinkDriver, query_id: str, batch_id: int) -> None:
        if driver.claimed_at is not None and batch_id % BOOKMARK_EVERY == 0:
            ledger = process_cache.sink_ledger(self.options.properties)
            ledger.keep(ledger.bookmark(query_id, driver.claimed_at))

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark names it
        """Without transactions nothing can be taken back; a replay skips what is there."""
        prepared = [one for one in messages if isinstance(one, Prepared)]
        if prepared:  # only they know the query; without them the next micro-batch does it
            self.abort_rows(prepared, batchId, prepared[0].query_id)


def _origin(key: TaskKey, batch_id: int) -> TaskOrigin:
    context = TaskContext.get()
    assert context is not None, "a task of Spark writes"
    # Spark runs the jobs of a query in a group that is named by the run.
    run_id = context.getLocalProperty("spark.jobGroup.id") or "0"
    return TaskOrigin(key.query_id, run_id, batch_id, key.task, context.attemptNumber())


def _abort_timeout_ms(properties: Mapping[str, str]) -> int:
    given = int(properties.get(API_TIMEOUT, ABORT_TIMEOUT_MS))
    return min(given, ABORT_TIMEOUT_MS)


def _now_ms() -> int:
    return int(time.time() * 1000)


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
