"""A Kafka cluster as Spark's reads, commits and writes use it, through our own client.

One ``Connection`` per process and cluster (see ``places.py``): metadata and sockets stay warm from
task to task and from micro-batch to micro-batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from shoal.client.cluster import Cluster
from shoal.client.config import AdminConfig, ConnectionConfig, ConsumerConfig, ProducerConfig
from shoal.client.engine import Engine
from shoal.client.links import Links
from shoal.client.offsets import EARLIEST, LATEST, commit_as_nobody, fetch_committed, list_offsets
from shoal.client.security import tls_context
from shoal.client.timing import Deadline
from shoal.errors import (
    ConfigError,
    ConnectionFailedError,
    OffsetRangeMissingError,
    RequestTimeoutError,
)
from shoal.spark.bounds import check_present
from shoal.spark.decoding import as_columns
from shoal.spark.options import SourceOptions
from shoal.spark.ranges import OffsetRange
from shoal.spark.stock import DataLossError, chosen
from shoal.types import Header, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.client.producer import Producer
    from shoal.client.ranges import RangeReader

T = TypeVar("T")
logger = logging.getLogger(__name__)

PARTITIONS_AGE_S: Final = 1.0
"""How old the list of partitions may be: a new one is read at most this much later."""


class Connection:
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
            return self._engine.call(work)
        except RequestTimeoutError as error:
            if self._cluster.metadata.nodes:
                raise
            addresses = ",".join(f"{host}:{port}" for host, port in self._config.addresses())
            raise ConnectionFailedError(
                f"nobody answers at kafka.bootstrap.servers={addresses}: {error}"
            ) from error

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

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time, or an end (EARLIEST, LATEST), per partition."""

        async def ask() -> dict[TopicPartition, int | None]:
            found = await list_offsets(self._cluster, wanted, self.deadline())
            return {tp: None if one is None else one.offset for tp, one in found.items()}

        return self.call(ask())

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic as they are now."""

        async def ask() -> int:
            metadata = await self._cluster.topics([topic], self.deadline())
            return len(metadata.topics[topic].partitions)

        return [TopicPartition(topic, number) for number in range(self.call(ask()))]

    def produce(
        self,
        topic: str,
        records: Sequence[tuple[bytes | None, bytes | None, Sequence[Header]]],
    ) -> None:
        """Write records and wait until every one is acknowledged."""
        # Imported late: readers start in a third less time without it.
        from shoal.client.producer import Producer

        if self._producer is None:
            self._producer = Producer(ProducerConfig(**_shared(self._config), acks="all"))
        producer = self._producer
        sent = [
            producer.send(topic, value, key, headers=headers) for key, value, headers in records
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
        ConfigError: a setting is unknown, or is one that a read could not keep.
    """
    config = ConsumerConfig.from_properties(properties)
    if config.isolation_level != "read_uncommitted":
        raise ConfigError(
            f"option kafka.isolation.level={config.isolation_level} is not known here: "
            "records of aborted transactions are shown too"
        )
    return config


def sink_config(properties: Mapping[str, str]) -> ConnectionConfig:
    """The connection settings among those of a write."""
    return ConnectionConfig(**_shared(ProducerConfig.from_properties(properties)))


def _shared(config: ConnectionConfig) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in fields(ConnectionConfig)}


async def _open(config: ConnectionConfig) -> Cluster:
    return Cluster(config, Links(config, tls_context(config)))


class ClusterStock:
    """The records of a cluster; implements ``stock.Stock``."""

    def __init__(self, connection: Connection, options: SourceOptions) -> None:
        self._connection = connection
        self._options = options
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
        return self._ends(tps, LATEST)

    def _ends(self, tps: Iterable[TopicPartition], which: int) -> dict[TopicPartition, int]:
        found = self._connection.offsets(dict.fromkeys(tps, which))
        return {tp: 0 if offset is None else offset for tp, offset in found.items()}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return self._connection.offsets(times_ms)

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
        self, ranges: Sequence[OffsetRange], columns: Sequence[str], *, fail_on_data_loss: bool
    ) -> Iterator[pa.RecordBatch]:
        left = list(ranges)
        while left:
            # A partition may stand in a task twice (split ranges); a read takes it once.
            now = {one.topic_partition: one for one in reversed(left)}
            left = [one for one in left if now[one.topic_partition] is not one]
            try:
                for chunks in self._connection.reader.read_chunks(
                    {tp: (one.start, one.end) for tp, one in now.items()}
                ):
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
            [unread[lost]], self.earliest([lost]), self.latest([lost]), fail_on_data_loss=False
        )
        # If nothing changed, the log and its description contradict each other: do not go round.
        return rest + [one for one in found if one != unread[lost]]


_SAMPLE_ROWS: Final = 1000


class ClusterGroup:
    """A consumer group of a cluster; implements ``stock.GroupOffsets``."""

    def __init__(self, connection: Connection, group_id: str) -> None:
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
