"""``AsyncProducer``: the public, awaitable face of sending.

Rule: what a record goes through is ``Producer.send``, to the letter; where that would block its
thread it stops here instead, the caller awaits what is missing, and the record is taken then. So
who is cancelled while waiting has sent nothing, and nothing is awaited once a record was taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar, Unpack

from shoal.client.arguments import checks_arguments
from shoal.client.config import ProducerConfig, config_of
from shoal.client.foreign_names import answers_foreign_names
from shoal.client.metrics import ClientMetrics
from shoal.client.producer import Headers, Producer, run_all, same_length
from shoal.client.producer_batch import SendFuture
from shoal.client.settings import ProducerSettings
from shoal.client.transactions import Offsets
from shoal.errors import PartlySentError, RequestTimeoutError
from shoal.types import ConsumerGroupMetadata, PartitionInfo, PreparedTransaction, RecordMetadata

T = TypeVar("T")
Taken = asyncio.Future[RecordMetadata]
_Given = tuple[str, Any, Any, int | None, int | None, Headers]
"""What ``send`` was called with."""

# Who sends in a loop and never has to wait leaves the event loop to others so often.
_BREATHE_EVERY: Final = 64


class _MustWaitError(Exception):
    """``send`` cannot go on in this thread before ``work`` was done on the engine."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        super().__init__(work)
        self.work = work


class _UnblockingProducer(Producer):
    """The producer itself; where it would block, it raises ``_MustWaitError``."""

    loop: asyncio.AbstractEventLoop | None = None
    """The caller's, where outcomes are told."""

    def _partition_count(self, topic: str) -> NoReturn:
        async def look_up() -> None:
            self._partition_counts[topic] = await self._look_up(topic)

        self._engine.need_own_process()
        raise _MustWaitError(look_up)

    def _need_partition(self, topic: str, partition: int) -> NoReturn:
        async def look_up() -> None:
            await self._look_up_partition(topic, partition)

        raise _MustWaitError(look_up)

    def _run_callbacks(self, callbacks: list[Any]) -> None:
        assert self.loop is not None, "who waits for a record runs on a loop"
        with suppress(RuntimeError):  # the loop ended without waiting for us; nobody listens
            self.loop.call_soon_threadsafe(run_all, callbacks)


class _Turn:
    """Who waits to send to one topic: a lock lets them in by the order of their calls."""

    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


