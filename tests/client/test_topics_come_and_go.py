"""Topics that are made after somebody subscribed to them, and topics that are deleted under it."""

from __future__ import annotations

import re
import time
import uuid

import pytest

from shoal import TopicPartition
from tests.client.conftest import poll_until, take

pytestmark = pytest.mark.slow


def test_a_topic_made_after_the_subscription_is_read_soon(admin, producer, consumer, topic):
    late = f"late-{uuid.uuid4().hex[:12]}"
    one = consumer(allow_auto_create_topics=False)
    one.subscribe([topic, late])
    poll_until(one, one.assignment)
    admin.create_topic(late, partitions=2)
    poll_until(one, lambda: len(one.assignment()) == 3)
    producer.send(late, b"v").result(10)
    assert take(one, 1)[0].topic == late


def test_a_topic_made_after_the_only_subscription_is_read_soon(admin, consumer):
    late = f"late-{uuid.uuid4().hex[:12]}"
    one = consumer(allow_auto_create_topics=False)
    one.subscribe([late])
    for _ in range(3):
        one.poll(0.1)
    admin.create_topic(late, partitions=1)
    poll_until(one, one.assignment)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("by_pattern", [False, True])
def test_a_deleted_topic_holds_up_no_other_and_not_the_end(
    admin, producer, consumer, new_topic, assignor, by_pattern
):
    stays, goes = new_topic(), new_topic()
    for name in (stays, goes):
        producer.send(name, b"old").result(10)
    one = consumer(
        allow_auto_create_topics=False,
        enable_auto_commit=True,
        assignors=[assignor],
        metadata_max_age_ms=500,
    )
    one.subscribe(re.compile(f"{stays}|{goes}") if by_pattern else [stays, goes])
    take(one, 2)
    admin.delete_topics(goes)
    poll_until(one, lambda: one.assignment() == {TopicPartition(stays, 0)})
    producer.send(stays, b"new").result(10)
    assert take(one, 1)[0].value == b"new"
    began = time.monotonic()
    one.close(20)
    assert time.monotonic() - began < 10
    tp = TopicPartition(stays, 0)
    assert consumer().committed(tp)[tp].offset == 2


def test_closing_does_not_wait_for_a_topic_that_is_gone(admin, producer, consumer, topic):
    producer.send(topic, b"v").result(10)
    one = consumer(allow_auto_create_topics=False, enable_auto_commit=True)
    tp = TopicPartition(topic, 0)
    one.assign([tp])
    take(one, 1)
    one.pause(tp)
    admin.delete_topics(topic)
    began = time.monotonic()
    one.close(20)
    assert time.monotonic() - began < 10
