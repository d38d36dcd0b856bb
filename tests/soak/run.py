"""A broker process under load that is killed, stopped and cut; the history is judged at the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.peers.kafka import free_ports
from tests.soak.history import History, Value

PARTITIONS = 4
TOPIC = "soak"
GROUP = "soak-group"
_RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


class BrokerProcess:
    """``python -m shoal.broker`` on one port and one directory, again and again."""

    def __init__(self, directory: Path, durability: str = "group") -> None:
        (self.port,) = free_ports(1)
        self._command = [
            *(sys.executable, "-m", "shoal.broker", "--listen", f"127.0.0.1:{self.port}"),
            *("--data-dir", str(directory), "--durability", durability),
            *("--partitions", str(PARTITIONS)),
        ]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("ready")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def pause(self, seconds: float) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self._process.pid, signal.SIGCONT)

    def _end(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Load:
    """Two idempotent producers and a group of two consumers that commit what they read."""

    def __init__(self, servers: str) -> None:
        self.history = History()
        self._servers = servers
        self._producing = threading.Event()
        self._consuming = threading.Event()
        self._producing.set()
        self._consuming.set()
        self._failures: list[BaseException] = []
        self._producers = [self._thread(self._produce, f"p{n}") for n in range(2)]
        self._consumers = [self._thread(self._consume, f"c{n}") for n in range(2)]

    def _thread(self, work: Any, name: str) -> threading.Thread:
        def guarded() -> None:
            try:
                work(name)
            except BaseException as error:
                self._failures.append(error)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    def finish(self) -> None:
        """Let the producers deliver what they have, then the consumers read to the end."""
        self._producing.clear()
        for thread in self._producers:
            thread.join(120)
            assert not thread.is_alive(), "a producer does not finish"
        wanted = len({place for place, _ in self.history.acknowledged})
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not self._failures:
            if len({place for seen in self.history.read.values() for place, _ in seen}) >= wanted:
                break
            time.sleep(0.1)
        self._consuming.clear()
        for thread in self._consumers:
            thread.join(60)
            assert not thread.is_alive(), "a consumer does not finish"
        if self._failures:
            raise self._failures[0]

    def _produce(self, name: str) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "log_level": 0,
                **_RECONNECT,
            }
        )

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                raise AssertionError(f"not delivered: {error}")
            place = (message.partition(), message.offset())
            self.history.acknowledged.append((place, message.value()))

        number = 0
        while self._producing.is_set():
            value = f"{name}-{number}".encode()
            producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=delivered)
            number += 1
            producer.poll(0.001)
        assert producer.flush(100) == 0

    def _consume(self, name: str) -> None:
        from confluent_kafka import Consumer, KafkaException

        run = 0

        def assigned(consumer: Any, partitions: Any) -> None:
            nonlocal run
            run += 1

        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
                **_RECONNECT,
            }
        )
        consumer.subscribe([TOPIC], on_assign=assigned, on_revoke=assigned)
        since_commit = 0
        while self._consuming.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            place = (message.partition(), message.offset())
            self.history.read[name, run].append((place, message.value()))
            since_commit += 1
            if since_commit >= 200:
                since_commit = 0
                try:
                    committed = consumer.commit(asynchronous=False)
                except KafkaException:
                    continue
                self.history.committed += [
                    (tp.partition, tp.offset) for tp in committed if tp.error is None
                ]
        consumer.close()


def final_state(servers: str) -> tuple[dict[int, dict[int, Value]], dict[int, int]]:
    """The whole log, and the committed offsets, as a fresh client reads them."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": GROUP, "enable.auto.commit": False}
    )
    everything = [TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)]
    ends = {
        p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), 10)[1]
        for p in range(PARTITIONS)
    }
    committed = {
        tp.partition: tp.offset for tp in consumer.committed(everything, 10) if tp.offset >= 0
    }
    consumer.assign(everything)
    log: dict[int, dict[int, Value]] = {p: {} for p in range(PARTITIONS)}
    positions = dict.fromkeys(range(PARTITIONS), 0)
    deadline = time.monotonic() + 120
    while any(positions[p] < ends[p] for p in ends):
        assert time.monotonic() < deadline, "the log cannot be read to its end"
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            log[message.partition()][message.offset()] = message.value()
            positions[message.partition()] = message.offset() + 1
    consumer.close()
    return log, committed


def soak(directory: Path, *, faults: int, seed: int, durability: str = "group") -> dict[str, Any]:
    """Run the load through ``faults`` faults and judge. Returns counts and anomalies."""
    rng = random.Random(seed)
    broker = BrokerProcess(directory, durability)
    broker.start()
    servers = f"127.0.0.1:{broker.port}"
    load = Load(servers)
    counts = {"kill": 0, "pause": 0, "restart": 0}
    for number in range(faults):
        time.sleep(rng.uniform(0.3, 1.2))
        kind = "kill" if number % 4 != 3 else rng.choice(["pause", "restart"])
        counts[kind] += 1
        if kind == "pause":
            broker.pause(rng.uniform(0.2, 1.0))
            continue
        if kind == "kill":
            broker.kill()
        else:
            broker.stop()
        broker.start()
    time.sleep(1.0)
    load.finish()
    log, committed = final_state(servers)
    broker.stop()
    anomalies = load.history.anomalies(log, committed)
    return {
        **counts,
        "acknowledged": len(load.history.acknowledged),
        "read": sum(len(seen) for seen in load.history.read.values()),
        "commits": len(load.history.committed),
        "log": sum(len(records) for records in log.values()),
        "anomalies": anomalies,
    }
