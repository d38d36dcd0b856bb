"""A Kafka cluster as Spark's reads, commits and writes use it, through our own client.

One ``ClusterClient`` per process and cluster (see ``process_cache.py``): metadata and sockets stay
warm from task to task and from micro-batch to micro-batch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from shoal.client.broker_links import Links
from shoal.client.cluster import Cluster
from shoal.client.config import AdminConfig, ConnectionConfig, ConsumerConfig, ProducerConfig
from shoal.client.connection import open_connection
from shoal.client.deadlines import Deadline
from shoal.client.engine import Engine
from shoal.client.leases import Buffers
from shoal.client.offsets import EARLIEST, LATEST, commit_as_nobody, fetch_committed, list_offsets
from shoal.client.security import tls_context
from shoal.errors import (
    ConfigError,
    ConnectionFailedError,
    OffsetRangeMissingError,
    RequestTimeoutError,
    ShoalError,
)
from shoal.records.chunks import ChunkLike
from shoal.spark.bounds import check_present
from shoal.spark.decoding import as_columns
from shoal.spark.options import SourceOptions
from shoal.spark.ranges import OffsetRange
from shoal.spark.read_tally import ReadTally
from shoal.spark.record_store import DataLossError, chosen
from shoal.types import Header, OffsetAndMetadata, TopicPartition
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.client.producer import Producer
    from shoal.client.ranges import RangeReader

T = TypeVar("T")
logger = logging.getLogger(__name__)

SILENCE_S: Final = 2.0
"""How long brokers that nobody has reached yet may be silent before we ask why."""
CREATED_S: Final = 0.9
"""How long a broker may take to create a topic by itself."""
PARTITIONS_AGE_S: Final = 1.0
"""How old the list of partitions may be: a new one is read at most this much later."""


class ClusterClient:
    """One cluster, seen from one process."""

    def __init__(self, config: ConnectionConfig) -> None:
        self._config = config
        self._engine = Engine("shoal-spark")
        self._cluster = self._engine.call(_open(self._config))
        self._reader: RangeReader | None = None
        self._producer: Producer | None = None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the client's and wait for it."""
        try:
            return self._engine.call(self._watched(work))
        except (RequestTimeoutError, ConnectionFailedError) as error:
            if self._cluster.metadata.nodes:
                raise
            raise ConnectionFailedError(
                f"nobody answers at kafka.bootstrap.servers={_addresses(self._config)}: {error}"
            ) from error

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        """The work; if nobody answers it for a while, asks whether SASL is what is missing."""
        if self._cluster.metadata.nodes or self._config.uses_sasl:
            return await work
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait({task}, timeout=SILENCE_S)
        if not done and not self._cluster.metadata.nodes:
            offered = await self._sasl_offered()
            if offered:
                task.cancel()
                protocol = "SASL_SSL" if self._config.uses_tls else "SASL_PLAINTEXT"
                raise ConfigError(
                    f"the brokers want SASL (they offer {', '.join(offered)}): set "
                    f"kafka.security.protocol={protocol}, kafka.sasl.mechanism, "
                    "kafka.sasl.username and kafka.sasl.password"
                )
        return await task

    async def _sasl_offered(self) -> list[str]:
        """The mechanisms of a listener that wants SASL; a broker hangs up on all other requests."""
        for host, port in self._config.addresses():
            try:
                connection = await open_connection(
                    host, port, self._config, tls_context(self._config), Buffers(0)
                )
            except ShoalError:
                continue
            try:
                answer = await connection.send(SaslHandshakeRequest(mechanism="PLAIN"))
                return list(answer.mechanisms)
            except (ShoalError, OSError):
                continue
            finally:
                connection.close()
        return []

    def ask(self, work: Callable[[Cluster, Deadline], Coroutine[Any, Any, T]]) -> T:
        """As ``call``, for what needs the cluster, and as long as the user wants to wait."""

        async def run() -> T:
            return await work(self._cluster, self.deadline())

        return self.call(run())

    def deadline(self) -> Deadline:
        """From now on, as long as the user wants to wait for an answer."""
        return Deadline(self._config.default_api_timeout_ms / 1000)

    @property
    def admin_config(self) -> AdminConfig:
        """The same cluster for an admin client."""
        return AdminConfig(**_shared(self._config))

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    @property
    def reader(self) -> RangeReader:
        # Imported late: who plans reads nothing, and a stream waits for its planner to start.
        from shoal.client.ranges import RangeReader

        if self._reader is None:
            self._reader = RangeReader(self._config)
        return self._reader

    def offsets(
        self, wanted: Mapping[TopicPartition, int], isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time, or an end (EARLIEST, LATEST), per partition."""

        async def ask() -> dict[TopicPartition, int | None]:
            found = await list_offsets(self._cluster, wanted, self.deadline(), isolation_level)
            return {tp: None if one is None else one.offset for tp, one in found.items()}

        return self.call(ask())

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic as they are now."""

        async def ask() -> int:
            metadata = await self._cluster.topics([topic], self.deadline())
            return len(metadata.topics[topic].partitions)

        return [TopicPartition(topic, number) for number in range(self.call(ask()))]

    def need_topic(self, topic: str) -> None:
        """See that a topic is there, to be written to: it is created where the broker does that.

        Raises:
            ConfigError: there is none, and none was created within a second.
        """

        async def ask() -> None:
            if not await self._cluster.undescribed([topic], self.deadline()):
                return
            creating = await _open(self._config, auto_create_topics=True)
            try:
                await creating.refresh([topic], self.deadline())
                try:
                    await creating.topics([topic], Deadline(CREATED_S))
                except RequestTimeoutError:
                    raise ConfigError(
                        f"topic {topic!r} does not exist, and the broker did not create it; "
                        f"create it first: shoal topic create {topic}"
                    ) from None
            finally:
                await creating.close()

        self.call(ask())

    def produce(
        self,
        topic: str,
        records: Sequence[tuple[bytes | None, bytes | None, Sequence[Header], int]],
    ) -> None:
        """Write records and wait until every one is acknowledged."""
        # Imported late: readers start in a third less time without it.
        from shoal.client.producer import Producer

        if self._producer is None:
            self._producer = Producer(ProducerConfig(**_shared(self._config), acks="all"))
        producer = self._producer
        sent = [
            producer.send(topic, value, key, headers=headers, timestamp_ms=timestamp_ms)
            for key, value, headers, timestamp_ms in records
        ]
        producer.flush(self._config.default_api_timeout_ms / 1000)
        for future in sent:
            future.result(0)

    def close(self) -> None:
        """Close everything; the process may go on without this cluster."""
        if self._producer is not None:
            self._producer.close()
        if self._reader is not None:
            self._reader.close()
        self._engine.call(self._cluster.close())
        self._engine.stop()


def source_config(properties: Mapping[str, str]) -> ConnectionConfig:
    """The settings of a read.

    Raises:
        ConfigError: a setting is unknown or wrong.
    """
    return ConsumerConfig.from_properties(properties)


def sink_config(properties: Mapping[str, str]) -> ConnectionConfig:
    """The connection settings among those of a write."""
    return ConnectionConfig(**_shared(ProducerConfig.from_properties(properties)))


def _shared(config: ConnectionConfig) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(ConnectionConfig)}


