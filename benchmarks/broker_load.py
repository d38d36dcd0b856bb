"""The broker beside Apache Kafka's: produce and fetch over raw sockets, many partitions, a client.

Goals: 16 KiB batches at least 2x Apache Kafka's MB/s, 1 MB batches 1.5x, fetches of 1 MiB 1x; the
rest not slower. Both leave syncs to the operating system.

    python -m benchmarks broker_load
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.broker_setting import (
    PEER,
    Target,
    apache_kafka,
    create_topic,
    fetch_bytes,
    has_peer,
    in_turns,
    many_small,
    pipelined,
    produce_frame,
    resident_mb,
    shoal_broker,
)
from benchmarks.measuring import Report, Row, json_argument

ROUNDS = 3
GOALS = {
    "produce, 16 KiB batches, one connection, five in flight": ">= 2x",
    "produce, 1 MB batches, one connection, five in flight": ">= 1.5x",
    "fetch, 1 MiB at a time": ">= 1x",
    "produce, 16 KiB batches, 1,000 partitions, one connection": ">= 2x",
    "produce, 16 KiB batches, 1,000 partitions, 50 connections": ">= 2x",
    "confluent-kafka's producer, 1 KiB records, 16 KiB batches": ">= 1x",
    "confluent-kafka's producer, 1 KiB records, 900 KB batches": ">= 1x",
}


def measure(target: Target) -> dict[str, float]:
    """MB/s of everything. The same bytes for every broker, warmed up with a tenth of them."""
    names = iter(GOALS)
    found: dict[str, float] = {}
    for size, total in ((16 << 10, 100 << 20), (1_000_000, 300 << 20)):
        topic = f"produce-{size}"
        create_topic(target.address, topic)
        frame = produce_frame(topic, 0, size, acks=1)
        count = total // len(frame)
        pipelined(target.address, [frame], count // 10)
        seconds = pipelined(target.address, [frame], count)
        found[next(names)] = count * len(frame) / seconds / 1e6
    fetch_bytes(target.address, "produce-1000000", 1 << 20, 200_000_000)
    found[next(names)] = fetch_bytes(target.address, "produce-1000000", 1 << 20, 2 * 10**9) / 1e6
    create_topic(target.address, "wide", 1000)
    frames = [produce_frame("wide", n, 16 << 10, acks=1) for n in range(1000)]
    pipelined(target.address, frames, 1000)
    seconds = pipelined(target.address, frames, 4000)
    found[next(names)] = 4000 * len(frames[0]) / seconds / 1e6
    rate, _, _ = many_small(target.address, lambda n: frames[n * 20], 50, 3.0)
    found[next(names)] = rate * len(frames[0]) / 1e6
    for size, total in ((16 << 10, 64 << 20), (900_000, 128 << 20)):
        found[next(names)] = through_confluent(target, size, total)
    return found | {"resident": resident_mb(target.pid)}


def through_confluent(target: Target, batch_bytes: int, total_bytes: int) -> float:
    """MB/s of records through confluent-kafka's producer, until the last is acknowledged."""
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
    for share in (count // 10, count):
        began = time.perf_counter()
        for _ in range(share):
            producer.produce(topic, value)
        left = producer.flush(60)
        assert not left, f"{left} records were not acknowledged"
    return count * len(value) / (time.perf_counter() - began) / 1e6


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("broker_load", ("confluent-kafka",))
    makers = [shoal_broker, *([apache_kafka] if has_peer() else [])]
    medians = in_turns(makers, measure, ROUNDS)
    ours, theirs = medians["shoal (os)"], medians.get(PEER, {})
    for what, goal in GOALS.items():
        report.add(Row(what, "MB/s", ours[what], theirs.get(what), PEER, goal))
    report.add(
        Row(
            *("resident after all of this", "MB", ours["resident"], theirs.get("resident"), PEER),
            higher_is_better=False,
        )
    )
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main()
