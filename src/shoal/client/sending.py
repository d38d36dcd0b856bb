"""The sender: batches out of the accumulator, to the leaders, and what became of them.

Order and idempotence, per partition:

* An idempotent producer may have several batches of a partition under way. The broker refuses a
  batch whose predecessor is missing, so when one fails the partition *recovers*: nothing new goes
  out until all answers are in, then the failed ones go again in their old order, one at a time.
* Any other producer has one batch of a partition under way, so a retry cannot be overtaken.
* When the broker misses something of a partition's sequence (a batch that was given up, or it lost
  its memory), the partition goes on in the next producer epoch: only this one, the others stay.

Rule: what is sent and when is decided here; what order and numbers mean is in
``partition_queue.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from shoal.client.accumulator import Accumulator, Callback, ProducerBatch
from shoal.client.cluster import RETRIED, Cluster
from shoal.client.config import ProducerConfig
from shoal.client.connection import Connection, Versioned
from shoal.client.links import Lane
from shoal.client.partition_queue import PartitionQueue
from shoal.client.reactions import NOT_STORED, Reaction, reaction
from shoal.client.stamping import encode, stamp
from shoal.client.timing import Backoff, Deadline
from shoal.errors import (
    BrokerError,
    ConnectionFailedError,
    ErrorCode,
    InvalidFrameError,
    RequestTimeoutError,
    RetriableError,
    error_for,
)
from shoal.records.compression import Codec
from shoal.types import TopicPartition
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import ZERO_UUID

logger = logging.getLogger(__name__)

_FIRST_WITH_TOPIC_IDS: Final = 13
# A timer may fire a little early: a shorter pause could come back to nothing due, again and again.
_PAUSE_MIN_S: Final = 0.0001

TopicIds = dict[str, bytes | None]


class Sender:
    """Lives on the engine's loop; ``run`` is its only task, beside one per request."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        run_callbacks: Callable[[list[Callback]], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._run_callbacks = run_callbacks
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._in_flight: dict[int, int] = {}
        self._producer: tuple[int, int] | None = None
        self._identifying: asyncio.Task[None] | None = None
        self._awake = asyncio.Event()
        self._requests: set[asyncio.Task[None]] = set()
        self._per_partition = (
            config.max_in_flight_requests_per_connection if config.is_idempotent else 1
        )
        self._codec = Codec[config.compression_type.upper()]

    def wake(self) -> None:
        self._awake.set()

    def topics_under_way(self) -> set[str]:
        """Topics with batches that left the accumulator and are not settled."""
        return {
            tp.topic
            for tp, queue in self._queues.items()
            if queue.waiting or queue.in_flight or queue.failed
        }

    async def run(self) -> None:
        """Send what is due, for ever."""
        while True:
            self._awake.clear()
            self._collect()
            self._dispatch()
            await self._rest()

    async def close(self) -> None:
        if self._identifying is not None:
            self._requests.add(self._identifying)
        for task in list(self._requests):
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        self._accumulator.close()  # what came after the next lines would wait for ever
        closed = ConnectionFailedError("the producer was closed before the record was sent")
        for queue in self._queues.values():
            for batch in (*queue.in_flight, *queue.failed, *queue.waiting):
                self._settle(batch, closed)
        for batch in self._accumulator.drop_late(float("inf")):
            self._settle(batch, closed)

    # --- choosing ---

    def _queue(self, tp: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(tp)
        if queue is None:
            config = self._config
            backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
            queue = self._queues[tp] = PartitionQueue(backoff)
        return queue

    def _free(self, tp: TopicPartition) -> int:
        queue = self._queues.get(tp)
        if queue is None:
            return self._per_partition
        if queue.is_recovering:
            return 0
        return self._per_partition - len(queue.in_flight) - len(queue.waiting)

    def _collect(self) -> None:
        for queue in self._queues.values():
            if queue.is_recovering and not queue.in_flight:
                for batch in queue.recover():
                    self._settle(batch, _fate_unknown(batch))
        for batch in self._accumulator.ready(self._free):
            self._queue(batch.tp).waiting.append(batch)
        self._expire()

    def _expire(self) -> None:
        """Fail what is older than ``delivery_timeout_ms``."""
        now = asyncio.get_running_loop().time()
        before = now - self._config.delivery_timeout_ms / 1000
        late = self._accumulator.drop_late(before)
        for queue in self._queues.values():
            for batch in [one for one in queue.in_flight if one.created_at < before]:
                # A broker may take its time; its answer will be about nobody then.
                self._given_up(batch, self._too_late(batch))
            while queue.waiting and queue.waiting[0].created_at < before and not queue.in_flight:
                batch = queue.waiting.popleft()
                late.append(batch)
                if batch.attempts and self._config.is_idempotent:
                    # It may be in the log or not: one by one until that is clear.
                    queue.is_recovering = True
        for batch in late:
            self._settle(batch, self._too_late(batch))

    def _too_late(self, batch: ProducerBatch) -> RequestTimeoutError:
        return RequestTimeoutError(
            f"{batch.record_count} records for {batch.tp} could not be sent within "
            f"delivery_timeout_ms={self._config.delivery_timeout_ms}"
        )

    def _dispatch(self) -> None:
        """One request per leader, one batch per partition in it, as often as there is room."""
        while True:
            requests = self._choose()
            if not requests:
                return
            for node_id, batches in requests.items():
                self._send(node_id, batches)

    def _choose(self) -> dict[int, list[ProducerBatch]]:
        now = asyncio.get_running_loop().time()
        topics = self._cluster.metadata.topics
        chosen: dict[int, list[ProducerBatch]] = {}
        sizes: dict[int, int] = {}
        for tp, queue in self._queues.items():
            if not queue.waiting or queue.resume_at > now:
                continue
            if (topic := topics.get(tp.topic)) is not None:
                queue.goes_to(topic.topic_id)
            if queue.in_flight and (queue.is_recovering or not queue.is_known):
                continue
            node_id = self._leader(tp, queue)
            if node_id is None or not self._has_identity(queue):
                continue
            if self._in_flight.get(node_id, 0) >= self._limit:
                continue
            size = sizes.get(node_id, 0) + queue.waiting[0].size_bytes
            if size > self._config.max_request_size and node_id in chosen:
                continue
            sizes[node_id] = size
            chosen.setdefault(node_id, []).append(queue.waiting[0])
        return chosen

    @property
    def _limit(self) -> int:
        return self._config.max_in_flight_requests_per_connection

    def _leader(self, tp: TopicPartition, queue: PartitionQueue) -> int | None:
        try:
            return self._cluster.leader_id(tp)
        except RetriableError:
            self._cluster.watch_also(tp.topic)
            queue.resume_at = asyncio.get_running_loop().time() + queue.backoff.next_s()
            return None

    async def _rest(self) -> None:
        """Until woken, until a batch has lingered enough, or until a pause is over."""
        now = asyncio.get_running_loop().time()
        pauses = [
            q.resume_at - now for q in self._queues.values() if q.waiting and q.resume_at > now
        ]
        due_s = self._accumulator.next_due_s()
        if due_s is not None:
            pauses.append(max(due_s, _PAUSE_MIN_S))
        if not self._accumulator.is_empty:
            pauses.append(1.0)  # delivery_timeout_ms is looked after at least so often
        try:
            async with asyncio.timeout(min(pauses, default=None)):
                await self._awake.wait()
        except TimeoutError:
            return

    # --- sending ---

    def _send(self, node_id: int, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            # To the end of the line: a busy partition must not keep the others waiting.
            queue = self._queues[batch.tp] = self._queues.pop(batch.tp)
            queue.waiting.remove(batch)
            queue.number(batch)
            queue.in_flight.append(batch)
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        task = asyncio.get_running_loop().create_task(self._produce(node_id, batches))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    def _has_identity(self, queue: PartitionQueue) -> bool:
        """Whether its batches can be numbered; asks for a producer id if not."""
        if queue.producer is None and self._config.is_idempotent:
            if self._producer is not None and self._producer[0] == queue.spent_id:
                self._producer = None
            if self._producer is None and self._identifying is None:
                work = self._identify()
                self._identifying = asyncio.get_running_loop().create_task(work)
            queue.producer = self._producer
        return queue.producer is not None or not self._config.is_idempotent

    async def _identify(self) -> None:
        """Ask for the id that this producer's partitions share.

        Beside everything else: what waits for it must still be able to expire.
        """
        try:
            self._producer = await self._init_producer_id()
        except (*RETRIED, InvalidFrameError) as error:
            logger.warning("no producer id yet: %s", error)
        except BrokerError as error:
            for queue in self._queues.values():
                while queue.waiting and queue.producer is None:
                    self._settle(queue.waiting.popleft(), error)
        finally:
            self._identifying = None
            self.wake()

    async def _init_producer_id(self) -> tuple[int, int]:
        deadline = Deadline(self._config.request_timeout_ms / 1000)

        async def attempt() -> tuple[int, int]:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await self._cluster.ask(request, deadline=deadline)
            self._cluster.check("InitProducerId", answer.error_code)
            return answer.producer_id, answer.producer_epoch

        return await self._cluster.retrying(attempt, deadline)

    async def _produce(self, node_id: int, batches: list[ProducerBatch]) -> None:
        try:
            answer, ids = await self._ask(node_id, batches)
        except (*RETRIED, InvalidFrameError) as error:
            logger.warning("produce to broker %d failed: %s", node_id, error)
            self._cluster.mark_stale()
            for batch in _unsettled(batches):
                self._failed(batch, error)
        except Exception as error:
            # Refused before it was sent, or our own bug: whoever waits must not wait for ever.
            if not isinstance(error, BrokerError | ValueError):
                logger.exception("a batch could not be sent")
            for batch in _unsettled(batches):
                self._given_up(batch, error)
        else:
            self._handle(_unsettled(batches), answer, ids)
        finally:
            self._in_flight[node_id] -= 1
            self.wake()

    async def _ask(self, node_id: int, batches: list[ProducerBatch]) -> tuple[Any, TopicIds]:
        config = self._config
        data = [(batch, self._encoded(batch)) for batch in batches]
        connection = await self._connection(node_id, batches)
        data = [(batch, records) for batch, records in data if not batch.is_done]
        ids = self._topic_ids(batches)
        up_to = _FIRST_WITH_TOPIC_IDS - 1 if None in ids.values() else None
        request = Versioned(ApiKey.PRODUCE, lambda _: _request(config, data, ids), up_to=up_to)
        if config.required_acks == 0:
            connection.send_only(request)
            # Not settled before, or buffer_memory would bound nothing and close() cut it off.
            await connection.drain()
            return None, ids
        answer = connection.send(request)
        for batch in batches:
            batch.attempts += 1
            batch.copies += 1
        return await answer, ids

    async def _connection(self, node_id: int, batches: list[ProducerBatch]) -> Connection:
        """A way to the broker, as long as there is time: a batch that waits for one must expire."""
        link = self._cluster.link(node_id, Lane.MAIN)
        if link.current is not None:
            return link.current
        oldest = min(batch.created_at for batch in batches)
        age_s = asyncio.get_running_loop().time() - oldest
        left_s = max(self._config.delivery_timeout_ms / 1000 - age_s, 0.0)
        try:
            async with asyncio.timeout(min(left_s, self._config.request_timeout_ms / 1000)):
                return await link.connection()
        except TimeoutError:
            raise RequestTimeoutError(f"broker {node_id} cannot be reached in time") from None

    def _topic_ids(self, batches: list[ProducerBatch]) -> TopicIds:
        """Their topics' ids, as far as the broker told us.

        Raises:
            RetriableError: a topic was deleted while its batch was on its way here.
        """
        topics = self._cluster.metadata.topics
        for batch in batches:
            if batch.tp.topic not in topics:
                raise RetriableError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(batch.tp))
        return {batch.tp.topic: topics[batch.tp.topic].topic_id for batch in batches}

    def _encoded(self, batch: ProducerBatch) -> bytes | memoryview:
        producer_id, epoch = self._queue(batch.tp).producer or (-1, -1)
        if batch.prebuilt is not None:
            stamp(batch.prebuilt, producer_id, epoch, batch.base_sequence)
            return batch.prebuilt
        assert batch.builder is not None
        return encode(
            batch.builder.records,
            self._codec,
            self._config.compression_level,
            (producer_id, epoch, batch.base_sequence),
        )

    # --- answers ---

    def _handle(self, batches: list[ProducerBatch], answer: Any, ids: TopicIds) -> None:
        """``ids`` as they were when it was asked: what we know of a topic may change meanwhile."""
        if answer is None:
            for batch in batches:
                self._acknowledged(batch, None, None)
            return
        by_partition = {}
        for topic in answer.responses:
            for partition in topic.partition_responses:
                by_partition[topic.name or topic.topic_id, partition.index] = partition
        for batch in batches:
            name, index = batch.tp.topic, batch.tp.partition
            found = by_partition.get((name, index)) or by_partition.get((ids[name], index))
            if found is None:
                self._failed(batch, RetriableError(ErrorCode.NETWORK_EXCEPTION, "no answer for it"))
            else:
                self._answered(batch, found)

    def _answered(self, batch: ProducerBatch, answer: Any) -> None:
        code = answer.error_code
        outcome = reaction("Produce", code)
        if outcome is Reaction.ACCEPT:
            time_ms = answer.log_append_time_ms
            self._acknowledged(batch, answer.base_offset, time_ms if time_ms >= 0 else None)
            return
        error = error_for(code, answer.error_message or str(batch.tp))
        queue = self._queue(batch.tp)
        batch.copies -= error.code in NOT_STORED
        if outcome is Reaction.NEW_EPOCH and self._config.is_idempotent:
            if queue.is_oldest(batch):
                # Nothing older is unsettled, so the gap is real.
                logger.warning("%s: %s; going on in the next epoch", batch.tp, error.code.name)
                queue.sequence_is_broken = True
            # It suffers for what became of others: that is no attempt of its own.
            batch.attempts -= 1
            self._failed(batch, error)
        elif outcome is Reaction.SPLIT and batch.builder is not None and batch.record_count > 1:
            self._accumulator.replaced(batch, queue.split(batch))
        elif outcome in (Reaction.RETRY, Reaction.REFRESH):
            if outcome is Reaction.REFRESH:
                self._cluster.mark_stale()
            self._failed(batch, error)
        else:
            self._given_up(batch, error)

    def _acknowledged(
        self, batch: ProducerBatch, offset: int | None, log_append_time_ms: int | None
    ) -> None:
        queue = self._queue(batch.tp)
        queue.in_flight.remove(batch)
        queue.is_known = True
        queue.backoff.reset()
        batch.base_offset = offset if offset is not None and offset >= 0 else None
        batch.log_append_time_ms = log_append_time_ms
        self._settle(batch, None)

    def _failed(self, batch: ProducerBatch, error: Exception) -> None:
        """It may be tried again, if there is time and leave to."""
        queue = self._queue(batch.tp)
        age_s = asyncio.get_running_loop().time() - batch.created_at
        if batch.attempts > self._config.retries:
            self._given_up(batch, error)
            return
        if age_s > self._config.delivery_timeout_ms / 1000:
            self._given_up(batch, RequestTimeoutError(f"{batch.tp}: delivery_timeout_ms; {error}"))
            return
        queue.in_flight.remove(batch)
        queue.failed.append(batch)
        queue.is_recovering = True
        queue.resume_at = asyncio.get_running_loop().time() + queue.backoff.next_s()

    def _given_up(self, batch: ProducerBatch, error: Exception) -> None:
        queue = self._queue(batch.tp)
        queue.in_flight.remove(batch)
        # What follows goes one by one until it is clear what the broker makes of the gap.
        queue.is_recovering = queue.is_recovering or self._config.is_idempotent
        self._settle(batch, error)

    def _settle(self, batch: ProducerBatch, error: Exception | None) -> None:
        callbacks = batch.finish(error)
        if callbacks:
            self._run_callbacks(callbacks)
        self._accumulator.released(batch)  # who flushes waits for this, and then for callbacks


def _unsettled(batches: list[ProducerBatch]) -> list[ProducerBatch]:
    return [batch for batch in batches if not batch.is_done]


def _fate_unknown(batch: ProducerBatch) -> RequestTimeoutError:
    return RequestTimeoutError(
        f"{batch.record_count} records for {batch.tp} may have been stored or not: the broker's "
        "answer was lost, and then its memory of what this producer sent"
    )


def _request(
    config: ProducerConfig,
    data: list[tuple[ProducerBatch, bytes | memoryview]],
    ids: TopicIds,
) -> ProduceRequest:
    topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
    for batch, records in data:
        topics.setdefault(batch.tp.topic, []).append(
            ProduceRequest.PartitionProduceData(index=batch.tp.partition, records=records)
        )
    return ProduceRequest(
        acks=config.required_acks,
        timeout_ms=config.request_timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=name, topic_id=ids[name] or ZERO_UUID, partition_data=partitions
            )
            for name, partitions in topics.items()
        ],
    )
