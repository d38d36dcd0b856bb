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
    Assignment,
    Subscription,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    subscribed_topics,
)

OWNED = (TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0))
STICKY_V1 = bytes.fromhex(
    "00000002 000161 00000002 00000002 00000000 000162 00000001 00000001 00000007"
)
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

SUBSCRIPTION = Subscription(["b", "a"], COOPERATIVE, OWNED, 7, "r1")

names = st.text(st.characters(codec="utf-8"), max_size=6)
partitions = st.lists(
    st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=5, unique=True
)
blobs = st.none() | st.binary(max_size=8)


def test_subscriptions_are_written_as_kafka_writes_them():
    assert SUBSCRIPTION.encode(0) == SUBSCRIPTION_V0
    assert SUBSCRIPTION.encode(3) == SUBSCRIPTION_V3
    assert Subscription(["t"]).encode() == SUBSCRIPTION_BARE


def test_a_subscription_is_read_back_sorted():
    owned = tuple(sorted(OWNED))
    assert Subscription.decode(SUBSCRIPTION_V3) == Subscription(
        ("a", "b"), COOPERATIVE, owned, 7, "r1"
    )


def test_an_older_subscription_leaves_the_rest_at_its_default():
    assert Subscription.decode(SUBSCRIPTION_V0) == Subscription(("a", "b"), COOPERATIVE)
    assert Subscription.decode(SUBSCRIPTION.encode(1)).owned_partitions == tuple(sorted(OWNED))
    assert Subscription.decode(SUBSCRIPTION.encode(1)).generation_id is None
    assert Subscription.decode(SUBSCRIPTION.encode(2)).generation_id == 7
    assert Subscription.decode(SUBSCRIPTION.encode(2)).rack_id is None


def test_a_newer_version_is_read_as_the_highest_known_one():
    newer = bytes.fromhex("0009") + SUBSCRIPTION_V3[2:] + b"something new"
    assert Subscription.decode(newer) == Subscription.decode(SUBSCRIPTION_V3)
    newer = bytes.fromhex("0009") + ASSIGNMENT_V3[2:] + b"something new"
    assert Assignment.decode(newer) == Assignment.decode(ASSIGNMENT_V3)


def test_an_empty_rack_is_no_rack():
    empty = SUBSCRIPTION_BARE[:-2] + bytes.fromhex("0000")
    assert Subscription.decode(empty).rack_id is None


def test_an_assignment_keeps_the_order_of_the_assignor():
    assert Assignment(OWNED).encode() == ASSIGNMENT_V3
    assert Assignment.decode(ASSIGNMENT_V3) == Assignment(OWNED)


@pytest.mark.parametrize("data", [b"", b"\0", bytes.fromhex("ffff 00000000 ffffffff")])
def test_no_version_or_a_negative_one_is_refused(data):
    for decode in (Subscription.decode, Assignment.decode, subscribed_topics):
        with pytest.raises(InvalidMessageError, match="version"):
            decode(data)


def test_a_coordinator_reads_only_the_topics():
    assert subscribed_topics(SUBSCRIPTION_V3) == ("a", "b")
    assert subscribed_topics(SUBSCRIPTION_V0[: 2 + 4 + 6]) == ("a", "b")
    with pytest.raises(InvalidMessageError, match="too early"):
        subscribed_topics(SUBSCRIPTION_V0[: 2 + 4 + 5])


def test_sticky_user_data_is_written_as_kafka_writes_it():
    assert encode_sticky_user_data(OWNED, 7) == STICKY_V1
    assert decode_sticky_user_data(STICKY_V1) == ((*OWNED[1:], OWNED[0]), 7)
    assert encode_sticky_user_data((), None) == bytes.fromhex("00000000 ffffffff")
    assert decode_sticky_user_data(bytes.fromhex("00000000 ffffffff")) == ((), None)


def test_sticky_user_data_without_a_generation_is_the_old_form():
    assert decode_sticky_user_data(STICKY_V1[:-4]) == (decode_sticky_user_data(STICKY_V1)[0], None)
    with pytest.raises(InvalidMessageError):
        decode_sticky_user_data(STICKY_V1[:-5])


def test_cooperative_user_data_is_the_generation():
    assert encode_cooperative_user_data(7) == COOPERATIVE
    assert encode_cooperative_user_data(None) == bytes.fromhex("ffffffff")
    assert decode_cooperative_user_data(COOPERATIVE) == 7
    assert decode_cooperative_user_data(bytes.fromhex("ffffffff")) is None
    with pytest.raises(InvalidMessageError, match="four"):
        decode_cooperative_user_data(b"\0\0\0")


@given(st.lists(names, max_size=4), blobs, partitions, st.none() | st.integers(0, 99), names)
def test_a_subscription_survives_the_trip(topics, user_data, owned, generation, rack):
    sent = Subscription(topics, user_data, owned, generation, rack or None)
    assert Subscription.decode(sent.encode()) == Subscription(
        tuple(sorted(topics)), user_data, tuple(sorted(owned)), generation, rack or None
    )
    assert subscribed_topics(sent.encode()) == tuple(sorted(topics))


@given(partitions, blobs)
def test_an_assignment_survives_the_trip(given_partitions, user_data):
    received = Assignment.decode(Assignment(given_partitions, user_data).encode())
    assert sorted(received.partitions) == sorted(given_partitions)
    assert received.user_data == user_data


@given(st.binary(max_size=60))
def test_garbage_gives_a_value_or_our_own_error(data):
    for decode in (
        Subscription.decode,
        Assignment.decode,
        subscribed_topics,
        decode_sticky_user_data,
        decode_cooperative_user_data,
    ):
        with contextlib.suppress(InvalidMessageError):
            decode(data)
