"""The broker beside Apache Kafka's: produce and fetch over raw sockets, many partitions, a client.

Goals: 16 KiB batches with five requests in flight at least 2x Apache Kafka's MB/s, 1 MB batches
1.5x, fetches of 1 MiB 1x, through confluent-kafka's producer the same. Both leave syncs to the
operating system. Every load runs twice and the second run counts: a Java broker needs the first to
compile itself. No run begins before the disk has what the ones before it wrote: a kernel with too
much unwritten slows down whoever writes next.

    python -m benchmarks broker_load
    python -m benchmarks.broker_load --only "50 connections"
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.broker_setting import (
    PEER,
    Target,
    apache_kafka,
    create_topic,
    fetch_bytes,
    has_peer,
    in_turns,
    many_pipelined,
    many_small,
    pipelined,
    produce_frame,
    resident_mb,
    shoal_broker,
    until_idle,
)
from benchmarks.measuring import Report, Row, json_argument

ROUNDS = 3
RUNS = 2
RESIDENT = "resident after all of this"


class Load(NamedTuple):
    """One row: what is done, what is to be reached, and MB/s of a run of it."""

    what: str
    goal: str
    prepare: Callable[[Target], Callable[[], float]]


def one_partition(size_bytes: int, total_bytes: int) -> Callable[[Target], Callable[[], float]]:
    """Produce over one connection to one partition."""

    def prepare(target: Target) -> Callable[[], float]:
        topic = f"produce-{size_bytes}"
        create_topic(target.address, topic)
        frame = produce_frame(topic, 0, size_bytes, acks=1)
        count = total_bytes // len(frame)
        return lambda: count * len(frame) / pipelined(target.address, [frame], count) / 1e6

    return prepare


def fetching(target: Target) -> Callable[[], float]:
    create_topic(target.address, "fetched")
    pipelined(target.address, [produce_frame("fetched", 0, 1_000_000, acks=1)], 20)
    return lambda: fetch_bytes(target.address, "fetched", 1 << 20, 2 * 10**9) / 1e6


def _wide(target: Target) -> list[bytes]:
    """A request for each of a thousand partitions, all of them written to once."""
    create_topic(target.address, "wide", 1000)
    frames = [produce_frame("wide", number, 16 << 10, acks=1) for number in range(1000)]
    pipelined(target.address, frames, len(frames))
    # A broker that answers may still be busy with the making of a thousand logs.
    until_idle(target.pid)
    return frames


def many_partitions(target: Target) -> Callable[[], float]:
    frames = _wide(target)
    return lambda: 4000 * len(frames[0]) / pipelined(target.address, frames, 4000) / 1e6


def many_connections(target: Target) -> Callable[[], float]:
    frames = _wide(target)

    def run() -> float:
        rate, _, _ = many_small(target.address, lambda number: frames[number * 20], 50, 3.0)
        return rate * len(frames[0]) / 1e6

    return run


def many_connections_in_flight(target: Target) -> Callable[[], float]:
    frames = _wide(target)

    def run() -> float:
        rate = many_pipelined(
            target.address, lambda number: frames[number * 20], 50, 3.0, in_flight=5
        )
        return rate * len(frames[0]) / 1e6

    return run


def confluent(batch_bytes: int, total_bytes: int) -> Callable[[Target], Callable[[], float]]:
    """MB/s of records through confluent-kafka's producer, until the last is acknowledged."""

    def prepare(target: Target) -> Callable[[], float]:
        from confluent_kafka import Producer

        topic = f"confluent-{batch_bytes}"
        create_topic(target.address, topic)
        producer = Producer(
            {
                "bootstrap.servers": target.servers,
                "acks": 1,
                "batch.size": batch_bytes,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        value = bytes(range(256)) * 4
        count = total_bytes // len(value)

        def run() -> float:
            began = time.perf_counter()
            for _ in range(count):
                producer.produce(topic, value)
            left = producer.flush(60)
            assert not left, f"{left} records were not acknowledged"
            return count * len(value) / (time.perf_counter() - began) / 1e6

        return run

    return prepare


LOADS = (
    Load(
        "produce, 16 KiB batches, one connection, five in flight",
        ">= 2x",
        one_partition(16 << 10, 100 << 20),
    ),
    Load(
        "produce, 1 MB batches, one connection, five in flight",
        ">= 1.5x",
        one_partition(1_000_000, 300 << 20),
    ),
    Load("fetch, 1 MiB at a time", ">= 1x", fetching),
    Load("produce, 16 KiB batches, 1,000 partitions, one connection", ">= 2x", many_partitions),
    Load(
        "produce, 16 KiB batches, 1,000 partitions, 50 connections, five in flight each",
        ">= 2x",
        many_connections_in_flight,
    ),
    Load(
        "produce, 16 KiB batches, 1,000 partitions, 50 connections, one in flight each",
        "",
        many_connections,
    ),
    Load(
        "confluent-kafka's producer, 1 KiB records, 16 KiB batches",
        ">= 2x",
        confluent(16 << 10, 64 << 20),
    ),
    Load(
        "confluent-kafka's producer, 1 KiB records, 900 KB batches",
        ">= 1.5x",
        confluent(900_000, 128 << 20),
    ),
)


def measure(target: Target, loads: Sequence[Load]) -> Mapping[str, float]:
    """MB/s of every load, and what the broker holds in the end."""
    found = {}
    for load in loads:
        run = load.prepare(target)
        for _ in range(RUNS):
            os.sync()
            found[load.what] = run()
    return found | {RESIDENT: resident_mb(target.pid)}


def _wanted(arguments: Sequence[str]) -> list[Load]:
    """The loads whose name has the text after ``--only``, or all."""
    if "--only" not in arguments:
        return list(LOADS)
    text = " ".join(arguments[arguments.index("--only") + 1 :])
    found = [load for load in LOADS if text and text in load.what]
    return found or sys.exit("--only needs a part of a row's name")


def main(arguments: Sequence[str] = ()) -> None:
    loads = _wanted(arguments)
    report = Report("broker_load", ("confluent-kafka",))
    makers = [shoal_broker, *([apache_kafka] if has_peer() else [])]
    medians = in_turns(makers, lambda target: measure(target, loads), ROUNDS)
    ours, theirs = medians["shoal (os)"], medians.get(PEER, {})
    for load in loads:
        row = ours[load.what], theirs.get(load.what), PEER
        report.add(Row(load.what, "MB/s", *row, load.goal))
    row = ours[RESIDENT], theirs.get(RESIDENT), PEER
    report.add(Row(RESIDENT, "MB", *row, higher_is_better=False))
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
