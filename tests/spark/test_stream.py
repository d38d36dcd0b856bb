"""Streams: every record once, progress in the group, growing and shrinking topics, limits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shoal.types import TopicPartition
from tests.spark.topics import Row, Topics, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 150.0


class Stream:
    """One query whose micro-batches are kept here, from a checkpoint that may be used again."""

    def __init__(self, frame: DataFrame, checkpoint: Path, *, once: bool = True) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.checkpoint = checkpoint

        def keep(batch: DataFrame, batch_id: int) -> None:
            self.batches[batch_id] = rows_of(batch)

        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        if once:
            writer = writer.trigger(availableNow=True)
        self.query: StreamingQuery = writer.start()
        if once:
            assert self.query.awaitTermination(PATIENCE_S), "the stream did not end"

    def rows(self) -> list[Row]:
        rows = [row for batch in list(self.batches.values()) for row in batch]
        return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            failure = self.query.exception()
            if failure is not None:
                raise failure
            assert time.monotonic() < deadline, "the stream did not get there"
            time.sleep(0.02)

    def checkpointed(self) -> dict[TopicPartition, int]:
        """The end of the last micro-batch whose commit is in the checkpoint."""
        last = max(int(p.name) for p in (self.checkpoint / "commits").iterdir() if p.name.isdigit())
        text = (self.checkpoint / "offsets" / str(last)).read_text().splitlines()[-1]
        return {
            TopicPartition(topic, int(number)): offset
            for topic, numbers in json.loads(text).items()
            for number, offset in numbers.items()
        }


def test_a_limited_stream_reads_everything_once_in_portions(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=3)
    rows = topics.write_numbers(topic, range(100))
    frame = topics.stream(
        spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=30
    )
    stream = Stream(frame, tmp_path)
    assert stream.rows() == sorted(rows, key=lambda row: (row.partition, row.offset))
    counts = [len(batch) for batch in stream.batches.values()]
    assert len(counts) >= 4
    assert max(counts) <= 33  # each partition may round its share up


def test_progress_shows_how_far_a_query_is_behind(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    topics.write_numbers(topic, range(300))
    frame = topics.stream(
        spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100
    )
    stream = Stream(frame, tmp_path)
    ends = {str(tp.partition): offset for tp, offset in topics.ends(topic).items()}
    behind = []
    for progress in stream.query.recentProgress:
        (source,) = json.loads(progress.json)["sources"]
        if progress.numInputRows:
            assert source["latestOffset"] == {topic: ends}
            behind.append(sum(ends.values()) - sum(source["endOffset"][topic].values()))
    assert behind == sorted(behind, reverse=True)
    assert behind[0] > behind[-1] == 0


def test_a_limit_in_bytes_reads_everything_once_in_portions(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    rows = topics.write_numbers(topic, range(200))
    frame = topics.stream(
        spark, subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger=300
    )
    stream = Stream(frame, tmp_path)
    assert stream.rows() == sorted(rows, key=lambda row: (row.partition, row.offset))
    assert len(stream.batches) >= 3


def test_the_group_equals_the_checkpoint_at_the_end_and_when_idle(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    group = topics.name("group")
    topics.write_numbers(topic, range(50))
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupId": group}
    ended = Stream(topics.stream(spark, **options, maxOffsetsPerTrigger=20), tmp_path / "ended")
    assert topics.committed(group) == ended.checkpointed() == topics.ends(topic)

    # And once more as a stream that has caught up and waits.
    idle = Stream(topics.stream(spark, **options), tmp_path / "ended", once=False)
    try:
        topics.write_numbers(topic, range(10))
        idle.wait(lambda: topics.committed(group) == topics.ends(topic))
        assert idle.checkpointed() == topics.ends(topic)
        assert topics.admin.describe_group(group).members == ()  # S10: nobody ever joins
    finally:
        idle.query.stop()


def test_a_stream_starts_where_the_group_stands(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    group = topics.name("group")
    rows = topics.write_numbers(topic, range(10), partition=0)
    rows += topics.write_numbers(topic, range(10), partition=1)
    topics.admin.alter_group_offsets(group, {TopicPartition(topic, 0): 7})
    options = {"subscribe": topic, "startingOffsets": "group", "groupId": group}
    assert rows_of(topics.read(spark, **options)) == [
        row for row in rows if row.partition == 1 or row.offset >= 7
    ]
    stream = Stream(topics.stream(spark, **options), tmp_path)
    assert stream.rows() == [row for row in rows if row.partition == 1 or row.offset >= 7]
    assert topics.committed(group) == topics.ends(topic)


def test_a_group_with_members_is_refused_or_waited_for(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    from shoal.client.consumer import Consumer

    topic = topics.create()
    group = topics.name("group")
    topics.write_numbers(topic, range(3))
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupId": group}
    with Consumer(
        bootstrap_servers=topics.bootstrap_servers, group_id=group, enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        with pytest.raises(StreamingQueryException, match="1 live member"):
            Stream(topics.stream(spark, **options), tmp_path / "refused")
        allowed = topics.stream(spark, **options, allowLiveGroup=True)
        stream = Stream(allowed, tmp_path / "allowed", once=False)
        stream.wait(lambda: len(stream.rows()) == 3)
        assert topics.committed(group) == {}
    try:
        # The consumer has left: the group takes what it refused before.
        stream.wait(lambda: topics.committed(group) == topics.ends(topic))
    finally:
        stream.query.stop()


def test_new_partitions_and_topics_are_read_from_their_first_record(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    first = topics.create("grow-1")
    rows = topics.write_numbers(first, range(5))
    frame = topics.stream(
        spark, subscribePattern=topics.name("grow-.*"), startingOffsets="earliest"
    )
    stream = Stream(frame, tmp_path, once=False)
    try:
        stream.wait(lambda: len(stream.rows()) == len(rows))
        topics.admin.create_partitions({first: 3})
        rows += topics.write_numbers(first, range(6), partition=2)
        second = topics.create("grow-2")
        rows += topics.write_numbers(second, range(7))
        stream.wait(lambda: len(stream.rows()) >= len(rows))
    finally:
        stream.query.stop()
    assert stream.rows() == sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def test_records_deleted_before_they_were_read_fail_the_stream_or_are_left_out(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = topics.create()
    rows = topics.write_numbers(topic, range(10))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    for checkpoint in ("strict", "lenient"):
        assert Stream(topics.stream(spark, **options), tmp_path / checkpoint).rows() == rows
    rows += topics.write_numbers(topic, range(10, 30))
    topics.admin.delete_records({TopicPartition(topic, 0): 15})
    with pytest.raises(StreamingQueryException, match="offsets 10 to 14 were deleted"):
        Stream(topics.stream(spark, **options), tmp_path / "strict")
    lenient = topics.stream(spark, **options, failOnDataLoss=False)
    assert Stream(lenient, tmp_path / "lenient").rows() == rows[15:]


def test_a_new_partition_that_was_trimmed_before_a_replay_fails_the_stream_or_is_left_out(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The driver died with the micro-batch planned, and retention went on without it."""
    from pyspark.errors import StreamingQueryException

    topic = topics.create()
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    topics.write_numbers(topic, range(3))
    for name in ("strict", "lenient"):
        Stream(topics.stream(spark, **options), tmp_path / name)
    topics.admin.create_partitions({topic: 2})
    new = topics.write_numbers(topic, range(10), partition=1)
    for name in ("strict", "lenient"):
        assert Stream(topics.stream(spark, **options), tmp_path / name).rows() == new
        commits = tmp_path / name / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in (commits / f"{last}", commits / f".{last}.crc"):
            path.unlink(missing_ok=True)
    topics.admin.delete_records({TopicPartition(topic, 1): 4})
    with pytest.raises(StreamingQueryException, match="offsets 0 to 3 were deleted"):
        Stream(topics.stream(spark, **options), tmp_path / "strict")
    lenient = topics.stream(spark, **options, failOnDataLoss=False)
    assert Stream(lenient, tmp_path / "lenient").rows() == new[4:]


