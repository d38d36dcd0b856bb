"""The broker beside Apache Kafka's, under one load generator: produce, fetch, small records.

Prebuilt requests go out of one process over raw sockets; replies are discarded in the kernel where
they are large. Both brokers run one after the other on this machine, the same bytes each.

    python -m benchmarks.broker_load [--peer] [--seconds-each N]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import selectors
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from shoal.records.batch import encode_batch
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.frames import decode_response, encode_request

Address = tuple[str, int]
_TRASH = bytearray(4 << 20)


class Target(NamedTuple):
    name: str
    address: Address
    pid: int


@contextmanager
def shoal_broker(durability: str = "os") -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        command = [sys.executable, "-m", "shoal.broker", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", directory, "--durability", durability]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        host, port = process.stdout.readline().split()[1].rsplit(":", 1)
        try:
            yield Target(f"shoal ({durability})", (host, int(port)), process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


@contextmanager
def apache_kafka() -> Iterator[Target]:
    from tests.peers.kafka import ApacheKafka

    with ApacheKafka() as kafka:
        host, port = kafka.bootstrap_servers.split(",")[0].rsplit(":", 1)
        yield Target("Apache Kafka", (host, int(port)), kafka.pid())


# --- one request at a time ---------------------------------------------------------------------


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return bytes(data)


def ask(address: Address, request: Any, version: int) -> Any:
    with socket.create_connection(address, timeout=30) as sock:
        sock.sendall(b"".join(encode_request(request.API_KEY, version, 1, "bench", request)))
        (size,) = struct.unpack(">i", _exactly(sock, 4))
        return decode_response(_exactly(sock, size), request.API_KEY, version)[1]


def create_topic(address: Address, name: str, partitions: int = 1) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    answer = ask(address, CreateTopicsRequest(topics=[topic]), 5).topics[0]
    if answer.error_code not in (0, 36):
        raise RuntimeError(f"cannot create {name}: error {answer.error_code}")
    wanted = MetadataRequest(topics=[MetadataRequest.Topic(name=name)])
    while ask(address, wanted, 9).topics[0].error_code:
        time.sleep(0.05)


# --- requests ----------------------------------------------------------------------------------


def produce_frame(topic: str, partition: int, size_bytes: int, *, acks: int) -> bytes:
    record = os.urandom(100)
    count = max(1, size_bytes // 110)
    if size_bytes < 400:
        records = [(None, record[:size_bytes], (), 0)]
    else:
        records = [(None, record, (), 0)] * count
    now_ms = time.time_ns() // 1_000_000
    batch = encode_batch([(k, v, h, now_ms) for k, v, h, _ in records])
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=partition, records=batch)
                ],
            )
        ],
    )
    return b"".join(encode_request(0, 9, 1, "bench", request))


def fetch_frame(topic: str, partition: int, offset: int, size_bytes: int) -> bytes:
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=size_bytes,
        topics=[
            FetchRequest.Topic(
                topic=topic,
                partitions=[
                    FetchRequest.Partition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=size_bytes
                    )
                ],
            )
        ],
    )
    return b"".join(encode_request(1, 11, 1, "bench", request))


# --- load --------------------------------------------------------------------------------------


def pipelined(address: Address, frames: list[bytes], total: int, in_flight: int = 5) -> float:
    """Seconds to get ``total`` replies over one connection with ``in_flight`` requests open."""
    with socket.create_connection(address, timeout=60) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        sent = received = 0
        while received < total:
            while sent < total and sent - received < in_flight:
                sock.sendall(frames[sent % len(frames)])
                sent += 1
            _discard(sock)
            received += 1
        return time.perf_counter() - began


def _discard(sock: socket.socket) -> int:
    """Take one reply; large ones are dropped in the kernel, not copied."""
    (size,) = struct.unpack(">i", _exactly(sock, 4))
    left = size
    if size < 4096:
        _exactly(sock, size)
        return size
    while left:
        # With MSG_TRUNC the kernel counts the bytes and copies none of them.
        got = sock.recv_into(_TRASH, min(left, len(_TRASH)), socket.MSG_TRUNC)
        if not got:
            raise ConnectionError("the broker closed the connection")
        left -= min(got, left)
    return size


def fetch_bytes(address: Address, topic: str, size_bytes: int, total_bytes: int) -> float:
    """Bytes per second, one fetch at a time from the start of the log again and again."""
    frame = fetch_frame(topic, 0, 0, size_bytes)
    with socket.create_connection(address, timeout=60) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        received = 0
        began = time.perf_counter()
        while received < total_bytes:
            sock.sendall(frame)
            received += _discard(sock)
        return received / (time.perf_counter() - began)


def many_small(
    address: Address, frame_of: Callable[[int], bytes], connections: int, seconds: float
) -> tuple[float, float, float]:
    """(replies per second, p50, p99 in ms): every connection has one request in flight."""
    selector = selectors.DefaultSelector()
    started: dict[int, float] = {}
    frames: dict[int, bytes] = {}
    socks = []
    for number in range(connections):
        sock = socket.create_connection(address, timeout=30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames[sock.fileno()] = frame_of(number)
        selector.register(sock, selectors.EVENT_READ)
        socks.append(sock)
    latencies: deque[float] = deque(maxlen=200_000)
    began = time.perf_counter()
    for sock in socks:
        started[sock.fileno()] = time.perf_counter()
        sock.sendall(frames[sock.fileno()])
    replies = 0
    end = began + seconds
    while (now := time.perf_counter()) < end:
        for key, _ in selector.select(0.1):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if not sock.recv(65536):
                raise ConnectionError("the broker closed the connection")
            now = time.perf_counter()
            latencies.append(now - started[key.fd])
            replies += 1
            started[key.fd] = now
            sock.send(frames[key.fd])
    elapsed = time.perf_counter() - began
    for sock in socks:
        sock.close()
    ordered = sorted(latencies)
    return (
        replies / elapsed,
        ordered[len(ordered) // 2] * 1e3,
        ordered[len(ordered) * 99 // 100] * 1e3,
    )


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


# --- the table ---------------------------------------------------------------------------------


def measure(target: Target, *, scale: float) -> dict[str, float]:
    address = target.address
    found: dict[str, float] = {}

    def timed(name: str, total_bytes: int, run: Callable[[], float]) -> None:
        cpu = cpu_seconds(target.pid)
        seconds = run()
        spent = cpu_seconds(target.pid) - cpu
        found[f"{name} MB/s"] = total_bytes / seconds / 1e6
        found[f"{name} MB/cpu-s"] = total_bytes / max(spent, 0.01) / 1e6

    for label, size, total in (("16 KiB", 16 << 10, 200 << 20), ("1 MB", 1_000_000, 500 << 20)):
        topic = f"produce-{size}"
        create_topic(address, topic)
        frame = produce_frame(topic, 0, size, acks=1)
        count = max(20, int(total * scale / len(frame)))
        pipelined(address, [frame], max(10, count // 10))
        timed(
            f"produce {label}",
            count * len(frame),
            lambda frame=frame, count=count: pipelined(address, [frame], count),
        )
    total = int(4e9 * scale)
    fetch_bytes(address, "produce-1000000", 1 << 20, total // 10)
    cpu = cpu_seconds(target.pid)
    began = time.perf_counter()
    found["fetch 1 MiB MB/s"] = fetch_bytes(address, "produce-1000000", 1 << 20, total) / 1e6
    del began
    found["fetch MB/cpu-s"] = total / max(cpu_seconds(target.pid) - cpu, 0.01) / 1e6
    create_topic(address, "small", 1)
    rate, p50, p99 = many_small(
        address, lambda _: produce_frame("small", 0, 100, acks=-1), 100, 4 * scale + 1
    )
    found |= {"small acks=all /s": rate, "small p50 ms": p50, "small p99 ms": p99}
    create_topic(address, "wide", 1000)
    frames = [produce_frame("wide", n, 16 << 10, acks=1) for n in range(1000)]
    pipelined(address, frames, 1000)
    seconds = pipelined(address, frames, int(6000 * scale) + 1000)
    found["1000 partitions MB/s"] = (int(6000 * scale) + 1000) * len(frames[0]) / seconds / 1e6
    rate, p50, p99 = many_small(address, lambda n: frames[n * 20], 50, 3 * scale + 1)
    found["50 connections 16 KiB MB/s"] = rate * len(frames[0]) / 1e6
    found["resident MB"] = resident_mb(target.pid)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", action="store_true", help="run Apache Kafka's broker, too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--durability", default="os")
    parser.add_argument("--json", action="store_true")
    options, _ = parser.parse_known_args(arguments)
    makers: list[Callable[[], Any]] = [lambda: shoal_broker(options.durability)]
    if options.durability == "os":
        makers.append(lambda: shoal_broker("group"))
    if options.peer:
        makers.append(apache_kafka)
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for make in makers:
            with make() as target:
                results.setdefault(target.name, []).append(measure(target, scale=options.scale))
    medians = {
        name: {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
        for name, rounds in results.items()
    }
    if options.json:
        print(json.dumps(medians))
        return
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    names = list(medians)
    print(f"{'median of ' + str(options.rounds):32}", *(f"{name:>16}" for name in names))
    for key in medians[names[0]]:
        print(f"{key:32}", *(f"{medians[name][key]:16,.1f}" for name in names))


if __name__ == "__main__":
    main()
