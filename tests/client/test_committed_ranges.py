"""Ranges read with ``read_committed``: on our broker and on Apache Kafka, and what is rare."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from shoal import Admin, Producer, RangeReader, TopicPartition
from shoal.errors import RequestTimeoutError
from tests.client.test_read_committed import T0, ModelLog, ScriptedLog, some_log
from tests.patience import PATIENCE_S, reason_in_time

__all__ = ["some_log"]

COMMITTED = "read_committed"


@pytest.fixture
def t0(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def transactional(servers: str) -> Producer:
    made = Producer(
        bootstrap_servers=servers, transactional_id=f"ranges-{uuid.uuid4()}", linger_ms=0
    )
    made.init_transactions()
    return made


def wrote(producer: Producer, topic: str, *values: str, commit: bool) -> None:
    producer.begin_transaction()
    for value in values:
        producer.send(topic, value.encode())
        producer.flush()  # a batch each
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


def end_of(admin: Admin, tp: TopicPartition, isolation_level: str = COMMITTED) -> int:
    found = admin.list_offsets({tp: "latest"}, isolation_level=isolation_level)[tp]
    assert found is not None
    return found.offset


def read(
    servers: str, tp: TopicPartition, start: int, end: int, **settings: object
) -> list[tuple[int, str]]:
    with RangeReader(bootstrap_servers=servers) as reader:
        batches = list(
            reader.read({tp: (start, end)}, columns=["offset", "value"], **settings)  # type: ignore[arg-type]
        )
    return [
        (row["offset"], row["value"].decode()) for batch in batches for row in batch.to_pylist()
    ]


def test_aborted_records_are_left_out_and_markers_skipped_wherever_a_range_begins(
    servers: str, admin: Admin, producer: Producer, t0: TopicPartition
) -> None:
    topic = t0.topic
    with transactional(servers) as one, transactional(servers) as two:
        two.begin_transaction()
        two.send(topic, b"two-1").result(10)
        wrote(one, topic, "one-1", "one-2", commit=False)
        producer.send(topic, b"plain").result(10)
        wrote(one, topic, "one-3", commit=True)
        two.send(topic, b"two-2").result(10)
        two.abort_transaction()
        wrote(two, topic, "two-3", "two-4", commit=True)
        # Eight records and four markers; Apache Kafka writes those after it has answered.
        while (end := end_of(admin, t0)) < 12:
            time.sleep(0.01)
    uncommitted = read(servers, t0, 0, end)
    assert {value for _, value in uncommitted} == {
        *("two-1", "one-1", "one-2", "plain", "one-3", "two-2", "two-3", "two-4")
    }
    shown = ("plain", "one-3", "two-3", "two-4")
    committed = [(offset, value) for offset, value in uncommitted if value in shown]
    assert read(servers, t0, 0, end, isolation_level=COMMITTED) == committed
    for start in range(end + 1):
        for stop in range(start, end + 1):
            wanted = [row for row in committed if start <= row[0] < stop]
            if (start + stop) % 3 == 0 or stop == end:
                assert read(servers, t0, start, stop, isolation_level=COMMITTED) == wanted


def test_a_range_that_reaches_into_an_open_transaction_waits_for_its_end(
    servers: str, admin: Admin, producer: Producer, t0: TopicPartition
) -> None:
    with transactional(servers) as one:
        producer.send(t0.topic, b"before").result(10)
        one.begin_transaction()
        one.send(t0.topic, b"held").result(10)
        producer.send(t0.topic, b"after").result(10)
        assert end_of(admin, t0) == 1
        reason_in_time(
            lambda s: read(servers, t0, 0, 3, isolation_level=COMMITTED, timeout=s),
            RequestTimeoutError,
            f"open in {t0} since offset 1, and 2 is",
        )
        ending = threading.Timer(0.3, one.abort_transaction)
        ending.start()
        found = read(servers, t0, 0, 3, isolation_level=COMMITTED, timeout=30)
        ending.join()
    assert found == [(0, "before"), (2, "after")]


def test_a_level_that_there_is_not_is_named(servers: str, t0: TopicPartition) -> None:
    with pytest.raises(ValueError, match="isolation_level"):
        read(servers, t0, 0, 1, isolation_level="serializable")


# --- with a broker that has open and aborted transactions ---


def test_nothing_of_aborted_transactions_is_in_a_range(some_log: ModelLog) -> None:
    with ScriptedLog(some_log) as broker:
        assert read(broker.servers, T0, 0, 6, isolation_level=COMMITTED) == [(0, "0"), (1, "1")]
        assert len(read(broker.servers, T0, 0, 7)) == 5


def test_what_an_open_transaction_holds_back_is_named(some_log: ModelLog) -> None:
    with ScriptedLog(some_log) as broker:
        reason_in_time(
            lambda s: read(broker.servers, T0, 0, 7, isolation_level=COMMITTED, timeout=s),
            RequestTimeoutError,
            "open in t-0 since offset 6, and 6 is",
        )


def test_a_range_ends_whose_last_records_were_compacted_before_an_open_transaction() -> None:
    """Nothing lies between offset 2 and the last stable offset 5; an answer has no bytes then."""
    log = ModelLog()
    log.send(1, 2, 0, transactional=False)
    log.send(1, 3, 0, transactional=False)
    log.send(2, 1, 0, transactional=True)
    del log.batches[1]
    with ScriptedLog(log) as broker:
        found = read(broker.servers, T0, 0, 5, isolation_level=COMMITTED, timeout=PATIENCE_S)
    assert found == [(0, "0"), (1, "1")]
