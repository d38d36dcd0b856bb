"""A repeated task writes what is missing, and nothing twice; without Spark, on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
import pytest

from shoal.client.admin import Admin
from shoal.client.config import AdminConfig
from shoal.client.partitioner import murmur2
from shoal.client.producer import Producer
from shoal.spark import replay
from shoal.spark.cluster import ClusterClient
from shoal.spark.ledger import PARTITIONS, TOPIC, LedgerEntry, SinkLedger, TaskAttempt, TaskKey
from shoal.spark.replay import Replay
from shoal.testing.broker import Broker
from shoal.types import TopicPartition

pytestmark = pytest.mark.slow

KEY = TaskKey("a-query", 3)


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[SinkLedger]:
    monkeypatch.setattr(replay, "SETTLE_S", 0.0)  # nothing is under way in these tests
    with Broker(topics={"out": 2, "other": 1}) as broker:
        made = SinkLedger(ClusterClient(AdminConfig(bootstrap_servers=broker.bootstrap_servers)))
        yield made
        made.close()


@contextmanager
def producing(ledger: SinkLedger) -> Iterator[Producer]:
    servers = ledger.connection.admin_config.bootstrap_servers
    with Producer(bootstrap_servers=servers, acks="all") as producer:
        yield producer


def rows(*values: str, **columns: list[object]) -> pa.RecordBatch:
    keys = pa.array([value[:1] for value in values], pa.string())
    data = {"key": keys, "value": pa.array([value.encode() for value in values], pa.binary())}
    return pa.RecordBatch.from_pydict({**data, **columns})


def write(
    ledger: SinkLedger, batch: pa.RecordBatch, batch_id: int, *, upto: int | None = None
) -> list[str]:
    """One attempt; with ``upto`` it dies after so many rows. The values it sent."""
    with producing(ledger) as producer:
        attempt = Replay(ledger, producer, KEY, batch_id)
        new = attempt.to_send("out", batch).slice(0, upto)
        if new.num_rows:
            producer.send_arrow("out", new, partition="partition")
        producer.flush(10)
        if upto is None:
            attempt.finish()
    return [value.decode() for value in new.column("value").to_pylist()]


def content(ledger: SinkLedger, topic: str = "out") -> Counter[str]:
    tps = ledger.connection.partitions(topic)
    ends = ledger.connection.offsets(dict.fromkeys(tps, -1))
    found: Counter[str] = Counter()
    for batch in ledger.connection.reader.read({tp: (0, ends[tp] or 0) for tp in tps}):
        found.update(value.decode() for value in batch.column("value").to_pylist())
    return found


def test_a_finished_task_that_is_repeated_writes_nothing(ledger: SinkLedger) -> None:
    values = ("a1", "b2", "b2", "c3")
    assert write(ledger, rows(*values), 7) == list(values)
    assert write(ledger, rows(*reversed(values)), 7) == []
    assert content(ledger) == Counter(values)


def test_a_task_that_died_halfway_writes_the_rest_and_so_on(ledger: SinkLedger) -> None:
    values = tuple(f"{number % 7}-{number % 11}" for number in range(100))
    for upto in (10, 30, 0, 25):
        write(ledger, rows(*values), 7, upto=upto)
    assert sum(content(ledger).values()) == 65
    write(ledger, rows(*values), 7)
    assert content(ledger) == Counter(values)
    assert write(ledger, rows(*values), 7) == []


def test_the_next_micro_batch_may_hold_the_same_rows(ledger: SinkLedger) -> None:
    assert write(ledger, rows("a", "b"), 7) == ["a", "b"]
    assert write(ledger, rows("a", "b"), 8) == ["a", "b"]
    assert write(ledger, rows("a", "b"), 8) == []


def test_rows_of_other_producers_are_not_taken_for_ours(ledger: SinkLedger) -> None:
    write(ledger, rows("a", "b", "c"), 7, upto=1)
    with producing(ledger) as stranger:
        stranger.send_arrow("out", rows("b", "c"))
    assert write(ledger, rows("a", "b", "c"), 7) == ["b", "c"]


def test_what_the_same_producer_wrote_later_is_not_taken_for_it(ledger: SinkLedger) -> None:
    with producing(ledger) as producer:
        first = Replay(ledger, producer, KEY, 7)
        producer.send_arrow("out", first.to_send("out", rows("a")), partition="partition")
        producer.flush(10)
        first.finish()
        producer.send_arrow("out", rows("x"))  # the worker's next task
    assert write(ledger, rows("a", "x"), 7) == ["x"]


def test_rows_that_name_their_partition_are_compared_with_that_partition(
    ledger: SinkLedger,
) -> None:
    pair = rows("a", "a", partition=[0, 1])
    assert len(write(ledger, pair, 7, upto=1)) == 1
    assert len(write(ledger, pair, 7)) == 1
    tps = [TopicPartition("out", 0), TopicPartition("out", 1)]
    assert ledger.connection.offsets(dict.fromkeys(tps, -1)) == dict.fromkeys(tps, 1)


def test_headers_and_nulls_tell_rows_apart(ledger: SinkLedger) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None, None, b"", b""], pa.binary()),
            "value": pa.array([b"", b"", None, b""], pa.binary()),
            "headers": pa.array([None, [{"key": "h", "value": None}], None, []], kind),
        }
    )
    with producing(ledger) as producer:
        attempt = Replay(ledger, producer, KEY, 1)
        placed = attempt.to_send("out", batch.slice(0, 3))
        producer.send_arrow("out", placed, partition="partition")
        producer.flush(10)
    with producing(ledger) as producer:
        again = Replay(ledger, producer, KEY, 1)
        assert again.missing("out", batch).num_rows == 1
        assert again.missing("out", batch).num_rows == 4  # each was there once


def test_another_division_into_tasks_loses_nothing(ledger: SinkLedger) -> None:
    def task(number: int, *values: str) -> None:
        with producing(ledger) as producer:
            attempt = Replay(ledger, producer, TaskKey("q", number), 5)
            new = attempt.to_send("out", rows(*values))
            if new.num_rows:
                producer.send_arrow("out", new, partition="partition")
            producer.flush(10)
            attempt.finish()

    everything = ("a", "b", "c", "c", "d", "e")
    task(0, *everything[:3])
    task(1, *everything[3:])
    task(0, *everything[:4])
    task(1, *everything[4:5])
    task(2, *everything[5:])
    found = content(ledger)
    assert all(found[value] >= count for value, count in Counter(everything).items())


def test_a_new_process_finds_what_another_noted(ledger: SinkLedger) -> None:
    write(ledger, rows("a", "b"), 7)
    fresh = SinkLedger(ClusterClient(ledger.connection.admin_config))
    try:
        assert write(fresh, rows("a", "b", "c"), 7) == ["c"]
        entry = ledger.find(KEY)
        assert entry is not None
        assert entry.batch_id == 7
        assert len({one.producer_id for one in entry.attempts}) == 2
    finally:
        fresh.close()


def test_the_ledger_names_the_partitions_that_were_written_and_no_other(
    ledger: SinkLedger,
) -> None:
    with Admin(ledger.connection.admin_config) as admin:
        admin.create_topic("wide", partitions=500)
    with producing(ledger) as producer:
        for batch_id, batch in enumerate((rows("a"), rows("a").drop_columns(["key"]))):
            attempt = Replay(ledger, producer, KEY, batch_id)
            producer.send_arrow("wide", attempt.to_send("wide", batch), partition="partition")
            producer.flush(10)
            unfinished = ledger.find(KEY)
            assert unfinished is not None
            assert len(unfinished.attempts[-1].spans) == 1
            attempt.finish()
            finished = ledger.find(KEY)
            assert finished is not None
            ((tp, (start, end)),) = finished.attempts[-1].spans.items()
            assert ledger.connection.offsets({tp: -1}) == {tp: end}
            assert (start, end) == (0, 1)
    by_key = murmur2(b"a") & 0x7FFFFFFF
    assert ledger.connection.offsets({TopicPartition("wide", by_key % 500): -1}).popitem()[1] == 1


def test_a_query_has_one_partition_of_the_ledger_and_others_have_others(
    ledger: SinkLedger,
) -> None:
    with producing(ledger) as producer:
        for query in range(40):
            for task in range(2):
                attempt = Replay(ledger, producer, TaskKey(f"query-{query}", task), 0)
                attempt.to_send("out", rows("a"))
    tps = ledger.connection.partitions(TOPIC)
    ends = ledger.connection.offsets(dict.fromkeys(tps, -1))
    assert len(tps) == PARTITIONS
    used = {tp: end for tp, end in ends.items() if end}
    assert len(used) > PARTITIONS / 2
    assert all(end % 2 == 0 for end in used.values() if end)  # both tasks of each query


def test_a_ledger_of_one_partition_goes_on() -> None:
    with Broker(topics={"out": 2, TOPIC: 1}) as broker:
        old = SinkLedger(ClusterClient(AdminConfig(bootstrap_servers=broker.bootstrap_servers)))
        assert write(old, rows("a", "b"), 7) == ["a", "b"]
        assert write(old, rows("a", "b"), 7) == []
        old.connection.close()


def test_a_new_process_begins_at_the_bookmark_of_the_query(ledger: SinkLedger) -> None:
    write(ledger, rows("a"), 6)
    with producing(ledger) as producer:
        attempt = Replay(ledger, producer, KEY, 7)
        producer.send_arrow("out", attempt.to_send("out", rows("b")), partition="partition")
        producer.flush(10)
        attempt.finish()
    assert attempt.bookmark is not None
    assert attempt.bookmark.offset == 2  # behind the two notes of the micro-batch before
    ledger.keep(attempt.bookmark)
    fresh = SinkLedger(ClusterClient(ledger.connection.admin_config))
    read = fresh.connection.reader.read
    begun: list[int] = []

    def watched(
        ranges: Mapping[TopicPartition, tuple[int, int]], **settings: object
    ) -> Iterator[pa.RecordBatch]:
        begun.extend(start for tp, (start, _) in ranges.items() if tp.topic == TOPIC)
        return read(ranges, **settings)  # type: ignore[arg-type]  # passed on as it came

    fresh.connection.reader.read = watched  # type: ignore[method-assign]  # watched, not replaced
    try:
        assert write(fresh, rows("b"), 7) == []
        assert begun == [2]
    finally:
        fresh.connection.close()


def test_entries_are_read_as_they_were_written() -> None:
    spans = {TopicPartition("a", 0): (5, 9), TopicPartition("b", 12): (0, None)}
    entry = LedgerEntry(3, [TaskAttempt(12, spans), TaskAttempt(None, {})])
    assert LedgerEntry.decode(entry.encode()) == entry
