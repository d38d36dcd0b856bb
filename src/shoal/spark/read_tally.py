"""What a read task fetched and how long it took, told to the driver if somebody listens there.

Spark leaves the metrics of Python sources empty and brings nothing back from their tasks but rows.
So a task sends one datagram to ``QueryMetrics`` on the driver, whose address it finds in a setting
of the session. Nobody waits for it, and nothing depends on its arrival.

Rule: measuring costs two looks at the clock per fetch, and telling cannot fail a task.
"""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

ADDRESS_SETTING: Final = "spark.shoal.metrics"
"""``token@host:port`` of the listener; Spark shows settings of the session to its tasks."""
REPORT_BYTES_MAX: Final = 1024

_T = TypeVar("_T")


class ReadTally:
    """Counts one read while it happens: wrap what fetches and what comes out in the end."""

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self.rows = 0
        self.size_bytes = 0
        self.fetch_ns = 0
        self._total_ns = 0

    @property
    def decode_ns(self) -> int:
        """Everything between the fetched bytes and the rows: decoding, filters, typed values."""
        return max(0, self._total_ns - self.fetch_ns)

    def fetched(self, pieces: Iterator[_T], size_of: Callable[[_T], int]) -> Iterator[_T]:
        while True:
            before_ns = self._clock_ns()
            piece = next(pieces, None)
            self.fetch_ns += self._clock_ns() - before_ns
            if piece is None:
                return
            self.size_bytes += size_of(piece)
            yield piece

    def made(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while True:
            before_ns = self._clock_ns()
            batch = next(batches, None)
            self._total_ns += self._clock_ns() - before_ns
            if batch is None:
                return
            self.rows += batch.num_rows
            yield batch


class TaskReport(NamedTuple):
    """What one task of one micro-batch read."""

    query_id: str
    batch_id: int
    stage: int
    task: int
    """Its number in the stage: the report of a repeated task takes the place of the first."""
    rows: int
    size_bytes: int
    fetch_us: int
    decode_us: int

    def encode(self, token: str) -> bytes:
        return json.dumps([token, *self], separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, token: str) -> TaskReport | None:
        """The report, or nothing if this is none, or not one for the listener with this token."""
        try:
            told, query_id, *numbers = json.loads(data)
        except (ValueError, TypeError):
            return None
        is_report = told == token and isinstance(query_id, str) and len(numbers) == 7
        if not is_report or not all(type(one) is int and one >= 0 for one in numbers):
            return None
        return cls(query_id, *numbers)


def tell(tally: ReadTally) -> None:
    """Send what a task of a streaming query read to the listener of its session, if any."""
    from pyspark import TaskContext

    context = TaskContext.get()
    address = None if context is None else context.getLocalProperty(ADDRESS_SETTING)
    if context is None or not address:
        return
    query_id = context.getLocalProperty("sql.streaming.queryId")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    if query_id is None or batch_id is None:
        return
    report = TaskReport(
        query_id,
        int(batch_id),
        context.stageId(),
        context.partitionId(),
        tally.rows,
        tally.size_bytes,
        tally.fetch_ns // 1000,
        tally.decode_ns // 1000,
    )
    send(report, address)


def send(report: TaskReport, address: str) -> None:
    """One datagram; a listener that is gone or out of reach is not a reason to fail."""
    token, _, place = address.partition("@")
    host, _, port = place.rpartition(":")
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            host, int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as way:
            way.sendto(report.encode(token), target)
    except (OSError, ValueError) as error:
        logger.debug("the listener at %s cannot be told: %s", place, error)
