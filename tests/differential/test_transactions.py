"""Histories of transactions: Apache Kafka and our broker answer alike, and store the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.machine.internal_topic import partition_for
from shoal.records.batch import decode_batch, iter_headers
from shoal.testing.broker import Broker
from shoal.wire.transaction_topic import decode_key, decode_value
from tests.broker.transactional import NEW, OLD
from tests.differential.transactions import HISTORIES, Stage, stage
from tests.peers.cache import need
from tests.peers.kafka import ApacheKafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    running = need(lambda: ApacheKafka(settings=often))
    need(running.__enter__)
    yield running
    running.__exit__(None, None, None)


@pytest.fixture(scope="module")
def shoal() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def told(history: Callable[[Stage], None], port: int) -> list[tuple[str, Any]]:
    with stage(port, history.__name__) as at:
        history(at)
    return at.heard


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_both_answer_alike(
    kafka: ApacheKafka, shoal: Broker, history: Callable[[Stage], None]
) -> None:
    theirs, ours = told(history, kafka.port), told(history, shoal.port)
    assert len(theirs) > 5
    assert ours == theirs


def journal(directory: Path, name: str) -> list[tuple[bytes, bytes]]:
    """The records of an id, in order."""
    found = []
    number = partition_for(name, 50)
    for path in sorted(directory.glob(f"__transaction_state-{number}/*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            assert (header.producer_id, header.is_transactional, header.codec) == (-1, False, 0)
            for record in decode_batch(data, position):
                assert record.key is not None
                assert record.value is not None
                if decode_key(record.key) == name:
                    found.append((record.key, record.value))
    return found


def without_times(value: bytes, first_id: int) -> Any:
    """A record's value, with producer ids counted from the first one of its id."""
    fields = decode_value(value)
    assert b"\0\1" + fields.encode(1) == value, "in our codec it is the same bytes"
    assert fields.transaction_last_update_timestamp_ms > 0
    fields.transaction_last_update_timestamp_ms = 0
    if fields.transaction_start_timestamp_ms > 0:
        fields.transaction_start_timestamp_ms = 1
    # In what order the topics come follows from a hash table of Java's.
    fields.transaction_partitions = fields.transaction_partitions and sorted(
        fields.transaction_partitions, key=lambda each: each.topic
    )
    fields.producer_id -= first_id
    for name in ("previous_producer_id", "next_producer_id"):
        if getattr(fields, name) >= 0:
            setattr(fields, name, getattr(fields, name) - first_id)
    return fields


def test_both_store_the_same_records_of_a_transaction(kafka: ApacheKafka, shoal: Broker) -> None:
    def life(at: Stage) -> None:
        for flow in (OLD, NEW):
            one = at.producer(flow)
            one.init()
            one.write(at.topic, b"x")
            one.stage("group of stored ones", {(at.topic, 0): 3})
            one.end(commit=True)
            at.settle(one.name)
            one.write(at.topic, b"y", partition=1)
            one.end(commit=False)
            at.settle(one.name)

    stored = []
    for port, directory in (
        (kafka.port, kafka.data_directory()),
        (shoal.port, shoal.data_dir),
    ):
        with stage(port, "stored") as at:
            life(at)
        records = journal(directory, "id-of-stored")
        first_id = decode_value(records[0][1]).producer_id
        stored.append([(key, without_times(value, first_id)) for key, value in records])
    theirs, ours = stored
    assert [each for _, each in ours] == [each for _, each in theirs]
    assert ours == theirs
