"""What each micro-batch read: bytes, time to fetch and to decode, and how far it is behind.

    from shoal.spark import QueryMetrics

    metrics = QueryMetrics(spark)               # before the query starts
    spark.streams.addListener(metrics)
    ...
    metrics.last("orders")                      # a query's name or id
    metrics.metrics()                           # of all queries, as a client's metrics()

Spark fills ``progress.sources[].metrics`` for its own sources only. Here tasks report to the driver
themselves (``read_tally.py``), and a report is joined with the progress of its micro-batch.

Rule: a query does not suffer from being watched. A report that is lost makes a number smaller and
``is_complete`` false; a callback that fails is logged.
"""

from __future__ import annotations

import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

from shoal.client.metrics import ClientMetrics, MetricName
from shoal.errors import counted
from shoal.spark.column_use import advice, unused_in
from shoal.spark.ranges import Offsets, from_json
from shoal.spark.read_tally import ADDRESS_SETTING, REPORT_BYTES_MAX, TaskReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shoal.types import TopicPartition

logger = logging.getLogger(__name__)

GROUP: Final = "streaming-query-metrics"
SETTLE_S: Final = 0.5
"""How long the last reports of a finished micro-batch are waited for."""
REPORTS_MAX: Final = 100_000
"""Reports kept of micro-batches that have not ended; the oldest go first."""


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """One finished micro-batch of one query; sums over its tasks."""

    query_id: str
    name: str | None
    batch_id: int
    rows: int
    """That Spark counted, of all sources of the query."""
    size_bytes: int
    """As fetched: compressed, in whole record batches."""
    fetch_ms: float
    """Waiting for brokers or disks, added up over tasks."""
    decode_ms: float
    """From bytes to rows, added up over tasks."""
    tasks: int
    lag: int
    """Records behind the end of the log when the batch ended, of all partitions."""
    lag_by_partition: Mapping[TopicPartition, int]
    is_complete: bool
    """Whether every row that Spark counted was reported."""

    def __str__(self) -> str:
        rest = "" if self.is_complete else "; some tasks did not report"
        return (
            f"query {self.name or self.query_id}, batch {self.batch_id}: "
            f"{counted(self.rows, 'row')} from {self.size_bytes} bytes in "
            f"{counted(self.tasks, 'task')}, fetched in {self.fetch_ms:.0f} ms, "
            f"decoded in {self.decode_ms:.0f} ms, {counted(self.lag, 'record')} behind{rest}"
        )


