"""Transactions as an administrator sees them, on both brokers."""

from __future__ import annotations

import time
import uuid

import pytest

from shoal import (
    Consumer,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from shoal.errors import BrokerError, ErrorCode, ProducerFencedError
from shoal.fleet.open_transactions import look_for_transactions
from shoal.fleet.snapshots import take
from tests.patience import reason_in_time

pytestmark = pytest.mark.slow


@pytest.fixture
def name():
    return f"txn-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def producer(servers, name):
    with Producer(bootstrap_servers=servers, transactional_id=name, linger_ms=0) as producer:
        producer.init_transactions()
        yield producer


@pytest.fixture
def opened(producer, topic):
    """A transaction is open in the topic, behind one that was committed."""
    with producer.transaction():
        producer.send(topic, b"committed")
    producer.begin_transaction()
    producer.send(topic, b"open").result(10)
    return TopicPartition(topic, 0)


def test_an_open_transaction_is_listed_and_described(admin, name, opened):
    (listed,) = admin.list_transactions(states=["Ongoing"], pattern=f"{name}|x")
    assert (listed.transactional_id, listed.state) == (name, "Ongoing")
    assert admin.list_transactions(producer_ids=[listed.producer_id]) == [listed]
    assert admin.list_transactions(states=["CompleteAbort"], pattern=name) == []
    assert admin.list_transactions(longer_than_ms=3_600_000, pattern=name) == []
    described = admin.describe_transactions(name)[name]
    assert described.state == "Ongoing"
    assert described.partitions == (opened,)
    assert described.producer_id == listed.producer_id
    assert described.timeout_ms == 60_000
    assert abs(time.time() * 1000 - (described.start_ms or 0)) < 60_000


def test_who_writes_to_a_partition_is_told_with_where_its_transaction_begins(
    admin, producer, opened
):
    (one,) = admin.describe_producers([opened])[opened]
    assert one.start_offset == 2
    assert (one.producer_id, one.producer_epoch) == producer._transactions.core.producer
    producer.abort_transaction()
    await_end(admin, opened)


def await_end(admin, tp):
    """Kafka answers when the outcome is certain; its marker comes a little later."""
    until = time.monotonic() + 20
    while admin.describe_producers([tp])[tp][0].start_offset is not None:
        assert time.monotonic() < until


def test_an_id_nobody_knows_is_an_error_that_names_it(admin):
    with pytest.raises(BrokerError, match="'nobody-has-this'") as caught:
        admin.describe_transactions("nobody-has-this")
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_state_that_does_not_exist_is_named(admin):
    with pytest.raises(BrokerError, match="there are no states Asleep"):
        admin.list_transactions(states=["Asleep"])


def test_a_fenced_producer_has_its_transaction_aborted(admin, name, producer, opened):
    admin.fence_producers(name)
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()
    await_end(admin, opened)
    ends = admin.list_offsets({opened: "latest"}, isolation_level="read_committed")
    assert ends == admin.list_offsets({opened: "latest"})


def test_a_transaction_can_be_aborted_in_one_partition(admin, opened):
    with pytest.raises(BrokerError, match=r"begins at offset 7 of .*; there are at 2"):
        admin.abort_transaction(opened, 7)
    assert (
        admin.list_offsets({opened: "latest"}, isolation_level="read_committed")[opened].offset == 2
    )
    admin.abort_transaction(opened, 2)
    assert admin.describe_producers([opened])[opened][0].start_offset is None


def test_only_what_no_coordinator_counts_as_its_own_hangs(admin, name, opened):
    assert admin.find_hanging_transactions(opened.topic, idle_ms=0) == []
    assert admin.find_hanging_transactions(opened.topic) == []


def test_ends_by_isolation_level(admin, opened):
    assert admin.list_offsets({opened: "latest"})[opened].offset == 3
    stable = admin.list_offsets({opened: "latest"}, isolation_level="read_committed")
    assert stable[opened].offset == 2
    with pytest.raises(ValueError, match="isolation_level='serializable' is not one of"):
        admin.list_offsets({opened: "latest"}, isolation_level="serializable")


def test_pending_offsets_keep_no_administrator_waiting(admin, servers, producer, group, topic):
    tp = TopicPartition(topic, 0)
    admin.alter_group_offsets(group, {tp: 0})
    producer.begin_transaction()
    producer.send_offsets_to_transaction({tp: OffsetAndMetadata(5)}, ConsumerGroupMetadata(group))
    assert admin.group_offsets(group, timeout=5)[tp].offset == 0
    assert admin.group_lag(group, timeout=5)[tp].committed == 0
    with Consumer(bootstrap_servers=servers, group_id=group) as one:
        # Who starts to read must not begin before them.
        reason_in_time(
            lambda s: one.committed(tp, timeout=s), TimeoutError, "UNSTABLE_OFFSET_COMMIT"
        )
        producer.commit_transaction()
        stored = one.committed(tp)[tp]
        assert stored is not None
        assert stored.offset == 5


def test_the_transaction_that_holds_a_group_up_is_found(
    admin, servers, name, group, opened, producer
):
    settings = {"group_id": group, "isolation_level": "read_committed"}
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **settings) as one:
        one.subscribe([opened.topic])
        while not one.poll(0.5):
            pass
        one.commit_sync()
        now_ms = time.time_ns() // 1_000_000
        (found,) = look_for_transactions(admin, take(admin, group, 0.0), now_ms)
        assert found.holds
        assert (found.transactional_id, found.start_offset) == (name, 2)
        assert found.topic_partition == opened
        producer.commit_transaction()
        while not one.poll(0.5):
            pass
        one.commit_sync()
        assert look_for_transactions(admin, take(admin, group, 0.0), now_ms) == []
