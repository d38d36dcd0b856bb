"""The embedded consumer protocol against bytes which Kafka's own classes wrote.

The vectors come from Apache Kafka's ConsumerProtocol, StickyAssignor and CooperativeStickyAssignor
(owned b-1, a-2, a-0; generation 7; topics b, a; rack r1).
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidMessageError
from shoal.types import TopicPartition
from shoal.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    subscribed_topics,
)

OWNED = (TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0))
COOPERATIVE = bytes.fromhex("00000007")
SUBSCRIPTION_V0 = bytes.fromhex("0000 00000002 000161 000162 00000004 00000007")
SUBSCRIPTION_V3 = bytes.fromhex(
    "0003 00000002 000161 000162 00000004 00000007 00000002 000161 00000002 00000000 00000002"
    "000162 00000001 00000001 00000007 00027231"
)
SUBSCRIPTION_BARE = bytes.fromhex("0003 00000001 000174 ffffffff 00000000 ffffffff ffff")
ASSIGNMENT_V3 = bytes.fromhex(
    "0003 00000002 000162 00000001 00000001 000161 00000002 00000002 00000000 ffffffff"
)

SUBSCRIPTION = ConsumerProtocolSubscription(["b", "a"], COOPERATIVE, OWNED, 7, "r1")

names = st.text(st.characters(codec="utf-8"), max_size=6)
partitions = st.lists(
    st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=5, unique=True
)
blobs = st.none() | st.binary(max_size=8)


def test_subscriptions_are_written_as_kafka_writes_them():
    assert SUBSCRIPTION.encode(0) == SUBSCRIPTION_V0
    assert SUBSCRIPTION.encode(3) == SUBSCRIPTION_V3
    assert ConsumerProtocolSubscription(["t"]).encode() == SUBSCRIPTION_BARE


def test_a_subscription_is_read_back_sorted():
    owned = tuple(sorted(OWNED))
    assert ConsumerProtocolSubscription.decode(SUBSCRIPTION_V3) == ConsumerProtocolSubscription(
        ("a", "b"), COOPERATIVE, owned, 7, "r1"
    )


def test_an_older_subscription_leaves_the_rest_at_its_default():
    assert ConsumerProtocolSubscription.decode(SUBSCRIPTION_V0) == ConsumerProtocolSubscription(
        ("a", "b"), COOPERATIVE
    )
    assert ConsumerProtocolSubscription.decode(SUBSCRIPTION.encode(1)).owned_partitions == tuple(
        sorted(OWNED)
    )
    assert ConsumerProtocolSubscription.decode(SUBSCRIPTION.encode(1)).generation_id is None
    assert ConsumerProtocolSubscription.decode(SUBSCRIPTION.encode(2)).generation_id == 7
    assert ConsumerProtocolSubscription.decode(SUBSCRIPTION.encode(2)).rack_id is None


def test_a_newer_version_is_read_as_the_highest_known_one():
    newer = bytes.fromhex("0009") + SUBSCRIPTION_V3[2:] + b"something new"
    assert ConsumerProtocolSubscription.decode(newer) == ConsumerProtocolSubscription.decode(
        SUBSCRIPTION_V3
    )
    newer = bytes.fromhex("0009") + ASSIGNMENT_V3[2:] + b"something new"
    assert ConsumerProtocolAssignment.decode(newer) == ConsumerProtocolAssignment.decode(
        ASSIGNMENT_V3
    )


def test_an_empty_rack_is_no_rack():
    empty = SUBSCRIPTION_BARE[:-2] + bytes.fromhex("0000")
    assert ConsumerProtocolSubscription.decode(empty).rack_id is None


@pytest.mark.parametrize(("said", "read"), [(None, None), (-1, None), (0, 0), (1, 1)])
def test_generation_0_is_one_and_minus_one_is_none(said, read):
    data = ConsumerProtocolSubscription(topics=["t"], generation_id=said).encode()
    assert ConsumerProtocolSubscription.decode(data).generation_id == read


def test_an_assignment_keeps_the_order_of_the_assignor():
    assert ConsumerProtocolAssignment(OWNED).encode() == ASSIGNMENT_V3
    assert ConsumerProtocolAssignment.decode(ASSIGNMENT_V3) == ConsumerProtocolAssignment(OWNED)


@pytest.mark.parametrize("data", [b"", b"\0", bytes.fromhex("ffff 00000000 ffffffff")])
def test_no_version_or_a_negative_one_is_refused(data):
    for decode in (
        ConsumerProtocolSubscription.decode,
        ConsumerProtocolAssignment.decode,
        subscribed_topics,
    ):
        with pytest.raises(InvalidMessageError, match="version"):
            decode(data)


def test_a_coordinator_reads_only_the_topics():
    assert subscribed_topics(SUBSCRIPTION_V3) == ("a", "b")
    assert subscribed_topics(SUBSCRIPTION_V0[: 2 + 4 + 6]) == ("a", "b")
    with pytest.raises(InvalidMessageError, match="too early"):
        subscribed_topics(SUBSCRIPTION_V0[: 2 + 4 + 5])


@given(st.lists(names, max_size=4), blobs, partitions, st.none() | st.integers(0, 99), names)
def test_a_subscription_survives_the_trip(topics, user_data, owned, generation, rack):
    sent = ConsumerProtocolSubscription(topics, user_data, owned, generation, rack or None)
    assert ConsumerProtocolSubscription.decode(sent.encode()) == ConsumerProtocolSubscription(
        tuple(sorted(topics)), user_data, tuple(sorted(owned)), generation, rack or None
    )
    assert subscribed_topics(sent.encode()) == tuple(sorted(topics))


@given(partitions, blobs)
def test_an_assignment_survives_the_trip(given_partitions, user_data):
    received = ConsumerProtocolAssignment.decode(
        ConsumerProtocolAssignment(given_partitions, user_data).encode()
    )
    assert sorted(received.partitions) == sorted(given_partitions)
    assert received.user_data == user_data


@given(st.binary(max_size=60))
def test_garbage_gives_a_value_or_our_own_error(data):
    for decode in (
        ConsumerProtocolSubscription.decode,
        ConsumerProtocolAssignment.decode,
        subscribed_topics,
    ):
        with contextlib.suppress(InvalidMessageError):
            decode(data)
