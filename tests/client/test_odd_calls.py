"""Calls at the wrong time or about what is not there: one clear line, at once, nothing left behind.

What arguments of a wrong type say is in test_arguments.py.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import re
import signal
import time
import types
import warnings
from typing import Any

import pytest

from shoal import (
    Admin,
    Assignor,
    AsyncConsumer,
    Consumer,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from shoal.assign import Assignment, RebalanceProtocol
from shoal.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    InvalidAssignmentError,
    RequestTimeoutError,
)
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
    listener: Assigned = Assigned(lambda: one.subscribe([second], listener))
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


class Revoked:
    def __init__(self, does):
        self.does = does
        self.calls = []

    def on_partitions_revoked(self, partitions):
        self.calls.append([tp.partition for tp in partitions])
        self.does()


@pytest.mark.parametrize("how", ["poll", "close", "unsubscribe"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_who_closes_in_its_revoked_callback_is_called_once_and_has_left(
    producer, consumer, admin, topic, group, assignor, how
):
    producer.send(topic, b"v").result(10)
    one = consumer(assignors=[assignor], enable_auto_commit=True)
    listener = Revoked(one.close)
    one.subscribe([topic], listener)
    take(one, 1)
    if how == "close":
        one.close()
    elif how == "unsubscribe":
        refused(one.unsubscribe)
    else:
        one.subscribe(["another"], listener)  # gives up what it has before it joins
        refused(lambda: poll_until(one, lambda: False))
    assert listener.calls == [[0]]
    assert admin.describe_group(group).state in ("Empty", "Dead")
    tp = TopicPartition(topic, 0)
    assert admin.group_offsets(group)[tp].offset == 1


def test_a_revoked_callback_may_unsubscribe(consumer, topic):
    one = consumer()
    listener = Revoked(one.unsubscribe)
    one.subscribe([topic], listener)
    poll_until(one, one.assignment)
    one.unsubscribe()
    assert listener.calls == [[0]]
    assert one.assignment() == frozenset()
    one.subscribe([topic])
    poll_until(one, one.assignment)


def test_an_async_consumer_may_be_closed_in_its_revoked_callback(servers, topic, group):
    async def main():
        one = AsyncConsumer(bootstrap_servers=servers, group_id=group)
        listener = Revoked(lambda: None)

        async def close(partitions):
            listener.on_partitions_revoked(partitions)
            await one.close()

        told = types.SimpleNamespace(on_partitions_revoked=close)
        await one.subscribe([topic], told)
        while not one.assignment():
            await one.poll(0.1)
        await one.close()
        return listener.calls

    assert asyncio.run(main()) == [[0]]


# --- in another process ---


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # newer Python's, of fork
def test_after_a_fork_every_call_says_so_and_nothing_buffered_is_handed_out(
    producer, consumer, topic
):
    tp = TopicPartition(topic, 0)
    for n in range(10):
        producer.send(topic, str(n))
    producer.flush(10)
    one = consumer()
    one.assign([tp])
    take(one, 1)
    calls = {
        "poll": lambda: one.poll(0.1),
        "poll_arrow": lambda: one.poll_arrow(0.1),
        "iterate": lambda: next(iter(one)),
        "assignment": one.assignment,
        "subscription": one.subscription,
        "paused": one.paused,
        "group_metadata": one.group_metadata,
        "wakeup": one.wakeup,
        "seek": lambda: one.seek(tp, 0),
        "pause": lambda: one.pause(tp),
        "position": lambda: one.position(tp),
        "commit_sync": one.commit_sync,
        "commit_async": one.commit_async,
        "committed": lambda: one.committed(tp),
        "list_topics": one.list_topics,
    }

    def child():
        for name, call in calls.items():
            try:
                yield f"{name}: {call()!r}"
            except RuntimeError as error:
                if "make one after the fork" not in str(error):
                    yield f"{name}: {error!r}"
        one.close()
        yield "closed"

    assert in_a_fork(child) == ["closed"]
    assert [record.value for record in take(one, 9)] == [b"%d" % n for n in range(1, 10)]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # newer Python's, of fork
def test_a_loop_over_records_ends_in_the_child_of_a_fork_and_goes_on_in_the_parent(
    producer, consumer, topic
):
    for n in range(10):
        producer.send(topic, str(n))
    producer.flush(10)
    one = consumer()
    one.assign([TopicPartition(topic, 0)])
    records = iter(one)
    assert next(records).value == b"0"

    def child():
        try:
            yield f"got {next(records)}"
        except RuntimeError as error:
            yield str(error)

    assert "make one after the fork" in in_a_fork(child)[0]
    assert [next(records).value for _ in range(9)] == [b"%d" % n for n in range(1, 10)]


def in_a_fork(work):
    """What ``work`` yields in a child of this process."""
    source, sink = os.pipe()
    process = os.fork()
    if not process:
        try:
            signal.alarm(20)
            for line in work():
                os.write(sink, f"{line}\n".encode())
        finally:
            os._exit(0)
    os.close(sink)
    with open(source) as answer:
        lines = answer.read().splitlines()
    os.waitpid(process, 0)
    return lines


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


def test_a_partition_that_does_not_exist_is_told_once_and_read_when_it_is_made(
    admin, producer, consumer, topic, caplog
):
    one = consumer(metadata_max_age_ms=100)
    beyond = f"{topic}-2 does not exist: topic '{topic}' has partitions 0 to 0"
    one.assign([TopicPartition(topic, 2)])
    poll_until(one, lambda: beyond in caplog.text)
    for _ in range(5):
        one.poll(0.1)
    assert caplog.text.count(beyond) == 1
    one.assign([TopicPartition(topic, 1)])  # of a topic that is known by now
    assert f"{topic}-1 does not exist" in caplog.text
    admin.create_partitions({topic: 2})
    producer.send(topic, b"v", partition=1).result(10)
    assert [record.value for record in take(one, 1)] == [b"v"]


@pytest.mark.parametrize("reads", ["assign", "subscribe"])
def test_a_topic_that_does_not_exist_is_told(consumer, group, caplog, reads):
    one = consumer(allow_auto_create_topics=False)
    if reads == "assign":
        one.assign([TopicPartition(f"no-{group}", 0)])
    else:
        one.subscribe([f"no-{group}"])
    poll_until(one, lambda: f"topic 'no-{group}' does not exist" in caplog.text)


# --- assignors that forget ---


class Nobody(Assignor):
    name = "nobody"

    def assign(self, metadata, subscriptions):
        return {}


class Stranger(Assignor):
    name = "stranger"

    def assign(self, metadata, subscriptions):
        return {"who": Assignment()}


def test_an_assignor_that_returns_nothing_is_told(consumer, topic, group, caplog):
    one = consumer(assignors=[Nobody])
    one.subscribe([topic])
    poll_until(one, lambda: "assignor 'nobody' gave" in caplog.text)
    assert f"group '{group}'" in caplog.text
    assert f"no partition of '{topic}' to any member" in caplog.text
    assert f"to '{one.group_metadata().member_id or 'shoal'}" in caplog.text


def test_an_assignor_that_names_a_stranger_is_an_error_of_poll(consumer, topic):
    one = consumer(assignors=[Stranger])
    one.subscribe([topic])
    refused(lambda: poll_until(one, lambda: False), InvalidAssignmentError, "'stranger'.*no member")


def test_an_interceptor_or_assignor_of_the_wrong_shape_is_named_at_once(servers):
    class Java:
        version, supported_protocols = 0, (RebalanceProtocol.EAGER,)
        subscription_user_data = assign = on_assignment = lambda *_: None

        def name(self):
            return "java"

    class Ear:
        def on_consume(self, records):
            return records

    class Needy:
        def __init__(self, servers):
            pass

    make = functools.partial(Consumer, bootstrap_servers=servers, group_id="g")
    wrong = "^assignors: Java.name must be a value, not a method"
    odd: list[Any] = [Java, Needy]
    refused(lambda: make(assignors=odd[:1]), TypeError, wrong)
    refused(lambda: make(assignors=odd[1:]), TypeError, "^assignors: .*Needy.* missing 1 required")
    refused(lambda: make(assignors=["com.acme.Ours"]), ConfigError, "^assignors: 'com.acme.Ours' ")
    refused(lambda: make(interceptors=[Ear]), ConfigError, r"the class Ear; give an object, Ear")


# --- values ---


def test_what_cannot_be_committed_is_named(consumer, topic):
    one, tp = consumer(), TopicPartition(topic, 0)
    one.assign([tp])
    offset: Any
    metadata: Any
    for offset, metadata, error, text in (
        (-1, "", ValueError, f"-1 is not an offset of {topic}-0"),
        (2**63, "", ValueError, f"9223372036854775808 is not an offset of {topic}-0"),
        ("5", "", TypeError, f"the offset of {topic}-0 must be a whole number, not '5'"),
        (True, "", TypeError, f"the offset of {topic}-0 must be a whole number, not True"),
        (5, b"x", TypeError, f"the metadata of {topic}-0 must be a string, not b'x'"),
    ):
        offsets = {tp: OffsetAndMetadata(offset, metadata=metadata)}
        refused(lambda offsets=offsets: one.commit_sync(offsets), error, text)
        refused(lambda offsets=offsets: one.commit_async(offsets), error, text)


def test_an_admin_commits_no_offset_that_cannot_be_and_sets_no_password_that_is_none(admin, topic):
    for offset, text in (
        (-1, f"-1 is not an offset of {topic}-0"),
        (2**63, "does not fit the 64 bits"),
    ):
        offsets = {TopicPartition(topic, 0): offset}
        refused(lambda offsets=offsets: admin.alter_group_offsets("g", offsets), ValueError, text)
    refused(lambda: admin.set_password("u", ""), ValueError, "the password is empty")


def test_offsets_no_request_can_hold_are_refused_at_once(admin, consumer, topic):
    one, tp = consumer(), TopicPartition(topic, 0)
    one.assign([tp])
    text = "does not fit the 64 bits|is not an offset of"
    for offset in (2**63, 2**200, -(2**63) - 1):
        for call in (
            lambda offset=offset: one.seek(tp, offset),
            lambda offset=offset: one.seek(tp, OffsetAndMetadata(offset)),
            lambda offset=offset: one.offsets_for_times({tp: offset}),
            lambda offset=offset: admin.delete_records({tp: offset}),
        ):
            refused(call, ValueError, text)
    one.seek(tp, 2**63 - 1)
    for number in (2**31, True):
        refused(
            lambda number=number: one.assign([TopicPartition(topic, number)]),
            TypeError,
            r"TopicPartition\(topic, number\)",
        )


@pytest.mark.parametrize("wrong", [{"partition": True}, {"timestamp_ms": False}])
def test_true_and_false_are_no_numbers_of_a_record(producer, topic, wrong):
    refused(lambda: producer.send(topic, b"v", **wrong), TypeError, "must be a whole number, not")


def test_a_record_from_before_1970_is_refused(producer, topic):
    refused(lambda: producer.send(topic, b"v", timestamp_ms=-1), ValueError, "timestamp_ms=-1")


def test_the_name_of_a_setting_is_a_string():
    wrong: Any = {5: "x"}
    refused(lambda: Consumer.from_properties(wrong), ConfigError, "must be a string, not 5")


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
