"""A broker process under load that is killed, stopped, cut off and left without disk space.

The clients reach it through a proxy that cuts; its data may lie on a disk small enough to fill.
The history of every load is judged at the end.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from tests.peers import PeerMissingError
from tests.peers.jars import kafka_jars
from tests.peers.kafka import free_ports
from tests.soak.final_state import PARTITIONS, final_state, judged
from tests.soak.history import History
from tests.soak.proxy import CuttingProxy
from tests.soak.small_disk import MISSING, SmallDisk, can_mount, small_disk
from tests.soak.transfers import TransferLoad
from tests.soak.verifiable import VerifiableLoad

_BACKLOG_MAX = 2_000
"""Of records: on a busy machine more would be older than ``message.timeout.ms`` when sent."""
_PROGRESS_S = 30.0
_RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


class BrokerProcess:
    """``python -m shoal.broker`` on one port and one directory, again and again."""

    def __init__(
        self,
        directory: Path,
        log: Path,
        durability: str = "group",
        *,
        advertised: int | None = None,
    ) -> None:
        (self.port,) = free_ports(1)
        self._log = log
        self._command = [
            *(sys.executable, "-m", "shoal.broker", "--listen", f"127.0.0.1:{self.port}"),
            *("--data-dir", str(directory), "--durability", durability),
            *(
                "--partitions",
                str(PARTITIONS),
                "--advertise",
                f"127.0.0.1:{advertised or self.port}",
            ),
        ]
        self._process: subprocess.Popen[str] | None = None

    @property
    def said(self) -> str:
        """Everything it wrote to its log, over all its lives."""
        return self._log.read_text()

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("ready"), self.said[-1000:]

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


class Judged(Protocol):
    """Clients at work, and what they saw."""

    topic: str

    def finish(self) -> None: ...
    def kill(self) -> None: ...
    def judge(self, servers: str) -> tuple[list[str], dict[str, int]]:
        """Anomalies, and how much there was of everything."""
        ...


class Load:
    """Two idempotent producers and a group of two consumers that commit what they read."""

    def __init__(self, servers: str, topic: str = "soak", group: str = "soak-group") -> None:
        self.history = History()
        self.topic, self.group = topic, group
        self._servers = servers
        self._producing = threading.Event()
        self._consuming = threading.Event()
        self._producing.set()
        self._consuming.set()
        self._failures: list[BaseException] = []
        self._delivered: Counter[str] = Counter()
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
            read = list(self.history.read.values())  # the consumers go on adding to it
            if len({place for seen in read for place, _ in seen}) >= wanted:
                break
            time.sleep(0.1)
        self._consuming.clear()
        for thread in self._consumers:
            thread.join(60)
            assert not thread.is_alive(), "a consumer does not finish"
        if self._failures:
            raise self._failures[0]

    def wait_for_progress(self) -> None:
        """Until every producer has got something through, or has no chance for long.

        On a busy machine a broker takes seconds to start: one that is killed before anybody has
        reached it proves nothing, and records grow too old meanwhile.
        """
        before = dict(self._delivered)
        deadline = time.monotonic() + _PROGRESS_S
        while time.monotonic() < deadline and not self._failures:
            if all(self._delivered[one.name] > before.get(one.name, 0) for one in self._producers):
                return
            time.sleep(0.02)

    def kill(self) -> None:
        """The threads end with the process."""
        self._producing.clear()
        self._consuming.clear()

    def judge(self, servers: str) -> tuple[list[str], dict[str, int]]:
        return judged(self.history, *final_state(servers, self.topic, self.group))

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
            self._delivered[name] += 1
            place = (message.partition(), message.offset())
            self.history.acknowledged.append((place, message.value()))

        number = 0
        while self._producing.is_set():
            value = f"{name}-{number}".encode()
            producer.produce(
                self.topic, value, partition=number % PARTITIONS, on_delivery=delivered
            )
            number += 1
            producer.poll(0.001)
            while len(producer) > _BACKLOG_MAX:
                producer.poll(0.1)
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
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
                **_RECONNECT,
            }
        )
        consumer.subscribe([self.topic], on_assign=assigned, on_revoke=assigned)
        since_commit = 0
        while self._consuming.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            self.history.read[name, run].append(((partition, offset), value))
            since_commit += 1
            if since_commit >= 200:
                since_commit = 0
                try:
                    committed = consumer.commit(asynchronous=False)
                except KafkaException:
                    continue
                self.history.committed += [
                    (tp.partition, tp.offset)
                    for tp in committed
                    # A partition of which nothing was read yet is in the list, without an offset.
                    if tp.error is None and tp.offset >= 0
                ]
        consumer.close()


class Faults:
    """What can happen to a broker, one thing at a time."""

    def __init__(
        self, broker: BrokerProcess, proxy: CuttingProxy, disk: SmallDisk | None, seed: int
    ) -> None:
        self._broker = broker
        self._proxy = proxy
        self._disk = disk
        self._rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.seldom = ["pause", "restart", "cut", *(["full disk"] if disk else [])]

    def wait(self) -> None:
        time.sleep(self._rng.uniform(0.3, 1.2))

    def strike(self, kind: str) -> None:
        self.counts[kind] += 1
        match kind:
            case "kill":
                self._broker.kill()
                self._broker.start()
            case "restart":
                self._broker.stop()
                self._broker.start()
            case "pause":
                self._broker.pause(self._rng.uniform(0.2, 1.0))
            case "cut":
                for _ in range(3):
                    self.counts["connections cut"] += self._proxy.cut(self._rng)
                    time.sleep(self._rng.uniform(0.0, 0.3))
            case "full disk":
                self._fill(kill=self._rng.random() < 0.5)

    def _fill(self, *, kill: bool) -> None:
        """No byte is left until the broker has said so; perhaps it dies of something else then."""
        assert self._disk is not None
        said = len(self._broker.said)
        self._disk.fill()
        deadline = time.monotonic() + 15
        while "cannot store records" not in self._broker.said[said:]:
            assert time.monotonic() < deadline, "the broker says nothing about its full disk"
            time.sleep(0.05)
        if kill:
            self.counts["kill"] += 1
            self._broker.kill()
        self._disk.free()
        if kill:
            self._broker.start()


def soak(
    directory: Path,
    *,
    plan: list[str] | int,
    seed: int,
    durability: str = "group",
    verifiable: bool = False,
    transfers: bool = False,
    disk_bytes: int = 0,
) -> dict[str, Any]:
    """Run the loads through the faults and judge. Returns counts and anomalies.

    Args:
        plan: the faults in their order, or how many; then three of four are kills.
        verifiable: Kafka's own verifiable clients work beside confluent-kafka's.
        transfers: transactional clients move tokens between partitions, beside them.
        disk_bytes: put the data on a disk of its own, of that size, that can be filled. The broker
            keeps 64 MiB for itself.
    """
    result: dict[str, Any] = {}
    with ExitStack() as stack:
        disk = None
        if disk_bytes and can_mount():
            disk = stack.enter_context(small_disk(directory, disk_bytes))
        elif disk_bytes:
            result["not run"] = MISSING
        (outside,) = free_ports(1)
        data = disk.directory if disk else directory / "data"
        broker = BrokerProcess(data, directory / "broker.log", durability, advertised=outside)
        broker.start()
        stack.callback(broker.stop)
        proxy = CuttingProxy(outside, broker.port)
        stack.callback(proxy.stop)
        plain = Load(f"127.0.0.1:{outside}")
        loads: list[Judged] = [plain]
        if verifiable:
            try:
                kafka_jars()
                java = VerifiableLoad(f"127.0.0.1:{outside}", "java", "java-group", directory)
                loads.append(java)
            except PeerMissingError as missing:
                result["not run"] = str(missing)
        if transfers:
            loads.append(TransferLoad(f"127.0.0.1:{outside}", PARTITIONS))
        for load in loads:
            stack.callback(load.kill)
        faults = Faults(broker, proxy, disk, seed)
        for kind in _planned(plan, faults, seed):
            plain.wait_for_progress()
            faults.wait()
            faults.strike(kind)
        time.sleep(1.0)
        result |= faults.counts
        result["anomalies"] = []
        for load in loads:
            load.finish()
            anomalies, result[load.topic] = load.judge(f"127.0.0.1:{broker.port}")
            result["anomalies"] += anomalies
    return result


def _planned(plan: list[str] | int, faults: Faults, seed: int) -> list[str]:
    if isinstance(plan, list):
        return plan
    rng = random.Random(seed)
    return ["kill" if number % 4 != 3 else rng.choice(faults.seldom) for number in range(plan)]
