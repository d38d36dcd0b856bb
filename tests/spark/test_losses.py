"""Records that go while a task reads, and batches that would not fit into its memory.

No Spark runs here: a task's read is a generator, and this is the read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.broker.broker import Broker as LiveBroker
from shoal.client.admin import Admin
from shoal.client.producer import Producer
from shoal.errors import ErrorCode
from shoal.log import run_job
from shoal.log.partition import AppendResult, Origin
from shoal.records.batch import encode_batch
from shoal.records.compression import Codec
from shoal.spark.cluster import ClusterClient, ClusterStock, source_config
from shoal.spark.decoding import BadBatchError
from shoal.spark.files import LogFiles
from shoal.spark.options import parse_source
from shoal.spark.ranges import OffsetRange
from shoal.spark.record_store import DataLossError, Stock
from shoal.testing.broker import Broker
from shoal.types import TopicPartition

pytestmark = pytest.mark.slow
MIB = 1024 * 1024
COUNT = 12
"""Records per partition; one is a megabyte and a batch of its own, so a fetch takes a few."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        settings = {"segment_bytes": 3 * MIB, "max_message_bytes": 200 * MIB}
        running.create_topic("in", 2, **settings)
        yield running


@pytest.fixture(params=["wire", "files"])
def stock(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Stock]:
    with made(broker, request.param) as one:
        yield one


class made:  # noqa: N801 - reads as a word
    """A stock of a broker's records, over the wire or from its files."""

    def __init__(self, broker: Broker, way: str, **options: str) -> None:
        place = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        if way == "files":
            place = {"logDir": str(broker.data_dir)}
        self._options = parse_source({**place, "subscribe": "in", **options}, "batch")
        self._directory: Path = broker.data_dir
        self._connection: ClusterClient | None = None

    def __enter__(self) -> Stock:
        if self._options.log_dir is not None:
            return LogFiles(str(self._directory), self._options)
        self._connection = ClusterClient(source_config(self._options.properties))
        return ClusterStock(self._connection, self._options)

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()


def fill(broker: Broker) -> list[OffsetRange]:
    servers = broker.bootstrap_servers
    with Producer(bootstrap_servers=servers, max_request_size=4 * MIB) as producer:
        for number in range(COUNT):
            for partition in (0, 1):
                producer.send("in", bytes([number]) * MIB, partition=partition)
                producer.flush()
    broker.on_loop(lambda live: run_job(live.directory.checkpoint(live.now_ms())))
    return [OffsetRange("in", partition, 0, COUNT) for partition in (0, 1)]


def delete(broker: Broker, before: int) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition("in", 0): before})
    broker.on_loop(lambda live: run_job(live.directory.retain(live.now_ms())))
    broker.on_loop(lambda live: run_job(live.directory.checkpoint(live.now_ms())))


def offsets(batches: Iterator[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {0: [], 1: []}
    for batch in batches:
        for partition, offset in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            found[partition].append(offset)
    return found


def test_records_deleted_during_a_read_fail_it_and_are_named(broker: Broker, stock: Stock) -> None:
    ranges = fill(broker)
    reading = stock.read(ranges, ["partition", "offset"], fail_on_data_loss=True)
    next(reading)
    delete(broker, COUNT - 1)
    with pytest.raises(DataLossError, match=rf"(to |, )({COUNT - 1}|{COUNT})\b") as lost:
        list(reading)
    assert "in-0" in str(lost.value)


def test_or_they_are_left_out_and_all_others_come_once(broker: Broker, stock: Stock) -> None:
    """What lies behind the gap and in other partitions is read, and nothing twice."""
    ranges = fill(broker)
    reading = stock.read(ranges, ["partition", "offset"], fail_on_data_loss=False)
    first = offsets(iter([next(reading)]))
    delete(broker, COUNT - 1)
    rest = offsets(reading)
    seen = first[0] + rest[0]
    assert seen == sorted(set(seen))
    assert 0 in seen
    assert COUNT - 1 in seen
    assert len(seen) < COUNT, "the deletion came too late to be seen"
    assert first[1] + rest[1] == list(range(COUNT))


@pytest.mark.parametrize("way", ["wire", "files"])
def test_a_batch_that_would_inflate_past_the_limit_fails_its_task_by_offset(
    broker: Broker, way: str
) -> None:
    large = 80 * MIB
    batch = encode_batch([(None, bytes(MIB), (), 0)] * 66, codec=Codec.ZSTD)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("in", b"before", partition=0).result(10)

    def append(live: LiveBroker) -> AppendResult:
        # As another broker may have stored it: ours takes no such batch from a client.
        topic = live.catalogue.get("in")
        assert topic is not None
        partition = live.partitions.get(topic, 0)
        assert not isinstance(partition, ErrorCode)
        return partition.append(bytearray(batch), live.now_ms(), origin=Origin.BROKER)

    assert broker.on_loop(append).error is ErrorCode.NONE
    broker.on_loop(lambda live: run_job(live.directory.checkpoint(live.now_ms())))
    assert sum(path.stat().st_size for path in broker.data_dir.glob("in-0/*.log")) < MIB
    ranges = [OffsetRange("in", 0, 0, 67)]
    columns = ["partition", "offset"]
    with made(broker, way) as stock:
        reading = stock.read(ranges, columns, fail_on_data_loss=True)
        reason = r"in-0 offset 1 cannot be read: .* more than 67108864 bytes; raise option maxBatch"
        with pytest.raises(BadBatchError, match=reason):
            list(reading)
    with made(broker, way, maxBatchBytes=str(large)) as stock:
        reading = stock.read(ranges, columns, fail_on_data_loss=True)
        assert offsets(reading)[0] == list(range(67))
