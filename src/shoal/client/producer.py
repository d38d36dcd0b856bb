"""``Producer``: the public face of sending.

Rule: ``send`` does only what must happen in the user's thread (serialize, choose a partition, put
the record into a batch); everything that waits is ``sender.py``'s, on the engine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack
from weakref import WeakSet

from shoal.client.accumulator import Accumulator
from shoal.client.arguments import checks_arguments
from shoal.client.broker_links import Links
from shoal.client.cluster import Cluster
from shoal.client.config import ProducerConfig, config_of
from shoal.client.deadlines import Deadline
from shoal.client.engine import Engine, Worker
from shoal.client.foreign_names import answers_foreign_names
from shoal.client.leases import Buffers, Lease, Pieces
from shoal.client.metadata import Metadata
from shoal.client.metrics import ClientMetrics, MetricListing
from shoal.client.partitioner import Partitioner, Sticky, partitioner_named
from shoal.client.producer_batch import SendFuture, in_pairs
from shoal.client.producer_transaction import ProducerTransaction
from shoal.client.security import tls_context
from shoal.client.sender import Sender
from shoal.client.settings import ProducerSettings
from shoal.client.tallies import SendTally
from shoal.client.transactions import Offsets, Transactions
from shoal.errors import ConfigError, RequestTimeoutError
from shoal.records.arrow import need_arrow
from shoal.records.compression import Codec
from shoal.types import (
    ConsumerGroupMetadata,
    Header,
    PartitionInfo,
    PreparedTransaction,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.records.encoding import GroupBatch

logger = logging.getLogger(__name__)

# As large as brokers accept by default (max.message.bytes), with room for the header.
_ARROW_BATCH_BYTES = 1_000_000
_TIMESTAMP_END_MS = 2**63

Headers = Sequence[Header] | Mapping[str, bytes | None]


@answers_foreign_names
@checks_arguments(leave={"send"})
class Producer:
    """Sends records to topics. Thread-safe: share one among threads.

    Settings are those of ``ProducerConfig``, by keyword or as a config made before::

        with Producer(bootstrap_servers="localhost:9092", linger_ms=20) as producer:
            future = producer.send("orders", key="eu-1", value=b"...")
            print(future.result(timeout=10).offset)

    With a ``transactional_id`` everything is sent in transactions, all of one or nothing::

        with Producer(transactional_id="billing-1") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("orders", b"...")
                producer.send("invoices", b"...")
    """

    def __init__(
        self, config: ProducerConfig | None = None, **settings: Unpack[ProducerSettings]
    ) -> None:
        self.config = config_of("Producer", ProducerConfig, config, settings)
        given = self.config.partitioner
        self._partitioner: Partitioner = given if callable(given) else partitioner_named(given)
        self._on_batch = getattr(self._partitioner, "batch_done", None)
        self._on_leaders = getattr(self._partitioner, "leaders_known", None)
        self._partition_counts: dict[str, int] = {}
        self._callbacks: Worker | None = None
        self._callbacks_lock = threading.Lock()
        self._closing = threading.RLock()
        self._buffers = Buffers(self.config.buffer_memory)
        self._transactions: Transactions | None = None
        self._tally = SendTally()
        self._engine = self._new_engine()
        try:
            self._engine.call(self._start())
        except BaseException:
            self._engine.stop()
            raise
        _producers.add(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """A producer from Kafka's dotted names, as in a properties file."""
        return cls(ProducerConfig.from_properties(properties))

    def _forked(self) -> None:
        """Nothing is sent from here: what the other process has not sent yet, it will."""
        self._accumulator = Accumulator(self.config, self._wake)
        self._partition_counts = {}  # so that the next send asks the engine, and fails
        self._serve()
        self._callbacks, self._callbacks_lock = None, threading.Lock()
        self._closing = threading.RLock()

    def _new_engine(self) -> Engine:
        return Engine("shoal-producer")

    async def _start(self) -> None:
        links = Links(self.config, tls_context(self.config))
        self._cluster = Cluster(self.config, links, auto_create_topics=True)
        loop = asyncio.get_running_loop()
        self._accumulator = Accumulator(self.config, self._wake, loop.time, self._tally)
        self._serve()
        core = None if self.config.transactional_id is None else ProducerTransaction()
        self._sender = Sender(
            self._cluster, self.config, self._accumulator, self._run_callbacks, core, self._tally
        )
        if core is not None:
            self._transactions = Transactions(
                self._cluster, self.config, self._accumulator, self._sender, core, self._tally
            )
        self._cluster.on_update.append(lambda metadata, _: self._count(metadata))
        self._cluster.in_use = self._topics_in_use
        self._running = loop.create_task(self._sender.run())

    def _count(self, metadata: Metadata) -> None:
        """A topic may grow, a partition lose its leader: keep what ``send`` uses fresh."""
        self._partition_counts = {n: len(t.partitions) for n, t in metadata.topics.items()}
        self._serve()
        if self._on_leaders is not None:
            self._on_leaders(metadata.led_in_part())

    def _serve(self) -> None:
        """Open the short way, if what is sent is serialized and spread as usual."""
        config, intake = self.config, self._accumulator.intake
        if (
            type(self._partitioner) is Sticky
            and config.key_serializer is None
            and config.value_serializer is None
        ):
            current = self._partitioner.current
            intake.serve(self._partition_counts, current, config.max_request_size)
        intake.has_callbacks = self._callbacks is not None
        self._take = intake.take

    def _topics_in_use(self) -> set[str]:
        idle_s = self.config.metadata_max_age_ms / 1000
        since = asyncio.get_running_loop().time() - idle_s
        return self._accumulator.topics_since(since) | self._sender.topics_under_way()

    # --- sending ---

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: Callable[[SendFuture], Any] | None = None,
    ) -> SendFuture:
        """Put a record into the next batch for its partition; returns at once.

        Args:
            partition: given, the partitioner is not asked.
            timestamp_ms: milliseconds since 1970; now, if not given.
            headers: pairs, or a mapping.
            on_delivery: called with the future when the outcome is known, on a thread of the
                producer's own.

        Raises:
            RequestTimeoutError: the topic's partitions, or room in the buffer, could not be had
                within ``max_block_ms``.
            ValueError: the partition does not exist, or the record is larger than
                ``max_request_size``.
        """
        future = self._take(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if future is not None:
            return future
        if not isinstance(topic, str):
            raise TypeError(f"send(): topic must be a string, not {type(topic).__name__}")
        config = self.config
        key_bytes = _serialized(key, config.key_serializer, "key")
        value_bytes = _serialized(value, config.value_serializer, "value")
        size = len(key_bytes or b"") + len(value_bytes or b"")
        pairs: Sequence[Header] = ()
        if headers:
            pairs = _checked_headers(headers)
            size += sum(len(name) + len(content or b"") for name, content in pairs)
        if size > config.max_request_size:
            raise ValueError(
                f"a record of {size} bytes is larger than max_request_size="
                f"{config.max_request_size}"
            )
        count = self._partition_counts.get(topic) or self._partition_count(topic)
        if partition is None:
            partition = int(self._partitioner(topic, key_bytes, count))
        if not isinstance(partition, int) or partition is True or partition is False:
            raise TypeError(f"send(): partition must be a whole number, not {partition!r}")
        if not 0 <= partition < count:
            count = self._need_partition(topic, partition)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        elif not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
            raise TypeError(f"send(): timestamp_ms must be a whole number, not {timestamp_ms!r}")
        elif not 0 <= timestamp_ms < _TIMESTAMP_END_MS:
            when = "before 1970" if timestamp_ms < 0 else "too far ahead"
            raise ValueError(f"timestamp_ms={timestamp_ms} is {when}")
        if on_delivery is not None:
            if not callable(on_delivery):
                raise TypeError(f"send(): on_delivery must be callable, not {on_delivery!r}")
            if self._callbacks is None:
                self._need_callbacks()  # now: when it is called, the interpreter may be ending
        future, filled_one = self._accumulator.append(
            TopicPartition(topic, partition),
            key_bytes,
            value_bytes,
            pairs,
            timestamp_ms,
            on_delivery,
        )
        if filled_one and self._on_batch is not None:
            self._on_batch(topic, partition, count)
        return future

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        *,
        partition: int | None = None,
    ) -> list[SendFuture]:
        """Send a record for each value, with the key at the same place, and return at once.

        Raises:
            Exception: as ``send``; the note says which value was refused. Those before it are
                sent, and ``flush`` waits for them.
        """
        same_length(values, keys)
        futures: list[SendFuture] = []
        for value, key in zip(values, repeat(None) if keys is None else keys, strict=False):
            try:
                futures.append(self.send(topic, value, key, partition=partition))
            except Exception as error:
                error.add_note(f"values[{len(futures)}] was refused; those before it are sent")
                raise
        return futures

    def send_arrow(
        self,
        topic: str,
        data: pa.RecordBatch | pa.Table,
        *,
        key: str | None = "key",
        value: str = "value",
        partition: int | str | None = None,
    ) -> list[SendFuture]:
        """Send every row of Arrow data, encoded by columns; one future per batch made of them.

        Args:
            key: the column of keys (binary or string); if there is none of that name, no keys.
            value: the column of values.
            partition: a number for all rows, a column of numbers, or ``None`` (also in that
                column): by key as ``send`` does, or without keys spread over the partitions.

        A column ``timestamp`` (timestamp or milliseconds) and a column ``headers``
        (list of struct key, value) are used if present.

        Raises:
            ValueError: a column or partition that does not exist, a time before 1970, or a row
                larger than ``max_request_size``.
            TypeError: a column of something that cannot be sent.
            RequestTimeoutError: as ``send``; there was no room for the rest of the rows.

        Every row is looked at before the first is sent. Only a timeout can come in between; what
        was sent until then is, and ``flush`` waits for it.
        """
        need_arrow()
        # Only who sends columns needs Arrow and NumPy: a producer is there without them.
        from shoal.client.arrow_batches import (
            Columns,
            Encoding,
            arrow_parts,
            check_rows,
            choose_partitions,
            columns_of,
            encoded,
            need_times,
            outermost,
        )

        config = self.config
        need_times(data)
        count = self._partition_counts.get(topic) or self._partition_count(topic)
        for number in outermost(data, partition):
            if not 0 <= number < count:
                count = self._need_partition(topic, number)
        pieces = Pieces(self._buffers)
        encoding = Encoding(
            min(config.max_request_size, _ARROW_BATCH_BYTES),
            Codec[config.compression_type.upper()],
            config.compression_level,
            pieces.take,
        )
        check_rows(data, key, value, partition, config.max_request_size)

        def columns(part: pa.RecordBatch) -> Columns:
            return columns_of(part, key, value, partition)

        chosen: Iterable[Any] = repeat(None)
        if not isinstance(partition, int) and not isinstance(self._partitioner, Sticky):
            chosen = list(choose_partitions(topic, data, columns, count, self._partitioner))
        futures = []
        for part, numbers in zip(arrow_parts(data), chosen, strict=False):
            rows = columns(part)
            if numbers is not None:
                rows = rows._replace(partitions=numbers)
            for number, batch in encoded(
                topic, rows, partition, count, self._partitioner, encoding
            ):
                tp = TopicPartition(topic, number)
                futures.append(self._send_batch(tp, batch, pieces.hold()))
        pieces.done()
        return futures

    def _send_batch(self, tp: TopicPartition, batch: GroupBatch, lease: Lease) -> SendFuture:
        sent = self._accumulator.append_prebuilt(tp, batch.data, lease, batch.record_count)
        return SendFuture(sent, 0, batch.base_timestamp_ms)

    # --- transactions ---

    def init_transactions(self) -> None:
        """Once, before the first transaction: this producer takes over its ``transactional_id``.

        Whoever had it before is fenced, and a transaction it left open is aborted.

        Raises:
            RequestTimeoutError: not within ``max_block_ms``; call it again.
            TransactionFatalError: the coordinator refuses: no right to this id, or a
                ``transaction_timeout_ms`` above its limit.
        """
        self._engine.call(self._need_transactions("init_transactions").init())

    def begin_transaction(self) -> None:
        """What is sent from here on becomes visible together, or not at all.

        Raises:
            RuntimeError: a transaction is open, or ``init_transactions`` was not called.
        """
        self._engine.call(self._need_transactions("begin_transaction").begin())

    def send_offsets_to_transaction(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        """Commit a consumer's offsets as part of the transaction, and only if that commits.

        Args:
            offsets: where the group goes on, per partition: the offset *after* the last record.
            group: ``consumer.group_metadata()``, taken after the poll that returned the records.
                With it the group refuses who is no longer its member.

        Raises:
            TransactionAbortableError: the group refuses, or did not answer in time: abort.
            TransactionFatalError: this producer was fenced.
        """
        transactions = self._need_transactions("send_offsets_to_transaction")
        self._engine.call(transactions.send_offsets(offsets, group))

    def prepare_transaction(self) -> PreparedTransaction | None:
        """Send what is unsent and wait for it: then only the end of the transaction is missing.

        ``commit_transaction`` or ``abort_transaction`` may follow. Or somebody else ends it, with
        what this returns and ``Admin.end_transaction``, also after this producer was closed; that
        must happen within ``transaction_timeout_ms`` of the first record. ``None``: nothing was
        sent, so there is nothing to end.

        Raises:
            TransactionAbortableError: something was not sent or was refused: abort.
            TransactionFatalError: this producer was fenced.
            RequestTimeoutError: not within ``max_block_ms``; call it again.
        """
        prepared = self._engine.call(self._need_transactions("prepare_transaction").prepare())
        self._await_callbacks()
        return prepared

    def commit_transaction(self) -> None:
        """Send what is unsent, wait for it, and make all of the transaction visible.

        Raises:
            TransactionAbortableError: something was not sent or was refused: abort.
            TransactionFatalError: this producer was fenced.
            RequestTimeoutError: not known within ``max_block_ms`` whether it took effect; call it
                again until it is.
        """
        self._engine.call(self._need_transactions("commit_transaction").commit())
        self._await_callbacks()

    def abort_transaction(self) -> None:
        """Give the transaction up: nobody who reads committed records will see any of it.

        Records not yet sent fail with ``TransactionAbortableError``.

        Raises:
            TransactionFatalError: this producer was fenced; the transaction is aborted anyway.
            RequestTimeoutError: not within ``max_block_ms``; call it again.
        """
        self._engine.call(self._need_transactions("abort_transaction").abort())
        self._await_callbacks()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A transaction for the time of a block: committed at its end, aborted if it raises.

        If the commit is refused the transaction is aborted too, and the error raised. After a
        ``RequestTimeoutError`` of the commit itself, call ``commit_transaction`` again. A block
        that has called ``abort_transaction`` or ``commit_transaction`` itself ends as it did.
        """
        self.begin_transaction()
        try:
            yield self
            if not self._need_transactions("commit_transaction").has_ended:
                self.commit_transaction()
        except BaseException as error:
            self._abort_after(error)
            raise

    def _abort_after(self, error: BaseException) -> None:
        """Abort, if there is something to abort; ``error`` is what is to be told."""
        transactions = self._need_transactions("abort_transaction")
        if transactions.core.refusal("abort_transaction") is not None:
            return
        try:
            self.abort_transaction()
        except Exception as failure:  # noqa: BLE001 - the first error is the one that matters
            error.add_note(f"the transaction was not aborted: {failure}")

    def _need_transactions(self, call: str) -> Transactions:
        self._engine.need_own_process()
        if self._transactions is None:
            raise ConfigError(f"{call}() needs Producer(transactional_id=...)")
        return self._transactions

    def _await_callbacks(self) -> None:
        """What was sent is decided: until ``on_delivery`` has been called for all of it."""
        if self._callbacks is not None and not self._callbacks.is_here:
            self._callbacks.wait(self.config.max_block_ms / 1000)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now; returns when all of it is acknowledged or has failed, and
        ``on_delivery`` has been called (unless it is who calls this).

        Raises:
            RequestTimeoutError: not within ``timeout`` seconds.
        """
        timeout = _bounded(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        with self._tally.timing("flush"):
            self._accumulator.flush(timeout)
            if self._callbacks is None or self._callbacks.is_here:
                return
            if not self._callbacks.wait(None if until is None else until - time.monotonic()):
                raise RequestTimeoutError(f"flush: callbacks still run after {timeout} s")

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic: leader, replicas, in sync, offline."""
        self._partition_count(topic)
        return self._cluster.metadata.partition_infos(topic)

    def metrics(self) -> ClientMetrics:
        """What this producer has counted, under the names of Kafka's Java client, such as
        ``record-send-rate``, ``request-latency-avg`` or ``buffer-available-bytes``. Any thread may
        ask, at any time; after ``close`` it is how things ended.
        """
        self._engine.need_own_process()
        listing = MetricListing(self.config.client_id, self._engine.loop.time())
        self._tally.tell(listing)
        self._accumulator.tell(listing, "producer-metrics")
        self._cluster.tell(listing, "producer-metrics")
        self._cluster.tell_more(listing, "producer-metrics")
        return listing.metrics

    def close(self, timeout: float | None = 30.0) -> None:
        """Refuse to send more, flush for up to ``timeout`` seconds, then stop; what is unsent then
        fails. A transaction that is open is aborted, which is logged as a warning; one that is
        prepared stays so."""
        is_callback = self._callbacks is not None and self._callbacks.is_here
        if not self._closing.acquire(blocking=not is_callback):
            return  # whoever closes it waits for this callback
        try:
            if self._engine.is_running:
                self._close(timeout)
        finally:
            self._closing.release()

    def _close(self, timeout: float | None) -> None:
        self._engine.call(self._wind_up(timeout))
        try:
            self._engine.call(self._stop())
        finally:
            self._engine.stop()
            self._partition_counts.clear()  # so that the next send asks the engine, and fails
            if self._callbacks is not None:
                self._callbacks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def _close_transactions(self, timeout: float | None) -> None:
        assert self._transactions is not None
        limit_s = self.config.max_block_ms / 1000
        await self._transactions.close(Deadline(limit_s if timeout is None else timeout))

    async def _wind_up(self, timeout: float | None) -> None:
        """On the engine, before ``_stop``: take nothing more, and send what was taken."""
        if self._transactions is not None:
            await self._close_transactions(timeout)
        self._accumulator.close()
        try:
            await self._sender.flush(timeout)
        except RequestTimeoutError as error:
            logger.warning("close: %s", error)

    async def _stop(self) -> None:
        self._running.cancel()
        await self._sender.close()
        await self._cluster.close()

    def _partition_count(self, topic: str) -> int:
        count = self._engine.call(self._look_up(topic))
        self._partition_counts[topic] = count
        return count

    def _need_partition(self, topic: str, partition: int) -> int:
        """How many there are, asked again: the topic may have grown since."""
        return self._engine.call(self._look_up_partition(topic, partition))

    async def _look_up(self, topic: str, *, anew: bool = False) -> int:
        self._cluster.watch_also(topic)
        deadline = Deadline(self.config.max_block_ms / 1000)
        with self._tally.timing("metadata-wait"):
            metadata = await self._cluster.topics([topic], deadline, anew=anew)
        return len(metadata.topics[topic].partitions)

    async def _look_up_partition(self, topic: str, partition: int) -> int:
        count = self._partition_counts[topic] = await self._look_up(topic, anew=True)
        if not 0 <= partition < count:
            raise ValueError(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        return count

    def _wake(self) -> None:
        self._engine.post(self._sender.wake)

    def _need_callbacks(self) -> Worker:
        with self._callbacks_lock:
            if self._callbacks is None:
                self._callbacks = Worker("shoal-producer-callbacks")
                self._accumulator.intake.has_callbacks = True
            return self._callbacks

    def _run_callbacks(self, callbacks: list[Any]) -> None:
        try:
            worker = self._need_callbacks()
        except RuntimeError:  # the interpreter is ending and starts no more threads
            run_all(callbacks)
        else:
            worker.post(partial(run_all, callbacks))


def run_all(callbacks: list[Any]) -> None:
    """Tell everybody what became of their records."""
    for future, function in in_pairs(callbacks):
        try:
            function(future)
        except BaseException:  # whatever it is, it must not keep the others from being called
            logger.exception("a delivery callback raised")


def same_length(values: Sequence[Any], keys: Sequence[Any] | None) -> None:
    """Raises ValueError if there is not a key for every value."""
    if keys is not None and len(keys) != len(values):
        raise ValueError(f"send_many(): {len(values)} values and {len(keys)} keys do not go along")


def _bounded(timeout: float | None) -> float | None:
    """No longer than a lock can wait: a few centuries."""
    return None if timeout is None else min(timeout, threading.TIMEOUT_MAX)


_producers: WeakSet[Producer] = WeakSet()


def _after_fork() -> None:
    for producer in list(_producers):
        producer._forked()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_after_fork)


def _checked_headers(given: Headers) -> Sequence[Header]:
    if not isinstance(given, Mapping | Sequence):
        raise TypeError(f"send(): headers must be pairs or a dict, not {type(given).__name__}")
    headers: list[Header] = []
    for header in given.items() if isinstance(given, Mapping) else given:
        match header:
            case (str(name), bytes() | None as content):
                name.encode()  # what cannot be written must not take the whole batch with it
                headers.append((name, content))
                continue
        raise TypeError(f"send(): a header is (str, bytes or None), not {header!r}")
    return tuple(headers)


def _serialized(given: Any, serializer: Callable[[Any], bytes] | None, what: str) -> bytes | None:
    if given is None:
        return None
    if serializer is not None:
        made = serializer(given)
        if isinstance(made, bytes):
            return made
        raise TypeError(f"{what}_serializer returned {type(made).__name__}, not bytes")
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise TypeError(
        f"a {what} must be bytes or str, not {type(given).__name__}; or set {what}_serializer"
    )
