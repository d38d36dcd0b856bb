"""Fetch, ListOffsets and DescribeProducers by isolation: what a reader of committed records sees.

Transactions are written straight to the broker's log, on its loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from shoal.broker.config import BrokerConfig
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.describe_producers import DescribeProducersRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from tests.broker.asking import fetch, fetch_request
from tests.broker.raw_client import RawClient, batch, values_of

COMMITTED = 1
FETCH = 1


class Writer:
    """A transactional producer without a coordinator."""

    def __init__(self, broker: Broker, topic: str, producer_id: int = 1000) -> None:
        self._broker = broker
        self._topic = topic
        self.producer_id = producer_id
        self.epoch = 0
        self._sequence = 0

    def write(self, *values: bytes, timestamp_ms: int | None = None) -> int:
        now_ms = time.time_ns() // 1_000_000
        data = batch(
            *values,
            timestamp_ms=timestamp_ms or now_ms,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        self._sequence += len(values)

        def append(live) -> int:
            partition = live.partitions.get(live.catalogue.get(self._topic), 0)
            result = partition.append(bytearray(data), now_ms, transaction_version=2)
            assert result.error is ErrorCode.NONE
            live.syncer.register(partition.log, result.end_offset, None)
            return result.base_offset

        return self._broker.on_loop(append)

    def end(self, *, commit: bool) -> int:
        self.epoch, self._sequence = self.epoch + 1, 0

        def append(live) -> int:
            partition = live.partitions.get(live.catalogue.get(self._topic), 0)
            result = partition.append_marker(
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                coordinator_epoch=3,
                commit=commit,
                transaction_version=2,
                now_ms=time.time_ns() // 1_000_000,
            )
            assert result.error is ErrorCode.NONE
            live.syncer.register(partition.log, result.end_offset, None)
            return result.base_offset

        return self._broker.on_loop(append)


@pytest.fixture(scope="module", params=["os", "group"])
def shared_broker(request) -> Iterator[Broker]:
    config = BrokerConfig(retention_check_seconds=86_400, durability=request.param)
    with Broker(config=config) as broker:
        yield broker


def list_offset(raw: RawClient, topic: str, timestamp: int, isolation: int = COMMITTED):
    partition = ListOffsetsRequest.Partition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        isolation_level=isolation,
        topics=[ListOffsetsRequest.Topic(name=topic, partitions=[partition])],
    )
    return raw.ask(request, 7).topics[0].partitions[0]


def wait_until_visible(raw: RawClient, topic: str, end_offset: int) -> None:
    deadline = time.monotonic() + 10
    while list_offset(raw, topic, -1, isolation=0).offset < end_offset:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_nothing_of_an_open_transaction_is_read(raw, shared_broker, topic):
    writer = Writer(shared_broker, topic)
    writer.write(b"a", b"b")
    wait_until_visible(raw, topic, 2)
    found = fetch(raw, topic, 0, isolation_level=COMMITTED)
    assert (found.high_watermark, found.last_stable_offset) == (2, 0)
    assert bytes(found.records) == b""
    assert list(found.aborted_transactions) == []
    dirty = fetch(raw, topic, 0)
    assert (dirty.high_watermark, dirty.last_stable_offset) == (2, 0)
    assert values_of(dirty.records) == [b"a", b"b"]
    assert dirty.aborted_transactions is None


def test_the_list_names_what_was_aborted_in_the_range_read(raw, shared_broker, topic):
    good, bad = Writer(shared_broker, topic, 1), Writer(shared_broker, topic, 2)
    for _ in range(3):
        good.write(b"good")
        first = bad.write(b"bad")
        bad.end(commit=False)
        good.end(commit=True)
    wait_until_visible(raw, topic, 12)
    found = fetch(raw, topic, 0, isolation_level=COMMITTED)
    listed = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
    assert listed == [(2, 1), (2, 5), (2, 9)]
    assert (found.last_stable_offset, found.high_watermark) == (12, 12)
    last = fetch(raw, topic, first, isolation_level=COMMITTED)
    assert [(one.producer_id, one.first_offset) for one in last.aborted_transactions] == [(2, 9)]
    one_batch = fetch(raw, topic, 4, isolation_level=COMMITTED, partition_max_bytes=1)
    assert list(one_batch.aborted_transactions) == []
    assert list(fetch(raw, topic, 12, isolation_level=COMMITTED).aborted_transactions) == []


def test_the_end_for_a_reader_of_committed_records_is_the_last_stable_offset(
    raw, shared_broker, topic
):
    now_ms = time.time_ns() // 1_000_000
    writer = Writer(shared_broker, topic)
    writer.write(b"a", timestamp_ms=now_ms - 1000)
    writer.end(commit=True)
    writer.write(b"b", timestamp_ms=now_ms + 2000)
    wait_until_visible(raw, topic, 3)
    assert list_offset(raw, topic, -1).offset == 2
    assert list_offset(raw, topic, -1, isolation=0).offset == 3
    assert list_offset(raw, topic, now_ms - 1000).offset == 0
    for timestamp in (now_ms + 1000, -3):
        assert list_offset(raw, topic, timestamp).offset == -1
        assert list_offset(raw, topic, timestamp, isolation=0).offset == 2
    writer.end(commit=False)
    wait_until_visible(raw, topic, 4)
    assert list_offset(raw, topic, -1).offset == 4
    assert list_offset(raw, topic, now_ms + 1000).offset == 2


def test_a_long_poll_of_committed_records_is_answered_by_the_marker(raw, shared_broker, topic):
    writer = Writer(shared_broker, topic)
    with RawClient(shared_broker.port) as reader, RawClient(shared_broker.port) as dirty_reader:
        request = {"max_wait_ms": 60_000, "min_bytes": 1}
        committed = fetch_request(topic, 0, isolation_level=COMMITTED, **request)
        reader.send(committed, 12)
        dirty_reader.send(fetch_request(topic, 0, **request), 12)
        _wait_for_waiters(shared_broker, 2)
        writer.write(b"a" * 500)
        dirty = dirty_reader.receive(FETCH, 12).responses[0].partitions[0]
        assert values_of(dirty.records) == [b"a" * 500]
        assert shared_broker.counters()["fetches_waiting"] == 1
        writer.end(commit=True)
        found = reader.receive(FETCH, 12).responses[0].partitions[0]
        assert found.last_stable_offset == 2
        assert values_of(found.records)[0] == b"a" * 500


def test_a_long_poll_counts_only_what_became_stable(raw, shared_broker, topic):
    slow, quick = Writer(shared_broker, topic, 1), Writer(shared_broker, topic, 2)
    with RawClient(shared_broker.port) as reader:
        request = fetch_request(
            topic, 0, isolation_level=COMMITTED, max_wait_ms=60_000, min_bytes=3000
        )
        reader.send(request, 12)
        _wait_for_waiters(shared_broker, 1)
        quick.write(b"a" * 1500)
        slow.write(b"b" * 4000)
        quick.end(commit=True)
        wait_until_visible(raw, topic, 3)
        assert shared_broker.counters()["fetches_waiting"] == 1, "1,500 bytes are stable"
        slow.end(commit=True)
        found = reader.receive(FETCH, 12).responses[0].partitions[0]
        assert found.last_stable_offset == 4
        assert len(bytes(found.records)) > 5500


def _wait_for_waiters(broker: Broker, count: int) -> None:
    deadline = time.monotonic() + 10
    while broker.counters()["fetches_waiting"] < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_producers_are_described_with_their_open_transaction(raw, shared_broker, topic):
    writer = Writer(shared_broker, topic, 5)
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])]
    )

    def described():
        (state,) = raw.ask(request).topics[0].partitions[0].active_producers
        return (
            state.producer_epoch,
            state.last_sequence,
            state.coordinator_epoch,
            state.current_txn_start_offset,
        )

    writer.write(b"a")
    assert described() == (0, 0, -1, 0)
    writer.end(commit=True)
    assert described() == (1, -1, 3, -1)
    writer.write(b"b")
    assert described() == (1, 0, 3, 2)