def test_a_minimum_waits_for_enough_records(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    frame = topics.stream(
        spark,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger=10,
        maxTriggerDelay="10m",
    )
    stream = Stream(frame, tmp_path, once=False)
    try:
        topics.write_numbers(topic, range(9))
        # Until Spark has asked again and was told that there is nothing to do.
        stream.query.processAllAvailable()
        assert stream.rows() == []
        topics.write_numbers(topic, range(9, 12))
        stream.wait(lambda: len(stream.rows()) == 12)
        assert [len(batch) for batch in stream.batches.values() if batch] == [12]
    finally:
        stream.query.stop()


def test_a_minimum_waits_no_longer_than_its_delay(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    frame = topics.stream(
        spark,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger=10,
        maxTriggerDelay="3s",
    )
    topics.write_numbers(topic, range(9))
    began = time.monotonic()
    stream = Stream(frame, tmp_path, once=False)
    try:
        stream.wait(lambda: len(stream.rows()) == 9)
        assert time.monotonic() - began >= 3
        assert [len(batch) for batch in stream.batches.values() if batch] == [9]
    finally:
        stream.query.stop()


def test_no_secret_shows_in_plans_event_log_or_checkpoint(
    spark: SparkSession, topics: Topics, event_log: Path, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.write_numbers(topic, range(3))
    secret = "hunter2-do-not-show"
    options: dict[str, Any] = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        # Ignored by a plain listener, and still nobody's business.
        "kafka.sasl.password": secret,
        "kafka.ssl.key.password": secret,
    }
    batch = topics.read(spark, **options)
    assert batch.count() == 3
    stream = Stream(topics.stream(spark, **options), tmp_path)
    assert len(stream.rows()) == 3
    shown = [batch._jdf.queryExecution().toString(), str(stream.query.lastProgress)]
    plan = stream.query._jsq.explainInternal(True)  # type: ignore[attr-defined]  # Java's side is not typed
    shown.append(plan)
    for file in [*event_log.rglob("*"), *tmp_path.rglob("*")]:
        if file.is_file():
            shown.append(file.read_bytes().decode("utf-8", "replace"))
    assert len(shown) > 5
    assert not [text for text in shown if secret in text]


@pytest.mark.parametrize("once", [True, False])
def test_wrong_options_end_the_query_with_our_words_last(
    spark: SparkSession, topics: Topics, tmp_path: Path, once: bool
) -> None:
    """Spark 4.3 follows an error in ``streamReader`` with one of its own."""
    frame = (
        spark.readStream.format("shoal")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .option("subscribe", topics.create())
        .option("endingOffsets", "latest")
        .load()
    )
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = (writer.trigger(availableNow=True) if once else writer).start()
    with pytest.raises(Exception, match="option endingOffsets is for a batch read only") as caught:
        query.awaitTermination(PATIENCE_S)
    assert "UnboundLocalError" not in str(caught.value)
