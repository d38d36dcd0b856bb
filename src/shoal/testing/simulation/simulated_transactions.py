"""Users of transactions in a simulation: who writes, who copies, who reads what is committed.

Around the whole ``Producer`` and the whole consumer is only a user, who begins, sends, commits or
aborts as Kafka's documentation says, and writes down what it was told.

Rule: the user believes nothing. What is read and what is told is compared with what stands in the
logs (``transaction_invariants.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Final, Protocol

from shoal.client.config import ConsumerConfig, ProducerConfig
from shoal.client.consumer_core import ConsumerCore
from shoal.errors import (
    ConnectionFailedError,
    ProducerFencedError,
    RequestTimeoutError,
    ShoalError,
    TransactionAbortableError,
    TransactionFatalError,
)
from shoal.testing.simulation.client_process import ClientProcess, Surroundings
from shoal.testing.simulation.compaction_invariants import key_of
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.simulated_cluster import EPOCH_MS
from shoal.testing.simulation.simulated_producer import VirtualProducer
from shoal.testing.simulation.simulated_wire import HOST, SENDING_PORT
from shoal.testing.simulation.transaction_invariants import (
    History,
    Transaction,
    TransactionWatcher,
)
from shoal.testing.simulation.transaction_swarm import INPUT, OUTPUT, TransactionalSettings
from shoal.testing.simulation.virtual_loop import VirtualLoop
from shoal.types import OffsetAndMetadata, Record, TopicPartition

GROUP: Final = "copiers"
_MAX_BLOCK_MS: Final = 3_000
_SLACK_MS: Final = 1_500
_POLL_S: Final = 0.2
_RECORDS_MAX: Final = 20
_CLOSE_S: Final = 1.0


class TransactionalWorld(Surroundings, Protocol):
    """What users need of the world around them."""

    @property
    def loop(self) -> VirtualLoop: ...
    @property
    def random(self) -> Random: ...
    @property
    def history(self) -> History: ...
    @property
    def watcher(self) -> TransactionWatcher: ...
    @property
    def partition_counts(self) -> dict[str, int]:
        """Of the topics that are written to."""
        ...

    @property
    def compacted(self) -> tuple[str, ...]:
        """Topics whose records have keys, and are compacted."""
        ...

    @property
    def is_final(self) -> bool:
        """The faults are over, and everything left is to be done."""
        ...

    def note(self, who: str, what: str, /) -> None: ...
    def fail(self, failure: BaseException) -> None: ...
    def was_fenced(self) -> None: ...


class _User:
    """One process, whose user lives until the world is over."""

    def __init__(self, world: TransactionalWorld, name: str) -> None:
        self.name = name
        self.process = ClientProcess(world, name)
        self.is_done = False
        """Whether its life has come to an end by itself."""
        self._world = world
        self._clock = world.clock
        self._random = world.random
        self._life = world.loop.create_task(self._guarded(), context=self.process.context)
        self._life.add_done_callback(self._ended)

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive and not self.is_done

    async def _guarded(self) -> None:
        await asyncio.sleep(self._random.randrange(100) / 1000)
        await self._live()
        self.is_done = True

    async def _live(self) -> None:
        raise NotImplementedError

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._world.fail(task.exception() or AssertionError())

    async def _rest(self, most_ms: int) -> None:
        await asyncio.sleep((1 + int(self._random.random() * most_ms)) / 1000)


class TransactionalUser(_User):
    """Somebody with a transactional id."""

    def __init__(
        self, world: TransactionalWorld, name: str, settings: TransactionalSettings
    ) -> None:
        self.settings = settings
        self.dawdles_ms = 0
        """How long the next transaction is left open, beyond its time."""
        self.flow = settings.flow or world.random.choice((1, 2))
        self.is_initialized = False
        self._opened: VirtualProducer | None = None
        super().__init__(world, name)

    @property
    def transactional_id(self) -> str:
        return self.settings.transactional_id

    @property
    def _producer(self) -> VirtualProducer:
        assert self._opened is not None
        return self._opened

    async def _open(self) -> bool:
        """A producer that may begin; False if somebody else has its id."""
        settings = self.settings
        config = ProducerConfig(
            bootstrap_servers=f"{HOST}:{SENDING_PORT}",
            client_id=self.name,
            transactional_id=settings.transactional_id,
            transaction_timeout_ms=settings.timeout_ms,
            request_timeout_ms=settings.request_timeout_ms,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            max_in_flight_requests_per_connection=settings.max_in_flight,
            batch_size=settings.batch_size,
            linger_ms=0,
            max_block_ms=_MAX_BLOCK_MS,
            metadata_max_age_ms=5_000,
        )
        self._opened = VirtualProducer(config, self.process, flow=self.flow)
        while True:
            try:
                await self._in_time(self._producer.transactions_here.init())
            except (RequestTimeoutError, ConnectionFailedError):
                await self._rest(100)
                continue
            except TransactionFatalError as error:
                self._fatal(error)
                return False
            self._world.note(self.name, "has its id")
            self.is_initialized = True
            return True

    async def _in_time(self, call: Coroutine[Any, Any, None]) -> None:
        """T12: a call ends within ``max_block_ms``, if its process does not stand still."""
        began_ms, paused_ms = self._clock.now_ms, self.process.paused_ms
        try:
            await call
        finally:
            if self.process.is_alive:
                paused_ms = self.process.paused_ms - paused_ms
                taken_ms = self._clock.now_ms - began_ms - paused_ms
                is_in_time = taken_ms <= _MAX_BLOCK_MS + _SLACK_MS
                demand(is_in_time, "T12", f"{self.name} waited for {call} {taken_ms} ms")

    def _fatal(self, error: Exception) -> None:
        self._world.note(self.name, f"ends: {type(error).__name__}")
        if isinstance(error, ProducerFencedError):
            self._world.was_fenced()

    async def _begin(self) -> Transaction | None:
        """``None``: it was fenced when it asked for its next epoch, after its last commit."""
        calls = self._producer.transactions_here
        try:
            await calls.begin()
        except TransactionFatalError as error:
            self._fatal(error)
            return None
        flow = 2 if calls.core.is_v2 else 1
        demand(flow == self.flow, "T7", f"{self.name} begins in flow {flow}")
        return self._world.history.begin(self.name, flow)

    async def _know(self) -> bool:
        try:
            await self._producer.know_all(self._world.partition_counts)
        except ShoalError:
            return False  # nobody can be asked
        return True

    async def _send(self, transaction: Transaction, tp: TopicPartition, source: str = "") -> bool:
        """False: a refresh has let go of the topic, and nobody can be asked."""
        try:
            await self._producer.know(tp.topic, tp.partition + 1)
        except ShoalError:
            return False
        value = self._world.history.sends(transaction, tp, source)
        now_ms = EPOCH_MS + self._clock.now_ms
        with suppress(TransactionAbortableError, TransactionFatalError, RequestTimeoutError):
            # What is refused here is not in the log, and then nothing is committed.
            key = key_of(value) if tp.topic in self._world.compacted else None
            self._producer.send(tp.topic, value, key, partition=tp.partition, timestamp_ms=now_ms)
        return True

    async def _dawdle(self) -> None:
        dawdles_ms, self.dawdles_ms = self.dawdles_ms, 0
        if dawdles_ms:
            await asyncio.sleep((self.settings.timeout_ms + dawdles_ms) / 1000)

    async def _end(self, transaction: Transaction, *, commit: bool) -> bool | None:
        """Whether it is committed, as this user was told; ``None`` if the producer is at its end.

        A commit that failed is aborted; one of which nothing is known is asked for again.
        """
        calls, history = self._producer.transactions_here, self._world.history
        transaction.asked |= commit
        while True:
            try:
                await self._in_time(calls.commit() if commit else calls.abort())
            except (RequestTimeoutError, ConnectionFailedError):
                await self._rest(100)
                continue
            except TransactionAbortableError:
                commit = False
                continue
            except TransactionFatalError as error:
                self._fatal(error)
                return None
            try:
                history.told(transaction, committed=commit)
            except AssertionError as failure:
                self._world.fail(failure)
                raise
            self._world.note(self.name, f"{transaction.name} {'commits' if commit else 'aborts'}")
            return commit

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close_here()
        self.process.die()


class Writer(TransactionalUser):
    """Sends some records here and there, and commits them, or thinks better of it."""

    has_said_goodbye = False

    async def _live(self) -> None:
        if not await self._open():
            return
        settings, counts = self.settings, self._world.partition_counts
        while not self._world.is_over:
            if not await self._know():
                continue
            transaction = await self._begin()
            if transaction is None:
                break
            for _ in range(1 + self._random.randrange(settings.records_max)):
                topic = self._random.choice(
                    [n for n in self._world.partition_counts if n != OUTPUT]
                )
                number = self._random.randrange(counts[topic])
                await self._send(transaction, TopicPartition(topic, number))
                if self._random.random() < 0.3:
                    await self._rest(30)
            if self._random.random() < 0.2:
                await self._producer.flush_here()
            await self._dawdle()
            commit = self._random.random() < settings.commit_share
            if await self._end(transaction, commit=commit) is None:
                break
            await self._rest(settings.rest_ms)
        await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        """After the last fault one transaction goes everywhere."""
        if not self._world.is_final:
            return
        while not await self._know():
            continue
        transaction = await self._begin()
        if transaction is None:
            return
        for topic, count in self._world.partition_counts.items():
            if topic != OUTPUT:
                for number in range(count):
                    await self._send(transaction, TopicPartition(topic, number))
        # In a slow world it may take longer than it has time: then somebody else tries.
        self.has_said_goodbye = bool(await self._end(transaction, commit=True))
        await self.close()


class _Consumer:
    """A real consumer of committed records, and how far its user has come."""

    def __init__(self, world: TransactionalWorld, name: str, group_id: str | None) -> None:
        self._world = world
        self.core = ConsumerCore(
            ConsumerConfig(
                bootstrap_servers=f"{HOST}:{SENDING_PORT}",
                client_id=name,
                group_id=group_id,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=6_000,
                heartbeat_interval_ms=500,
                request_timeout_ms=3_000,
                fetch_max_wait_ms=200,
                metadata_max_age_ms=5_000,
            )
        )

    async def poll(self) -> list[Record[Any, Any]]:
        try:
            await self.core.prepare(_POLL_S)
            return self.core.reader.take(_RECORDS_MAX)
        except ShoalError:
            await self._skip_holes()
            return []

    async def _skip_holes(self) -> None:
        """What a power cut took and nobody was promised cannot be read: a user goes on behind."""
        for tp in self.core.positions.partitions():
            position = self.core.positions[tp].position
            behind = None if position is None else self._world.watcher.hole_at(tp, position)
            if behind is not None:
                await self.core.seek(tp, behind, None)


class Copier(TransactionalUser):
    """Copies what is committed in one topic to another, and its offsets in the same transaction."""

    async def _live(self) -> None:
        if not await self._open():
            return
        consumer = _Consumer(self._world, self.name, GROUP)
        await consumer.core.subscribe([INPUT], None)
        while not self._world.is_over or self._world.is_final:
            if not await self._know():
                continue
            records = await consumer.poll()
            if records and not await self._copy(consumer.core, records):
                break
            await self._rest(self.settings.rest_ms)
        await consumer.core.close(_CLOSE_S)
        await self.close()

    async def _copy(self, core: ConsumerCore, records: list[Record[Any, Any]]) -> bool:
        transaction = await self._begin()
        if transaction is None:
            return False
        group = core.group_metadata()
        first: dict[TopicPartition, int] = {}
        behind: dict[TopicPartition, OffsetAndMetadata] = {}
        is_whole = True
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            first.setdefault(tp, record.offset)
            behind[tp] = OffsetAndMetadata(record.offset + 1, transaction.name)
            number = self._random.randrange(self._world.partition_counts[OUTPUT])
            copy = TopicPartition(OUTPUT, number)
            is_whole &= await self._send(transaction, copy, f"{tp}@{record.offset}")
        transaction.offsets = {tp: each.offset for tp, each in behind.items()}
        commit = self._random.random() < self.settings.commit_share or self._world.is_final
        commit &= is_whole
        try:
            await self._in_time(self._producer.transactions_here.send_offsets(behind, group))
        except (TransactionAbortableError, RequestTimeoutError, ConnectionFailedError):
            commit = False
        except TransactionFatalError as error:
            self._fatal(error)
            return False
        await self._dawdle()
        is_committed = await self._end(transaction, commit=commit)
        if is_committed is False:
            for tp, offset in first.items():
                if tp in core.positions.partitions():
                    await core.seek(tp, offset, None)
        return is_committed is not None


class CommittedReader(_User):
    """Reads everything that is committed, from any offset on, and compares."""

    def __init__(self, world: TransactionalWorld, name: str, *, from_start: bool) -> None:
        self._from_start = from_start
        self.positions: dict[TopicPartition, int] = {}
        self.count = 0
        super().__init__(world, name)

    async def _live(self) -> None:
        world = self._world
        consumer = _Consumer(world, self.name, None)
        tps = [
            TopicPartition(name, number)
            for name, count in world.partition_counts.items()
            for number in range(count)
        ]
        await consumer.core.assign(tps)
        for tp in tps:
            stable = world.watcher.readable(tp).lso
            start = 0 if self._from_start else self._random.randrange(stable + 1)
            self.positions[tp] = start
            await consumer.core.seek(tp, start, None)
        while True:
            for record in await consumer.poll():
                tp = TopicPartition(record.topic, record.partition)
                world.watcher.read(tp, self.positions[tp], record.offset, record.value)
                self.positions[tp] = record.offset + 1
                self.count += 1
            await self._rest(100)
