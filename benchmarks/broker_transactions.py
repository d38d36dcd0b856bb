"""Transactions of one record of 1 KB: commits per second, and the broker's CPU for each.

Producers of confluent-kafka, each a thread of this process with a transactional id of its own,
begin, send one record and commit, one after the other. Both brokers run all the time and are asked
in turns, warm; neither waits for a disk (durability ``os``, as Apache Kafka has it). The number by
the clock depends on what else the machine does, and on this process; the broker's CPU per commit
does not.

Goal: at least twice the commits per second of Apache Kafka, with 1, 10 and 50 producers on one
partition, and with 10 on ten.

    python -m benchmarks broker_transactions [--rounds N]
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
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
SETTINGS = ((1, 1), (10, 1), (50, 1), (10, 10))
"""Producers and partitions."""


class Measured(NamedTuple):
    per_second: float
    cpu_ms: float
    """Of the broker, for one commit."""
    p99_ms: float


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
    producers = {}
    for target in targets:
        create_topic(target.address, topic, partitions)
        producers[target.name] = [producer_of(target) for _ in range(count)]
    found: dict[str, list[Measured]] = {target.name: [] for target in targets}
    for _ in range(rounds + 1):
        for target in targets:
            one = measure(target, producers[target.name], topic, partitions, SECONDS)
            found[target.name].append(one)
    return {
        name: Measured(*(median(values) for values in zip(*ones[1:], strict=True)))
        for name, ones in found.items()
    }


def main(arguments: Sequence[str] = ()) -> None:
    rounds = int(arguments[arguments.index("--rounds") + 1]) if "--rounds" in arguments else ROUNDS
    report = Report("broker_transactions", ("confluent-kafka",))
    with ExitStack() as stack:
        ours = stack.enter_context(shoal_broker())
        theirs = stack.enter_context(apache_kafka()) if has_peer() else None
        targets = [ours] if theirs is None else [ours, theirs]
        for count, partitions in SETTINGS:
            found = in_pairs(targets, count, partitions, rounds)
            mine, peer = found[ours.name], found.get(PEER)
            where = f"{counted(count, 'producer')}, {counted(partitions, 'partition')}"
            for what, unit, index, goal, is_rate in (
                ("commits", "1/s", 0, ">= 2x", True),
                ("broker's CPU per commit", "ms of CPU", 1, "", False),
                ("commit, p99", "ms", 2, ">= 1x", False),
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
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
