"""A query that writes exactly once, killed at random, and the broker with it at times.

    python -m tests.spark.kill_run --kills 200 --broker-kills 40 [--losses 20] [--broker kafka]

A producer writes all the while. A driver copies its topic to another one with ``exactlyOnce``,
and is killed (SIGKILL to all of its processes) at a random moment: while it starts, plans, writes,
decides or commits. The next one goes on with another number of tasks. In a share of the kills the
broker dies at the same moment; in another share the time of the transactions that are open is over
before the next driver comes (it has the same number of tasks then: docs/howto/spark-exactly-once).

In the end every record of the input is in the output once, for readers of committed records; no
transaction is open; the group stands where the checkpoint does. After each kill no row is there
twice, and none that is not in the input.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shoal.client.admin import Admin
from shoal.client.consumer import Consumer
from shoal.client.producer import Producer
from shoal.errors import ShoalError
from shoal.types import TopicPartition
from tests.peers.kafka import ApacheKafka, free_ports

DRIVER = Path(__file__).with_name("driver.py")
PATIENCE_S = 500.0
IN, OUT, GROUP = "kill-run.in", "kill-run.out", "kill-run"
PARTITIONS, OUT_PARTITIONS = 3, 2
ROWS_PER_SECOND = 200
ROWS_PER_BATCH = 500


@dataclass(frozen=True)
class KillPlan:
    """What is going to happen."""

    kills: int
    broker_kills: int = 0
    losses: int = 0
    latest_s: float = 3.0
    """The kill comes within so many seconds after the driver has started, has begun to work, or has
    finished one or two micro-batches."""
    seed: int = 0
    minutes: float = 24 * 60.0
    """Kill for so long at most."""


@dataclass
class KillTally:
    """What has happened."""

    kills: int = 0
    broker_kills: int = 0
    losses: int = 0
    in_batch: int = 0
    """Kills that left a micro-batch planned and not committed."""
    rows: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    """Of kills in a micro-batch: how far it had come."""

    def __str__(self) -> str:
        moments = ", ".join(f"{name}: {count}" for name, count in sorted(self.moments.items()))
        return (
            f"{self.kills} kills ({self.broker_kills} with the broker, {self.losses} with lost "
            f"transactions), {self.in_batch} in a micro-batch ({moments}); {self.rows} rows, each "
            "there once"
        )


class Killable(Protocol):
    """A broker process that comes back at its old address."""

    bootstrap_servers: str

    def kill(self) -> None: ...

    def start(self) -> None: ...


class ShoalProcess:
    """Our broker, in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.bootstrap_servers = f"127.0.0.1:{free_ports(1)[0]}"
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "shoal.broker", "--listen", self.bootstrap_servers]
        command += ["--data-dir", str(self._directory)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the broker did not start"

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()


class KafkaProcess:
    """One node of Apache Kafka."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka
        self.bootstrap_servers = kafka.bootstrap_servers

    def start(self) -> None:
        self._kafka.start(1)

    def kill(self) -> None:
        self._kafka.kill(1)


@contextmanager
def killable(kind: str, directory: Path) -> Iterator[Killable]:
    if kind == "kafka":
        # Losing what the system had not written yet would not be the sink's fault.
        with ApacheKafka(heap="512m") as kafka:
            yield KafkaProcess(kafka)
        return
    broker = ShoalProcess(directory / "broker")
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


class SteadyProducer:
    """Writes numbers from 0 in a thread, until it is stopped."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer(
            bootstrap_servers=servers, acks="all", linger_ms=20, delivery_timeout_ms=300_000
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.05):
            for _ in range(ROWS_PER_SECOND // 20):
                self._producer.send(IN, str(number), str(number % 100))
                number += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(PATIENCE_S)
        self._producer.close()


class Reader:
    """Follows what is committed in a topic; lives on while its broker is killed."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._tps = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer = Consumer(bootstrap_servers=servers, isolation_level="read_committed")
        self._consumer.assign(self._tps)
        self._consumer.seek_to_beginning(*self._tps)
        self._found: Counter[bytes | None] = Counter()

    def all(self) -> Counter[bytes | None]:
        """All there is now."""
        ends = self._consumer.end_offsets(self._tps)
        while any(self._consumer.position(tp) < ends[tp] for tp in self._tps):
            self._found.update(record.value for record in self._consumer.poll(1.0))
        return self._found

    def close(self) -> None:
        self._consumer.close()


class KillRun:
    """One run; ``run`` is all of it."""

    def __init__(
        self, broker: Killable, directory: Path, plan: KillPlan, tell: Callable[[str], object]
    ) -> None:
        self._broker = broker
        self._plan = plan
        self._tell = tell
        self._random = random.Random(plan.seed)
        self._checkpoint = directory / "checkpoint"
        self._elsewhere = directory / "elsewhere"
        self._elsewhere.mkdir()
        self._log = directory / "driver.log"
        self.tally = KillTally()

    def run(self) -> KillTally:
        """Kill, and check.

        Raises:
            AssertionError: a row is missing, doubled or invented, or a driver failed.
        """
        with self._admin() as admin:
            admin.create_topic(IN, partitions=PARTITIONS)
            admin.create_topic(OUT, partitions=OUT_PARTITIONS)
        self._given, self._seen = self._readers()
        producer = SteadyProducer(self._broker.bootstrap_servers)
        what = ["broker"] * self._plan.broker_kills + ["loss"] * self._plan.losses
        what += ["driver"] * (self._plan.kills - len(what))
        self._random.shuffle(what)
        try:
            tasks = 2
            until = time.monotonic() + self._plan.minutes * 60
            for number, victim in enumerate(what):
                if time.monotonic() > until:
                    break
                self._kill_once(number, victim, tasks)
                if victim != "loss":
                    tasks = self._random.randint(1, 4)
        finally:
            producer.stop()
        # A micro-batch that is committed in part wants the tasks it had.
        self._finish(tasks)
        self._check_end()
        return self.tally

    def _admin(self) -> Admin:
        return Admin(bootstrap_servers=self._broker.bootstrap_servers)

    def _readers(self) -> tuple[Reader, Reader]:
        servers = self._broker.bootstrap_servers
        return Reader(servers, IN, PARTITIONS), Reader(servers, OUT, OUT_PARTITIONS)

    # --- the driver ---

    @contextmanager
    def _driver(self, tasks: int, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, str(DRIVER), self._broker.bootstrap_servers, IN, OUT]
        command += [str(self._checkpoint), GROUP, "--exactly-once", "--tasks", str(tasks)]
        with self._log.open("w") as log:
            process = subprocess.Popen(
                [*command, *arguments],
                cwd=self._elsewhere,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _kill_once(self, number: int, victim: str, tasks: int) -> None:
        before, signs = self._last("commits"), self._signs()
        with self._driver(tasks, "--endless", "--rows", str(ROWS_PER_BATCH)) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "reading\n", self._said()
            done = self._random.choice((None, 0, 0, 1, 1, 2))
            if done is not None:
                self._await(process, lambda: self._signs() != signs)
                enough = before + done
                self._await(process, lambda: self._last("commits") >= enough)
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._random.uniform(0, self._plan.latest_s))
            assert process.poll() is None, self._said()
            if victim == "broker":
                self._broker.kill()
                self.tally.broker_kills += 1
                # Some drivers live on for a moment, and meet nobody.
                time.sleep(self._random.choice((0, 0, 0.3)))
            os.killpg(process.pid, signal.SIGKILL)
        if victim == "broker":
            self._broker.start()
        self.tally.kills += 1
        planned, done = self._last("offsets"), self._last("commits")
        if planned > done:
            self.tally.in_batch += 1
            self.tally.moments[self._moment()] += 1
        if victim == "loss":
            self._lose()
            self.tally.losses += 1
        self._check_now()
        self._tell(
            f"{number + 1}: {victim}, {tasks} tasks, micro-batches {before + 1} to {done}"
            + (" and a part of the next" if planned > done else "")
        )

    def _await(self, process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert process.poll() is None, self._said()
            assert time.monotonic() < deadline, f"the driver does nothing: {self._said()}"
            time.sleep(0.02)

    def _signs(self) -> object:
        """Changes as soon as a driver works on a micro-batch, be it new or left by another."""
        return self._last("offsets"), self._last("commits"), self._open()

    def _finish(self, tasks: int) -> None:
        with self._driver(tasks, "--rows", str(20 * ROWS_PER_BATCH)) as process:
            process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, self._said()

    def _said(self) -> str:
        return self._log.read_text()[-5000:]

    def _last(self, log: str) -> int:
        names = [one.name for one in (self._checkpoint / log).glob("*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    # --- the broker ---

    def _open(self) -> list[str]:
        with self._admin() as admin:
            listed = admin.list_transactions(states=["Ongoing"])
        return [
            one.transactional_id
            for one in listed
            if one.transactional_id.startswith("shoal-sink.")
            and one.transactional_id.count(".") > 1
        ]

    def _moment(self) -> str:
        """How far the micro-batch had come, as brokers tell."""
        return "transactions open" if self._open() else "none open"

    def _lose(self) -> None:
        """The time of what is open is over."""
        names = self._open()
        if names:
            with self._admin() as admin:
                admin.fence_producers(*names)

    # --- what must hold ---

    def _check_now(self) -> None:
        seen = self._seen.all()
        doubled = [value for value, times in seen.items() if times > 1]
        assert not doubled, f"{len(doubled)} rows are there twice, such as {doubled[:5]}"
        invented = seen.keys() - self._given.all().keys()
        assert not invented, f"{len(invented)} rows were never written: {list(invented)[:5]}"

    def _check_end(self) -> None:
        deadline = time.monotonic() + 60
        while self._open():
            assert time.monotonic() < deadline, f"still open: {self._open()}"
            time.sleep(0.1)
        for reader in (self._given, self._seen):
            reader.close()
        given, seen = (reader.all() for reader in self._readers())  # anew, from the start
        missing, more = given - seen, seen - given
        assert not missing, f"{missing.total()} rows are missing: {list(missing)[:5]}"
        assert not more, f"{more.total()} rows are there too often: {list(more)[:5]}"
        self.tally.rows = seen.total()
        text = (self._checkpoint / "offsets" / str(self._last("commits"))).read_text()
        planned = json.loads(text.splitlines()[-1])
        with self._admin() as admin:
            group = {
                f"{tp.partition}": one.offset
                for tp, one in admin.group_offsets(GROUP).items()
                if one is not None
            }
        assert group == planned[IN], f"the group is at {group}, the checkpoint at {planned}"


def kill_run(
    plan: KillPlan,
    directory: Path,
    *,
    broker: str = "shoal",
    tell: Callable[[str], object] = lambda _: None,
) -> KillTally:
    """Do it; what happened.

    Raises:
        AssertionError: something of what must hold did not.
    """
    with killable(broker, directory) as running:
        return KillRun(running, directory, plan, tell).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--broker-kills", type=int, default=40)
    parser.add_argument("--losses", type=int, default=0)
    parser.add_argument("--broker", choices=("shoal", "kafka"), default="shoal")
    parser.add_argument("--minutes", type=float, default=KillPlan.minutes, help="at most")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args()
    logging.getLogger("shoal").setLevel(logging.ERROR)  # a killed broker is no news
    plan = KillPlan(
        given.kills, given.broker_kills, given.losses, seed=given.seed, minutes=given.minutes
    )
    print(plan, flush=True)
    # Whoever ends this ends its processes, too.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))

    def tell(line: str) -> None:
        print(line, flush=True)

    with tempfile.TemporaryDirectory(prefix="kill-run-") as directory:
        try:
            tally = kill_run(plan, Path(directory), broker=given.broker, tell=tell)
        except (AssertionError, ShoalError) as error:
            raise SystemExit(f"kill_run: seed {given.seed}: {error}") from error
    print(tally)


if __name__ == "__main__":
    main()
