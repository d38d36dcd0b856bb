"""Transactions that one producer prepares and somebody else ends, on both brokers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

from shoal import Admin, BrokerError, Consumer, Producer, TopicPartition
from shoal.errors import ErrorCode
from shoal.types import PreparedTransaction

ENDED_OTHERWISE = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


@pytest.fixture
def prepared(servers: str, topic: str) -> Callable[..., PreparedTransaction]:
    def prepare(*values: bytes, **settings: object) -> PreparedTransaction:
        name = f"prepared-{uuid.uuid4()}"
        with Producer(bootstrap_servers=servers, transactional_id=name, **settings) as producer:  # type: ignore[arg-type]
            producer.init_transactions()
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value)
            made = producer.prepare_transaction()
        assert made is not None
        assert made.transactional_id == name
        return made

    return prepare


def committed(servers: str, topic: str, wanted: int) -> list[bytes | None]:
    with Consumer(
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes | None] = []
        deadline = time.monotonic() + (10 if wanted else 0.3)
        while len(found) <= wanted and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(0.1)]
            if wanted and len(found) == wanted:
                break
        return found


def test_what_was_prepared_outlives_its_producer_and_is_committed_by_somebody_else(
    servers: str, topic: str, admin: Admin, prepared: Callable[..., PreparedTransaction]
) -> None:
    one = prepared(b"a", b"b")
    assert committed(servers, topic, 0) == []
    for _ in range(3):  # an answer may have been lost
        admin.end_transaction(one, commit=True)
    assert committed(servers, topic, 2) == [b"a", b"b"]
    with pytest.raises(BrokerError) as caught:
        admin.end_transaction(one, commit=False)
    assert caught.value.code in ENDED_OTHERWISE


def test_what_was_prepared_can_be_aborted_and_a_commit_says_so(
    servers: str, topic: str, admin: Admin, prepared: Callable[..., PreparedTransaction]
) -> None:
    one = prepared(b"a")
    admin.end_transaction(one, commit=False)
    with pytest.raises(BrokerError) as caught:
        admin.end_transaction(one, commit=True)
    assert caught.value.code in ENDED_OTHERWISE
    assert committed(servers, topic, 0) == []


def test_whoever_takes_over_the_id_fences_what_was_prepared(
    servers: str, admin: Admin, prepared: Callable[..., PreparedTransaction]
) -> None:
    one = prepared(b"a")
    admin.fence_producers(one.transactional_id)
    with pytest.raises(BrokerError) as caught:
        admin.end_transaction(one, commit=True)
    assert caught.value.code in ENDED_OTHERWISE


def test_the_producer_itself_may_end_what_it_prepared(servers: str, topic: str) -> None:
    name = f"prepared-{uuid.uuid4()}"
    with Producer(bootstrap_servers=servers, transactional_id=name) as producer:
        producer.init_transactions()
        for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
            producer.begin_transaction()
            sent = producer.send(topic, value)
            producer.prepare_transaction()
            assert sent.done(), "all of it is stored by then"
            with pytest.raises(RuntimeError, match="is prepared; commit_transaction"):
                producer.send(topic, b"late")
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.begin_transaction()
        assert producer.prepare_transaction() is None, "nothing was sent"
        producer.commit_transaction()
    assert committed(servers, topic, 2) == [b"a", b"c"]
