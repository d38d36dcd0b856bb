"""Reading: batch and streaming readers of ``format("shoal")``.

Which process runs what decides the shape of this file. ``partitions`` of a batch runs in a short
planner process; ``initialOffset``, ``latestOffset``, ``partitions`` and ``commit`` of a stream run
in one Python process on the driver which lives as long as the query; ``read`` runs in executor
workers that are reused between micro-batches. State is therefore kept in the module of the stock
(``cluster.py``), per process, and never in what Spark pickles.

Two facts about Spark rule the streaming reader:

- ``commit(end)`` comes one batch late and never for the last one. ``latestOffset(start)`` is called
  with everything below ``start`` finished: that is where the group's offsets are committed.
- Idle, Spark asks ``latestOffset`` ninety times a second. It waits here for new records instead.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from shoal.errors import ShoalError
from shoal.spark import process_cache
from shoal.spark.admission import BatchAdmission
from shoal.spark.bounds import batch_ranges, check_present, resolve
from shoal.spark.first_line import SparkError, first_line, first_line_of_rows
from shoal.spark.options import SourceOptions
from shoal.spark.ranges import (
    OffsetRange,
    available,
    between,
    from_json,
    plan_tasks,
    to_json,
    with_new_partitions,
)
from shoal.spark.read_tally import ReadTally, tell
from shoal.spark.record_store import GroupOffsets, LiveGroupError, Stock
from shoal.spark.row_filter import wanted_rows
from shoal.spark.values import columns_to_read, typed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from shoal.types import TopicPartition

logger = logging.getLogger(__name__)

LONG_POLL_S: Final = 0.1
LOOK_AGAIN_S: Final = 0.005
"""How often the end of the log is asked for while a long poll waits."""
COMMIT_AGAIN_S: Final = 1.0
"""How long a commit the group refused is left alone."""


class Task(InputPartition):  # type: ignore[misc]  # pyspark is not typed for us
    """The ranges one Spark task reads; no option and no secret, for Spark pickles it."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(None)
        self.ranges = [(one.topic, one.partition, one.start, one.end) for one in ranges]


class _Reading:
    """What batch and stream share: the plan of tasks, and the read in the executor."""

    def __init__(self, options: SourceOptions, columns: list[str], schema: StructType) -> None:
        self.options = options
        self.columns = columns
        self.schema = schema
        self._kept: Stock | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles readers; connections stay where they are.
        return {**self.__dict__, "_kept": None}

    @property
    def _stock(self) -> Stock:
        if self._kept is None:
            self._kept = process_cache.stock(self.options)
        return self._kept

    def tasks(self, ranges: list[OffsetRange]) -> list[Task]:
        partitions = len({one.topic_partition for one in ranges})
        planned = plan_tasks(
            self._stock.pieces(ranges),
            tasks_max=self.options.tasks_max or process_cache.default_tasks(partitions),
            tasks_min=self.options.tasks_min,
            rows_max=self.options.task_rows_max,
        )
        return [Task(one) for one in planned]

    def read(self, partition: Task) -> Iterator[pa.RecordBatch]:
        """In an executor: the rows of one task, as Arrow batches."""
        return first_line_of_rows(self._rows(partition))

    def _rows(self, partition: Task) -> Iterator[pa.RecordBatch]:
        process_cache.freeze_once(gc.freeze)
        ranges = [OffsetRange(*one) for one in partition.ranges]
        tally = ReadTally()
        batches = self._stock.read(
            ranges,
            columns_to_read(self.columns, self.options),
            fail_on_data_loss=self.options.fail_on_data_loss,
            tally=tally,
        )
        batches = wanted_rows(batches, self.options)
        rows = typed(batches, self.options, self.schema, process_cache.session_zone(self.options))
        yield from tally.made(rows)
        tell(tally)


