"""How fast a broker is there, and what it weighs: start, first record, first group, restarts.

python -m benchmarks.broker_start [--peer]
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.broker_load import (
    Address,
    apache_kafka,
    ask,
    create_topic,
    pipelined,
    produce_frame,
    resident_mb,
)
from shoal.wire.apis.metadata import MetadataRequest


def start(directory: str, *flags: str) -> tuple[subprocess.Popen[str], Address, float]:
    """A broker process, its address, and the seconds until it said ready."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "shoal.broker", "--listen", "127.0.0.1:0"),
            *("--data-dir", directory, *flags),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    host, port = process.stdout.readline().split()[1].rsplit(":", 1)
    return process, (host, int(port)), time.perf_counter() - began


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> None:
    process.send_signal(number)
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


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


def first_consumed(address: Address) -> float:
    """confluent-kafka: construct, subscribe, first record."""
    from confluent_kafka import Consumer

    create_topic(address, "first")
    pipelined(address, [produce_frame("first", 0, 100, acks=-1)], 1)
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


def restart_with_partitions(count: int) -> tuple[float, float]:
    """Seconds to be ready again with ``count`` partitions: after a clean stop, after a kill."""
    with tempfile.TemporaryDirectory() as directory:
        process, address, _ = start(directory, "--durability", "os")
        create_topic(address, "wide", count)
        frames = [produce_frame("wide", n, 1000, acks=1) for n in range(count)]
        pipelined(address, frames, count)
        stop(process)
        process, address, clean = start(directory, "--durability", "os")
        pipelined(address, frames, count)
        stop(process, signal.SIGKILL)
        process, _, killed = start(directory, "--durability", "os")
        stop(process)
    return clean, killed


def restart_with_offsets(count: int) -> float:
    """Seconds to be ready again with ``count`` committed offsets in the journal of groups."""
    from shoal.wire.apis.offset_commit import OffsetCommitRequest
    from shoal.wire.frames import encode_request

    with tempfile.TemporaryDirectory() as directory:
        process, address, _ = start(directory, "--durability", "os")
        create_topic(address, "offsets", 1000)
        frames = []
        for group in range(10):
            topic = OffsetCommitRequest.Topic(
                name="offsets",
                partitions=[
                    OffsetCommitRequest.Partition(
                        partition_index=p, committed_offset=1, committed_metadata=""
                    )
                    for p in range(1000)
                ],
            )
            request = OffsetCommitRequest(group_id=f"g{group}", member_id="", topics=[topic])
            frames.append(b"".join(encode_request(8, 8, 1, "bench", request)))
        pipelined(address, frames, count // 1000)
        stop(process)
        process, _, seconds = start(directory, "--durability", "os")
        stop(process)
    return seconds


def median(make: Callable[[], float], rounds: int) -> float:
    return statistics.median(make() for _ in range(rounds))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    options, _ = parser.parse_known_args(arguments)
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    rows = [first_record() for _ in range(options.rounds)]
    ready, acked, resident = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"ready after {ready * 1e3:.0f} ms, first acknowledged record after {acked * 1e3:.0f} ms")
    print(f"resident after the first record {resident:.0f} MB")
    with tempfile.TemporaryDirectory() as directory:
        process, address, _ = start(directory)
        consumed = median(lambda: first_consumed(address), options.rounds)
        stop(process)
    print(f"confluent-kafka: construct, subscribe, first record {consumed * 1e3:.0f} ms")
    clean, killed = restart_with_partitions(1000)
    print(f"restart with 1,000 partitions: clean {clean:.2f} s, after kill -9 {killed:.2f} s")
    print(
        f"restart with {options.offsets:,} offsets: {restart_with_offsets(options.offsets):.2f} s"
    )
    if options.peer:
        began = time.perf_counter()
        with apache_kafka() as target:
            create_topic(target.address, "t")
            pipelined(target.address, [produce_frame("t", 0, 100, acks=-1)], 1)
            print(f"Apache Kafka: first record after {time.perf_counter() - began:.2f} s")
            print(f"Apache Kafka: resident {resident_mb(target.pid):.0f} MB")
            consumed = median(lambda: first_consumed(target.address), options.rounds)
            print(f"Apache Kafka: construct, subscribe, first record {consumed * 1e3:.0f} ms")


if __name__ == "__main__":
    assert Path("/proc").exists(), "resident sizes are read from /proc"
    main()
