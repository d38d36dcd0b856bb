"""Clients used by several threads at once: what docs/howto/clients.md says of each call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from shoal import Admin, Consumer, Producer
from shoal.errors import WakeupError
from tests.client.conftest import take

THREADS = 8
EACH = 200


def all_at_once(work: Callable[[int], object], threads: int = THREADS) -> list[object]:
    """The same work in several threads that begin together; what each returned."""
    barrier = threading.Barrier(threads)

    def run(number: int) -> object:
        barrier.wait(30)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))


@pytest.mark.slow
def test_one_producer_serves_all_threads_and_keeps_the_order_of_each(shoal_broker):
    shoal_broker.create_topic("t", partitions=4)
    servers = shoal_broker.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:

        def work(number: int) -> int:
            futures = []
            for index in range(EACH):
                futures.append(producer.send("t", f"{number}-{index}", f"key-{number}"))
                if index % 50 == 0:
                    producer.flush(30)
                    assert len(producer.partitions_for("t")) == 4
            producer.send_many("t", [f"{number}-{EACH}"], keys=[f"key-{number}"])
            offsets = [future.result(30).offset or 0 for future in futures]
            assert offsets == sorted(offsets)
            return len(set(offsets))

        assert all_at_once(work) == [EACH] * THREADS
    with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as one:
        one.subscribe(["t"])
        records = take(one, THREADS * (EACH + 1), timeout=60)
    by_thread: dict[bytes, list[int]] = {}
    for record in records:
        number, index = record.value.decode().split("-")
        by_thread.setdefault(record.key, []).append(int(index))
        assert record.key.decode() == f"key-{number}"
    assert all(seen == list(range(EACH + 1)) for seen in by_thread.values())


@pytest.mark.slow
def test_one_admin_serves_all_threads(shoal_broker):
    with Admin(bootstrap_servers=shoal_broker.bootstrap_servers) as admin:

        def work(number: int) -> object:
            admin.create_topic(f"t{number}", partitions=2)
            for _ in range(10):
                assert f"t{number}" in admin.list_topics()
                assert admin.describe_topics(f"t{number}")
                admin.list_groups()
            admin.delete_topics(f"t{number}")
            return None

        all_at_once(work)
        assert not [name for name in admin.list_topics() if name.startswith("t")]


def test_a_second_thread_in_a_consumer_is_told_and_harms_nobody(shoal_broker):
    shoal_broker.create_topic("t")
    with Consumer(bootstrap_servers=shoal_broker.bootstrap_servers, group_id="g") as consumer:
        consumer.subscribe(["t"])
        ended: list[BaseException] = []

        def poll() -> None:
            try:
                consumer.poll(60)
            except WakeupError as error:
                ended.append(error)

        reader = threading.Thread(target=poll)
        reader.start()
        deadline = time.monotonic() + 30
        while consumer._user is None:
            assert time.monotonic() < deadline
        for call in (lambda: consumer.poll(0), consumer.commit_sync, consumer.unsubscribe):
            with pytest.raises(RuntimeError, match="one thread at a time"):
                call()
        consumer.wakeup()
        reader.join(30)
        assert len(ended) == 1


@pytest.mark.slow
def test_wakeups_from_many_threads_end_calls_and_nothing_else(shoal_broker):
    shoal_broker.create_topic("t")
    with Consumer(bootstrap_servers=shoal_broker.bootstrap_servers, group_id="g") as consumer:
        consumer.subscribe(["t"])
        stop = threading.Event()

        def wake() -> None:
            while not stop.wait(0.002):
                consumer.wakeup()

        wakers = [threading.Thread(target=wake) for _ in range(THREADS)]
        for waker in wakers:
            waker.start()
        woken = 0
        while woken < 50:
            try:
                consumer.poll(0.05)
            except WakeupError:
                woken += 1
        stop.set()
        for waker in wakers:
            waker.join(30)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(30)
        assert consumer.poll(0) is not None


@pytest.mark.slow
def test_each_thread_may_have_clients_of_its_own(shoal_broker):
    shoal_broker.create_topic("t", partitions=THREADS)
    servers = shoal_broker.bootstrap_servers

    def work(number: int) -> int:
        with Producer(bootstrap_servers=servers) as producer:
            for index in range(20):
                producer.send("t", str(index), partition=number)
        with Consumer(
            bootstrap_servers=servers, group_id=f"g{number}", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["t"])
            return len(take(consumer, 20, timeout=60))

    assert all_at_once(work) == [20] * THREADS
