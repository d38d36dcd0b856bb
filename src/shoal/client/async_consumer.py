"""``AsyncConsumer``: the public, awaitable face of consuming.

Rule: the same methods as ``consumer.py``, awaited instead of blocking. Nothing is decided here;
callbacks may be plain functions or coroutine functions and run on the caller's loop.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from shoal.client.arguments import checks_arguments, each_partition
from shoal.client.async_processing import AsyncProcessing
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
from shoal.client.processing import Handler
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
class AsyncConsumer:
    """``Consumer`` for asyncio::

        async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="billing") as c:
            await c.subscribe(["orders"])
            async for record in c:
                ...

    It may be made before the loop runs. Settings, timeouts and errors are those of ``Consumer``.
    One task at a time; cancelling an awaited call is safe.
    """

    def __init__(
        self, config: ConsumerConfig | None = None, **settings: Unpack[ConsumerSettings]
    ) -> None:
        self.config = config_of("AsyncConsumer", ConsumerConfig, config, settings)
        self._user: asyncio.Task[Any] | None = None
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

    async def subscribe(
        self,
        topics: Collection[str] | re.Pattern[str] | str | None = None,
        listener: RebalanceListener | Any | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Join the group for these topics; see ``Consumer.subscribe``."""
        wish = wish_of(topics, pattern)
        if not wish:
            await self.unsubscribe()
        else:
            await self._call(self._session.subscribe(wish, listener))

    async def unsubscribe(self) -> None:
        """Leave the group, or drop the assigned partitions."""
        await self._call(self._session.unsubscribe())

    async def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's say."""
        await self._call(self._session.assign(list(partitions)))

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now."""
        return self._session.positions.partitions()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to: those listed, or those matching the pattern."""
        return self._session.subscription()

    async def enforce_rebalance(self, reason: str = "") -> None:
        """Make the next ``poll`` rejoin the group."""
        await self._call(self._session.enforce_rebalance(reason))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group."""
        return self._session.group_metadata()

    # --- reading ---

    async def poll(
        self, timeout: float = 0.0, *, max_records: int | None = None
    ) -> Records[Any, Any]:
        """Records, as soon as there are some; none if none came within ``timeout`` seconds."""
        limit = most(max_records, self.config.max_poll_records)
        with self._using():
            taken = await self._drive(
                poll_steps(self._session, timeout, lambda: take_records(self._session, limit))
            )
            return polled(self.config.interceptors, taken)

    async def poll_arrow(
        self, timeout: float = 0.0, *, max_records: int | None = None
    ) -> pa.RecordBatch:
        """As ``poll``, as Arrow columns; see ``Consumer.poll_arrow``."""
        need_arrow()
        limit = most(max_records, self.config.max_poll_arrow_records)
        with self._using():
            taken = await self._drive(
                poll_steps(self._session, timeout, lambda: self._session.reader.take_arrow(limit))
            )
        return empty_arrow() if taken is None else taken

    async def __aiter__(self) -> AsyncIterator[Record[Any, Any]]:
        """Records, one by one, forever; ends when the consumer is closed.

        Each counts as read when it is handed out; see ``Consumer.__iter__``.
        """
        session, interceptors = self._session, self.config.interceptors
        while self._engine.is_running:
            hand = await self._hand()
            while hand:  # any other call on this consumer takes the rest back
                if interceptors:
                    for record in intercepted(interceptors, [hand.pop()]):
                        yield record
                else:
                    yield hand.pop()
                if session.is_due:
                    break
        self._engine.need_own_process()

    async def process(
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
        rebalance records may come again, none is skipped. Cancelled, handlers are
        cancelled too, and what is done is committed.

        Args:
            handler: a coroutine function, called with one record, in a task of its own; if it
                raises, that failed.
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
        processing = AsyncProcessing(self, handler, options)
        await self._call(self._session.start_processing(processing))
        try:
            await processing.run()
        finally:
            await self._call(self._session.end_processing())

    async def _poll_raw(self, timeout: float, limit: int) -> list[Record[Any, Any]]:
        session = self._session
        with self._using():
            taken = await self._drive(
                poll_steps(session, timeout, lambda: session.reader.take(limit) if limit else None)
            )
        return intercepted(self.config.interceptors, taken or [])

    def wakeup(self) -> None:
        """From any thread: the call under way, or the next one, raises ``WakeupError``.

        Of a callback that is in a call itself, that call raises; ``close`` is never woken.
        """
        self._session.wakeups.ring()

    # --- positions ---

    async def seek(
        self,
        partition: TopicPartition,
        offset: int | OffsetAndMetadata,
        *,
        leader_epoch: int | None = None,
    ) -> None:
        """Read on from ``offset``, or from what was committed (``committed`` returns such)."""
        await self._call(self._session.seek(partition, offset, leader_epoch))

    async def seek_to_beginning(
        self, *partitions: TopicPartition | Collection[TopicPartition]
    ) -> None:
        """Read on from the beginning of these partitions, or of all."""
        await self._call(self._session.seek_to_end(each_partition(partitions), beginning=True))

    async def seek_to_end(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Read on from the end of these partitions, or of all."""
        await self._call(self._session.seek_to_end(each_partition(partitions), beginning=False))

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record ``poll`` returns."""
        return await self._blocking(self._session.position(partition, timeout))

    async def pause(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Return no records of these partitions until ``resume``."""
        await self._call(self._session.pause(each_partition(partitions), paused=True))

    async def resume(self, *partitions: TopicPartition | Collection[TopicPartition]) -> None:
        """Undo ``pause``."""
        await self._call(self._session.pause(each_partition(partitions), paused=False))

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(state.tp for state in self._session.positions if state.is_paused)

    async def lag(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """How many offsets the end of the log is ahead of the position."""
        return await self._blocking(self._session.lag(partition, timeout))

    # --- commits ---

    async def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Commit all positions, or given offsets, and wait; see ``Consumer.commit_sync``."""
        await self._blocking(self._session.commit_sync(offsets, timeout))

    async def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit without waiting and without retries; see ``Consumer.commit_async``."""
        await self._call(self._session.commit_async(offsets, callback))

    async def committed(
        self,
        *partitions: TopicPartition | Collection[TopicPartition],
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these partitions; ``None`` where nothing."""
        return await self._blocking(self._session.committed(each_partition(partitions), timeout))

    # --- questions to the cluster ---

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the first record at or after a time; ``None`` if there is none."""
        return await self._blocking(self._session.queries.offsets_for_times(times_ms, timeout))

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._blocking(self._session.queries.ends(partitions, timeout, beginning=True))

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        return await self._blocking(
            self._session.queries.ends(partitions, timeout, beginning=False)
        )

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic: leader, replicas, in sync, offline."""
        return await self._blocking(self._session.queries.partitions_for(topic, timeout))

    async def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """Every topic of the cluster with its partitions."""
        return await self._blocking(self._session.queries.list_topics(timeout))

    # --- metrics ---

    def metrics(self) -> ClientMetrics:
        """What this consumer has counted; see ``Consumer.metrics``."""
        return self._session.metrics()

    # --- the end ---

    async def close(self, timeout: float = 30.0) -> None:
        """Commit (if automatic), call the listener, leave the group, stop. May be repeated."""
        if not self._engine.is_running:
            return
        with self._using():
            if self._session.is_closing:
                return  # a callback of the very close that is under way
            try:
                await self._engine.call_async(self._session.close(timeout))
            finally:
                self._engine.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- how calls are made ---

    @property
    def _session(self) -> ConsumerCore:
        """Of this process only: after a fork it is the parent's, and so is all that is buffered."""
        self._engine.need_own_process()
        return self._own_session

    @contextmanager
    def _using(self) -> Iterator[None]:
        """One task at a time; callbacks of a call under way may call again."""
        here, before = asyncio.current_task(), self._user
        if before is not None and before is not here:
            raise _WrongTaskError("an AsyncConsumer is for one task at a time, save wakeup()")
        self._user = here
        self._session.reader.settle()
        try:
            yield
        finally:
            self._user = before

    async def _hand(self) -> list[Record[Any, Any]]:
        session, limit = self._session, self.config.max_poll_records
        with self._using():
            hand = await self._drive(
                poll_steps(session, _ITERATION_TIMEOUT_S, lambda: session.reader.hand_out(limit))
            )
        return hand or []

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            with self._using():
                return await self._engine.call_async(work)
        except _WrongTaskError:
            work.close()
            raise

    async def _blocking(self, work: Coroutine[Any, Any, T]) -> T:
        call = self._session.wakeups.interruptible(work)
        try:
            return await self._call(call)
        except Exception:
            close_unstarted(call, work)
            raise
        except BaseException:
            # Cancelled: see Consumer._blocking.
            self._engine.post(self._engine.loop.call_soon, close_unstarted, call, work)
            raise

    async def _drive(self, steps: Steps[T]) -> T | None:
        # What is buffered is taken without waiting; the other tasks of the loop want to run too.
        # Before it is taken: whoever is cancelled here has lost no record.
        await asyncio.sleep(0)
        while True:
            try:
                work = next(steps)
            except StopIteration as done:
                taken: T | None = done.value
                return taken
            await self._engine.call_async(work)


class _WrongTaskError(RuntimeError):
    """Two tasks at once."""
