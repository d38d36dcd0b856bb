"""Transactions of one record of 1 KB: commits per second, and the broker's CPU for each.

Producers of confluent-kafka, each a thread of this process with a transactional id of its own,
begin, send one record and commit, one after the other. Both brokers run all the time and are asked
in turns, warm. First neither waits for a disk (durability ``os``, as Apache Kafka has it); then
both do, Apache Kafka with ``log.flush.interval.messages=1``. A commit is then three syncs one after
the other, so the time of one alone is printed too. The number by the clock depends on what else the
machine does, and on this process; the broker's CPU per commit does not. How far any broker could
get beside these producers is shown by one that does next to nothing: librdkafka's mock, written in
C, which answers from memory and stores no byte.

Goal: at least twice the commits per second of Apache Kafka, with 1, 10 and 50 producers on one
partition, and with 10 on ten. Synced: 1x with one producer and on ten partitions, 1.5x otherwise.

    python -m benchmarks broker_transactions [--rounds N]
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, NamedTuple

from benchmarks.broker_setting import (
    PEER,
    Target,
    apache_kafka,
    cpu_seconds,
    create_topic,
    has_peer,
    shoal_broker,
)
from benchmarks.measuring import Report, Row, json_argument
from shoal.errors import counted

VALUE = bytes(1024)
SECONDS = 4.0
ROUNDS = 5
SETTINGS = {(1, 1): ">= 1x", (10, 1): ">= 1.5x", (50, 1): ">= 1.5x", (10, 10): ">= 1x"}
"""Producers and partitions, and the goal where every write is synced."""
SYNCS = 200
MOCK = "librdkafka's mock, which stores nothing"
MOCK_PARTITIONS = 4
"""It makes topics by itself, all with so many."""


class Measured(NamedTuple):
    per_second: float
    cpu_ms: float
    """Of the broker, for one commit."""
    p99_ms: float


@contextmanager
def mock_broker() -> Iterator[Target]:
    """The mock in a process of its own, as brokers are."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve_mock, args=(there,), daemon=True)
    process.start()
    try:
        host, port = here.recv()
        assert process.pid is not None
        yield Target(MOCK, (host, port), process.pid)
    finally:
        here.send("enough")
        process.join(20)


def _serve_mock(told: Any) -> None:
    from confluent_kafka import Producer

    owner = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = owner.list_topics(timeout=20).brokers.values()
    told.send((broker.host, broker.port))
    told.recv()


def producer_of(target: Target) -> Any:
    from confluent_kafka import Producer

    made = Producer(
        {
            "bootstrap.servers": target.servers,
            "transactional.id": f"bench-{uuid.uuid4()}",
            "linger.ms": 0,
        }
    )
    made.init_transactions(30)
    return made


def commit_for(
    producers: Sequence[Any], topic: str, partitions: int, seconds: float
) -> list[float]:
    """How long each commit took, begin to end, of all producers at once."""
    taken: list[float] = []
    until = time.monotonic() + seconds

    def run(number: int, producer: Any) -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            producer.begin_transaction()
            producer.produce(topic, VALUE, partition=number % partitions)
            producer.commit_transaction(30)
            taken.append(time.monotonic() - began)

    threads = [
        threading.Thread(target=run, args=(number, one)) for number, one in enumerate(producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def measure(
    target: Target, producers: Sequence[Any], topic: str, partitions: int, seconds: float
) -> Measured:
    cpu, began = cpu_seconds(target.pid), time.monotonic()
    taken = sorted(commit_for(producers, topic, partitions, seconds))
    elapsed = time.monotonic() - began
    spent = cpu_seconds(target.pid) - cpu
    p99 = taken[min(len(taken) - 1, len(taken) * 99 // 100)]
    return Measured(len(taken) / elapsed, spent / len(taken) * 1000, p99 * 1000)


def in_pairs(
    targets: Sequence[Target], count: int, partitions: int, rounds: int
) -> dict[str, Measured]:
    """Medians by broker; the same producers all the time, the first round for warming up."""
    topic = f"transactions-{count}-{partitions}"
    producers, spread = {}, dict.fromkeys((target.name for target in targets), partitions)
    for target in targets:
        if target.name == MOCK:
            spread[MOCK] = min(partitions, MOCK_PARTITIONS)
        else:
            create_topic(target.address, topic, partitions)
        producers[target.name] = [producer_of(target) for _ in range(count)]
    found: dict[str, list[Measured]] = {target.name: [] for target in targets}
    for _ in range(rounds + 1):
        for target in targets:
            name = target.name
            one = measure(target, producers[name], topic, spread[name], SECONDS)
            found[name].append(one)
    return {
        name: Measured(*(median(values) for values in zip(*ones[1:], strict=True)))
        for name, ones in found.items()
    }


def sync_ms() -> float:
    """Milliseconds of one fdatasync of 1 KB here, in the median."""
    taken = []
    with tempfile.TemporaryFile(prefix="shoal-bench-") as file:
        for _ in range(SYNCS):
            file.write(VALUE)
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return median(taken) * 1000


def compared(report: Report, rounds: int, *, synced: bool) -> None:
    with ExitStack() as stack:
        ours = stack.enter_context(shoal_broker("group" if synced else "os"))
        settings = {"log.flush.interval.messages": "1"} if synced else None
        theirs = stack.enter_context(apache_kafka(settings)) if has_peer() else None
        targets = [ours] if theirs is None else [ours, theirs]
        if not synced:
            targets.append(stack.enter_context(mock_broker()))
        for (count, partitions), synced_goal in SETTINGS.items():
            found = in_pairs(targets, count, partitions, rounds)
            mine, peer = found[ours.name], found.get(PEER)
            where = f"{counted(count, 'producer')}, {counted(partitions, 'partition')}"
            if synced:
                where += ", synced"
            else:
                limit, of_peer = found[MOCK].per_second, None if peer is None else peer.per_second
                report.add(Row(f"{MOCK}: commits, {where}", "1/s", limit, of_peer, PEER))
            for what, unit, index, goal, is_rate in (
                ("commits", "1/s", 0, synced_goal if synced else ">= 2x", True),
                ("broker's CPU per commit", "ms of CPU", 1, "", False),
                ("commit, p99", "ms", 2, "" if synced else ">= 1x", False),
            ):
                report.add(
                    Row(
                        f"{what}, {where}",
                        unit,
                        mine[index],
                        None if peer is None else peer[index],
                        PEER,
                        goal,
                        higher_is_better=is_rate,
                    )
                )


def main(arguments: Sequence[str] = ()) -> None:
    rounds = int(arguments[arguments.index("--rounds") + 1]) if "--rounds" in arguments else ROUNDS
    report = Report("broker_transactions", ("confluent-kafka",))
    compared(report, rounds, synced=False)
    report.add(Row("fdatasync of 1 KB, alone", "ms", sync_ms(), higher_is_better=False))
    compared(report, rounds, synced=True)
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
