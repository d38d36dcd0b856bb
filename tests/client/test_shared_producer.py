"""One producer, several threads: who flushes or closes does not wait for those who go on."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

from shoal import Producer


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
    """A thread that sends for as long as it may; yields how it was stopped, once it was."""
    stopped, over = [], threading.Event()

    def send():
        try:
            while not over.is_set():
                producer.send("t", bytes(1000))
        except RuntimeError as error:
            stopped.append(str(error))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield stopped
    finally:
        over.set()
        thread.join(10)


def test_flush_does_not_wait_for_what_others_send_meanwhile(producer):
    with someone_sends(producer):
        for n in range(3):
            future = producer.send("t", str(n))
            producer.flush(10)
            assert future.done()