class BatchReader(_Reading, DataSourceReader):  # type: ignore[misc]  # pyspark is not typed for us
    """One read from start to end. Offsets are those of the first action, as Spark has it."""

    @first_line
    def partitions(self) -> list[Task]:
        group = process_cache.group(self.options)
        ranges = batch_ranges(self.options, self._stock, group)
        process_cache.freeze_once(gc.freeze)
        return self.tasks(ranges) or [Task(())]


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # pyspark is not typed for us
    """An endless read in micro-batches, whose progress a consumer group can show."""

    def __init__(self, options: SourceOptions, columns: list[str], schema: StructType) -> None:
        super().__init__(options, columns, schema)
        self._admission = BatchAdmission(
            rows_max=options.rows_max,
            rows_min=options.rows_min,
            delay_ms=options.trigger_delay_ms,
            bytes_max=options.bytes_max,
        )
        self._initial: dict[str, dict[str, int]] | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._group_checked = False
        self._commit_again_at = 0.0

    @first_line
    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 - Spark's name
        # Spark asks twice for a new query; both answers must be the same.
        if self._initial is None:
            self._group()
            self._initial = to_json(
                resolve(
                    self.options.starting,
                    self._stock.partitions(),
                    self._stock,
                    missing_timestamp=self.options.missing_timestamp,
                    group=process_cache.group(self.options),
                )
            )
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark names it
        if self.options.rows_max is not None:
            return ReadMaxRows(self.options.rows_max)
        return ReadAllAvailable()

    @first_line
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark names it
        self._target = self._stock.latest(self._stock.partitions())

    @first_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark names it
        self._admission.rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        done = from_json(start)
        self._acknowledge(done)
        deadline = time.monotonic() + LONG_POLL_S
        while True:
            known, latest = self._now(done)
            finishing = self._target is not None
            end = self._admission.end(
                known,
                latest,
                int(time.time() * 1000),
                row_bytes=partial(self._stock.bytes_per_record, known),
                finishing=finishing,
            )
            if finishing or available(known, end) or time.monotonic() >= deadline:
                break
            time.sleep(LOOK_AGAIN_S)
        if not available(known, end) and all(end[tp] >= known[tp] for tp in end):
            return start
        return to_json({**known, **end})

    def _now(
        self, done: dict[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where the query stands, new partitions included, and how far it could go."""
        tps = self._stock.partitions()
        latest = self._target or self._stock.latest(tps)
        gone = sorted(done.keys() - set(tps)) if self._target is None else []
        if gone:
            check_present(
                [OffsetRange(*tp, done[tp], done[tp] + 1) for tp in gone],
                {},
                {},
                fail_on_data_loss=self.options.fail_on_data_loss,
            )
            logger.warning("partitions are gone and left out: %s", ", ".join(map(str, gone)))
        new = [tp for tp in latest if tp not in done]
        known = with_new_partitions(done, self._stock.earliest(new) if new else {})
        for tp in gone:
            del known[tp]
        return known, self._beyond_open(latest, known)

    def _beyond_open(
        self, latest: dict[TopicPartition, int], known: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """No partition ends before what was read, unless its log became shorter.

        A query that read uncommitted records before, and now does not, may stand in the middle of
        a transaction that is still open.
        """
        ahead = [tp for tp, end in latest.items() if known[tp] > end]
        if not ahead or not self.options.committed_only:
            return latest
        log_ends = self._stock.log_ends(ahead)
        return latest | {tp: min(known[tp], log_ends[tp]) for tp in ahead}

    @first_line
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark names it
        return to_json(self._stock.latest(self._stock.partitions()))

    @first_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        done, wanted = from_json(start), from_json(end)
        present = set(self._stock.partitions())
        earliest = self._stock.earliest(present)
        log_ends = self._stock.log_ends(present)
        # A partition that is new to the query is read from its first record ever, not from the
        # first that is left: what retention took before is data lost, on a replay too.
        first = with_new_partitions(done, dict.fromkeys(wanted, 0))
        for tp, offset in wanted.items():
            if offset < first[tp]:
                # The log became shorter than what was read: another topic of the same name.
                check_present(
                    [OffsetRange(*tp, offset, first[tp])],
                    earliest,
                    log_ends,
                    fail_on_data_loss=self.options.fail_on_data_loss,
                )
                first[tp] = earliest.get(tp, offset)
        ranges = check_present(
            between(first, wanted),
            earliest,
            log_ends,
            fail_on_data_loss=self.options.fail_on_data_loss,
        )
        return self.tasks(ranges)

    @first_line
    def commit(self, end: dict[str, Any]) -> None:
        self._acknowledge(from_json(end))

    def stop(self) -> None:
        self._kept = None
        process_cache.close()

    def _group(self) -> GroupOffsets | None:
        group = process_cache.group(self.options)
        if group is not None and not self._group_checked:
            members = group.live_members()
            if members and not self.options.allow_live_group:
                assert self.options.group_id is not None
                raise LiveGroupError(self.options.group_id, members)
            self._group_checked = True
        return group

    def _acknowledge(self, done: dict[TopicPartition, int]) -> None:
        """Everything below ``done`` was processed: tell the group.

        A group that gained members since the query began refuses this (their offsets are theirs
        to commit), and a coordinator may be away. The query does not fail for its bookkeeping:
        the same offsets are tried again until the group takes them.
        """
        group = self._group()
        if group is None:
            return
        news = {tp: offset for tp, offset in done.items() if self._committed.get(tp) != offset}
        if not news or time.monotonic() < self._commit_again_at:
            return
        try:
            group.commit(news)
        except ShoalError as error:
            logger.warning(
                "group %s: offsets not committed, trying again: %s", self.options.group_id, error
            )
            self._commit_again_at = time.monotonic() + COMMIT_AGAIN_S
        else:
            self._committed.update(news)


class RefusedStream(DataSourceStreamReader):  # type: ignore[misc]  # pyspark is not typed for us
    """A stream whose options are wrong, as its first call says.

    An error in ``streamReader`` itself is buried: Spark 4.3 then stops a reader it does not have,
    and shows the error of that.
    """

    def __init__(self, error: ShoalError) -> None:
        self._error = SparkError(error)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's signature
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - as above
        raise self._error
