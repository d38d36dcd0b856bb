"""One contestant per process, as in client_workers: single records, sent and read one by one.

Every record has a key and a value of 100 bytes, and somebody is told of each that it was stored;
who reads looks at the key, the value and the headers of each. ``python -m benchmarks.record_workers
ROLE SERVERS TOPIC COUNT``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from importlib import import_module
from typing import Any

from benchmarks.client_workers import PARTITIONS, VALUE_BYTES, timed

CLIENTS = {
    "shoal": "shoal",
    "confluent": "confluent_kafka",
    "kafka_python": "kafka",
    "aiokafka": "aiokafka",
}
TASKS = 1_000  # that await at a time
AT_ONCE = 10_000  # records of one poll
VALUE = bytes(VALUE_BYTES)
KEYS = [b"key-%06d" % n for n in range(10_000)]


class Deliveries:
    """Counts what was stored; every record must be."""

    def __init__(self) -> None:
        self.stored = 0

    def of_future(self, future: Any) -> None:
        if future.exception() is None:
            self.stored += 1

    def of_message(self, error: Any, message: Any) -> None:
        if error is None:
            self.stored += 1

    def of_metadata(self, metadata: Any) -> None:
        self.stored += 1

    def spent(self, count: int, wall: float, cpu: float) -> dict[str, float]:
        if self.stored != count:
            raise RuntimeError(f"{self.stored} of {count} records were stored")
        return {
            "records": count,
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
        }


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- sending ---


def send_shoal(servers: str, topic: str, count: int) -> dict[str, float]:
    from shoal import Producer

    told = Deliveries()
    with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        producer.send(topic, VALUE).result(30)
        wall, cpu, size = time.perf_counter(), time.process_time(), 0
        for n in range(count):
            producer.send(topic, VALUE, KEYS[n % len(KEYS)], on_delivery=told.of_future)
            if n == count // 2:
                size = _resident_bytes()
        producer.flush(120)
        result = told.spent(count, wall, cpu)
        return {**result, "grown_bytes": _resident_bytes() - size}


def send_shoal_many(servers: str, topic: str, count: int) -> dict[str, float]:
    from shoal import Producer

    told = Deliveries()
    values = [VALUE] * len(KEYS)
    with Producer(bootstrap_servers=servers, linger_ms=5) as producer:
        producer.send(topic, VALUE).result(30)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count // len(KEYS)):
            for future in producer.send_many(topic, values, KEYS):
                future.add_done_callback(told.of_future)
        producer.flush(120)
        return told.spent(count // len(KEYS) * len(KEYS), wall, cpu)


def send_confluent(servers: str, topic: str, count: int) -> dict[str, float]:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 5,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    producer.produce(topic, VALUE)
    producer.flush(30)
    told = Deliveries()
    wall, cpu = time.perf_counter(), time.process_time()
    for n in range(count):
        producer.produce(topic, VALUE, KEYS[n % len(KEYS)], on_delivery=told.of_message)
        if n % 1_000 == 0:
            producer.poll(0)
    producer.flush(120)
    return told.spent(count, wall, cpu)


def send_kafka_python(servers: str, topic: str, count: int) -> dict[str, float]:
    import kafka

    producer = kafka.KafkaProducer(bootstrap_servers=servers, linger_ms=5, acks="all")
    producer.send(topic, VALUE).get(30)
    told = Deliveries()
    wall, cpu = time.perf_counter(), time.process_time()
    for n in range(count):
        producer.send(topic, VALUE, KEYS[n % len(KEYS)]).add_callback(told.of_metadata)
    producer.flush(120)
    result = told.spent(count, wall, cpu)
    producer.close()
    return result


def send_aiokafka(servers: str, topic: str, count: int) -> dict[str, float]:
    import aiokafka

    async def run() -> dict[str, float]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, linger_ms=5, enable_idempotence=True
        )
        await producer.start()
        await producer.send_and_wait(topic, VALUE)
        told = Deliveries()
        wall, cpu = time.perf_counter(), time.process_time()
        for n in range(count):
            sent = await producer.send(topic, VALUE, KEYS[n % len(KEYS)])
            sent.add_done_callback(told.of_future)
        await producer.flush()
        await asyncio.sleep(0)  # callbacks of the last
        result = told.spent(count, wall, cpu)
        await producer.stop()
        return result

    return asyncio.run(run())


def enqueue_shoal(servers: str, topic: str, count: int) -> dict[str, float]:
    from shoal import AsyncProducer

    async def run() -> dict[str, float]:
        async with AsyncProducer(bootstrap_servers=servers, linger_ms=5) as producer:
            await producer.send(topic, VALUE)
            told = Deliveries()
            wall, cpu = time.perf_counter(), time.process_time()
            for n in range(count):
                sent = await producer.enqueue(topic, VALUE, KEYS[n % len(KEYS)])
                sent.add_done_callback(told.of_future)
            await producer.flush()
            while told.stored < count:  # noqa: ASYNC110 - the loop still tells of the last
                await asyncio.sleep(0)
            return told.spent(count, wall, cpu)

    return asyncio.run(run())


async def _by_tasks(send: Any, topic: str, count: int) -> dict[str, float]:
    """Many tasks, each of which waits for its record before it sends the next."""
    told = Deliveries()

    async def work(first: int) -> None:
        for n in range(first, count, TASKS):
            await send(topic, VALUE, KEYS[n % len(KEYS)])
            told.stored += 1

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(work, range(TASKS)))
    return told.spent(count, wall, cpu)


def await_shoal(servers: str, topic: str, count: int) -> dict[str, float]:
    from shoal import AsyncProducer

    async def run() -> dict[str, float]:
        async with AsyncProducer(bootstrap_servers=servers, linger_ms=5) as producer:
            await producer.send(topic, VALUE)
            return await _by_tasks(producer.send, topic, count)

    return asyncio.run(run())


def await_aiokafka(servers: str, topic: str, count: int) -> dict[str, float]:
    import aiokafka

    async def run() -> dict[str, float]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, linger_ms=5, enable_idempotence=True
        )
        await producer.start()
        await producer.send_and_wait(topic, VALUE)
        result = await _by_tasks(producer.send_and_wait, topic, count)
        await producer.stop()
        return result

    return asyncio.run(run())


# --- reading ---


def read_shoal(servers: str, topic: str, count: int) -> dict[str, float]:
    from shoal import Consumer, TopicPartition

    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])

        def work() -> int:
            records = consumer.poll(5, max_records=AT_ONCE)
            for record in records:
                look(record.key, record.value, record.headers)
            return len(records)

        return timed(count, work)


def read_confluent(servers: str, topic: str, count: int) -> dict[str, float]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False}
    )
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, n, begin) for n in range(PARTITIONS)])

    def work() -> int:
        messages = consumer.consume(AT_ONCE, 0.1)
        for message in messages:
            look(message.key(), message.value(), message.headers())
        return len(messages)

    result = timed(count, work)
    consumer.close()
    return result


def read_aiokafka(servers: str, topic: str, count: int) -> dict[str, float]:
    import aiokafka

    async def run() -> dict[str, float]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest"
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, n) for n in range(PARTITIONS)])
        done, wall, cpu = -1, 0.0, 0.0
        while done < count:
            found = await consumer.getmany(timeout_ms=5000, max_records=AT_ONCE)
            for records in found.values():
                for record in records:
                    look(record.key, record.value, record.headers)
            if done < 0:
                done, wall, cpu = 0, time.perf_counter(), time.process_time()
            else:
                done += sum(map(len, found.values()))
        result = {
            "records": done,
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
        }
        await consumer.stop()
        return result

    return asyncio.run(run())


def look(key: Any, value: Any, headers: Any) -> None:
    """Whoever reads a record does something with it."""
    if value is None or key is None or headers == 0:
        raise RuntimeError("a record without its parts")


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    role, servers, topic, count = sys.argv[1:5]
    # Nothing else: without columns nobody needs Arrow, and what is imported is to be collected.
    import_module(CLIENTS[role.partition("_")[2].removesuffix("_many")])
    time.sleep(0.3)
    print(json.dumps(globals()[role](servers, topic, int(count))))
