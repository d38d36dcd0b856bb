"""One contestant per process: consume or produce with one client, print records, wall and CPU.

Every client runs alone in a fresh process (``python -m benchmarks.client_workers ROLE SERVERS
TOPIC COUNT``), so that its CPU time is its own and no client warms another's caches.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from statistics import median
from typing import Any

PARTITIONS = 2
VALUE_BYTES = 100
MODULES = {
    "shoal": ("shoal", "pyarrow"),
    "confluent": ("confluent_kafka",),
    "kafka_python": ("kafka",),
    "aiokafka": ("aiokafka",),
}


def timed(count: int, work: Callable[[], int]) -> dict[str, float]:
    """Run ``work`` until it has handled ``count`` records; what it took from the first on."""
    handled = work()
    wall, cpu = time.perf_counter(), time.process_time()
    done = 0
    while done < count:
        done += work()
    return {
        "records": done,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "first": handled,
    }


# --- consuming ---


def consume_shoal_arrow(servers: str, topic: str, count: int) -> dict[str, float]:
    from shoal import Consumer, TopicPartition

    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
        return timed(count, lambda: consumer.poll_arrow(5).num_rows)


def consume_shoal_objects(servers: str, topic: str, count: int) -> dict[str, float]:
    from shoal import Consumer, TopicPartition

    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
        return timed(count, lambda: len(consumer.poll(5)))


def consume_confluent(servers: str, topic: str, count: int) -> dict[str, float]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False}
    )
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, n, begin) for n in range(PARTITIONS)])
    result = timed(count, lambda: len(consumer.consume(10_000, 0.1)))
    consumer.close()
    return result


def consume_kafka_python(servers: str, topic: str, count: int) -> dict[str, float]:
    import kafka

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest"
    )
    consumer.assign([kafka.TopicPartition(topic, n) for n in range(PARTITIONS)])
    result = timed(count, lambda: sum(map(len, consumer.poll(5000).values())))
    consumer.close()
    return result


def consume_aiokafka(servers: str, topic: str, count: int) -> dict[str, float]:
    import asyncio

    import aiokafka

    async def run() -> dict[str, float]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, n) for n in range(PARTITIONS)])

        async def work() -> int:
            return sum(map(len, (await consumer.getmany(timeout_ms=5000)).values()))

        first = await work()
        wall, cpu = time.perf_counter(), time.process_time()
        done = 0
        while done < count:
            done += await work()
        result = {
            "records": done,
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
            "first": first,
        }
        await consumer.stop()
        return result

    return asyncio.run(run())


# --- producing ---


def produce_shoal_arrow(servers: str, topic: str, count: int) -> dict[str, float]:
    import pyarrow as pa

    from shoal import Producer

    with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        table = pa.table({"value": [bytes(VALUE_BYTES)] * count})
        producer.send_arrow(topic, table.slice(0, 1000))
        producer.flush(60)
        wall, cpu = time.perf_counter(), time.process_time()
        producer.send_arrow(topic, table)
        producer.flush(120)
        return _spent(count, wall, cpu)


def produce_shoal_objects(servers: str, topic: str, count: int) -> dict[str, float]:
    from shoal import Producer

    value = bytes(VALUE_BYTES)
    with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        producer.send(topic, value).result(30)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            producer.send(topic, value)
        producer.flush(120)
        return _spent(count, wall, cpu)


def produce_confluent(servers: str, topic: str, count: int) -> dict[str, float]:
    import confluent_kafka

    value = bytes(VALUE_BYTES)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 5,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    producer.produce(topic, value)
    producer.flush(30)
    wall, cpu = time.perf_counter(), time.process_time()
    for n in range(count):
        producer.produce(topic, value)
        if n % 10_000 == 0:
            producer.poll(0)
    producer.flush(120)
    return _spent(count, wall, cpu)


def produce_kafka_python(servers: str, topic: str, count: int) -> dict[str, float]:
    import kafka

    value = bytes(VALUE_BYTES)
    producer = kafka.KafkaProducer(bootstrap_servers=servers, linger_ms=5, acks="all")
    producer.send(topic, value).get(30)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        producer.send(topic, value)
    producer.flush(120)
    result = _spent(count, wall, cpu)
    producer.close()
    return result


def produce_aiokafka(servers: str, topic: str, count: int) -> dict[str, float]:
    import asyncio

    import aiokafka

    async def run() -> dict[str, float]:
        value = bytes(VALUE_BYTES)
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, linger_ms=5, enable_idempotence=True
        )
        await producer.start()
        await producer.send_and_wait(topic, value)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            await producer.send(topic, value)
        await producer.flush()
        result = _spent(count, wall, cpu)
        await producer.stop()
        return result

    return asyncio.run(run())


def _spent(count: int, wall: float, cpu: float) -> dict[str, float]:
    return {
        "records": count,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
    }


# --- from nothing to the first record ---


def first_shoal(servers: str, topic: str, count: int) -> dict[str, float]:
    from shoal import Consumer

    times = []
    for n in range(count):
        began = time.perf_counter()
        with Consumer(
            bootstrap_servers=servers,
            group_id=f"first-{time.time_ns()}-{n}",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.subscribe([topic])
            while not consumer.poll(1):
                pass
            times.append(time.perf_counter() - began)
    return {"median_s": median(times), "slowest_s": max(times)}


def first_confluent(servers: str, topic: str, count: int) -> dict[str, float]:
    import confluent_kafka

    times = []
    for n in range(count):
        began = time.perf_counter()
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"first-{time.time_ns()}-{n}",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        while consumer.poll(0.1) is None:
            pass
        times.append(time.perf_counter() - began)
        consumer.close()
    return {"median_s": median(times), "slowest_s": max(times)}


def first_kafka_python(servers: str, topic: str, count: int) -> dict[str, float]:
    import kafka

    times = []
    for n in range(count):
        began = time.perf_counter()
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=servers,
            group_id=f"first-{time.time_ns()}-{n}",
            auto_offset_reset="earliest",
        )
        consumer.subscribe([topic])
        while not consumer.poll(1000):
            pass
        times.append(time.perf_counter() - began)
        consumer.close()
    return {"median_s": median(times), "slowest_s": max(times)}


def first_aiokafka(servers: str, topic: str, count: int) -> dict[str, float]:
    import asyncio

    import aiokafka

    async def once(group: str) -> float:
        began = time.perf_counter()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
        )
        consumer.subscribe([topic])
        await consumer.start()
        while not await consumer.getmany(timeout_ms=1000):
            pass
        took = time.perf_counter() - began
        await consumer.stop()
        return took

    times = [asyncio.run(once(f"first-{time.time_ns()}-{n}")) for n in range(count)]
    return {"median_s": median(times), "slowest_s": max(times)}


# --- running them ---


def run_worker(
    role: str, servers: str, topic: str, count: int, *, module: str = "benchmarks.client_workers"
) -> dict[str, Any]:
    """One contestant in a process of its own; ``module`` knows the role."""
    command = [sys.executable, "-m", module, role, servers, topic, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{role} failed: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def java_consumer(servers: str, topic: str, count: int) -> float | None:
    """Millions of records per second by the clock, as Kafka's own perf tool says; ``None``
    without Java."""
    from tests.peers.cache import PeerMissingError
    from tests.peers.kafka import tool

    try:
        done = tool(
            "ConsumerPerformance",
            *("--bootstrap-server", servers, "--topic", topic, "--messages", str(count)),
            *("--group", f"perf-{time.time_ns()}", "--hide-header", "--timeout", "60000"),
            timeout=120,
        )
        # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, MB/s, records/s
        fields = [field.strip() for field in done.stdout.strip().splitlines()[-1].split(",")]
        return float(fields[9]) / 1e6  # while fetching: without its start and rebalance
    except (PeerMissingError, IndexError, ValueError):
        return None


@contextlib.contextmanager
def our_broker() -> Iterator[str]:
    """Our broker in a process of its own, writing like Kafka by default (no fsync)."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "shoal.broker", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", directory, "--durability", "os"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def apache_kafka() -> Iterator[str | None]:
    """Apache Kafka from its published jars, or ``None`` where they cannot be had."""
    from tests.peers.cache import PeerMissingError
    from tests.peers.kafka import ApacheKafka

    try:
        with ApacheKafka() as kafka:
            yield kafka.bootstrap_servers
    except PeerMissingError:
        yield None


