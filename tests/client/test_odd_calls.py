"""Calls at the wrong time or about what is not there: one clear line, at once, nothing left behind.

What arguments of a wrong type say is in test_arguments.py.
"""

from __future__ import annotations

import asyncio
import gc
import re
import time
import warnings

import pytest

from shoal import Admin, AsyncConsumer, Consumer, OffsetAndMetadata, Producer, TopicPartition
from shoal.errors import BrokerError, ConfigError, ErrorCode, RequestTimeoutError
from tests.client.conftest import poll_until, take

T0 = TopicPartition("t", 0)


def refused(call, error=RuntimeError, match="this client is closed"):
    before = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a coroutine that nobody awaits
        with pytest.raises(error, match=match) as found:
            call()
        gc.collect()
    assert "\n" not in str(found.value)
    assert time.monotonic() - before < 5
    return found.value


# --- after close ---


def test_a_closed_consumer_refuses_every_call_that_needs_a_broker(consumer, topic):
    one, tp = consumer(), TopicPartition(topic, 0)
    one.assign([tp])
    one.close()
    one.close()
    for call in (
        lambda: one.poll(0),
        lambda: one.poll_arrow(0),
        lambda: one.subscribe([topic]),
        lambda: one.assign([tp]),
        lambda: one.seek(tp, 0),
        lambda: one.pause(tp),
        lambda: one.position(tp),
        lambda: one.committed(tp),
        lambda: one.commit_sync(),
        lambda: one.commit_sync({tp: OffsetAndMetadata(1)}),
        lambda: one.commit_async(),
        lambda: one.end_offsets([tp]),
        lambda: one.partitions_for(topic),
        lambda: one.list_topics(),
    ):
        refused(call)
    one.wakeup()
    assert list(one) == []


def test_a_closed_async_consumer_refuses_every_call_that_needs_a_broker(servers, topic):
    async def use():
        one = AsyncConsumer(bootstrap_servers=servers, group_id="g")
        await one.close()
        await one.close()
        for call in (
            lambda: one.poll(0),
            lambda: one.committed(TopicPartition(topic, 0)),
            lambda: one.commit(),
            lambda: one.list_topics(),
        ):
            with pytest.raises(RuntimeError, match="this client is closed"):
                await call()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(use())
        gc.collect()


def test_a_closed_producer_refuses_to_send_and_has_nothing_to_flush(servers, topic):
    one = Producer(bootstrap_servers=servers)
    one.send(topic, b"v").result(10)
    one.close()
    one.close()
    refused(lambda: one.send(topic, b"v"))
    refused(lambda: one.partitions_for(topic))
    one.flush()


def test_a_closed_admin_refuses_every_call(servers):
    one = Admin(bootstrap_servers=servers)
    one.close()
    one.close()
    refused(one.list_topics)
    refused(lambda: one.describe_group("g"))


# --- inside callbacks ---


class Assigned:
    def __init__(self, does):
        self.does = does
        self.partitions = []

    def on_partitions_assigned(self, partitions):
        self.partitions.append(partitions)
        if len(self.partitions) == 1:
            self.does()


def test_a_consumer_closed_by_its_own_callback_says_so_and_has_left(consumer, admin, topic, group):
    one = consumer()
    one.subscribe([topic], Assigned(one.close))
    refused(lambda: poll_until(one, lambda: False))
    assert admin.describe_group(group).state in ("Empty", "Dead")


def test_a_callback_may_subscribe_to_something_else(producer, consumer, new_topic):
    first, second = new_topic(), new_topic()
    producer.send(second, b"v").result(10)
    one = consumer()
    listener = Assigned(lambda: one.subscribe([second], listener))
    one.subscribe([first], listener)
    assert [record.topic for record in take(one, 1)] == [second]
    assert one.subscription() == {second}
    assert listener.partitions[0] == [TopicPartition(first, 0)]
    assert listener.partitions[-1] == [TopicPartition(second, 0)]


def test_a_callback_may_unsubscribe(consumer, topic):
    one = consumer()
    one.subscribe([topic], Assigned(one.unsubscribe))
    refused(lambda: poll_until(one, lambda: False), match="subscribe.. or assign.. before poll")
    assert one.assignment() == frozenset()


# --- topics that cannot be ---


@pytest.mark.parametrize("name", ["a b", "^t.*", "x" * 250])
def test_a_topic_that_cannot_exist_is_an_error_of_poll(consumer, name):
    one = consumer()
    one.subscribe([name])
    error = refused(lambda: poll_until(one, lambda: False), BrokerError, re.escape(repr(name)))
    assert error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ("re.compile" in str(error)) == name.startswith("^")


