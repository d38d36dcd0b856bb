"""What Spark reads is what was produced: every column, every way to say what to read."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from shoal.types import TopicPartition
from tests.spark.topics import START_MS, Headers, Topics, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ODD_RECORDS: list[tuple[bytes | None, bytes | None, Headers]] = [
    (b"k", b"v", ()),
    (None, b"no key", ()),
    (b"tombstone", None, ()),
    (None, None, ()),
    (b"", b"", ()),
    (b"\xff\x00", bytes(range(256)), ()),
    (b"h", b"1", (("trace", b"abc"), ("trace", None), ("empty", b""))),
    ("ключ".encode(), "значение".encode(), (("имя", b"x"),)),
]


def test_all_columns_of_odd_records_in_every_codec(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    expected = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for partition in range(3):
            expected += topics.write(topic, ODD_RECORDS, partition=partition, codec=codec)
    frame = topics.read(spark, subscribe=topic, includeHeaders=True)
    assert frame.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    assert rows_of(frame) == sorted(expected, key=lambda row: (row.partition, row.offset))


def test_log_append_time_shows_in_timestamp_type(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(message_timestamp_type="LogAppendTime")
    topics.write(topic, ODD_RECORDS[:2])
    shown = rows_of(topics.read(spark, subscribe=topic))
    assert [row.timestampType for row in shown] == [1, 1]
    assert all(row.timestamp.timestamp() * 1000 > START_MS + 1000 for row in shown)


def test_topics_by_name_pattern_and_partition(spark: SparkSession, topics: Topics) -> None:
    first, second, other = (topics.create(name, partitions=2) for name in ("a1", "a2", "b"))
    rows = {name: topics.write_numbers(name, range(20)) for name in (first, second, other)}

    def values(**options: Any) -> Counter[tuple[str, int]]:
        shown = topics.read(spark, **options).select("topic", "partition").collect()
        return Counter((row.topic, row.partition) for row in shown)

    def expected(*names: str) -> Counter[tuple[str, int]]:
        return Counter((row.topic, row.partition) for name in names for row in rows[name])

    assert values(subscribe=f"{first},{other}") == expected(first, other)
    assert values(subscribePattern=topics.name("a.")) == expected(first, second)
    only = values(assign=json.dumps({first: [1], other: [0]}))
    both = expected(first, other)
    assert only == {key: both[key] for key in ((first, 1), (other, 0)) if both[key]}


def test_offsets_and_times_bound_a_batch(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.write_numbers(topic, range(10), start_ms=START_MS)
    topics.write_numbers(topic, range(10, 20), start_ms=START_MS + 60_000)

    def offsets(**options: Any) -> list[int]:
        frame = topics.read(spark, subscribe=topic, **options)
        return [row.offset for row in rows_of(frame)]

    start, end = json.dumps({topic: {"0": 4}}), json.dumps({topic: {"0": 7}})
    assert offsets(startingOffsets=start, endingOffsets=end) == [4, 5, 6]
    assert offsets(startingOffsets=json.dumps({topic: {"0": -2}}), endingOffsets=end) == list(
        range(7)
    )
    assert offsets(startingTimestamp=START_MS + 60_000) == list(range(10, 20))
    assert offsets(endingTimestamp=START_MS + 3) == [0, 1, 2]
    by_time = json.dumps({topic: {"0": START_MS + 60_005}})
    assert offsets(startingOffsetsByTimestamp=by_time) == list(range(15, 20))
    assert offsets(endingOffsetsByTimestamp=by_time, startingTimestamp=START_MS + 9) == [
        9,
        *range(10, 15),
    ]


def test_a_schema_prunes_and_reorders_columns(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.write_numbers(topic, range(5))
    builder = spark.read.format("shoal").schema("offset long, value binary")
    frame = (
        builder.option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    assert frame.columns == ["offset", "value"]
    assert [(row.offset, bytes(row.value)) for row in frame.collect()] == [
        (n, str(n).encode()) for n in range(5)
    ]


def test_the_format_is_found_without_registering_it(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.write_numbers(topic, range(5))
    other = spark.newSession()  # knows only what Spark finds in the environment
    assert topics.read(other, subscribe=topic).count() == 5


def test_columns_say_where_they_are_never_null(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, ODD_RECORDS)
    frame = topics.read(spark, subscribe=topic, includeHeaders=True)
    nullable = {field.name for field in frame.schema if field.nullable}
    assert nullable == {"key", "value", "headers"}
    assert frame.where("key is null").count() == sum(one[0] is None for one in ODD_RECORDS)
    assert frame.where("timestamp is null or offset is null").count() == 0


def test_tasks_are_packed_split_and_bounded(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create(partitions=30)
    rows = topics.write_numbers(topic, range(300))

    def tasks(**options: Any) -> int:
        frame = topics.read(spark, subscribe=topic, **options)
        assert frame.count() == len(rows)
        return frame.rdd.getNumPartitions()

    assert tasks() == 2  # the cores of the session, whatever the partitions
    assert tasks(maxTasks=1) == 1
    assert tasks(minPartitions=60) >= 50
    assert tasks(maxRecordsPerPartition=10) >= 30


def test_unknown_and_wrong_options_are_one_line_for_the_user(
    spark: SparkSession, topics: Topics
) -> None:
    from pyspark.errors import PySparkException

    topic = topics.create()

    def refusal(**options: Any) -> str:
        with pytest.raises(PySparkException) as refused:
            topics.read(spark, **options).collect()
        return _last_line(str(refused.value))

    assert "unknown option startingoffset; did you mean startingOffsets?" in refusal(
        subscribe=topic, startingOffset="earliest"
    )
    assert "subscribe and assign contradict each other" in refusal(
        subscribe=topic, assign='{"a":[0]}'
    )
    assert "does not exist; create it first" in refusal(subscribe="nowhere")
    assert "cannot be latest in a batch read" in refusal(subscribe=topic, startingOffsets="latest")


def _last_line(text: str) -> str:
    """The line of a Spark error that carries the reason."""
    lines = [line for line in text.splitlines() if "shoal.errors." in line or "Error: " in line]
    assert lines, text
    return lines[-1]


def test_deleted_records_fail_a_batch_or_are_left_out(spark: SparkSession, topics: Topics) -> None:
    from pyspark.errors import PySparkException

    topic = topics.create(partitions=2)
    rows = topics.write_numbers(topic, range(20), partition=0)
    rows += topics.write_numbers(topic, range(20), partition=1)
    topics.admin.delete_records({TopicPartition(topic, 0): 5})
    start = json.dumps({topic: {"0": 2, "1": 0}})
    with pytest.raises(PySparkException, match="offsets 2 to 4 were deleted"):
        topics.read(spark, subscribe=topic, startingOffsets=start).collect()
    frame = topics.read(spark, subscribe=topic, startingOffsets=start, failOnDataLoss=False)
    assert rows_of(frame) == [row for row in rows if row.partition == 1 or row.offset >= 5]


def test_text_and_documents_as_typed_columns(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create()
    topics.write(
        topic,
        [
            (b"a", b'{"shop":"x","amount":3,"extra":[1]}', ()),
            (b"b", None, ()),
            (b"c", b'{"amount":null}', ()),
            (b"d", b'{"shop":"two\\nlines",\n"amount":-1}', ()),
        ],
    )
    frame = topics.read(
        spark, subscribe=topic, valueFormat="json", valueSchema="shop string, amount long"
    )
    assert frame.schema["value"].dataType.simpleString() == "struct<shop:string,amount:bigint>"
    shown = [None if row.value is None else tuple(row.value) for row in frame.collect()]
    assert shown == [("x", 3), None, (None, None), ("two\nlines", -1)]
    text = topics.read(spark, subscribe=topic, valueFormat="utf8").select("value").collect()
    assert [row.value for row in text][:2] == ['{"shop":"x","amount":3,"extra":[1]}', None]


def test_poison_records_fail_by_offset_or_go_to_the_dead_letter_topic(
    spark: SparkSession, topics: Topics
) -> None:
    from pyspark.errors import PySparkException

    topic, dead = topics.create(), topics.create("dead")
    bad = [b"not json", b"[1]", b'{"n":"text"}', b"\xff"]
    topics.write(topic, [(b"k", value, ()) for value in (b'{"n":1}', bad[0], b'{"n":2}', *bad[1:])])
    typed = {"subscribe": topic, "valueFormat": "json", "valueSchema": "n long"}
    with pytest.raises(PySparkException, match=r"offset 1 is not as valueFormat says"):
        topics.read(spark, **typed).collect()
    good = topics.read(spark, **typed, deadLetterTopic=dead).collect()
    assert [row.value.n for row in good] == [1, 2]
    letters = rows_of(topics.read(spark, subscribe=dead, includeHeaders=True))
    assert [row.value for row in letters] == bad


def test_a_dead_letter_is_the_record_as_it_came_and_lies_there_once(
    spark: SparkSession, topics: Topics
) -> None:
    topic, dead = topics.create(partitions=2), topics.create("dead", partitions=2)
    poison: list[tuple[bytes | None, bytes | None, Headers]] = [
        (b"k", b"not json", (("trace", b"abc"), ("trace", None))),
        (None, b"[1]", ()),
    ]
    rows = topics.write(topic, [*poison, (b"k", b'{"n":1}', ())], partition=1)
    frame = topics.read(
        spark,
        subscribe=topic,
        valueFormat="json",
        valueSchema="n long",
        deadLetterTopic=dead,
    )
    # Each of these reads the topic anew, in other processes too.
    for _ in range(3):
        assert frame.count() == 1
    assert [row.value.n for row in frame.select("value").collect()] == [1]
    letters = rows_of(topics.read(spark, subscribe=dead, includeHeaders=True))
    letters.sort(key=lambda row: row.timestamp)
    assert len(letters) == len(poison)
    for letter, row, (key, value, headers) in zip(letters, rows, poison, strict=False):
        assert (letter.key, letter.value, letter.timestamp) == (key, value, row.timestamp)
        assert letter.headers is not None
        assert letter.headers[: len(headers)] == headers
        told = dict(letter.headers[len(headers) :])
        assert told.pop("shoal.error")
        number = row.offset
        assert told == {
            "shoal.topic": topic.encode(),
            "shoal.partition": b"1",
            "shoal.offset": str(number).encode(),
            "shoal.timestamp": str(START_MS + number).encode(),
        }


def test_a_dead_letter_topic_that_is_missing_is_created(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.create()
    topics.write(topic, [(b"k", b"\xff", ())])
    dead = topics.name("created")
    frame = topics.read(spark, subscribe=topic, valueFormat="utf8", deadLetterTopic=dead)
    assert frame.count() == 0
    assert sum(topics.ends(dead).values()) == 1


def test_rows_are_chosen_by_key_value_and_header_before_they_are_parsed(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    records: list[tuple[bytes | None, bytes | None, Headers]] = [
        (b"a", b'{"n":1}', (("tenant", b"x"), ("tenant", b"acme"))),
        (b"b", b'{"n":2}', (("tenant", b"acme"),)),
        (None, b"poison", ()),
        (b"a", None, (("other", b"acme"), ("tenant", None))),
        (b"a", b'{"n":3}', ()),
    ]
    topics.write(topic, records, partition=0)
    topics.write(topic, records, partition=1)

    def offsets(**options: Any) -> list[int]:
        shown = topics.read(spark, subscribe=topic, **options).select("offset").collect()
        found = sorted(row.offset for row in shown)
        assert found[::2] == found[1::2]  # both partitions
        return found[::2]

    assert offsets(keyEquals="a") == [0, 3, 4]
    assert offsets(headerEquals="tenant=acme") == [0, 1]
    assert offsets(valueContains='"n":') == [0, 1, 4]
    assert offsets(valueContains='"n":', keyEquals="a", headerEquals="tenant=x") == [0]
    typed = {"valueFormat": "json", "valueSchema": "n int", "valueContains": '"n":'}
    assert offsets(**typed) == [0, 1, 4]


def test_a_time_is_read_by_the_index_and_cut_to_the_millisecond(
    spark: SparkSession, topics: Topics
) -> None:
    from datetime import UTC, datetime, timedelta

    from shoal.errors import ConfigError
    from shoal.spark import between

    topic = topics.create(partitions=2)
    topics.write_numbers(topic, range(100), partition=0, start_ms=START_MS)
    topics.write_numbers(topic, range(50), partition=1, start_ms=START_MS - 1000)
    topics.write_numbers(topic, range(50), partition=1, start_ms=START_MS + 20)
    start = datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(milliseconds=10)

    def offsets(start: datetime | int, end: datetime | int) -> dict[int, list[int]]:
        servers = topics.bootstrap_servers
        frame = between(spark, start, end, bootstrap_servers=servers, subscribe=topic)
        found: dict[int, list[int]] = {}
        for row in rows_of(frame):
            found.setdefault(row.partition, []).append(row.offset)
        return found

    end = start + timedelta(milliseconds=15)
    assert offsets(start, end) == {0: list(range(10, 25)), 1: list(range(50, 55))}
    assert offsets(START_MS + 10**6, START_MS + 10**7) == {}
    with pytest.raises(ConfigError, match="says no time zone"):
        offsets(start.replace(tzinfo=None), end)
    with pytest.raises(ConfigError, match="is before start"):
        offsets(end, start)
