"""One producer, several threads: who flushes or closes does not wait for those who go on."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import Any

import pytest

from shoal import Producer
from shoal.errors import ErrorCode, RequestTimeoutError


@pytest.fixture
def broker(shoal_broker):
    shoal_broker.create_topic("t", 1)
    return shoal_broker


@pytest.fixture
def producer(broker):
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=1) as producer:
        yield producer


@contextmanager
def someone_sends(producer):
    """A thread that sends for as long as it may; yields its futures and how it was stopped."""
    futures, stopped, over = [], [], threading.Event()

    def send():
        try:
            while not over.is_set():
                futures.append(producer.send("t", bytes(1000)))
        except RuntimeError as error:
            stopped.append(str(error))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield futures, stopped
    finally:
        over.set()
        thread.join(10)


def test_flush_does_not_wait_for_what_others_send_meanwhile(producer):
    with someone_sends(producer):
        for n in range(3):
            future = producer.send("t", str(n))
            producer.flush(10)
            assert future.done()


def test_flush_does_not_wait_for_a_record_sent_after_it_began(broker, producer):
    producer.send("t", "0").result(10)
    broker.delay("Produce", 0.3)
    broker.delay("Produce", 60)
    before = producer.send("t", "before")
    while not any(producer._sender._in_flight.values()):
        time.sleep(0.001)
    flushing = threading.Thread(target=producer.flush)
    flushing.start()
    while not producer._accumulator._flushing:
        time.sleep(0.001)
    after = producer.send("t", "after")
    flushing.join(5)
    outcome = (flushing.is_alive(), before.done(), after.done())
    producer.close(0)
    flushing.join(5)
    assert outcome == (False, True, False)


def test_close_refuses_more_and_loses_nothing_it_has_taken(producer):
    with someone_sends(producer) as (futures, stopped):
        while not futures:
            time.sleep(0.001)
        producer.close()
    assert stopped == ["this client is closed"]
    assert [future.exception(0) for future in futures] == [None] * len(futures)


def test_when_flush_returns_the_callbacks_have_been_called(producer):
    called = []

    def slow(future):
        threading.Event().wait(0.02)
        called.append(future.result(0).offset)

    for n in range(5):
        producer.send("t", b"v", on_delivery=slow)
        producer.flush(10)
        assert called == [*range(n + 1)]


def test_flush_says_when_callbacks_take_too_long(producer):
    go_on = threading.Event()
    producer.send("t", b"v", on_delivery=lambda _: go_on.wait(30))
    with pytest.raises(RequestTimeoutError, match="callbacks still run"):
        producer.flush(0.1)
    go_on.set()


def test_a_callback_may_flush(producer):
    outcome = []

    def again(_):
        future = producer.send("t", b"second")
        producer.flush(10)
        outcome.append(future.result(0).offset)

    producer.send("t", b"first", on_delivery=again)
    producer.flush(10)
    assert outcome == [1]


def test_two_threads_and_a_callback_may_close_at_once(broker):
    broker.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=1000)
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)
    errors = []

    def close(_=None):
        try:
            producer.close(0.1)
        except BaseException as error:
            errors.append(error)

    future = producer.send("t", b"v", on_delivery=close)
    threads = [threading.Thread(target=close, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert errors == []
    assert future.exception(0) is not None


def test_a_callback_runs_on_the_producers_thread_however_fast_the_answer_is(broker):
    called = []
    producer: Producer

    class Slow:
        """Asked for every record; told of a full batch, it waits until that is acknowledged."""

        def __call__(self, topic, key, count):
            return 0

        def batch_done(self, topic, partition, count):
            producer.flush(10)

    def broken(_):
        called.append(threading.current_thread())
        raise LookupError("from a callback")

    with Producer(
        bootstrap_servers=broker.bootstrap_servers, partitioner=Slow(), linger_ms=0, batch_size=100
    ) as producer:
        for _ in range(10):
            producer.send("t", bytes(90), on_delivery=broken)
    assert len(called) == 10
    assert threading.current_thread() not in called


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # newer Python's, of fork
def test_a_producer_from_before_a_fork_says_so_and_has_nothing_to_flush(producer):
    producer.send("t", b"v", on_delivery=lambda _: None).result(10)
    waiting = producer.send("t", b"sent by the parent")
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(10)
            producer.flush()
            try:
                producer.send("t", b"v")
            except RuntimeError as error:
                os.write(sink, str(error).encode())
            producer.close()
        finally:
            os._exit(0)
    os.close(sink)
    with open(source, "rb") as answer:
        assert b"make one after the fork" in answer.read()
    os.waitpid(child, 0)
    assert waiting.result(10).offset == 1


def test_a_callback_that_wants_to_exit_does_not_keep_the_others_from_being_called(producer):
    called: list[Any] = []
    producer.send("t", b"v", on_delivery=lambda _: sys.exit())
    producer.send("t", b"v", on_delivery=called.append)
    producer.flush(10)
    assert len(called) == 1