def test_a_partition_of_a_topic_that_cannot_exist_is_an_error_of_poll(consumer):
    one = consumer()
    one.assign([TopicPartition("a b", 0)])
    refused(lambda: poll_until(one, lambda: False), BrokerError, "topic 'a b'")


@pytest.mark.slow
def test_a_topic_that_is_made_later_is_read_when_it_is_there(admin, producer, consumer, group):
    """Not at the next look at old metadata, which is five minutes away."""
    name = f"late-{group}"
    one = consumer(allow_auto_create_topics=False)
    one.subscribe([name])
    poll_until(one, lambda: one.group_metadata().generation_id > 0)
    admin.create_topic(name, partitions=1)
    producer.send(name, b"v").result(10)
    assert [record.value for record in take(one, 1)] == [b"v"]


def test_what_can_be_read_is_read_beside_a_topic_that_cannot(producer, consumer, topic):
    producer.send(topic, b"v").result(10)
    one = consumer()
    one.subscribe([topic, "a b"])
    refused(lambda: poll_until(one, lambda: False), BrokerError, "topic 'a b'")
    assert [record.value for record in take(one, 1)] == [b"v"]


def test_a_topic_without_a_name_is_refused_at_once(consumer, topic):
    one = consumer()
    for topics in ("", [""], [topic, ""]):
        refused(lambda topics=topics: one.subscribe(topics), TypeError, "must not name a topic ''")


# --- what is not there ---


def test_an_admin_does_not_wait_for_what_is_not_there(admin, topic):
    absent = TopicPartition("absent", 0)
    beyond = TopicPartition(topic, 7)
    for call, name in (
        (lambda: admin.list_offsets({absent: "latest"}), "absent"),
        (lambda: admin.list_offsets({beyond: "latest"}), f"{topic}-7"),
        (lambda: admin.delete_records({absent: 1}), "absent"),
        (lambda: admin.delete_records({beyond: 1}), f"{topic}-7"),
        (lambda: admin.alter_group_offsets("g", {absent: 1}), "absent"),
        (lambda: admin.alter_group_offsets("g", {beyond: 1}), f"{topic}-7"),
        (lambda: admin.describe_topics("absent"), "absent"),
        (lambda: admin.partition_sizes("absent"), "absent"),
        (lambda: admin.create_partitions({"absent": 3}), "absent"),
        (lambda: admin.delete_topics("absent"), "absent"),
    ):
        error = refused(call, BrokerError, name)
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- values ---


def test_what_cannot_be_committed_is_named(consumer, topic):
    one, tp = consumer(), TopicPartition(topic, 0)
    one.assign([tp])
    for offset, metadata, error, text in (
        (-1, "", ValueError, f"cannot commit offset -1 for {topic}-0"),
        ("5", "", ValueError, f"cannot commit offset '5' for {topic}-0"),
        (5, b"x", TypeError, f"the metadata of {topic}-0 must be a string, not b'x'"),
    ):
        offsets = {tp: OffsetAndMetadata(offset, metadata=metadata)}
        refused(lambda offsets=offsets: one.commit_sync(offsets), error, text)
        refused(lambda offsets=offsets: one.commit_async(offsets), error, text)


def test_an_admin_commits_no_offset_that_cannot_be_and_sets_no_password_that_is_none(admin, topic):
    offsets = {TopicPartition(topic, 0): -1}
    text = f"cannot commit offset -1 for {topic}-0"
    refused(lambda: admin.alter_group_offsets("g", offsets), ValueError, text)
    refused(lambda: admin.set_password("u", ""), ValueError, "the password is empty")


def test_a_record_from_before_1970_is_refused(producer, topic):
    refused(lambda: producer.send(topic, b"v", timestamp_ms=-1), ValueError, "timestamp_ms=-1")


def test_the_name_of_a_setting_is_a_string():
    refused(lambda: Consumer.from_properties({5: "x"}), ConfigError, "must be a string, not 5")


def test_a_timeout_of_zero_asks_nobody_and_says_so(consumer, topic):
    one, tp = consumer(), TopicPartition(topic, 0)
    one.assign([tp])
    for call in (lambda: one.committed(tp, timeout=0), lambda: one.end_offsets([tp], timeout=0)):
        error = refused(call, RequestTimeoutError, "0 s")
        assert type(error) is RequestTimeoutError


def test_a_plaintext_listener_asked_for_tls_is_named(servers):
    with Consumer(bootstrap_servers=servers, security_protocol="SSL") as one:
        refused(
            lambda: one.list_topics(timeout=1),
            RequestTimeoutError,
            "perhaps this listener does not speak TLS",
        )