@answers_foreign_names
@checks_arguments(leave={"send", "enqueue"})
class AsyncProducer:
    """``Producer`` for asyncio::

        async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
            stored = await producer.send("orders", key="eu-1", value=b"...")
            print(stored.offset)

    It may be made before the loop runs, and belongs to the loop it is first used in; any number of
    tasks may share it. Settings and errors are those of ``Producer``. Records of a topic are taken
    in the order of the calls.

    Every call may be cancelled. One that waits to send a record has then sent nothing; one that
    waits for a record to be stored leaves it on its way. Calls of a transaction go to their end
    first, for ``max_block_ms`` at most, so that its state is always known.
    """

    def __init__(
        self, config: ProducerConfig | None = None, **settings: Unpack[ProducerSettings]
    ) -> None:
        self.config = config_of("AsyncProducer", ProducerConfig, config, settings)
        self._producer = _UnblockingProducer(self.config)
        self._engine = self._producer._engine
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns: dict[str, _Turn] = {}
        """Of topics somebody waits to send to."""
        self._room = asyncio.Event()
        self._wants_room = False
        self._closing = asyncio.Lock()
        self._calls = 0

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """A producer from Kafka's dotted names, as in a properties file."""
        return cls(ProducerConfig.from_properties(properties))

    # --- sending ---

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send a record; returns when it is stored, and says where.

        Raises:
            RequestTimeoutError: there was no room for ``max_block_ms``, or it was not stored
                within ``delivery_timeout_ms``.
            ValueError: the partition does not exist, or the record is larger than
                ``max_request_size``.
            BrokerError: it was refused, or all retries failed.
        """
        record = topic, value, key, partition, timestamp_ms, headers
        taken = self._take_now(record)  # who waits for the outcome leaves the loop to others anyway
        return await (await self._take_later(record) if taken is None else taken)

    async def enqueue(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Put a record into the next batch; what is returned can be awaited until it is stored.

        Waits only while ``buffer_memory`` is full, or while nothing is known of the topic.
        Cancelled meanwhile, the record is not sent; once this has returned, it is.

        Raises:
            RequestTimeoutError: there was no room for ``max_block_ms``.
            ValueError: as ``send``.
        """
        record = topic, value, key, partition, timestamp_ms, headers
        self._calls += 1
        if self._calls % _BREATHE_EVERY:
            taken = self._take_now(record)
            if taken is not None:
                return taken
        return await self._take_later(record)

    async def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        *,
        partition: int | None = None,
    ) -> list[RecordMetadata]:
        """Send a record for each value, with the key at the same place; until all are stored.

        Raises:
            PartlySentError: some were not stored; it says which and why.
            Exception: as ``enqueue``; the note says which value was refused. Those before it
                are sent, and ``flush`` waits for them.
        """
        same_length(values, keys)
        taken: list[Taken] = []
        for number, value in enumerate(values):
            try:
                key = None if keys is None else keys[number]
                taken.append(await self.enqueue(topic, value, key, partition=partition))
            except Exception as error:
                error.add_note(f"values[{number}] was refused; those before it are sent")
                raise
        outcomes = await asyncio.gather(*taken, return_exceptions=True)
        if any(isinstance(one, BaseException) for one in outcomes):
            raise PartlySentError(outcomes)
        return [one for one in outcomes if not isinstance(one, BaseException)]

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything now; returns when all of it is stored or has failed.

        Raises:
            RequestTimeoutError: not within ``timeout`` seconds.
        """
        self._need_loop()
        with self._producer._tally.timing("flush"):
            await self._engine.call_async(self._producer._sender.flush(timeout))

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic: leader, replicas, in sync, offline."""
        await self._engine.call_async(self._producer._look_up(topic))
        return self._producer._cluster.metadata.partition_infos(topic)

    def metrics(self) -> ClientMetrics:
        """What this producer has counted; see ``Producer.metrics``."""
        return self._producer.metrics()

    # --- transactions ---

    async def init_transactions(self) -> None:
        """Take over the ``transactional_id``; see ``Producer.init_transactions``."""
        await self._whole(self._producer._need_transactions("init_transactions").init())

    async def begin_transaction(self) -> None:
        """Begin a transaction; cancelled, none is open. See ``Producer.begin_transaction``."""
        transactions = self._producer._need_transactions("begin_transaction")
        has_begun = False

        async def begin() -> None:
            nonlocal has_begun
            await transactions.begin()
            has_begun = True

        try:
            await self._whole(begin())
        except asyncio.CancelledError as error:
            if has_begun:
                await self._abort_after(error)
            raise

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group: ConsumerGroupMetadata
    ) -> None:
        """Commit a consumer's offsets with the transaction; see ``Producer``'s."""
        transactions = self._producer._need_transactions("send_offsets_to_transaction")
        await self._whole(transactions.send_offsets(offsets, group))

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Send what is unsent and wait for it; see ``Producer.prepare_transaction``."""
        return await self._whole(self._producer._need_transactions("prepare_transaction").prepare())

    async def commit_transaction(self) -> None:
        """Send what is unsent, wait for it, and commit; see ``Producer.commit_transaction``."""
        await self._whole(self._producer._need_transactions("commit_transaction").commit())

    async def abort_transaction(self) -> None:
        """Give the transaction up; see ``Producer.abort_transaction``."""
        await self._whole(self._producer._need_transactions("abort_transaction").abort())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction for the time of a block: committed at its end, aborted if it raises.

        Cancelled within the block it is aborted; cancelled while it commits, it is committed.
        After a ``RequestTimeoutError`` of the commit itself, call ``commit_transaction`` again.
        A block that has called ``abort_transaction`` or ``commit_transaction`` itself ends as it
        did.
        """
        await self.begin_transaction()
        try:
            yield self
            if not self._producer._need_transactions("commit_transaction").has_ended:
                await self.commit_transaction()
        except BaseException as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Abort, if there is something to abort; ``error`` is what is to be told."""
        transactions = self._producer._need_transactions("abort_transaction")
        if transactions.core.refusal("abort_transaction") is not None:
            return
        try:
            await self.abort_transaction()
        except Exception as failure:  # noqa: BLE001 - the first error is the one that matters
            error.add_note(f"the transaction was not aborted: {failure}")

    # --- the end ---

    async def close(self, timeout: float | None = 30.0) -> None:
        """Refuse to send more, flush for up to ``timeout`` seconds, then stop; may be repeated.

        What is unsent then fails. A transaction that is open is aborted, which is logged as a
        warning. Cancelled, it flushes no longer, but stops all the same.
        """
        async with self._closing:
            if not self._engine.is_running:
                return
            self._need_loop()
            try:
                await self._engine.call_async(self._producer._wind_up(timeout))
            finally:
                try:
                    await self._whole(self._producer._stop())
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

    def _need_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None:
            raise RuntimeError("an AsyncProducer is for the event loop it was first used in")
        self._loop = self._producer.loop = loop
        self._producer._accumulator.on_room = self._tell_of_room

    def _take_now(self, record: _Given) -> Taken | None:
        """Take a record unless that means to wait, for others of its topic too."""
        self._need_loop()
        topic = record[0]
        if not isinstance(topic, str):
            raise TypeError(f"send(): topic must be a string, not {type(topic).__name__}")
        if topic in self._turns or self._producer._accumulator.makes_wait:
            return None
        try:
            return self._take(record)
        except _MustWaitError:
            return None

    async def _take_later(self, record: _Given) -> Taken:
        topic = record[0]
        turn = self._turns.setdefault(topic, _Turn())
        turn.waiting += 1
        try:
            return await self._take_in_turn(record, turn.lock)
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[topic]

    def _take(self, record: _Given) -> Taken:
        topic, value, key, partition, timestamp_ms, headers = record
        assert self._loop is not None
        sent = self._producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        outcome: Taken = self._loop.create_future()

        def tell(sent: SendFuture) -> None:
            if outcome.done():  # cancelled: nobody wants to know
                return
            error = sent.exception(0)
            if error is None:
                outcome.set_result(sent.result(0))
            else:
                outcome.set_exception(error)

        sent.add_done_callback(tell)
        return outcome

    async def _take_in_turn(self, record: _Given, lock: asyncio.Lock) -> Taken:
        """Whoever called first goes first, among those who send to a topic."""
        topic = record[0]
        try:
            async with asyncio.timeout(self.config.max_block_ms / 1000), lock:
                await asyncio.sleep(0)
                while True:
                    await self._wait_for_room()
                    try:
                        return self._take(record)
                    except _MustWaitError as missing:
                        await self._engine.call_async(missing.work())
        except TimeoutError as error:
            if isinstance(error, RequestTimeoutError):
                raise
            if self._producer._accumulator.makes_wait:
                raise self._producer._accumulator.stayed_full() from None
            raise RequestTimeoutError(
                f"send(): the turn of this record for topic {topic!r} did not come within "
                "max_block_ms"
            ) from None

    async def _wait_for_room(self) -> None:
        accumulator = self._producer._accumulator
        while accumulator.makes_wait:
            self._room.clear()
            self._wants_room = True
            if accumulator.makes_wait:  # asked again: it may have come before we wanted it
                with accumulator.waiting():
                    await self._room.wait()

    def _tell_of_room(self) -> None:
        """On the engine."""
        if self._wants_room and self._loop is not None:
            self._wants_room = False
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._room.set)

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work`` to its end, also if the caller is cancelled meanwhile; that is told then."""
        self._need_loop()
        task = asyncio.create_task(self._engine.call_async(work))
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is None:
            return task.result()
        if (failure := task.exception()) is not None:
            cancelled.add_note(f"before that it failed: {failure}")
        raise cancelled
