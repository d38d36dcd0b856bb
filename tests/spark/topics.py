"""Topics for Spark tests: written by our producer, remembered as the rows Spark has to show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from shoal.client.admin import Admin
from shoal.client.producer import Producer
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_MS = 1_700_000_000_000
Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """One record as the source has to show it."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    timestampType: int  # noqa: N815 - Spark's name
    headers: Headers | None


class Topics:
    """The topics of one test."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._prefix = re.sub(r"[^a-z0-9]+", "-", prefix.lower())[:80]
        self.admin = Admin(bootstrap_servers=bootstrap_servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.admin.close()

    def name(self, suffix: str = "in") -> str:
        return f"{self._prefix}.{suffix}"

    def create(self, suffix: str = "in", *, partitions: int = 1, **configs: str) -> str:
        name = self.name(suffix)
        # The records carry times of long ago: retention must not take them.
        settings = {"retention_ms": "-1", **configs}
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        self.admin.create_topic(name, partitions=partitions, configs=dotted)
        return name

    def write(
        self,
        topic: str,
        records: Sequence[tuple[bytes | None, bytes | None, Headers]],
        *,
        partition: int | None = None,
        codec: str = "none",
        start_ms: int = START_MS,
    ) -> list[Row]:
        """Send records, a millisecond apart; the rows they must become."""
        with Producer(
            bootstrap_servers=self.bootstrap_servers, compression_type=codec, linger_ms=5
        ) as producer:
            sent = [
                producer.send(
                    topic,
                    value,
                    key,
                    headers=headers,
                    partition=partition,
                    timestamp_ms=start_ms + number,
                )
                for number, (key, value, headers) in enumerate(records)
            ]
        rows = []
        for number, (future, (key, value, headers)) in enumerate(zip(sent, records, strict=True)):
            metadata = future.result(10)
            assert metadata.offset is not None
            # Spark hands timestamps to Python in the zone of the machine, without saying so.
            moment = datetime.fromtimestamp((start_ms + number) / 1000)  # noqa: DTZ006 - Spark gives local times
            rows.append(
                Row(
                    key,
                    value,
                    topic,
                    metadata.partition,
                    metadata.offset,
                    moment,
                    0,
                    headers or None,
                )
            )
        return rows

    def write_numbers(self, topic: str, numbers: range, **settings: Any) -> list[Row]:
        """Records whose value is a number and whose key is its last digit."""
        plain = [(str(n % 10).encode(), str(n).encode(), ()) for n in numbers]
        return self.write(topic, plain, **settings)

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        found = self.admin.group_offsets(group_id)
        return {tp: one.offset for tp, one in found.items() if one is not None}

    def ends(self, *names: str) -> dict[TopicPartition, int]:
        tps = [
            TopicPartition(name, one.partition)
            for name, described in self.admin.describe_topics(*names).items()
            for one in described.partitions
        ]
        found = self.admin.list_offsets(dict.fromkeys(tps, "latest"))
        return {tp: one.offset if one is not None else 0 for tp, one in found.items()}

    def read(self, spark: SparkSession, **options: Any) -> DataFrame:
        return self._with(spark.read.format("shoal"), options).load()

    def stream(self, spark: SparkSession, **options: Any) -> DataFrame:
        return self._with(spark.readStream.format("shoal"), options).load()

    def _with(self, builder: Any, options: Mapping[str, Any]) -> Any:
        builder = builder.option("kafka.bootstrap.servers", self.bootstrap_servers)
        for name, value in options.items():
            builder = builder.option(name, str(value))
        return builder


def rows_of(frame: DataFrame) -> list[Row]:
    """Everything a frame shows, in the order of partitions and offsets."""
    shown = [as_row(row) for row in frame.collect()]
    return sorted(shown, key=lambda row: (row.topic, row.partition, row.offset))


def as_row(row: Any) -> Row:
    headers = row.asDict().get("headers")
    return Row(
        None if row["key"] is None else bytes(row["key"]),
        None if row["value"] is None else bytes(row["value"]),
        row["topic"],
        row["partition"],
        row["offset"],
        row["timestamp"],
        row["timestampType"],
        None
        if headers is None
        else tuple((h["key"], None if h["value"] is None else bytes(h["value"])) for h in headers),
    )
