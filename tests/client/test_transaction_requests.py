"""What ``Admin`` asks about transactions, of whom, and every code in the answers to it."""

from __future__ import annotations

from typing import Any

import pytest

from shoal import Admin, Consumer, TopicPartition
from shoal.errors import BrokerError, ErrorCode
from tests.client import expected_reactions
from tests.client.scripted_transactions import OPENED_AT, ScriptedCoordinator

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FAST: dict[str, Any] = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1}


@pytest.fixture
def coordinator():
    with ScriptedCoordinator(2) as coordinator:
        yield coordinator


@pytest.fixture
def admin(coordinator):
    with Admin(bootstrap_servers=coordinator.servers, **FAST) as admin:
        yield admin


def test_a_transaction_is_described_with_since_when_it_is_open(admin):
    one = admin.describe_transactions("billing-1")["billing-1"]
    assert (one.state, one.start_ms, one.partitions) == ("Ongoing", 1_000, (T0,))


def test_fencing_asks_for_the_id_and_nothing_of_the_producer_before(coordinator, admin):
    admin.fence_producers("billing-1", "billing-1")
    (request,) = [request for _, _, request in coordinator.log]
    assert (request.transactional_id, request.producer_id) == ("billing-1", -1)
    assert coordinator.log[0][1] == 5, "the next version is not stable in Kafka"


def test_an_abort_in_a_partition_is_a_marker_as_its_producer_and_coordinator(coordinator, admin):
    admin.abort_transaction(T0, OPENED_AT)
    (marker,) = coordinator.log[0][2].markers
    assert (marker.producer_id, marker.producer_epoch) == (7, 3)
    assert marker.coordinator_epoch == 5
    assert not marker.transaction_result
    assert [*marker.topics[0].partition_indexes] == [0]


def test_nothing_is_aborted_where_nothing_is_open(coordinator, admin):
    for tp, words in ((T0, f"there are at {OPENED_AT}"), (T1, "there is none")):
        with pytest.raises(BrokerError, match=words):
            admin.abort_transaction(tp, OPENED_AT + 1)
    assert coordinator.log == []


def test_what_no_coordinator_counts_as_its_own_hangs(coordinator, admin):
    assert admin.find_hanging_transactions("t") == []
    coordinator.hangs = True
    (one,) = admin.find_hanging_transactions("t")
    assert (one.topic_partition, one.producer.start_offset) == (T0, OPENED_AT)
    assert admin.find_hanging_transactions("t", idle_ms=2**62) == [], "it may just be beginning"


def test_only_who_reads_waits_for_offsets_that_are_about_to_be_replaced(coordinator, admin):
    admin.group_offsets("g")
    with Consumer(bootstrap_servers=coordinator.servers, group_id="g", **FAST) as one:
        one.committed(T0)
    assert [request.require_stable for _, _, request in coordinator.log] == [False, True]


CASES = {
    "ListTransactions": ("Transaction", lambda a: a.list_transactions()),
    "DescribeTransactions": ("Transaction", lambda a: a.describe_transactions("billing-1")),
    "InitProducerId": ("Transaction", lambda a: a.fence_producers("billing-1")),
    "DescribeProducers": ("DescribeProducers", lambda a: a.describe_producers([T0])),
    "WriteTxnMarkers": ("WriteTxnMarkers", lambda a: a.abort_transaction(T0, OPENED_AT)),
}


@pytest.mark.parametrize("api", CASES)
def test_every_code_is_retried_or_told(coordinator, admin, api):
    row, call = CASES[api]
    for code in ErrorCode:
        if code is ErrorCode.NONE:
            continue
        coordinator.fail(api, code)
        if expected_reactions.passes(row, code):
            call(admin)
            continue
        with pytest.raises(BrokerError) as caught:
            call(admin)
        assert caught.value.code is code
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("most", "wanted", "words"),
    [(0, {"longer_than_ms": 5}, "by duration"), (1, {"pattern": "a.*"}, "by a pattern")],
)
def test_what_a_broker_is_too_old_to_choose_by_is_named(most, wanted, words):
    with (
        ScriptedCoordinator(1, list_transactions=most) as coordinator,
        Admin(bootstrap_servers=coordinator.servers, **FAST) as admin,
    ):
        assert len(admin.list_transactions()) == 1
        with pytest.raises(BrokerError, match=words):
            admin.list_transactions(**wanted)
