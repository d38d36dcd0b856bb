"""``Producer``: the public face of sending.

Rule: ``send`` does only what must happen in the user's thread (serialize, choose a partition, put
the record into a batch); everything that waits is ``sending.py``'s, on the engine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack
from weakref import WeakSet

from shoal.client.accumulator import Accumulator, Callback, SendFuture
from shoal.client.arguments import checks_arguments
from shoal.client.arrow_batches import (
    Encoding,
    arrow_parts,
    columns_of,
    encoded,
    need_times,
    outermost,
)
from shoal.client.cluster import Cluster
from shoal.client.config import ProducerConfig, config_of
from shoal.client.connection import Buffers
from shoal.client.engine import Engine
from shoal.client.links import Links
from shoal.client.metadata import Metadata
from shoal.client.partitioner import Partitioner, partitioner_named
from shoal.client.security import tls_context
from shoal.client.sending import Sender
from shoal.client.settings import ProducerSettings
from shoal.client.timing import Deadline
from shoal.errors import RequestTimeoutError
from shoal.records.batch import read_header
from shoal.records.compression import Codec
from shoal.types import Header, PartitionInfo, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

# As large as brokers accept by default (max.message.bytes), with room for the header.
_ARROW_BATCH_BYTES = 1_000_000
_TIMESTAMP_END_MS = 2**63

Headers = Sequence[Header] | Mapping[str, bytes | None]


@checks_arguments(leave={"send"})
class Producer:
    """Sends records to topics. Thread-safe: share one among threads.

    Settings are those of ``ProducerConfig``, by keyword or as a config made before::

        with Producer(bootstrap_servers="localhost:9092", linger_ms=20) as producer:
            future = producer.send("orders", key="eu-1", value=b"...")
            print(future.result(timeout=10).offset)
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
        self._callbacks: ThreadPoolExecutor | None = None
        self._callback_thread = 0
        self._closing = threading.RLock()
        self._buffers = Buffers(self.config.buffer_memory)
        self._buffers_lock = threading.Lock()
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
        self._callbacks, self._closing = None, threading.RLock()

    def _new_engine(self) -> Engine:
        return Engine("shoal-producer")

    async def _start(self) -> None:
        links = Links(self.config, tls_context(self.config))
        self._cluster = Cluster(self.config, links, auto_create_topics=True)
        loop = asyncio.get_running_loop()
        self._accumulator = Accumulator(self.config, self._wake, loop.time)
        self._sender = Sender(self._cluster, self.config, self._accumulator, self._run_callbacks)
        self._cluster.on_update.append(lambda metadata, _: self._count(metadata))
        self._cluster.in_use = self._topics_in_use
        self._running = loop.create_task(self._sender.run())

    def _count(self, metadata: Metadata) -> None:
        """A topic may grow, a partition lose its leader: keep what ``send`` uses fresh."""
        self._partition_counts = {n: len(t.partitions) for n, t in metadata.topics.items()}
        if self._on_leaders is not None:
            self._on_leaders(metadata.led_in_part())

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
        if not isinstance(partition, int):
            raise TypeError(f"send(): partition must be an int, not {type(partition).__name__}")
        if not 0 <= partition < count:
            count = self._need_partition(topic, partition)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        elif not isinstance(timestamp_ms, int):
            raise TypeError(f"send(): timestamp_ms must be an int, not {timestamp_ms!r}")
        elif not 0 <= timestamp_ms < _TIMESTAMP_END_MS:
            when = "before 1970" if timestamp_ms < 0 else "too far ahead"
            raise ValueError(f"timestamp_ms={timestamp_ms} is {when}")
        if on_delivery is not None and not callable(on_delivery):
            raise TypeError(f"send(): on_delivery must be callable, not {on_delivery!r}")
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
            RequestTimeoutError: as ``send``.
        """
        config = self.config
        need_times(data)
        count = self._partition_counts.get(topic) or self._partition_count(topic)
        for number in outermost(data, partition):
            if not 0 <= number < count:
                count = self._need_partition(topic, number)
        encoding = Encoding(
            min(config.max_request_size, _ARROW_BATCH_BYTES),
            Codec[config.compression_type.upper()],
            config.compression_level,
        )
        futures = []
        for part in arrow_parts(data):
            columns = columns_of(part, key, value, partition)
            for number, batch in encoded(
                topic, columns, partition, count, self._partitioner, encoding
            ):
                futures.append(self._send_batch(TopicPartition(topic, number), batch))
        return futures

    def _send_batch(self, tp: TopicPartition, batch: bytes) -> SendFuture:
        if len(batch) > self.config.max_request_size:
            raise ValueError(
                f"a batch of {len(batch)} bytes for {tp} is larger than max_request_size="
                f"{self.config.max_request_size}"
            )
        header = read_header(batch)
        with self._buffers_lock:
            memory = self._buffers.take(len(batch))
        memory[:] = batch
        sent = self._accumulator.append_prebuilt(tp, memory, header.record_count)
        return SendFuture(sent, 0, header.base_timestamp_ms)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything now; returns when all of it is acknowledged or has failed, and
        ``on_delivery`` has been called (unless it is who calls this).

        Raises:
            RequestTimeoutError: not within ``timeout`` seconds.
        """
        timeout = _bounded(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        self._accumulator.flush(timeout)
        if self._callbacks is None or threading.get_ident() == self._callback_thread:
            return
        try:
            last = self._callbacks.submit(int)
        except RuntimeError:  # closed meanwhile
            return
        try:
            last.result(None if until is None else max(0.0, until - time.monotonic()))
        except TimeoutError:
            raise RequestTimeoutError(f"flush: callbacks still run after {timeout} s") from None

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic: leader, replicas, in sync, offline."""
        self._partition_count(topic)
        return self._cluster.metadata.partition_infos(topic)

    def close(self, timeout: float | None = 30.0) -> None:
        """Refuse to send more, flush for up to ``timeout`` seconds, then stop; what is unsent then
        fails."""
        is_callback = threading.get_ident() == self._callback_thread
        if not self._closing.acquire(blocking=not is_callback):
            return  # whoever closes it waits for this callback
        try:
            if self._engine.is_running:
                self._close(timeout)
        finally:
            self._closing.release()

    def _close(self, timeout: float | None) -> None:
        self._accumulator.close()
        try:
            self._accumulator.flush(_bounded(timeout))
        except RequestTimeoutError as error:
            logger.warning("close: %s", error)
        try:
            self._engine.call(self._stop())
        finally:
            self._engine.stop()
            self._partition_counts.clear()  # so that the next send asks the engine, and fails
            if self._callbacks is not None:
                # A callback may close its producer; it cannot wait for itself.
                self._callbacks.shutdown(wait=threading.get_ident() != self._callback_thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def _stop(self) -> None:
        self._running.cancel()
        await self._sender.close()
        await self._cluster.close()

    def _partition_count(self, topic: str) -> int:
        count = self._engine.call(self._look_up(topic))
        self._partition_counts[topic] = count
        return count

    def _need_partition(self, topic: str, partition: int) -> int:
        """How many there are, asked anew: the topic may have grown since."""
        count = self._partition_counts[topic] = self._engine.call(self._look_up(topic, anew=True))
        if not 0 <= partition < count:
            raise ValueError(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        return count

    async def _look_up(self, topic: str, *, anew: bool = False) -> int:
        self._cluster.watch_also(topic)
        deadline = Deadline(self.config.max_block_ms / 1000)
        metadata = await self._cluster.topics([topic], deadline, anew=anew)
        return len(metadata.topics[topic].partitions)

    def _wake(self) -> None:
        self._engine.post(self._sender.wake)

    def _run_callbacks(self, callbacks: list[Callback]) -> None:
        if self._callbacks is None:
            self._callbacks = ThreadPoolExecutor(1, thread_name_prefix="shoal-producer-callbacks")
        self._callbacks.submit(self._run_all, callbacks)

    def _run_all(self, callbacks: list[Callback]) -> None:
        self._callback_thread = threading.get_ident()
        for callback in callbacks:
            try:
                callback()
            except BaseException:  # whatever it is, it must not keep the others from being called
                logger.exception("a delivery callback raised")


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
    headers = tuple(given.items()) if isinstance(given, Mapping) else tuple(given)
    for header in headers:
        match header:
            case (str(name), bytes() | None):
                name.encode()  # what cannot be written must not take the whole batch with it
                continue
        raise TypeError(f"send(): a header is (str, bytes or None), not {header!r}")
    return headers


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
