"""How fast a broker is there and what it weighs: first record, first group.

Goals: 150 ms from the start of the process to the first acknowledged record and 60 MB resident;
160 ms from confluent-kafka's constructor to the first record of a new group.

    python -m benchmarks broker_start
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence

from benchmarks.broker_setting import (
    PEER,
    Address,
    apache_kafka,
    ask,
    create_topic,
    has_peer,
    pipelined,
    produce_frame,
    resident_mb,
    shoal_broker,
    start,
    stop,
)
from benchmarks.measuring import Report, Row, json_argument
from shoal.wire.apis.metadata import MetadataRequest

STARTS = 15
PEER_STARTS = 3
CONSUMERS = 15


def first_record() -> tuple[float, float, float]:
    """(ready, first acknowledged record, resident MB), from the start of the process."""
    with tempfile.TemporaryDirectory() as directory:
        frame = produce_frame("t", 0, 100, acks=-1)
        began = time.perf_counter()
        process, address, ready = start(directory)
        ask(address, MetadataRequest(topics=[MetadataRequest.Topic(name="t")]), 9)
        pipelined(address, [frame], 1)
        acked = time.perf_counter() - began
        resident = resident_mb(process.pid)
        stop(process)
    return ready, acked, resident


def peer_first_record() -> tuple[float, float, float]:
    """The same of Apache Kafka, whose port is open when the context is entered."""
    frame = produce_frame("t", 0, 100, acks=-1)
    began = time.perf_counter()
    with apache_kafka() as target:
        ready = time.perf_counter() - began
        create_topic(target.address, "t")
        pipelined(target.address, [frame], 1)
        return ready, time.perf_counter() - began, resident_mb(target.pid)


def first_consumed(address: Address) -> float:
    """confluent-kafka: construct, subscribe, first record."""
    from confluent_kafka import Consumer

    began = time.perf_counter()
    consumer = Consumer(
        {
            "bootstrap.servers": f"{address[0]}:{address[1]}",
            "group.id": f"g{began}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["first"])
    while (message := consumer.poll(5)) is None or message.error() is not None:
        pass
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def median_consumed(address: Address) -> float:
    create_topic(address, "first")
    pipelined(address, [produce_frame("first", 0, 100, acks=-1)], 1)
    first_consumed(address)  # the broker's own first group
    return statistics.median(first_consumed(address) for _ in range(CONSUMERS))


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("broker_start", ("confluent-kafka",))
    with_peer = has_peer()
    first_record()  # compiles what was never compiled
    ours = [first_record() for _ in range(STARTS)]
    theirs = [peer_first_record() for _ in range(PEER_STARTS)] if with_peer else []
    for column, what, unit, factor, goal in (
        (0, "start of the process to ready", "ms", 1e3, ""),
        (1, "start of the process to first acknowledged record", "ms", 1e3, "<= 150"),
        (2, "resident after the first record", "MB", 1.0, "<= 60"),
    ):
        peer = statistics.median(row[column] for row in theirs) * factor if theirs else None
        mine = statistics.median(row[column] for row in ours) * factor
        report.add(Row(what, unit, mine, peer, PEER, goal, higher_is_better=False))
    with shoal_broker("group") as target:
        consumed = median_consumed(target.address)
    peer_consumed = None
    if with_peer:
        with apache_kafka() as target:
            peer_consumed = median_consumed(target.address) * 1e3
    what = "confluent-kafka: construct + subscribe to first record"
    report.add(
        Row(what, "ms", consumed * 1e3, peer_consumed, PEER, "<= 160", higher_is_better=False)
    )
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main()
