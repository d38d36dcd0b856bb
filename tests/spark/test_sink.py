"""Writing: every row a record, as it was; a repeated micro-batch adds nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.topics import Topics, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 150.0
HEADERS = "array<struct<key:string,value:binary>>"


def write(frame: DataFrame, topics: Topics, **options: Any) -> None:
    writer = frame.write.format("shoal").mode("append")
    writer = writer.option("kafka.bootstrap.servers", topics.bootstrap_servers)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def test_rows_become_records_with_all_their_parts(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    given = [
        ("k", b"v", 2, [("h", b"1"), ("h", None)]),
        (None, b"no key", 1, None),
        ("tombstone", None, 0, None),
    ]
    frame = spark.createDataFrame(
        given, f"key string, value binary, partition int, headers {HEADERS}"
    )
    write(frame, topics, topic=topic, includeHeaders=True, **{"kafka.compression.type": "zstd"})
    shown = rows_of(topics.read(spark, subscribe=topic, includeHeaders=True))
    assert [(row.partition, row.key, row.value, row.headers) for row in shown] == [
        (0, b"tombstone", None, None),
        (1, None, b"no key", None),
        (2, b"k", b"v", (("h", b"1"), ("h", None))),
    ]


def test_a_column_names_the_topic_and_a_null_partition_is_the_keys_choice(
    spark: SparkSession, topics: Topics
) -> None:
    one, two = topics.create("one", partitions=4), topics.create("two", partitions=4)
    given = [(two if n % 3 else one, f"k{n}", str(n), 3 if n % 2 else None) for n in range(60)]
    frame = spark.createDataFrame(given, "topic string, key string, value string, partition int")
    write(frame, topics)
    by_key = topics.write(
        topics.create("by-key", partitions=4), [(f"k{n}".encode(), b"", ()) for n in range(60)]
    )
    expected = {f"k{n}".encode(): 3 if n % 2 else by_key[n].partition for n in range(60)}
    for topic, numbers in ((one, range(0, 60, 3)), (two, [n for n in range(60) if n % 3])):
        shown = rows_of(topics.read(spark, subscribe=topic))
        assert Counter(row.value for row in shown) == Counter(str(n).encode() for n in numbers)
        assert all(row.partition == expected[row.key] for row in shown if row.key)


def test_what_cannot_be_written_is_refused_in_one_line(spark: SparkSession, topics: Topics) -> None:
    from pyspark.errors import PySparkException

    topic = topics.create()
    good = spark.createDataFrame([("k", "v")], "key string, value string")

    def refusal(frame: DataFrame, **options: Any) -> str:
        with pytest.raises(PySparkException) as refused:
            write(frame, topics, **options)
        return str(refused.value)

    assert "no topic: set option topic" in refusal(good)
    assert "no column 'value'" in refusal(good.select("key"), topic=topic)
    assert "column 'more' is not part of a record" in refusal(
        good.selectExpr("*", "1 as more"), topic=topic
    )
    assert "column 'value' is int; it must be binary or string" in refusal(
        good.selectExpr("1 as value"), topic=topic
    )
    assert "unknown option topiic; did you mean topic?" in refusal(good, topiic=topic)


def start(frame: DataFrame, topics: Topics, out: str, checkpoint: Path) -> Any:
    """A stream into a topic, until everything there is has been written."""
    query = (
        frame.selectExpr("key", "value")
        .writeStream.format("shoal")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .option("topic", out)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S), "the stream did not come to its end"
    return query


def test_a_micro_batch_whose_commit_was_lost_is_repeated_without_duplicates(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The driver dies between the sink's end and Spark's commit log (S5)."""
    topic, out = topics.create(partitions=3), topics.create("out", partitions=2)
    rows = topics.write_numbers(topic, range(500))
    frame = topics.stream(
        spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=200
    )
    start(frame, topics, out, tmp_path)
    ends = topics.ends(out)
    assert sum(ends.values()) == len(rows)
    commits = tmp_path / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    query = start(frame, topics, out, tmp_path)
    assert any(p["batchId"] == last and p["numInputRows"] for p in query.recentProgress)
    assert topics.ends(out) == ends


def test_a_task_that_fails_halfway_is_repeated_without_duplicates(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql.functions import udf

    topic, out = topics.create(partitions=2), topics.create("out", partitions=2)
    # Large rows: between Spark and a writer lie buffers, and some must have come through.
    wide = [(str(n % 10).encode(), b"%08d" % n * 250, ()) for n in range(6000)]
    rows = topics.write(topic, wide)
    marker = tmp_path / "failed-once"

    @udf("binary", useArrow=False)
    def fail_once(value: bytes) -> bytes:
        if bytes(value[:8]) == b"00005900" and not marker.exists():
            marker.touch()
            raise ValueError("the planned failure")
        return value

    frame = topics.stream(spark, subscribe=topic, startingOffsets="earliest", maxTasks=2)
    frame = frame.select("key", fail_once("value").alias("value"))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
    try:
        with pytest.raises(StreamingQueryException, match="the planned failure"):
            start(frame, topics, out, tmp_path / "checkpoint")
        before = sum(topics.ends(out).values())
        assert 0 < before < len(rows)  # or this test would show nothing
        start(frame, topics, out, tmp_path / "checkpoint")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    shown = rows_of(topics.read(spark, subscribe=out))
    assert Counter(row.value for row in shown) == Counter(row.value for row in rows)
