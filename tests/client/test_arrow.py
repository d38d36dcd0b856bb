"""Arrow in and out: poll_arrow, send_arrow, and the range reader."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from shoal import Admin, BrokerError, Consumer, Producer, RangeReader, TopicPartition
from shoal.client.partitioner import partition_for_key
from shoal.client.ranges import _Plan, _Stream
from shoal.errors import ErrorCode, OffsetRangeMissingError, RequestTimeoutError
from tests.client.conftest import take
from tests.client.scripted import RECORDS, ScriptedBroker


def fill(producer, topic, count, partition=0):
    for n in range(count):
        producer.send(topic, f"v{n}", f"k{n}", partition=partition, timestamp_ms=n)
    producer.flush(10)


def test_columns_hold_what_records_hold(producer, consumer, topic):
    producer.send(topic, b"v", b"k", timestamp_ms=5, headers=[("h", b"x")])
    producer.send(topic, None, None, timestamp_ms=6)
    producer.flush(10)
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    arrow_batch = one.poll_arrow(10)
    first, second = arrow_batch.to_pylist()
    assert (first["topic"], first["partition"], first["offset"]) == (topic, 0, 0)
    assert (first["key"], first["value"]) == (b"k", b"v")
    assert first["timestamp"].timestamp() == 0.005
    assert first["headers"] == [{"key": "h", "value": b"x"}]
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


def test_nothing_is_a_batch_without_rows(consumer, topic):
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    empty = one.poll_arrow(0.05)
    assert empty.num_rows == 0
    assert "value" in empty.schema.names


def test_columns_of_a_group_are_committed_like_records(producer, consumer, new_topic):
    topic = new_topic(2)
    fill(producer, topic, 20, 0)
    fill(producer, topic, 20, 1)
    one = consumer()
    one.subscribe([topic])
    rows = 0
    while rows < 40:
        rows += one.poll_arrow(5).num_rows
    one.commit_sync()
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert [at.offset for at in one.committed(*partitions).values()] == [20, 20]
    assert one.poll_arrow(0).num_rows == 0


def test_columns_and_records_may_alternate(producer, consumer, topic):
    fill(producer, topic, 100)
    one = consumer(max_poll_records=7)
    one.assign([TopicPartition(topic, 0)])
    offsets: list[Any] = []
    while len(offsets) < 100:
        offsets += [record.offset for record in one.poll(5)]
        arrow_batch = one.poll_arrow(0, max_records=5)
        assert arrow_batch.num_rows <= 5
        offsets += arrow_batch.column("offset").to_pylist()
    assert offsets == [*range(100)]


def test_seek_and_pause_hold_for_columns(producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 10)
    one = consumer()
    one.assign([tp])
    one.seek(tp, 6)
    assert one.poll_arrow(5).column("offset").to_pylist() == [6, 7, 8, 9]
    one.seek(tp, 2)
    one.pause(tp)
    assert one.poll_arrow(0.05).num_rows == 0
    one.resume(tp)
    assert one.poll_arrow(5).column("offset").to_pylist()[0] == 2


# --- send_arrow ---


def test_columns_are_sent_and_read_back(servers, new_topic):
    topic = new_topic(3)
    table = pa.table(
        {
            "key": [b"a", b"b", None, b"d"],
            "value": ["one", "two", None, "four"],
            "timestamp": pa.array([1, 2, 3, 4], pa.timestamp("ms")),
        }
    )
    with Producer(bootstrap_servers=servers) as producer:
        futures = producer.send_arrow(topic, table)
        producer.flush(10)
        assert all(future.exception(0) is None for future in futures)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as one:
        one.assign([TopicPartition(topic, n) for n in range(3)])
        records = take(one, 4)
    assert sorted((r.timestamp_ms, r.key, r.value) for r in records) == [
        (1, b"a", b"one"),
        (2, b"b", b"two"),
        (3, None, None),
        (4, b"d", b"four"),
    ]
    for record in records:
        if record.key is not None:
            assert record.partition == partition_for_key(record.key, 3)


def test_rows_go_to_a_given_partition_or_a_column_of_them(servers, new_topic):
    topic = new_topic(3)
    with Producer(bootstrap_servers=servers) as producer:
        producer.send_arrow(topic, pa.table({"value": ["x"]}), partition=2)
        table = pa.table({"value": ["a", "b", "c"], "to": [1, 0, 1]})
        producer.send_arrow(topic, table, partition="to")
        producer.flush(10)
        with pytest.raises(ValueError, match="not 9"):
            producer.send_arrow(topic, table, partition=9)
        with pytest.raises(ValueError, match="no column 'nope'"):
            producer.send_arrow(topic, table, partition="nope")
        with pytest.raises(ValueError, match="not 5"):
            producer.send_arrow(topic, pa.table({"value": ["a"], "to": [5]}), partition="to")
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as one:
        one.assign([TopicPartition(topic, n) for n in range(3)])
        found = {(r.partition, r.offset): r.value for r in take(one, 4)}
    assert found == {(0, 0): b"b", (1, 0): b"a", (1, 1): b"c", (2, 0): b"x"}


def test_columns_survive_lost_replies_without_duplicates(shoal_broker):
    shoal_broker.create_topic("t", 1)
    for _ in range(3):
        shoal_broker.drop("Produce", after=True)
    servers = shoal_broker.bootstrap_servers
    with Producer(bootstrap_servers=servers, retry_backoff_ms=2, max_request_size=2000) as producer:
        table = pa.table({"value": [f"{n:050}" for n in range(500)]})
        assert len(producer.send_arrow("t", table)) > 10
        producer.flush(20)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as one:
        one.assign([TopicPartition("t", 0)])
        assert [int(record.value) for record in take(one, 500)] == [*range(500)]
        assert one.end_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 500}


# --- exact ranges ---


def test_a_range_is_read_exactly(producer, servers, new_topic):
    topic = new_topic(3)
    for partition in range(3):
        fill(producer, topic, 50, partition)
    ranges = {
        TopicPartition(topic, 0): (0, 50),
        TopicPartition(topic, 1): (7, 8),
        TopicPartition(topic, 2): (10, 10),
    }
    with RangeReader(bootstrap_servers=servers) as reader:
        for _ in range(2):
            rows = [row for part in reader.read(ranges) for row in part.to_pylist()]
            found = [(row["partition"], row["offset"]) for row in rows]
            assert sorted(found) == [*((0, n) for n in range(50)), (1, 7)]
        columns = list(reader.read({TopicPartition(topic, 0): (5, 9)}, columns=["offset"]))
        assert [batch.schema.names for batch in columns] == [["offset"]]
        assert list(reader.read({})) == []
        sliced = list(reader.read({TopicPartition(topic, 0): (0, 50)}, max_rows=20))
        assert max(part.num_rows for part in sliced) <= 20
        assert sum(part.num_rows for part in sliced) == 50


def test_a_range_that_is_not_there_is_an_error_with_the_range_in_it(
    producer, admin, servers, topic
):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 10)
    admin.delete_records({tp: 4})
    with RangeReader(bootstrap_servers=servers) as reader:
        with pytest.raises(OffsetRangeMissingError, match=r"\[2, 8\)") as caught:
            list(reader.read({tp: (2, 8)}))
        assert (caught.value.topic_partition, caught.value.start, caught.value.end) == (tp, 2, 8)
        with pytest.raises(OffsetRangeMissingError, match="the log ends at 10"):
            list(reader.read({tp: (5, 11)}))
        with pytest.raises(ValueError, match="not a range"):
            list(reader.read({tp: (5, 4)}))
        assert sum(part.num_rows for part in reader.read({tp: (4, 10)})) == 6


def test_a_reader_may_be_left_in_the_middle(producer, servers, topic):
    fill(producer, topic, 2000)
    with RangeReader(bootstrap_servers=servers) as reader:
        parts: Any = reader.read(
            {TopicPartition(topic, 0): (0, 2000)}, max_partition_fetch_bytes=1000, max_rows=10
        )
        assert 0 < next(parts).num_rows <= 10
        parts.close()
        assert sum(p.num_rows for p in reader.read({TopicPartition(topic, 0): (0, 9)})) == 9


def test_readers_are_shared_by_settings(shoal_broker):
    servers = shoal_broker.bootstrap_servers
    one = RangeReader.shared(bootstrap_servers=servers)
    assert RangeReader.shared(bootstrap_servers=servers) is one
    assert RangeReader.shared(bootstrap_servers=[servers]) is not one
    one.close()
    RangeReader.shared(bootstrap_servers=[servers]).close()


def test_columns_are_bounded_by_buffer_memory_too():
    columns = pa.table({"value": [bytes(900)]})
    producer = Producer(bootstrap_servers="127.0.0.1:9", buffer_memory=1000, max_block_ms=100)
    try:
        producer._partition_counts["t"] = 1  # known from before the cluster went away
        for _ in range(2):
            producer.send_arrow("t", columns)
        with pytest.raises(RequestTimeoutError, match="buffer_memory"):
            producer.send_arrow("t", columns)
    finally:
        producer.close(0)


def test_the_rows_of_a_partition_stay_in_order(producer, servers, new_topic):
    topic, rows = new_topic(3), 2_000
    numbers = [(7 * n * n + n) % 3 for n in range(rows)]
    columns = pa.table({"value": [str(n) for n in range(rows)], "to": numbers})
    producer.send_arrow(topic, columns, partition="to")
    producer.flush(10)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as one:
        one.assign([TopicPartition(topic, n) for n in range(3)])
        records = take(one, rows)
    for partition in range(3):
        values = [int(r.value) for r in records if r.partition == partition]
        assert values == [n for n in range(rows) if numbers[n] == partition]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ],
)
def test_a_range_is_read_through_passing_errors(shoal_broker, code):
    shoal_broker.create_topic("t", 1)
    servers = shoal_broker.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        fill(producer, "t", 10)
    shoal_broker.fail("Fetch", code, times=2)
    shoal_broker.drop("Fetch")
    with RangeReader(bootstrap_servers=servers, retry_backoff_ms=2) as reader:
        assert sum(p.num_rows for p in reader.read({TopicPartition("t", 0): (0, 10)})) == 10


def test_a_range_is_read_though_its_topic_is_forgotten_in_that_moment(shoal_broker):
    shoal_broker.create_topic("t", 1)
    tp = TopicPartition("t", 0)
    with Producer(bootstrap_servers=shoal_broker.bootstrap_servers) as producer:
        producer.send("t", b"v").result(10)
    with RangeReader(
        bootstrap_servers=shoal_broker.bootstrap_servers, retry_backoff_ms=1
    ) as reader:
        assert len(list(reader.read({tp: (0, 1)}))) == 1
        cluster = reader._cluster

        def forget():
            cluster.metadata = replace(cluster.metadata, topics={})

        async def read():
            stream = _Stream(cluster, _Plan({tp: (0, 1)}, 1000, 1000, 10))
            asyncio.get_running_loop().call_soon(forget)
            try:
                return await stream.next()
            finally:
                await stream.close()

        assert len(reader._engine.call(read()).chunks) == 1


def test_a_range_that_may_not_be_read_says_so_and_one_that_cannot_ends_in_time(shoal_broker):
    shoal_broker.create_topic("t", 1)
    servers = shoal_broker.bootstrap_servers
    tp = TopicPartition("t", 0)
    with Producer(bootstrap_servers=servers) as producer:
        fill(producer, "t", 10)
    with RangeReader(bootstrap_servers=servers, retry_backoff_ms=2) as reader:
        shoal_broker.fail("Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            list(reader.read({tp: (0, 10)}))
        shoal_broker.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=10_000)
        with pytest.raises(RequestTimeoutError):
            list(reader.read({tp: (0, 10)}, timeout=0.1))


def test_a_range_is_read_from_a_leader_that_must_find_out_how_much_of_its_log_counts():
    class New(ScriptedBroker):
        def _fetch(self, request, code):
            answer = super()._fetch(request, code)
            if not self.asked["ListOffsets"]:
                answer.responses[0].partitions[0].high_watermark = 3
            return answer

    with New() as broker:
        broker.fail("ListOffsets", ErrorCode.OFFSET_NOT_AVAILABLE, times=3)
        with RangeReader(bootstrap_servers=broker.servers, retry_backoff_ms=1) as reader:
            tp = TopicPartition("t", 0)
            assert sum(p.num_rows for p in reader.read({tp: (0, RECORDS)})) == RECORDS
            with pytest.raises(OffsetRangeMissingError, match="the log ends at 10"):
                list(reader.read({tp: (0, RECORDS + 1)}))


def test_a_group_of_arrow_readers_shares_the_work(producer, consumer, new_topic):
    topic = new_topic(2)
    fill(producer, topic, 10, 0)
    fill(producer, topic, 10, 1)
    one, two = consumer(), consumer()
    one.subscribe([topic])
    two.subscribe([topic])
    seen: set[Any] = set()

    def collect():
        for member in (one, two):
            arrow_batch = member.poll_arrow(0.02)
            partitions = arrow_batch.column("partition").to_pylist()
            offsets = arrow_batch.column("offset").to_pylist()
            seen.update(zip(partitions, offsets, strict=True))
        return len(seen) == 20 and len(one.assignment()) == len(two.assignment()) == 1

    until = 300
    while not collect():
        until -= 1
        assert until, (seen, one.assignment(), two.assignment())


def sent(producer, topic, columns, **options):
    futures = producer.send_arrow(topic, pa.table(columns), **options)
    return [future.result(10).partition for future in futures]


def test_rows_whose_key_is_null_are_spread_over_the_partitions(producer, new_topic):
    topic = new_topic(3)
    columns = {"key": pa.nulls(10, pa.binary()), "value": ["v"] * 10}
    assert {*(number for _ in range(40) for number in sent(producer, topic, columns))} == {0, 1, 2}


def test_a_null_in_the_column_of_partitions_leaves_the_choice_to_the_partitioner(
    producer, servers, new_topic
):
    topic = new_topic(8)
    keys = [f"k{n}" for n in range(20)]
    numbers = [n % 8 if n % 2 else None for n in range(20)]
    columns = {"key": keys, "value": keys, "p": pa.array(numbers, pa.int32())}
    sent(producer, topic, columns, partition="p")
    assert sent(producer, topic, {"value": ["v"], "p": pa.nulls(1)}, partition="p")
    with Consumer(bootstrap_servers=servers) as reader:
        reader.assign([TopicPartition(topic, n) for n in range(8)])
        reader.seek_to_beginning()
        found = {r.value.decode(): r.partition for r in take(reader, 21) if r.key is not None}
    for key, number in zip(keys, numbers, strict=True):
        assert found[key] == (partition_for_key(key.encode(), 8) if number is None else number)


@pytest.mark.parametrize("numbers", [[0.5, 1.7], ["0", "1"], [True, False]])
def test_partitions_that_are_no_whole_numbers_are_refused(producer, topic, numbers):
    with pytest.raises(TypeError, match="partitions are whole numbers; 'p' holds"):
        sent(producer, topic, {"value": ["a", "b"], "p": numbers}, partition="p")


def test_a_column_of_partitions_is_looked_at_before_anything_is_sent(producer, admin, new_topic):
    topic = new_topic(2)
    columns = {"value": ["v"] * 3, "p": [0, 1, 3]}
    with pytest.raises(ValueError, match="has partitions 0 to 1, not 3"):
        sent(producer, topic, columns, partition="p")
    producer.flush(10)
    ends = admin.list_offsets({TopicPartition(topic, 0): "latest"})
    assert ends[TopicPartition(topic, 0)].offset == 0
    admin.create_partitions({topic: 4})
    assert sent(producer, topic, columns, partition="p") == [0, 1, 3]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_fields_of_headers_are_found_by_name(servers, topic, codec):
    headers = pa.array([[{"value": b"v", "key": "k"}], None])
    with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
        sent(producer, topic, {"value": ["a", "b"], "headers": headers})
    with Consumer(bootstrap_servers=servers) as reader:
        reader.assign([TopicPartition(topic, 0)])
        reader.seek_to_beginning()
        assert [tuple(r.headers) for r in take(reader, 2)] == [(("k", b"v"),), ()]


@pytest.mark.parametrize("kind", ["dictionary", "string_view", "binary_view", "large_binary"])
def test_text_and_bytes_are_taken_in_every_layout(producer, servers, topic, kind):
    texts = pa.array(["one", None, "three"])
    column = (
        texts.dictionary_encode()
        if kind == "dictionary"
        else texts.cast(getattr(pa, kind)())
        if kind == "string_view"
        else texts.cast(pa.binary()).cast(getattr(pa, kind)())
    )
    sent(producer, topic, {"key": column, "value": column})
    with Consumer(bootstrap_servers=servers) as reader:
        reader.assign([TopicPartition(topic, 0)])
        reader.seek_to_beginning()
        found = [(r.key, r.value) for r in take(reader, 3)]
    assert found == [(b"one", b"one"), (None, None), (b"three", b"three")]


@pytest.mark.parametrize("column", ["key", "value"])
def test_numbers_are_no_keys_and_no_values(producer, topic, column):
    columns = {"key": ["k"], "value": ["v"], column: [1]}
    with pytest.raises(TypeError, match="a column of int64 cannot be written"):
        sent(producer, topic, columns)


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us"), pa.timestamp("ns", "UTC")])
def test_a_row_from_before_1970_is_refused_before_anything_is_sent(producer, admin, topic, kind):
    times = pa.array([5, -1, None], pa.int64()).cast(kind)
    with pytest.raises(ValueError, match="is before 1970"):
        sent(producer, topic, {"value": ["a", "b", "c"], "timestamp": times})
    producer.flush(10)
    tp = TopicPartition(topic, 0)
    found = admin.list_offsets({tp: "latest"})[tp]
    assert found is not None
    assert found.offset == 0
    assert sent(producer, topic, {"value": ["v"], "timestamp": times.slice(2)}) == [0]


def test_two_columns_of_one_name_are_refused(producer, topic):
    column = pa.array([b"v"])
    for names in (["value", "value"], ["value", "timestamp", "timestamp"], ["value", "p", "p"]):
        table = pa.Table.from_arrays([column] * len(names), names=names)
        with pytest.raises(ValueError, match=f"2 columns are called '{names[-1]}'"):
            producer.send_arrow(topic, table, partition="p" if "p" in names else None)


ROWS = 30


def _large_table(**last: object) -> pa.Table:
    """Several parts of a few megabytes each, and a last row with something odd in it."""
    row = {"key": b"k", "value": bytes(500_000), "timestamp": 1, "partition": 0}
    row["headers"] = [{"key": "h", "value": b"x"}]
    rows = [row] * (ROWS - 1) + [{**row, **last}]
    schema = pa.schema(
        {
            "key": pa.binary(),
            "value": pa.binary(),
            "timestamp": pa.timestamp("s") if "timestamp" in last else pa.int64(),
            "partition": pa.int64(),
            "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
        }
    )
    return pa.Table.from_pylist(rows, schema)


class _Choosy:
    """A partitioner that does not like one of the keys."""

    def __call__(self, topic, key, count):
        if key == b"raise":
            raise LookupError("no place for it")
        return 99 if key == b"nowhere" else 0


@pytest.mark.parametrize(
    ("last", "error", "said"),
    [
        ({"value": bytes(1_100_000)}, ValueError, "row 29 has 1100"),
        ({"key": bytes(1_100_000)}, ValueError, "row 29 has 1600"),
        ({"headers": [{"key": "h", "value": bytes(1_100_000)}]}, ValueError, "row 29 has 1600"),
        ({"headers": [{"key": None, "value": b"x"}]}, ValueError, "row 29 has a header without"),
        ({"headers": [None]}, ValueError, "row 29 has a header without"),
        ({"timestamp": 2**60}, ValueError, "too far ahead"),
        ({"key": b"nowhere"}, ValueError, "has partitions 0 to 0, not 99"),
        ({"key": b"raise"}, LookupError, "no place for it"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_row_is_looked_at_before_anything_is_sent(servers, topic, codec, last, error, said):
    tp = TopicPartition(topic, 0)
    with (
        Producer(
            bootstrap_servers=servers, compression_type=codec, partitioner=_Choosy()
        ) as producer,
        Admin(bootstrap_servers=servers) as admin,
    ):
        with pytest.raises(error, match=said):
            producer.send_arrow(topic, _large_table(**last))
        producer.flush(30)
        before = admin.list_offsets({tp: "latest"})[tp]
        assert before is not None
        assert before.offset == 0
        for future in producer.send_arrow(topic, _large_table()):
            future.result(30)
        now = admin.list_offsets({tp: "latest"})[tp]
        assert now is not None
        assert now.offset == ROWS
