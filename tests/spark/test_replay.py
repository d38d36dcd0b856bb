"""A repeated task writes what is missing, and nothing twice; without Spark, on a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from shoal.client.config import AdminConfig
from shoal.client.producer import Producer
from shoal.spark import replay
from shoal.spark.cluster import Connection
from shoal.spark.ledger import Attempt, Entry, Ledger, TaskKey
from shoal.spark.replay import Replay
from shoal.testing.broker import Broker
from shoal.types import TopicPartition

pytestmark = pytest.mark.slow

KEY = TaskKey("a-query", 3)


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setattr(replay, "SETTLE_S", 0.0)  # nothing is under way in these tests
    with Broker(topics={"out": 2, "other": 1}) as broker:
        made = Ledger(Connection(AdminConfig(bootstrap_servers=broker.bootstrap_servers)))
        yield made
        made.close()


@contextmanager
def producing(ledger: Ledger) -> Iterator[Producer]:
    servers = ledger.connection.admin_config.bootstrap_servers
    with Producer(bootstrap_servers=servers, acks="all") as producer:
        yield producer


def rows(*values: str, **columns: list[object]) -> pa.RecordBatch:
    keys = pa.array([value[:1] for value in values], pa.string())
    data = {"key": keys, "value": pa.array([value.encode() for value in values], pa.binary())}
    return pa.RecordBatch.from_pydict({**data, **columns})


def write(
    ledger: Ledger, batch: pa.RecordBatch, batch_id: int, *, upto: int | None = None
) -> list[str]:
    """One attempt; with ``upto`` it dies after so many rows. The values it sent."""
    with producing(ledger) as producer:
        attempt = Replay(ledger, producer, KEY, batch_id)
        attempt.begin("out")
        new = attempt.missing("out", batch).slice(0, upto)
        partition = "partition" if "partition" in new.schema.names else None
        producer.send_arrow("out", new, partition=partition)
        producer.flush(10)
        if upto is None:
            attempt.finish()
    return [value.decode() for value in new.column("value").to_pylist()]


def content(ledger: Ledger, topic: str = "out") -> Counter[str]:
    tps = ledger.connection.partitions(topic)
    ends = ledger.connection.offsets(dict.fromkeys(tps, -1))
    found: Counter[str] = Counter()
    for batch in ledger.connection.reader.read({tp: (0, ends[tp] or 0) for tp in tps}):
        found.update(value.decode() for value in batch.column("value").to_pylist())
    return found


def test_a_finished_task_that_is_repeated_writes_nothing(ledger: Ledger) -> None:
    values = ("a1", "b2", "b2", "c3")
    assert write(ledger, rows(*values), 7) == list(values)
    assert write(ledger, rows(*reversed(values)), 7) == []
    assert content(ledger) == Counter(values)


def test_a_task_that_died_halfway_writes_the_rest_and_so_on(ledger: Ledger) -> None:
    values = tuple(f"{number % 7}-{number % 11}" for number in range(100))
    for upto in (10, 30, 0, 25):
        write(ledger, rows(*values), 7, upto=upto)
    assert sum(content(ledger).values()) == 65
    write(ledger, rows(*values), 7)
    assert content(ledger) == Counter(values)
    assert write(ledger, rows(*values), 7) == []


def test_the_next_micro_batch_may_hold_the_same_rows(ledger: Ledger) -> None:
    assert write(ledger, rows("a", "b"), 7) == ["a", "b"]
    assert write(ledger, rows("a", "b"), 8) == ["a", "b"]
    assert write(ledger, rows("a", "b"), 8) == []


def test_rows_of_other_producers_are_not_taken_for_ours(ledger: Ledger) -> None:
    write(ledger, rows("a", "b", "c"), 7, upto=1)
    with producing(ledger) as stranger:
        stranger.send_arrow("out", rows("b", "c"))
    assert write(ledger, rows("a", "b", "c"), 7) == ["b", "c"]


def test_what_the_same_producer_wrote_later_is_not_taken_for_it(ledger: Ledger) -> None:
    with producing(ledger) as producer:
        first = Replay(ledger, producer, KEY, 7)
        first.begin("out")
        producer.send_arrow("out", rows("a"))
        producer.flush(10)
        first.finish()
        producer.send_arrow("out", rows("x"))  # the worker's next task
    assert write(ledger, rows("a", "x"), 7) == ["x"]


def test_rows_that_name_their_partition_are_compared_with_that_partition(ledger: Ledger) -> None:
    pair = rows("a", "a", partition=[0, 1])
    assert len(write(ledger, pair, 7, upto=1)) == 1
    assert len(write(ledger, pair, 7)) == 1
    tps = [TopicPartition("out", 0), TopicPartition("out", 1)]
    assert ledger.connection.offsets(dict.fromkeys(tps, -1)) == dict.fromkeys(tps, 1)


def test_headers_and_nulls_tell_rows_apart(ledger: Ledger) -> None:
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
        attempt.begin("out")
        producer.send_arrow("out", batch.slice(0, 3), partition=0)
        producer.flush(10)
    with producing(ledger) as producer:
        again = Replay(ledger, producer, KEY, 1)
        again.begin("out")
        assert again.missing("out", batch).num_rows == 1
        assert again.missing("out", batch).num_rows == 4  # each was there once


def test_another_division_into_tasks_loses_nothing(ledger: Ledger) -> None:
    def task(number: int, *values: str) -> None:
        with producing(ledger) as producer:
            attempt = Replay(ledger, producer, TaskKey("q", number), 5)
            attempt.begin("out")
            producer.send_arrow("out", attempt.missing("out", rows(*values)))
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


def test_a_new_process_reads_the_ledger_from_its_start(ledger: Ledger) -> None:
    write(ledger, rows("a", "b"), 7)
    fresh = Ledger(Connection(ledger.connection.admin_config))
    try:
        assert write(fresh, rows("a", "b"), 7) == []
        entry = ledger.find(KEY)
        assert entry is not None
        assert entry.batch_id == 7
        assert len({one.producer_id for one in entry.attempts}) == 2
    finally:
        fresh.close()


def test_entries_are_read_as_they_were_written() -> None:
    spans = {TopicPartition("a", 0): (5, 9), TopicPartition("b", 12): (0, None)}
    entry = Entry(3, [Attempt(12, spans), Attempt(None, {})])
    assert Entry.decode(entry.encode()) == entry
