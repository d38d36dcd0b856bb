"""A real producer in a simulation: its sends, its batches, its retries and its patience.

Around the whole ``Producer`` is only a user, who sends, sometimes flushes, and writes down what
became of each record. The engine's thread is the one thing replaced: what it would run runs on the
virtual loop, in the producer's process.

Rule: the user believes nothing. Everything a future says is compared with what is in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, NamedTuple, Protocol

from shoal.client.cluster import Cluster
from shoal.client.config import ProducerConfig
from shoal.client.engine import Engine
from shoal.client.leases import Pieces
from shoal.client.producer import Producer
from shoal.client.producer_batch import SendFuture, in_pairs
from shoal.client.transactions import Transactions
from shoal.errors import ShoalError
from shoal.records.batch import encode_batch
from shoal.records.encoding import GroupBatch
from shoal.testing.simulation.client_process import ClientProcess, Surroundings
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.producer_invariants import Deliveries, Promise, value_of
from shoal.testing.simulation.producer_swarm import SimulatedProducerSettings
from shoal.testing.simulation.simulated_cluster import EPOCH_MS
from shoal.testing.simulation.simulated_wire import HOST, SENDING_PORT
from shoal.testing.simulation.virtual_loop import VirtualLoop
from shoal.types import TopicPartition

_SLACK_MS: Final = 2_000
"""Beside its own timeouts: the sender looks at old batches once a second."""
_UNSETTLED_MAX: Final = 400
_RECORDS_AT_ONCE: Final = 6
_GOODBYES: Final = 5


class ProducerWorld(Surroundings, Protocol):
    """What a producer needs of the world around it."""

    @property
    def loop(self) -> VirtualLoop: ...
    @property
    def random(self) -> Random: ...
    @property
    def deliveries(self) -> Deliveries: ...
    @property
    def topic_names(self) -> list[str]: ...
    def note(self, who: str, what: str, /) -> None: ...
    def fail(self, failure: BaseException) -> None: ...


class _VirtualEngine(Engine):
    """No thread: whoever calls is on the loop already."""

    def __init__(self, process: ClientProcess, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._process = process
        self._stopped = False

    @property
    def is_running(self) -> bool:
        return not self._stopped

    @property
    def is_here(self) -> bool:
        return True

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run what does not wait; a user in the simulation awaits the rest."""
        try:
            coroutine.send(None)
        except StopIteration as finished:
            return finished.value
        raise AssertionError(f"{coroutine} waits, and there is nobody to wait")

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.loop.call_soon(function, *arguments, context=self._process.context)

    def stop(self) -> None:
        self._stopped = True


class OlderCluster(Cluster):
    """As a client sees it that adds partitions to transactions by requests of their own."""

    def feature_level(self, name: str) -> int:
        return min(super().feature_level(name), 1)


class VirtualProducer(Producer):
    """The producer itself, on the virtual loop."""

    def __init__(
        self, config: ProducerConfig, process: ClientProcess, *, flow: int | None = None
    ) -> None:
        """``flow``: the ``transaction.version`` it speaks at most, as an older client would."""
        self._process = process
        self._flow = flow
        super().__init__(config)

    def _new_engine(self) -> Engine:
        return _VirtualEngine(self._process, asyncio.get_running_loop())

    async def _start(self) -> None:
        await super()._start()
        if self._flow == 1:
            self._cluster.__class__ = OlderCluster

    def _run_callbacks(self, callbacks: list[Any]) -> None:
        for future, function in in_pairs(callbacks):
            function(future)

    async def know(self, topic: str, partitions: int = 1) -> None:
        """What ``send`` would wait for: that there are so many."""
        for anew in (False, True):
            if self._partition_counts.get(topic, 0) < partitions:
                self._partition_counts[topic] = await self._look_up(topic, anew=anew)

    async def know_all(self, topics: dict[str, int]) -> None:
        """Those of several topics at once: a refresh may let go of one that nobody writes to."""
        while any(self._partition_counts.get(name, 0) < n for name, n in topics.items()):
            for topic, count in topics.items():
                await self.know(topic, count)

    def forget(self, topic: str) -> None:
        self._partition_counts.pop(topic, None)

    async def flush_here(self) -> None:
        self._accumulator.hurry()
        try:
            while not self._accumulator.is_empty:  # noqa: ASYNC110  (threads wait for it, not tasks)
                await asyncio.sleep(0.02)
        finally:
            self._accumulator.calm_down()

    @property
    def transactions_here(self) -> Transactions:
        """The calls of a transaction, to be awaited: ``init``, ``begin``, ``commit``, ``abort``."""
        assert self._transactions is not None
        return self._transactions

    async def close_here(self) -> None:
        if self._transactions is not None:
            await self._close_transactions(1.0)
        await self._stop()
        self._engine.stop()


