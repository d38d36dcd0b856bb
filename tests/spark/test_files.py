"""Segment files give the rows the wire gives, and never more; while a broker works on them too."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shoal.broker.config import BrokerConfig, BrokerLimits
from shoal.errors import ConfigError
from shoal.log import run_job
from shoal.spark.bounds import batch_ranges
from shoal.spark.cluster import ClusterClient, ClusterStock, source_config
from shoal.spark.decoding import BadBatchError
from shoal.spark.files import LogFiles
from shoal.spark.options import SourceOptions, parse_source
from shoal.spark.ranges import OffsetRange
from shoal.spark.record_store import DataLossError
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from tests.log.test_offline_transactions import Written
from tests.peers import need
from tests.spark.topics import START_MS, Topics, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
TP = TopicPartition("in", 0)


def options(directory: Path, **more: str) -> SourceOptions:
    return parse_source({"logDir": str(directory), "subscribe": "in", **more}, "batch")


def rows(stock: LogFiles | ClusterStock, ranges: list[OffsetRange]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for batch in stock.read(ranges, COLUMNS, fail_on_data_loss=True):
        found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return sorted(found, key=lambda row: row[3:5])


def over_the_wire(broker: Broker) -> list[tuple[Any, ...]]:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "in"}
    parsed = parse_source(given, "batch")
    connection = ClusterClient(source_config(parsed.properties))
    try:
        stock = ClusterStock(connection, parsed)
        return rows(stock, batch_ranges(parsed, stock))
    finally:
        connection.close()


def from_files(broker: Broker) -> list[tuple[Any, ...]]:
    parsed = options(broker.data_dir)
    stock = LogFiles(str(broker.data_dir), parsed)
    return rows(stock, batch_ranges(parsed, stock))


def checkpoint(broker: Broker) -> None:
    broker.on_loop(lambda live: run_job(live.directory.checkpoint(live.now_ms())))


def test_committed_records_are_read_from_files_alone(tmp_path: Path) -> None:
    written = Written(tmp_path, 3)
    written.go_on(200)
    written.directory.close()
    given = {"kafka.isolation.level": "read_committed", "subscribe": "orders"}
    parsed = options(tmp_path, **given)
    stock = LogFiles(str(tmp_path), parsed)
    found = [row[4] for row in rows(stock, batch_ranges(parsed, stock))]
    assert found == written.stable()
    with pytest.raises(ConfigError, match="neither read_committed nor read_uncommitted"):
        options(tmp_path, **{"kafka.isolation.level": "serializable"})


@pytest.fixture
def broker() -> Iterator[Broker]:
    small = BrokerConfig(limits=BrokerLimits(segment_bytes_min=14))
    with Broker(config=small) as running:
        running.create_topic(
            "in", 2, segment_bytes=20_000, retention_ms=-1, index_interval_bytes=500
        )
        yield running


@pytest.fixture
def made(broker: Broker) -> Iterator[Topics]:
    with Topics(broker.bootstrap_servers, "files") as topics:
        yield topics


def fill(made: Topics, count: int = 800, start: int = 0, **settings: Any) -> None:
    for first in range(start, start + count, 50):
        made.write(
            "in",
            [
                (str(n).encode(), b"%d" % n * 20, (("h", b"x"),) if n % 5 == 0 else ())
                for n in range(first, first + 50)
            ],
            start_ms=START_MS + first,
            **settings,
        )


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_files_and_wire_show_the_same_rows(broker: Broker, made: Topics, codec: str) -> None:
    fill(made, codec=codec)
    checkpoint(broker)
    assert len(list((broker.data_dir / "in-0").glob("*.log"))) > 1 or codec == "zstd"
    assert from_files(broker) == over_the_wire(broker)


def test_ranges_start_and_end_anywhere(broker: Broker, made: Topics) -> None:
    fill(made, partition=0)
    checkpoint(broker)
    stock = LogFiles(str(broker.data_dir), options(broker.data_dir))
    for start, end in [(0, 1), (1, 799), (399, 401), (50, 100), (799, 800), (7, 7)]:
        shown = [row[4] for row in rows(stock, [OffsetRange("in", 0, start, end)])]
        assert shown == list(range(start, end))


def test_tasks_are_cut_at_segments(broker: Broker, made: Topics) -> None:
    fill(made, partition=0)
    checkpoint(broker)
    stock = LogFiles(str(broker.data_dir), options(broker.data_dir))
    bases = sorted(int(p.stem) for p in (broker.data_dir / "in-0").glob("*.log"))
    cut = stock.pieces([OffsetRange("in", 0, 3, 800)])
    assert [piece.start for piece in cut] == [3, *bases[1:]]
    assert [piece.end for piece in cut] == [*bases[1:], 800]


def test_nothing_past_the_high_watermark_is_shown(broker: Broker, made: Topics) -> None:
    fill(made, 100, partition=0)
    checkpoint(broker)
    fill(made, 100, start=100, partition=0)
    stock = LogFiles(str(broker.data_dir), options(broker.data_dir))
    assert stock.latest([TP]) == {TP: 100}
    checkpoint(broker)
    assert stock.latest([TP]) == {TP: 200}  # the checkpoint was replaced, and is seen


def test_without_a_checkpoint_the_last_whole_batch_ends_the_log(
    broker: Broker, made: Topics, tmp_path: Path
) -> None:
    fill(made, 200, partition=0)
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir / "in-0", copy / "in-0")
    last = max((copy / "in-0").glob("*.log"))
    data = last.read_bytes()
    for cut in (1, 60, len(data) // 3):
        last.write_bytes(data[: len(data) - cut])
        stock = LogFiles(str(copy), options(copy))
        end = stock.latest([TP])[TP]
        assert 0 < end < 200
        shown = [row[4] for row in rows(stock, [OffsetRange("in", 0, 0, end)])]
        assert shown == list(range(end))


def test_a_lying_index_changes_nothing(broker: Broker, made: Topics, tmp_path: Path) -> None:
    fill(made, 300, partition=0)
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir / "in-0", copy / "in-0")
    wanted = [OffsetRange("in", 0, 137, 260)]
    right = rows(LogFiles(str(copy), options(copy)), wanted)
    for content in (b"", b"\x00" * 800, b"\xff" * 80, (7).to_bytes(4, "big") * 40):
        for index in (copy / "in-0").glob("*.index"):
            index.write_bytes(content)
        assert rows(LogFiles(str(copy), options(copy)), wanted) == right


def test_times_are_found(broker: Broker, made: Topics) -> None:
    fill(made, 300, partition=0)
    checkpoint(broker)
    stock = LogFiles(str(broker.data_dir), options(broker.data_dir))
    for offset in (0, 1, 155, 299):
        assert stock.at_times({TP: START_MS + offset}) == {TP: offset}
    assert stock.at_times({TP: START_MS + 300}) == {TP: None}


def test_deleted_records_start_the_log_later(broker: Broker, made: Topics) -> None:
    fill(made, 400, partition=0)
    made.admin.delete_records({TP: 210})
    checkpoint(broker)
    stock = LogFiles(str(broker.data_dir), options(broker.data_dir))
    assert stock.earliest([TP]) == {TP: 210}
    assert from_files(broker) == over_the_wire(broker)
    all_of_it = options(broker.data_dir, startingOffsets='{"in":{"0":0}}')
    with pytest.raises(DataLossError, match="in-0 offsets 0 to 209 were deleted"):
        batch_ranges(all_of_it, stock)


def test_reading_goes_on_while_the_broker_appends_rolls_and_deletes(
    broker: Broker, made: Topics
) -> None:
    fill(made, 400, partition=0)
    checkpoint(broker)
    done = threading.Event()

    def work() -> None:
        for round_number in range(6):
            fill(made, 100, start=400 + 100 * round_number, partition=0)
            checkpoint(broker)
            made.admin.delete_records({TP: 50 * round_number})
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    reads = 0
    while not done.is_set() or reads < 3:
        stock = LogFiles(str(broker.data_dir), options(broker.data_dir))
        first, last = stock.earliest([TP])[TP], stock.latest([TP])[TP]
        try:
            shown = rows(stock, [OffsetRange("in", 0, first, last)])
        except DataLossError:
            continue  # deleted between the plan and the read, and said so
        assert [row[4] for row in shown] == list(range(first, last))
        assert all(row[1] == b"%d" % row[4] * 20 for row in shown)
        reads += 1
    worker.join()


def test_a_bad_batch_is_named_by_partition_and_offset(
    broker: Broker, made: Topics, tmp_path: Path
) -> None:
    fill(made, 100, partition=0)
    copy = tmp_path / "copy"
    shutil.copytree(broker.data_dir / "in-0", copy / "in-0")
    log = copy / "in-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-5] ^= 1
    log.write_bytes(data)
    with pytest.raises(BadBatchError, match=r"the batch at in-0 offset 50 cannot be read"):
        rows(LogFiles(str(copy), options(copy)), [OffsetRange("in", 0, 0, 100)])


def test_a_directory_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"logDir=.* cannot be read: No such file"):
        LogFiles(str(tmp_path / "no"), options(tmp_path)).partitions()
    with pytest.raises(ConfigError, match="topic 'in' does not exist"):
        LogFiles(str(tmp_path), options(tmp_path)).partitions()


@pytest.mark.spark
def test_spark_reads_a_directory_in_batches_and_streams(
    spark: SparkSession, broker: Broker, made: Topics, tmp_path: Path
) -> None:
    fill(made)
    checkpoint(broker)
    given = {"logDir": str(broker.data_dir), "subscribe": "in", "includeHeaders": "true"}
    expected = rows_of(made.read(spark, subscribe="in", includeHeaders=True))
    assert len(expected) == 800
    assert rows_of(spark.read.format("shoal").options(**given).load()) == expected
    frame = (
        spark.readStream.format("shoal")
        .options(**given, startingOffsets="earliest", maxOffsetsPerTrigger="300")
        .load()
    )
    query = (
        frame.writeStream.format("memory")
        .queryName("from_files")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert rows_of(spark.table("from_files")) == expected


@pytest.mark.kafka
@pytest.mark.long
def test_a_directory_of_apache_kafka_is_read_as_the_wire_shows_it() -> None:
    from tests.peers.jars import kafka_jars
    from tests.peers.kafka import ApacheKafka

    need(kafka_jars)
    with ApacheKafka() as kafka, Topics(kafka.bootstrap_servers, "files") as made:
        made.admin.create_topic(
            "in", partitions=2, configs={"segment.bytes": "1048576", "retention.ms": "-1"}
        )
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            fill(made, 2000, codec=codec)
        copy = kafka.data_directory()
        given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "in"}
        parsed = parse_source(given, "batch")
        connection = ClusterClient(source_config(parsed.properties))
        stock = ClusterStock(connection, parsed)
        ranges = batch_ranges(parsed, stock)
        expected = rows(stock, ranges)
        connection.close()
        assert len(expected) == 10_000
        files = LogFiles(str(copy), options(copy))
        assert rows(files, ranges) == expected
        last = files.latest(files.partitions())
        assert all(last[one.topic_partition] <= one.end for one in ranges)