class QueryTotals:
    """All micro-batches of the queries that run, for whoever collects metrics."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[str, dict[str, float]] = {}
        self._last: dict[str, BatchMetrics] = {}

    def add(self, batch: BatchMetrics) -> None:
        grown = {
            "batches-total": 1.0,
            "rows-total": batch.rows,
            "bytes-total": batch.size_bytes,
            "fetch-time-ms-total": batch.fetch_ms,
            "decode-time-ms-total": batch.decode_ms,
            "incomplete-batches-total": not batch.is_complete,
        }
        with self._lock:
            sums = self._sums.setdefault(batch.query_id, dict.fromkeys(grown, 0.0))
            for name, value in grown.items():
                sums[name] += value
            self._last[batch.query_id] = batch

    def forget(self, query_id: str) -> None:
        with self._lock:
            self._sums.pop(query_id, None)
            self._last.pop(query_id, None)

    def metrics(self) -> ClientMetrics:
        found = ClientMetrics()
        with self._lock:
            for query_id, batch in self._last.items():
                tags = (("query", batch.name or query_id), ("query-id", query_id))
                told = {**self._sums[query_id], "lag": batch.lag, "batch-id": batch.batch_id}
                for name, value in told.items():
                    found[MetricName(name, GROUP, tags)] = float(value)
                for tp, lag in batch.lag_by_partition.items():
                    place = (("topic", tp.topic), ("partition", str(tp.partition)))
                    found[MetricName("lag", GROUP, (*tags, *place))] = float(lag)
        return found


class QueryMetrics(StreamingQueryListener):  # type: ignore[misc]  # pyspark is not typed for us
    """Listens to all queries of a session that start after it was made.

    Args:
        spark: The session. Its setting ``spark.shoal.metrics`` tells tasks where to report.
        on_batch: Called with the metrics of every micro-batch that ends; a line in the log at
            level INFO by default.
        host: Where tasks reach the driver; ``spark.driver.host`` by default.
    """

    def __init__(
        self,
        spark: SparkSession,
        on_batch: Callable[[BatchMetrics], None] | None = None,
        *,
        host: str | None = None,
    ) -> None:
        self._spark = spark
        self._on_batch = on_batch or _log
        self._token = secrets.token_hex(16)
        self._reports = ReportBook()
        self._last: dict[str, BatchMetrics] = {}
        self._totals = QueryTotals()
        self._advised: set[str] = set()
        place = host or spark.sparkContext.getConf().get("spark.driver.host", "localhost")
        family = socket.getaddrinfo(place, 0, type=socket.SOCK_DGRAM)[0][0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.bind((place, 0))
        self._address = f"{self._token}@{place}:{self._socket.getsockname()[1]}"
        self._is_closed = False
        threading.Thread(target=self._listen, name="shoal-query-metrics", daemon=True).start()
        spark.conf.set(ADDRESS_SETTING, self._address)

    def last(self, query: str) -> BatchMetrics | None:
        """Of the last micro-batch of a query, by its name or id; nothing before its first one."""
        found = self._last.get(query)
        named = [each for each in self._last.values() if each.name == query]
        return found or (named[-1] if named else None)

    def metrics(self) -> ClientMetrics:
        """Of every query that runs: rows, bytes and milliseconds added up, and its lag.

        In the form of ``Consumer.metrics()``, so that ``shoal.client.prometheus`` takes it.
        """
        return self._totals.metrics()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Listen no more. Queries that run go on unreported."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._spark.conf.get(ADDRESS_SETTING, None) == self._address:
            self._spark.conf.unset(ADDRESS_SETTING)
        # A datagram to itself: a closed socket does not wake who waits on it.
        self._socket.sendto(b"", self._socket.getsockname())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _listen(self) -> None:
        with self._socket:
            while not self._is_closed:
                data = self._socket.recv(REPORT_BYTES_MAX)
                report = TaskReport.decode(data, self._token)
                if report is not None:
                    self._reports.add(report)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        query_id, batch_id = str(progress.id), int(progress.batchId)
        rows = int(progress.numInputRows)
        reports = self._reports.take(query_id, batch_id, rows, SETTLE_S)
        lag = lag_of(progress.sources)
        found = BatchMetrics(
            query_id,
            progress.name,
            batch_id,
            rows,
            size_bytes=sum(each.size_bytes for each in reports),
            fetch_ms=sum(each.fetch_us for each in reports) / 1000,
            decode_ms=sum(each.decode_us for each in reports) / 1000,
            tasks=len(reports),
            lag=sum(lag.values()),
            lag_by_partition=lag,
            is_complete=sum(each.rows for each in reports) >= rows,
        )
        self._last.pop(query_id, None)
        self._last[query_id] = found
        self._totals.add(found)
        self._advise(query_id, progress.name)
        try:
            self._on_batch(found)
        except Exception:
            logger.exception("the callback for metrics failed")

    def _advise(self, query_id: str, name: str | None) -> None:
        """Say once of each query which columns it reads for nothing."""
        if query_id in self._advised:
            return
        self._advised.add(query_id)
        try:
            query = self._spark._jsparkSession.streams().get(query_id).streamingQuery()
            unused = unused_in(query.lastExecution().optimizedPlan())
        except Exception as error:  # noqa: BLE001 - Spark's insides: it may have ended, or be another Spark
            logger.debug("the plan of query %s cannot be looked at: %s", query_id, error)
            return
        if unused:
            logger.warning("query %s: %s", name or query_id, advice(unused))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark names it
        self._reports.forget(str(event.id))
        self._totals.forget(str(event.id))

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark names it
        """Nothing to do."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark names it
        """Nothing to do: nothing was read."""


def _log(metrics: BatchMetrics) -> None:
    logger.info("%s", metrics)


def lag_of(sources: Any) -> dict[TopicPartition, int]:
    """By the offsets in a progress: where the batch ended, and where the log did.

    Sources with offsets of another shape are left out; Spark's own connector has the same.
    """
    lag: dict[TopicPartition, int] = {}
    for source in sources:
        end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        for tp, offset in latest.items():
            # A partition the batch did not know yet is behind by all that is reported of it.
            lag[tp] = lag.get(tp, 0) + max(0, offset - end.get(tp, 0))
    return lag


def _offsets(text: str | None) -> Offsets:
    try:
        return from_json(json.loads(text or "{}"))
    except (ValueError, TypeError, AttributeError):
        return {}


class ReportBook:
    """Reports of tasks whose micro-batch has not ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reports: dict[tuple[str, int, int, int], TaskReport] = {}

    def add(self, report: TaskReport) -> None:
        key = (report.query_id, report.batch_id, report.stage, report.task)
        with self._changed:
            self._reports.pop(key, None)
            self._reports[key] = report
            if len(self._reports) > REPORTS_MAX:
                del self._reports[next(iter(self._reports))]
            self._changed.notify_all()

    def take(self, query_id: str, batch_id: int, rows: int, patience_s: float) -> list[TaskReport]:
        """Those of a micro-batch, once they tell of so many rows; older ones are forgotten."""
        deadline = time.monotonic() + patience_s
        with self._changed:
            while True:
                found = [
                    each
                    for each in self._reports.values()
                    if each.query_id == query_id and each.batch_id == batch_id
                ]
                left_s = deadline - time.monotonic()
                if sum(each.rows for each in found) >= rows or left_s <= 0:
                    break
                self._changed.wait(left_s)
            self._drop(lambda each: each.query_id == query_id and each.batch_id <= batch_id)
        return found

    def forget(self, query_id: str) -> None:
        with self._changed:
            self._drop(lambda each: each.query_id == query_id)

    def _drop(self, is_over: Callable[[TaskReport], bool]) -> None:
        self._reports = {key: one for key, one in self._reports.items() if not is_over(one)}

    def __len__(self) -> int:
        return len(self._reports)
