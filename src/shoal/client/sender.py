"""The sender: batches out of the accumulator, to the leaders, and what became of them.

Order and idempotence, per partition:

* An idempotent producer may have several batches of a partition under way. The broker refuses a
  batch whose predecessor is missing, so when one fails the partition *recovers*: nothing new goes
  out until all answers are in, then the failed ones go again in their old order, one at a time.
* Any other producer has one batch of a partition under way, so a retry cannot be overtaken.
* When the broker misses something of a partition's sequence (a batch that was given up, or it lost
  its memory), the partition goes on in the next producer epoch: only this one, the others stay.
* In a transaction there is no going on: a batch that is given up makes it one to be aborted, and
  the epoch is the transaction's.

Rule: what is sent and when is decided here; what order and numbers mean is in
``partition_queue.py``.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any, Final

from shoal.client.accumulator import Accumulator
from shoal.client.broker_links import Lane
from shoal.client.cluster import RETRIED, Cluster
from shoal.client.config import ProducerConfig
from shoal.client.connection import BrokerConnection, Versioned
from shoal.client.deadlines import Deadline, RetryBackoff
from shoal.client.partition_queue import PartitionQueue
from shoal.client.producer_batch import ProducerBatch
from shoal.client.producer_transaction import ProducerTransaction
from shoal.client.reactions import NOT_STORED, RequestReaction, reaction
from shoal.client.tallies import SendTally, SentBatch
from shoal.errors import (
    BrokerError,
    ConnectionFailedError,
    ErrorCode,
    InvalidFrameError,
    RequestTimeoutError,
    RetriableError,
    counted,
    error_for,
)
from shoal.records.batch import HEADER_SIZE
from shoal.records.checksum import crc32c
from shoal.records.compression import Codec
from shoal.records.encoding import Stamp
from shoal.types import TopicPartition
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import ZERO_UUID

logger = logging.getLogger(__name__)

_FIRST_WITH_TOPIC_IDS: Final = 13
_FIRST_THAT_ADDS: Final = 12  # its partitions to the transaction, by itself
# So soon the broker has ended the transaction before, as a rule (KAFKA-5477).
_CONCURRENT_PAUSE_S: Final = 0.02
# A timer may fire a little early: a shorter pause could come back to nothing due, again and again.
_PAUSE_MIN_S: Final = 0.0001
# Where these stand in a batch of format v2; records/batch.py has the whole layout.
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_COVERED_FROM: Final = 21
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43
# What a builder takes a record for above what it is, as a rule.
_SLACK_BYTES: Final = 27
_ATTRIBUTES_AT: Final = 22  # the lower byte
_TRANSACTIONAL: Final = 0x10

TopicIds = dict[str, bytes | None]


class Sender:
    """Lives on the engine's loop; ``run`` is its only task, beside one per request."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        run_callbacks: Callable[[list[Any]], None],
        transaction: ProducerTransaction | None = None,
        tally: SendTally | None = None,
    ) -> None:
        self._tally = tally or SendTally()
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
        self._transaction = transaction
        self._abandoned: Exception | None = None
        """Why nothing more is sent of the present transaction, if so."""
        self._settled = asyncio.Event()
        self.on_partitions_wanted: Callable[[], None] = lambda: None
        self.on_batch_failed: Callable[[ProducerBatch, Exception], None] = lambda *_: None

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
        """Send what is due, forever."""
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
                self._settle(batch, closed, was_sent=False)
        for batch in self._accumulator.drop_late(float("inf")):
            self._settle(batch, closed, was_sent=False)

    # --- transactions ---

    def begin(self) -> None:
        """What is sent from here on is of another transaction."""
        self._abandoned = None

    def abandon(self, error: Exception) -> None:
        """Send nothing more of this transaction: what is not under way fails with ``error``."""
        self._abandoned = error
        for batch in self._accumulator.drop_late(float("inf")):
            self._settle(batch, error, was_sent=False)
        for queue in self._queues.values():
            for batch in (*queue.failed, *queue.waiting):
                self._settle(batch, error, was_sent=False)
            queue.failed.clear()
            queue.waiting.clear()
        self.wake()

    async def drain(self) -> None:
        """Until the fate of all that was sent is known; nothing new may come meanwhile."""
        self._accumulator.hurry()
        try:
            while not self._accumulator.is_empty:
                self._settled.clear()
                await self._settled.wait()
        finally:
            self._accumulator.calm_down()

    async def flush(self, timeout_s: float | None) -> None:
        """Send everything now; until all of it is settled, but not what comes meanwhile.

        Raises:
            RequestTimeoutError: something is unsettled after ``timeout_s``.
        """
        end = self._accumulator.mark()
        self._accumulator.hurry()
        try:
            async with asyncio.timeout(timeout_s):
                while self._accumulator.is_unsettled_before(end):
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            self._accumulator.need_settled_before(end, timeout_s)
        finally:
            self._accumulator.calm_down()

    def renew(self, producer: tuple[int, int]) -> None:
        """From now on everything is sent as this producer."""
        for queue in self._queues.values():
            queue.renew(producer)

    # --- choosing ---

    def _queue(self, tp: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(tp)
        if queue is None:
            config = self._config
            backoff = RetryBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
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
            f"{counted(batch.record_count, 'record')} for {batch.tp} could not be sent within "
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
            if self._transaction is not None and not self._transaction.takes(tp):
                self.on_partitions_wanted()
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
            if self._transaction is not None:
                self._transaction.sends(batch.tp)
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        task = asyncio.get_running_loop().create_task(self._produce(node_id, batches))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    def _has_identity(self, queue: PartitionQueue) -> bool:
        """Whether its batches can be numbered; asks for a producer id if not."""
        if self._transaction is not None:
            queue.producer = self._transaction.producer
            return queue.producer is not None
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
        if self._transaction is not None and not self._transaction.is_v2:
            up_to = _FIRST_THAT_ADDS - 1
        request = Versioned(ApiKey.PRODUCE, lambda _: _request(config, data, ids), up_to=up_to)
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._tally.sends([self._sent(*one, began) for one in data], began)
        if config.required_acks == 0:
            connection.send_only(request)
            # Not settled before, or buffer_memory would bound nothing and close() cut it off.
            await connection.drain()
            return None, ids
        answer = connection.send(request)
        for batch in batches:
            batch.attempts += 1
            batch.copies += 1
        answered = await answer
        now = loop.time()
        self._tally.answered(1000 * (now - began), answered.throttle_time_ms, now)
        return answered, ids

    def _sent(self, batch: ProducerBatch, data: bytes | memoryview, now: float) -> SentBatch:
        unpacked: int | None = len(data)
        if self._codec is not Codec.NONE:
            is_known = batch.builder is not None
            slack = _SLACK_BYTES * batch.record_count
            unpacked = max(batch.size_bytes - slack, HEADER_SIZE) if is_known else None
        queued_ms = 1000 * (now - batch.created_at)
        return SentBatch(batch.tp.topic, batch.record_count, len(data), unpacked, queued_ms)

    async def _connection(self, node_id: int, batches: list[ProducerBatch]) -> BrokerConnection:
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
            is_transactional = self._transaction is not None
            stamp(batch.prebuilt, producer_id, epoch, batch.base_sequence, is_transactional)
            return batch.prebuilt
        assert batch.builder is not None
        stamp_of_it = Stamp(
            codec=self._codec,
            level=self._config.compression_level,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=batch.base_sequence,
            is_transactional=self._transaction is not None,
        )
        return batch.builder.encoded(stamp_of_it)

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
        if outcome is RequestReaction.ACCEPT:
            time_ms = answer.log_append_time_ms
            self._acknowledged(batch, answer.base_offset, time_ms if time_ms >= 0 else None)
            return
        error = error_for(code, answer.error_message or str(batch.tp))
        queue = self._queue(batch.tp)
        batch.copies -= error.code in NOT_STORED
        if outcome is RequestReaction.NEW_EPOCH and self._transaction is not None:
            batch.attempts -= 1
            if queue.is_oldest(batch) or error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                self._given_up(batch, error)
            else:
                self._failed(batch, error)
        elif outcome is RequestReaction.NEW_EPOCH and self._config.is_idempotent:
            if queue.is_oldest(batch):
                # Nothing older is unsettled, so the gap is real.
                logger.warning("%s: %s; going on in the next epoch", batch.tp, error.code.name)
                queue.sequence_is_broken = True
            # It suffers for what became of others: that is no attempt of its own.
            batch.attempts -= 1
            self._failed(batch, error)
        elif (
            outcome is RequestReaction.SPLIT
            and self._abandoned is None
            and batch.builder is not None
            and batch.record_count > 1
        ):
            self._accumulator.replaced(batch, queue.split(batch))
            self._tally.splits.record(1, asyncio.get_running_loop().time())
        elif outcome in (RequestReaction.RETRY, RequestReaction.REFRESH):
            if outcome is RequestReaction.REFRESH:
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
        if self._abandoned is not None:
            self._given_up(batch, self._abandoned)
            return
        if batch.attempts > self._config.retries:
            self._given_up(batch, error)
            return
        if age_s > self._config.delivery_timeout_ms / 1000:
            self._given_up(batch, RequestTimeoutError(f"{batch.tp}: delivery_timeout_ms; {error}"))
            return
        now = asyncio.get_running_loop().time()
        self._tally.retried(batch.tp.topic, batch.record_count, now)
        queue.in_flight.remove(batch)
        queue.failed.append(batch)
        queue.is_recovering = True
        is_brief = getattr(error, "code", None) is ErrorCode.CONCURRENT_TRANSACTIONS
        pause_s = _CONCURRENT_PAUSE_S if is_brief else queue.backoff.next_s()
        queue.resume_at = asyncio.get_running_loop().time() + pause_s

    def _given_up(self, batch: ProducerBatch, error: Exception) -> None:
        queue = self._queue(batch.tp)
        queue.in_flight.remove(batch)
        # What follows goes one by one until it is clear what the broker makes of the gap.
        queue.is_recovering = queue.is_recovering or self._config.is_idempotent
        self._settle(batch, error)

    def _settle(
        self, batch: ProducerBatch, error: Exception | None, *, was_sent: bool = True
    ) -> None:
        if error is not None and was_sent:
            now = asyncio.get_running_loop().time()
            self._tally.failed(batch.tp.topic, batch.record_count, now)
        callbacks = batch.finish(error)
        if callbacks:
            self._run_callbacks(callbacks)
        self._accumulator.released(batch)  # who flushes waits for this, and then for callbacks
        self._settled.set()
        if error is not None and self._transaction is not None:
            self.on_batch_failed(batch, error)


def stamp(
    batch: memoryview,
    producer_id: int,
    epoch: int,
    base_sequence: int,
    is_transactional: bool = False,
) -> None:
    """Write the producer into an encoded batch, in place, if it is not there yet.

    So a batch is encoded once, and a retry under another producer id changes fourteen bytes and
    the checksum. A producer's batch starts at offset 0: Kafka refuses any other.
    """
    batch[:8] = bytes(8)
    wanted = _PRODUCER.pack(producer_id, epoch, base_sequence)
    if batch[_PRODUCER_AT : _PRODUCER_AT + len(wanted)] == wanted:
        return
    batch[_PRODUCER_AT : _PRODUCER_AT + len(wanted)] = wanted
    if is_transactional:
        batch[_ATTRIBUTES_AT] |= _TRANSACTIONAL
    with batch[_COVERED_FROM:] as covered:
        _CRC.pack_into(batch, _CRC_AT, crc32c(covered))


def _unsettled(batches: list[ProducerBatch]) -> list[ProducerBatch]:
    return [batch for batch in batches if not batch.is_done]


def _fate_unknown(batch: ProducerBatch) -> RequestTimeoutError:
    return RequestTimeoutError(
        f"{counted(batch.record_count, 'record')} for {batch.tp} may have been stored or not: "
        "the broker's answer was lost, and then its memory of what this producer sent"
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
        transactional_id=config.transactional_id,
        acks=config.required_acks,
        timeout_ms=config.request_timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=name, topic_id=ids[name] or ZERO_UUID, partition_data=partitions
            )
            for name, partitions in topics.items()
        ],
    )