class _Send(NamedTuple):
    """One future, which speaks of some ``records`` from ``number`` on."""

    number: int
    records: int
    tp: TopicPartition
    at_ms: int
    paused_ms: int
    future: SendFuture


class SimulatedProducer:
    """One process with one real producer in it, and its user."""

    def __init__(
        self, world: ProducerWorld, name: str, settings: SimulatedProducerSettings
    ) -> None:
        self.name = name
        self.settings = settings
        self.process = ClientProcess(world, name)
        self.unsettled: dict[int, _Send] = {}
        self.is_closing = False
        self._world = world
        self._clock = world.clock
        self._random = world.random
        self._producer: VirtualProducer | None = None
        config = self._config()
        promise = Promise(config.is_idempotent, has_acks=config.required_acks != 0)
        world.deliveries.started(name, promise)
        self._life = world.loop.create_task(self._live(config), context=self.process.context)
        self._life.add_done_callback(self._ended)

    def _config(self) -> ProducerConfig:
        settings = self.settings
        return ProducerConfig(
            bootstrap_servers=f"{HOST}:{SENDING_PORT}",
            client_id=self.name,
            acks=settings.acks,
            enable_idempotence=None,
            max_in_flight_requests_per_connection=settings.max_in_flight,
            linger_ms=settings.linger_ms,
            batch_size=settings.batch_size,
            request_timeout_ms=settings.request_timeout_ms,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            retries=settings.retries,
            compression_type=settings.compression,
            max_block_ms=2_000,
            metadata_max_age_ms=5_000,
        )

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive and not self.is_closing

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._world.fail(task.exception() or AssertionError())

    # --- the user ------------------------------------------------------------------------------

    async def _live(self, config: ProducerConfig) -> None:
        await asyncio.sleep(self._random.randrange(100) / 1000)
        producer = self._producer = VirtualProducer(config, self.process)
        while self.is_alive and not self._world.is_over:
            topics = self._world.topic_names
            if topics and len(self.unsettled) < _UNSETTLED_MAX:
                await self._send_some(producer, self._random.choice(topics))
            if self._random.random() < 0.05:
                await producer.flush_here()
            wait_ms = 1 + int(self._random.random() * self.settings.send_interval_ms)
            await asyncio.sleep(wait_ms / 1000)

    async def _send_some(self, producer: VirtualProducer, topic: str) -> None:
        try:
            await producer.know(topic)
        except ShoalError:
            return  # it was deleted, or nobody can be asked
        if self._random.random() < self.settings.prebuilt_share:
            self._send_prebuilt(producer, topic)
            return
        # Half of all users keep to one partition for a while, so that batches of it queue up.
        count = producer._partition_counts[topic]
        partition = self._random.randrange(count) if self._random.random() < 0.5 else None
        for _ in range(1 + self._random.randrange(_RECORDS_AT_ONCE)):
            key = None if self._random.random() < 0.5 else str(self._random.randrange(8))
            self._send(producer, topic, key, partition)

    def _send(
        self, producer: VirtualProducer, topic: str, key: str | None, partition: int | None = None
    ) -> SendFuture:
        deliveries = self._world.deliveries
        number = deliveries.next_number(self.name)
        future = producer.send(
            topic,
            value_of(self.name, number),
            key=key,
            partition=partition,
            timestamp_ms=EPOCH_MS + self._clock.now_ms,
        )
        self._sent(future, number, 1)
        return future

    def _send_prebuilt(self, producer: VirtualProducer, topic: str) -> None:
        number = self._world.deliveries.next_number(self.name)
        count = 1 + self._random.randrange(_RECORDS_AT_ONCE)
        now_ms = EPOCH_MS + self._clock.now_ms
        records = [(None, value_of(self.name, number + n), (), now_ms) for n in range(count)]
        tp = TopicPartition(topic, self._random.randrange(producer._partition_counts[topic]))
        encoded = encode_batch(records)
        pieces = Pieces(producer._buffers)
        memory = pieces.take(len(encoded))
        memory[:] = encoded
        batch = GroupBatch(0, count, now_ms, memory)
        self._sent(producer._send_batch(tp, batch, pieces.hold()), number, count)
        pieces.done()

    def _sent(self, future: SendFuture, number: int, count: int) -> None:
        tp = future._batch.tp
        for _ in range(count):
            self._world.deliveries.sent(self.name, tp)
        self.unsettled[number] = _Send(
            number, count, tp, self._clock.now_ms, self.process.paused_ms, future
        )
        future.add_done_callback(lambda _: self._settle(number))

    # --- what became of them -------------------------------------------------------------------

    def _settle(self, number: int) -> None:
        """The fate of a send is known."""
        send = self.unsettled.pop(number)
        deliveries = self._world.deliveries
        error = send.future.exception(0)
        try:
            if error is not None:
                demand(isinstance(error, ShoalError), "C10", f"{self.name} was told {error!r}")
                self._world.note(self.name, f"{number} failed: {type(error).__name__}")
                deliveries.was_failed(send.records)
                return
            offset = send.future.result(0).offset
            self._world.note(self.name, f"{number} is at {offset} of {send.tp}")
            for n in range(send.records):
                at = None if offset is None else offset + n
                deliveries.was_acknowledged(self.name, send.tp, send.number + n, at)
        except AssertionError as failure:
            self._world.fail(failure)  # in the middle of the client, where it might be caught
            raise

    def check_patience(self) -> None:
        """A record's fate is known in time, whatever happens; only a paused process may be late."""
        if not self.unsettled or not self.process.is_alive or self.process.is_paused:
            return
        oldest = next(iter(self.unsettled.values()))
        paused_ms = self.process.paused_ms - oldest.paused_ms
        waited_ms = self._clock.now_ms - oldest.at_ms - paused_ms
        settings = self.settings
        limit_ms = settings.delivery_timeout_ms + settings.request_timeout_ms + _SLACK_MS
        what = f"{self.name}'s record {oldest.number} for {oldest.tp}"
        demand(waited_ms <= limit_ms, "C10", f"{what} is undecided after {waited_ms} ms")

    # --- the end -------------------------------------------------------------------------------

    def say_goodbye(self, topics: dict[str, int]) -> asyncio.Task[None]:
        """After the last fault: everything is flushed, a last record goes everywhere."""
        work = self._say_goodbye(topics)
        task = self._world.loop.create_task(work, context=self.process.context)
        task.add_done_callback(self._ended)
        return task

    async def _say_goodbye(self, topics: dict[str, int]) -> None:
        producer = self._producer
        assert producer is not None
        await producer.flush_here()
        demand(not self.unsettled, "C10", f"{self.name} has flushed, and not everything is known")
        left = [TopicPartition(name, n) for name, count in topics.items() for n in range(count)]
        for topic in topics:
            producer.forget(topic)
        error: Exception | None = None
        # Who is in a great hurry may need more than one attempt to be heard at all.
        for _ in range(_GOODBYES):
            await producer.know_all(topics)
            futures = {tp: self._send(producer, tp.topic, None, tp.partition) for tp in left}
            await producer.flush_here()
            left = [tp for tp, each in futures.items() if each.exception(0) is not None]
            error = futures[left[0]].exception(0) if left else None
        demand(not left, "C10", f"{self.name} cannot send to {left} in a calm world: {error!r}")
        await self.close()

    async def close(self) -> None:
        """In order: what is unsent then fails, and nothing is left undecided."""
        if self.is_closing or self._producer is None:
            return
        self.is_closing = True
        await self._producer.close_here()
        demand(not self.unsettled, "C10", f"{self.name} was closed, and not everything is known")
        self.process.die()

    def leave(self) -> None:
        task = self._world.loop.create_task(self.close(), context=self.process.context)
        task.add_done_callback(self._ended)
