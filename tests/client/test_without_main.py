"""Programs whose main thread has ended while others go on, and what runs at exit.

Real interpreters: what is tested is what they refuse while they end.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from functools import partial

import pytest

from shoal import AsyncConsumer, Consumer, Producer
from shoal.client.engine import Worker
from shoal.errors import RequestTimeoutError
from shoal.testing.broker import Broker

pytestmark = pytest.mark.slow


@pytest.fixture
def by_name(shoal_broker: Broker) -> str:
    """An address that has to be looked up."""
    shoal_broker.create_topic("t", 1)
    return f"localhost:{shoal_broker.bootstrap_servers.rpartition(':')[2]}"


def run(program: str, servers: str, timeout: float = 40) -> str:
    """What a script prints; it must end well, in time and without a word of complaint."""
    prelude = f"""
        import atexit, threading, time
        from shoal import Admin, AsyncConsumer, Consumer, Producer, TopicPartition
        SERVERS = {servers!r}
        EARLIEST = {{"bootstrap_servers": SERVERS, "auto_offset_reset": "earliest"}}

        def main_has_ended():
            threading.main_thread().join()
            time.sleep(0.2)  # and whatever the interpreter shuts then
    """
    script = textwrap.dedent(prelude) + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def fill(servers, count=5):
    with Producer(bootstrap_servers=servers) as producer:
        for n in range(count):
            producer.send("t", str(n))


def test_a_consumer_made_after_the_main_thread_has_ended_reads(by_name):
    fill(by_name)
    said = run(
        """
        def work():
            main_has_ended()
            with Consumer(**EARLIEST) as consumer:
                consumer.assign([TopicPartition("t", 0)])
                for record in consumer:
                    print(record.value.decode())
                    if record.offset == 4:
                        break

        threading.Thread(target=work).start()
        """,
        by_name,
    )
    assert said.split() == ["0", "1", "2", "3", "4"]


def test_a_member_of_a_group_joins_after_the_main_thread_has_ended(by_name):
    fill(by_name)
    said = run(
        """
        import asyncio

        async def read():
            async with AsyncConsumer(group_id="g", **EARLIEST) as consumer:
                await consumer.subscribe(["t"])
                async for record in consumer:
                    print(record.value.decode())
                    if record.offset == 4:
                        break

        def work():
            main_has_ended()
            asyncio.run(read())

        threading.Thread(target=work).start()
        """,
        by_name,
    )
    assert said.split() == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("is_made", ["before", "after"])
def test_delivery_callbacks_run_after_the_main_thread_has_ended(by_name, is_made):
    said = run(
        f"""
        IS_BEFORE = {is_made == "before"}
        producer = Producer(bootstrap_servers=SERVERS) if IS_BEFORE else None

        def work():
            main_has_ended()
            mine = producer or Producer(bootstrap_servers=SERVERS)
            for n in range(3):
                mine.send("t", str(n), on_delivery=lambda f: print("sent", f.result().offset))
            mine.send("t", "3").add_done_callback(lambda f: print("sent", f.result().offset))
            mine.flush(10)
            print("flushed")
            mine.close()

        threading.Thread(target=work).start()
        """,
        by_name,
    )
    assert said.splitlines() == ["sent 0", "sent 1", "sent 2", "sent 3", "flushed"]


@pytest.mark.parametrize("how", ["flush", "close"])
@pytest.mark.parametrize("given", ["on_delivery", "add_done_callback"])
def test_what_is_registered_to_run_at_exit_ends(by_name, how, given):
    said = run(
        f"""
        producer = Producer(bootstrap_servers=SERVERS, linger_ms=60_000)
        atexit.register(lambda: print("over"))
        atexit.register(producer.{how})

        def told(future):
            print("sent", future.result().offset)

        for n in range(3):
            if {given!r} == "on_delivery":
                producer.send("t", str(n), on_delivery=told)
            else:
                producer.send("t", str(n)).add_done_callback(told)
        """,
        by_name,
    )
    assert said.splitlines() == ["sent 0", "sent 1", "sent 2", "over"]


def test_a_connection_is_opened_by_name_while_the_interpreter_ends(by_name):
    said = run(
        """
        producer = Producer(bootstrap_servers=SERVERS)

        def last_words():
            print("at", producer.send("t", "bye").result(10).offset)
            producer.close()

        atexit.register(last_words)
        """,
        by_name,
    )
    assert said == "at 0\n"


def test_a_program_that_closes_nothing_ends(by_name):
    said = run(
        """
        producer = Producer(bootstrap_servers=SERVERS)
        producer.send("t", "1", on_delivery=print)
        consumer = Consumer(**EARLIEST)
        consumer.assign([TopicPartition("t", 0)])
        print(len(consumer.poll(10)) <= 1)
        """,
        by_name,
    )
    assert "True" in said


def test_no_thread_is_left_after_close(by_name):
    before = set(threading.enumerate())  # the broker's among them, which may start more of its own
    with Producer(bootstrap_servers=by_name) as producer:
        producer.send("t", "1", on_delivery=lambda _: None).result(10)
    with Consumer(bootstrap_servers=by_name, group_id="g") as consumer:
        consumer.subscribe(["t"])
        consumer.poll(1)
    AsyncConsumer(bootstrap_servers=by_name)._engine.stop()
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in left if name.startswith("shoal-")] == []


# --- the worker ---


def test_a_worker_runs_what_is_posted_in_order_and_then_ends():
    seen: list[int] = []
    worker = Worker("w")
    for n in range(100):
        worker.post(partial(seen.append, n))
    worker.close()
    assert seen == list(range(100))


def test_waiting_for_a_worker_takes_no_longer_than_it_is_told():
    worker, gate = Worker("w"), threading.Event()
    worker.post(gate.wait)
    start = time.monotonic()
    assert not worker.wait(0.05)
    assert time.monotonic() - start < 5
    gate.set()
    assert worker.wait(None)
    worker.close()
    assert worker.wait(None)  # nothing will ever run there, and nobody waits for it


def test_a_flush_that_waits_for_a_callback_keeps_its_time(by_name):
    gate = threading.Event()
    with Producer(bootstrap_servers=by_name) as producer:
        producer.send("t", "1", on_delivery=lambda _: gate.wait(20))
        with pytest.raises(RequestTimeoutError, match=r"callbacks still run after 0\.5 s"):
            producer.flush(0.5)
        gate.set()