@contextlib.contextmanager
def brokers() -> Iterator[dict[str, str]]:
    """Both brokers, those that can be had."""
    with our_broker() as ours, apache_kafka() as theirs:
        found = {"shoal": ours}
        if theirs is not None:
            found["Apache Kafka"] = theirs
        yield found


def filled_topic(servers: str, count: int, batch_bytes: int = 64 * 1024) -> str:
    """A topic with ``count`` records in batches as busy producers make them."""
    import os

    import pyarrow as pa

    from shoal import Admin, Producer

    topic = f"bench-{time.time_ns()}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    part = 200_000
    table = pa.table({"value": [os.urandom(VALUE_BYTES) for _ in range(part)]})
    with Producer(bootstrap_servers=servers, max_request_size=batch_bytes) as producer:
        for _ in range(-(-count // part)):
            producer.send_arrow(topic, table)
        producer.flush(300)
    return topic


def warm_up(role: str) -> None:
    """Import what the role is about, and let it come to rest: numpy, which pyarrow imports, starts
    threads that spin for a tenth of a second, and no record is to be charged with that."""
    client = role.partition("_")[2].removesuffix("_arrow").removesuffix("_objects")
    for module in MODULES[client]:
        import_module(module)
    time.sleep(0.3)


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    role, servers, topic, count = sys.argv[1:5]
    warm_up(role)
    print(json.dumps(globals()[role](servers, topic, int(count))))
