"""``Consumer``: the public, blocking face of consuming.

Rule: a method here checks that it may be called, hands a coroutine of ``consumer_core.py`` to the
engine and returns what comes back. ``async_consumer.py`` is the same list of methods with
``await``; whatever either of them *does* is written below both.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from shoal.client.arguments import checks_arguments, each_partition
from shoal.client.commits import CommitCallback, Offsets
from shoal.client.config import ConsumerConfig, config_of
from shoal.client.consumer_core import ConsumerCore
from shoal.client.engine import Engine
from shoal.client.foreign_names import answers_foreign_names
from shoal.client.listeners import RebalanceListener, intercepted
from shoal.client.membership import wish_of
from shoal.client.metrics import ClientMetrics
from shoal.client.polling import (
    Records,
    Steps,
    empty_arrow,
    most,
    poll_steps,
    polled,
    start_session,
    take_records,
)
from shoal.client.processing import Handler, Processing
from shoal.client.processing_progress import ProcessOptions
from shoal.client.settings import ConsumerSettings
from shoal.client.wakeup import close_unstarted
from shoal.records.arrow import need_arrow
from shoal.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    Record,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_ITERATION_TIMEOUT_S = 1.0


@answers_foreign_names
@checks_arguments()
class Consumer:
    """Reads topics, alone (``assign``) or as a member of a group (``subscribe``).

    Settings are those of ``ConsumerConfig``, by keyword or as a config made before::

        with Consumer(
            bootstrap_servers="localhost:9092", group_id="billing", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                ...

    Use it from one thread at a time; only ``wakeup`` may be called from others. Timeouts are in
    seconds; a call without one takes at most ``default_api_timeout_ms``.
    """

    def __init__(
        self, config: ConsumerConfig | None = None, **settings: Unpack[ConsumerSettings]
    ) -> None:
        self.config = config_of("Consumer", ConsumerConfig, config, settings)
        self._user: int | None = None
        self._engine = Engine("shoal-consumer")
        try:
            self._own_session = self._engine.call(start_session(self.config))
        except BaseException:
            self._engine.stop()
            raise

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """A consumer from Kafka's dotted names, as in a properties file."""
        return cls(ConsumerConfig.from_properties(properties))

    # --- what to read ---

    def subscribe(
        self,
        topics: Collection[str] | re.Pattern[str] | str | None = None,
        listener: RebalanceListener | Any | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Join the group for these topics; replaces what was subscribed to before.

        Args:
            topics: a list of names; or a compiled pattern (matched against whole names, new
                topics included as they appear); or one name. An empty list unsubscribes.
            listener: see ``RebalanceListener``.
            pattern: instead of ``topics``, what the broker matches whole names with, in RE2's
                syntax; for groups of the new protocol (``group_protocol``).
        """
        wish = wish_of(topics, pattern)
        if not wish:
            self.unsubscribe()
        else:
            self._call(self._session.subscribe(wish, listener))

    def unsubscribe(self) -> None:
        """Leave the group, or drop the assigned partitions."""
        self._call(self._session.unsubscribe())

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's say; replaces the last assignment."""
        self._call(self._session.assign(list(partitions)))

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now."""
        return self._session.positions.partitions()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to: those listed, or those matching the pattern."""
        return self._session.subscription()

    def enforce_rebalance(self, reason: str = "") -> None:
        """Make the next ``poll`` rejoin the group."""
        self._call(self._session.enforce_rebalance(reason))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group."""
        return self._session.group_metadata()

    # --- reading ---

    def poll(self, timeout: float = 0.0, *, max_records: int | None = None) -> Records[Any, Any]:
        """Records, as soon as there are some; none if none came within ``timeout`` seconds.

        Also where rebalances, automatic commits and all callbacks happen: call it often, at
        least every ``max_poll_interval_ms``.

        Raises:
            WakeupError: ``wakeup`` was called.
            NoOffsetForPartitionError: nothing is committed and ``auto_offset_reset="none"``.
            OffsetOutOfRangeError: a position is outside the log, with the same setting.
            LogTruncatedError: the log was cut before a position, with the same setting.
            RecordDeserializationError: a deserializer failed; ``seek`` past the record.
            CorruptDataError: a batch cannot be read; ``seek`` past it.
            RebalanceListenerError: a listener raised.
            BrokerError: the broker refused something for good.
        """
        limit = most(max_records, self.config.max_poll_records)
        with self._using():
            taken = self._drive(
                poll_steps(
                    self._session,
                    timeout,
                    lambda: take_records(self._session, limit),
                    self._session.arrived.wait,
                )
            )
            return polled(self.config.interceptors, taken)

    def poll_arrow(self, timeout: float = 0.0, *, max_records: int | None = None) -> pa.RecordBatch:
        """As ``poll``, as Arrow columns: key, value, topic, partition, offset, timestamp,
        timestamp_type, headers. No Python object is made per record; deserializers and
        interceptors are not used. Empty (``num_rows == 0``) if nothing came.
        """
        need_arrow()
        limit = most(max_records, self.config.max_poll_arrow_records)
        with self._using():
            taken = self._drive(
                poll_steps(
                    self._session,
                    timeout,
                    lambda: self._session.reader.take_arrow(limit),
                    self._session.arrived.wait,
                )
            )
        return empty_arrow() if taken is None else taken

    def __iter__(self) -> Iterator[Record[Any, Any]]:
        """Records, one by one, forever; ends when the consumer is closed.

        Each counts as read when it is handed out: ``position`` and commits stand behind the last
        one you got, and whatever reads next (another loop, ``poll``) goes on with the next.
        Raises as ``poll``.
        """
        session, interceptors = self._session, self.config.interceptors
        while self._engine.is_running:
            hand = self._hand()
            while hand:  # any other call on this consumer takes the rest back
                if interceptors:
                    yield from intercepted(interceptors, [hand.pop()])
                else:
                    yield hand.pop()
                if session.is_due:
                    break
        self._engine.need_own_process()

    def process(
        self,
        handler: Handler,
        *,
        workers: int = 8,
        order: str = "key",
        retries: int = 0,
        retry_delay: float = 1.0,
        dead_letter_topic: str | None = None,
        drain_timeout: float = 30.0,
    ) -> None:
        """Give every record to ``handler``, several at a time, and commit what is done.

        Returns after ``wakeup``, when what was being worked on is done and committed. Needs
        ``enable_auto_commit=False``. Nothing is committed before it is done: after a crash or a
        rebalance records may come again, none is skipped. However long a handler takes,
        the group hears of its member.

        Args:
            handler: called with one record, in a thread of its own; if it raises, that failed.
            workers: so many records are worked on at the same time.
            order: "key": records of a partition with the same key one after the other, in their
                order; "partition": all of a partition; "none": in any order.
            retries: how often a record that failed is tried again.
            retry_delay: seconds before that, doubled each time, up to a minute.
            dead_letter_topic: where a record goes that failed for good, as it came, with the
                reason in its headers. Without one, processing ends.
            drain_timeout: how long handlers may go on when their partition is revoked, or at
                the end.

        Raises:
            ProcessingError: records failed for good; it says which, and they are not committed.
            Exception: as ``poll``, after what was being worked on is done and committed.
        """
        options = ProcessOptions(
            workers, order, retries, retry_delay, dead_letter_topic, drain_timeout
        )
        options.check()
        processing = Processing(self, handler, options)
        self._call(self._session.start_processing(processing))
        try:
            processing.run()
        finally:
            self._call(self._session.end_processing())

    def _poll_raw(self, timeout: float, limit: int) -> list[Record[Any, Any]]:
        """As ``poll``, keys and values as bytes; with a limit of 0 it only attends to the group."""
        session = self._session
        with self._using():
            taken = self._drive(
                poll_steps(
                    session,
                    timeout,
                    lambda: session.reader.take(limit) if limit else None,
                    session.arrived.wait,
                )
            )
        return intercepted(self.config.interceptors, taken or [])

    def wakeup(self) -> None:
        """From any thread: the call under way, or the next one, raises ``WakeupError``.

        Of a callback that is in a call itself, that call raises; ``close`` is never woken.
        """
        self._session.wakeups.ring()

    # --- positions ---

    def seek(
        self,
        partition: TopicPartition,
        offset: int | OffsetAndMetadata,
        *,
        leader_epoch: int | None = None,
    ) -> None:
        """Read on from ``offset``, or from what was committed (``committed`` returns such)."""
        self._call(self._session.seek(partition, offset, leader_epoch))

    def seek_to_beginning(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Read on from the beginning of these partitions, or of all; looked up when needed."""
        self._call(self._session.seek_to_end(each_partition(partitions), beginning=True))

    def seek_to_end(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Read on from the end of these partitions, or of all; looked up when needed."""
        self._call(self._session.seek_to_end(each_partition(partitions), beginning=False))

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record ``poll`` returns."""
        return self._blocking(self._session.position(partition, timeout))

    def pause(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Return no records of these partitions until ``resume``."""
        self._call(self._session.pause(each_partition(partitions), paused=True))

    def resume(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Undo ``pause``."""
        self._call(self._session.pause(each_partition(partitions), paused=False))

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(state.tp for state in self._session.positions if state.is_paused)

    def lag(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """How many offsets the end of the log is ahead of the position."""
        return self._blocking(self._session.lag(partition, timeout))

    # --- commits ---

    def commit_sync(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Commit the positions of all partitions, or given offsets (the *next* ones to read).

        Raises:
            CommitFailedError: the group gave the partitions to others.
            RebalanceInProgressError: poll, then commit again.
            RequestTimeoutError: no success in time.
        """
        self._blocking(self._session.commit_sync(offsets, timeout))

    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit without waiting and without retries.

        ``callback(offsets, error)`` runs inside a later ``poll``, ``commit_sync`` or ``close``.
        """
        self._call(self._session.commit_async(offsets, callback))

    def committed(
        self,
        *partitions: TopicPartition | Collection[TopicPartition],
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions; ``None`` where nothing."""
        return self._blocking(self._session.committed(each_partition(partitions), timeout))

    # --- questions to the cluster ---

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the first record at or after a time; ``None`` if there is none."""
        return self._blocking(self._session.queries.offsets_for_times(times_ms, timeout))

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._blocking(self._session.queries.ends(partitions, timeout, beginning=True))

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        return self._blocking(self._session.queries.ends(partitions, timeout, beginning=False))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic: leader, replicas, in sync, offline."""
        return self._blocking(self._session.queries.partitions_for(topic, timeout))

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """Every topic of the cluster with its partitions."""
        return self._blocking(self._session.queries.list_topics(timeout))

    # --- metrics ---

    def metrics(self) -> ClientMetrics:
        """What this consumer has counted, under the names of Kafka's Java client, such as
        ``records-lag-max``, ``fetch-latency-avg`` or ``rebalance-latency-max``. Any thread may
        ask, at any time; after ``close`` it is how things ended.
        """
        return self._session.metrics()

    # --- the end ---

    def close(self, timeout: float = 30.0) -> None:
        """Commit (if automatic), call the listener, leave the group, stop. May be repeated."""
        if not self._engine.is_running:
            return
        with self._using():
            if self._session.is_closing:
                return  # a callback of the very close that is under way
            try:
                self._engine.call(self._session.close(timeout))
            finally:
                self._engine.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- how calls are made ---

    @property
    def _session(self) -> ConsumerCore:
        """Of this process only: after a fork it is the parent's, and so is all that is buffered."""
        self._engine.need_own_process()
        return self._own_session

    @contextmanager
    def _using(self) -> Iterator[None]:
        """One thread at a time; callbacks of a call under way may call again."""
        here, before = threading.get_ident(), self._user
        if before is not None and before != here:
            raise _WrongThreadError(
                "a Consumer is for one thread at a time; only wakeup() may be called from others"
            )
        self._user = here
        self._session.reader.settle()
        try:
            yield
        finally:
            self._user = before

    def _hand(self) -> list[Record[Any, Any]]:
        session, limit = self._session, self.config.max_poll_records
        with self._using():
            hand = self._drive(
                poll_steps(
                    session,
                    _ITERATION_TIMEOUT_S,
                    lambda: session.reader.hand_out(limit),
                    session.arrived.wait,
                )
            )
        return hand or []

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            with self._using():
                return self._engine.call(work)
        except _WrongThreadError:
            work.close()
            raise

    def _blocking(self, work: Coroutine[Any, Any, T]) -> T:
        call = self._session.wakeups.interruptible(work)
        try:
            return self._call(call)
        except Exception:
            close_unstarted(call, work)
            raise
        except BaseException:
            # Ctrl-C: the engine may be about to begin it, and must find it whole. One turn of its
            # loop later it has begun, or never will.
            self._engine.post(self._engine.loop.call_soon, close_unstarted, call, work)
            raise

    def _drive(self, steps: Steps[T]) -> T | None:
        while True:
            try:
                work = next(steps)
            except StopIteration as done:
                taken: T | None = done.value
                return taken
            self._engine.call(work)


class _WrongThreadError(RuntimeError):
    """Two threads at once."""