def _addresses(config: ConnectionConfig) -> str:
    return ",".join(f"{host}:{port}" for host, port in config.addresses())


async def _open(config: ConnectionConfig, *, auto_create_topics: bool = False) -> Cluster:
    links = Links(config, tls_context(config))
    return Cluster(config, links, auto_create_topics=auto_create_topics)


class ClusterStock:
    """The records of a cluster; implements ``stock.Stock``."""

    def __init__(self, connection: ClusterClient, options: SourceOptions) -> None:
        self._connection = connection
        self._options = options
        self._isolation = "read_committed" if options.committed_only else "read_uncommitted"
        self._partitions: list[TopicPartition] = []
        self._partitions_at = float("-inf")

    def partitions(self) -> list[TopicPartition]:
        if time.monotonic() - self._partitions_at > PARTITIONS_AGE_S:
            self._partitions = self._connection.call(self._list())
            self._partitions_at = time.monotonic()
        return self._partitions

    async def _list(self) -> list[TopicPartition]:
        options, cluster = self._options, self._connection.cluster
        deadline = self._connection.deadline()

        async def ask() -> list[TopicPartition]:
            wanted = options.topics
            if options.assign is not None:
                wanted = tuple({tp.topic for tp in options.assign})
            metadata = await cluster.refresh(wanted, deadline)
            found = [
                TopicPartition(name, number)
                for name, topic in metadata.topics.items()
                for number in range(len(topic.partitions))
            ]
            return chosen(options, found)

        return await cluster.retrying(ask, deadline)

    def earliest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ends(tps, EARLIEST)

    def latest(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ends(tps, LATEST, self._isolation)

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ends(tps, LATEST)

    def _ends(
        self, tps: Iterable[TopicPartition], which: int, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        found = self._connection.offsets(dict.fromkeys(tps, which), isolation_level)
        return {tp: 0 if offset is None else offset for tp, offset in found.items()}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return self._connection.offsets(times_ms, self._isolation)

    def bytes_per_record(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, float]:
        """From a look at the newest records: brokers do not tell sizes by offset."""
        sizes: dict[TopicPartition, float] = {}
        tps = list(tps)
        earliest, latest = self.earliest(tps), self.latest(tps)
        for tp in tps:
            start = max(earliest[tp], latest[tp] - _SAMPLE_ROWS)
            if start < latest[tp]:
                sizes[tp] = self._sample(OffsetRange(*tp, start, latest[tp]))
        return sizes

    def _sample(self, one: OffsetRange) -> float:
        rows = size = 0
        for batch in self.read([one], ["key", "value"], fail_on_data_loss=False):
            rows += batch.num_rows
            size += batch.nbytes
        return size / rows if rows else 1.0

    def pieces(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        return list(ranges)

    def read(
        self,
        ranges: Sequence[OffsetRange],
        columns: Sequence[str],
        *,
        fail_on_data_loss: bool,
        tally: ReadTally | None = None,
    ) -> Iterator[pa.RecordBatch]:
        left = list(ranges)
        tally = tally or ReadTally()
        while left:
            # A partition may stand in a task twice (split ranges); a read takes it once.
            now = {one.topic_partition: one for one in reversed(left)}
            left = [one for one in left if now[one.topic_partition] is not one]
            try:
                fetched = self._connection.reader.read_chunks(
                    {tp: (one.start, one.end) for tp, one in now.items()},
                    isolation_level=self._isolation,
                )
                for chunks in tally.fetched(fetched, _size):
                    yield from as_columns(chunks, columns, self._options.batch_bytes_max)
                    for topic, partition, _, _, upto, *_ in chunks:
                        tp = TopicPartition(topic, partition)
                        assert upto is not None, "a range has an end"
                        now[tp] = now[tp]._replace(start=upto)
            except OffsetRangeMissingError as error:
                if fail_on_data_loss:
                    raise DataLossError([str(error)]) from error
                logger.warning("left out, for failOnDataLoss=false: %s", error)
                left += self._still_there(now, error.topic_partition)

    def _still_there(
        self, unread: dict[TopicPartition, OffsetRange], lost: TopicPartition
    ) -> list[OffsetRange]:
        """What is left to read after records of one partition were found gone."""
        rest = [one for tp, one in unread.items() if tp != lost and one.rows > 0]
        found = check_present(
            [unread[lost]], self.earliest([lost]), self.log_ends([lost]), fail_on_data_loss=False
        )
        # If nothing changed, the log and its description contradict each other: do not go round.
        return rest + [one for one in found if one != unread[lost]]


_SAMPLE_ROWS: Final = 1000


def _size(chunks: Sequence[ChunkLike]) -> int:
    return sum(len(chunk[2]) for chunk in chunks)


class ClusterGroup:
    """A consumer group of a cluster; implements ``stock.GroupOffsets``."""

    def __init__(self, connection: ClusterClient, group_id: str) -> None:
        self._connection = connection
        self._group_id = group_id

    def committed(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = list(tps)

        async def ask() -> dict[TopicPartition, int]:
            found = await fetch_committed(
                self._connection.cluster, self._group_id, wanted, self._connection.deadline()
            )
            return {tp: one.offset for tp, one in found.items() if one is not None}

        return self._connection.call(ask())

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        async def ask() -> None:
            await commit_as_nobody(
                self._connection.cluster,
                self._group_id,
                {tp: OffsetAndMetadata(offset, "spark") for tp, offset in offsets.items()},
                self._connection.deadline(),
            )

        self._connection.call(ask())

    def live_members(self) -> int:
        from shoal.client.group_admin import describe_group

        async def ask() -> int:
            described = await describe_group(
                self._connection.cluster, self._group_id, self._connection.deadline()
            )
            return len(described.members)

        return self._connection.call(ask())
