"""What the broker benchmarks share: brokers as processes, prebuilt requests, a load generator.

Requests go out of this process over raw sockets, the same bytes to both brokers; replies are
discarded, in the kernel where they are large.
"""

from __future__ import annotations

import os
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.peers.cache import PeerMissingError
from tests.peers.jars import java, kafka_jars

from shoal.records.batch import encode_batch
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.frames import decode_response, encode_request

Address = tuple[str, int]
PEER = "Apache Kafka"
_TRASH = bytearray(4 << 20)


class Target(NamedTuple):
    name: str
    address: Address
    pid: int

    @property
    def servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"


# --- brokers -----------------------------------------------------------------------------------


def start(
    directory: str, *flags: str, module: str = "shoal"
) -> tuple[subprocess.Popen[str], Address, float]:
    """A broker process, its address, and the seconds until it said ready.

    It may write and use compiled modules, as everywhere but where tests forbid it.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", module, "serve", "--listen", "127.0.0.1:0"),
            *("--data-dir", directory, *flags),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    host, port = process.stdout.readline().split()[1].rsplit(":", 1)
    return process, (host, int(port)), time.perf_counter() - began


def stop(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> float:
    """End a broker; the seconds it took."""
    began = time.perf_counter()
    process.send_signal(number)
    process.wait(120)
    assert process.stdout is not None
    process.stdout.close()
    return time.perf_counter() - began


@contextmanager
def shoal_broker(durability: str = "os") -> Iterator[Target]:
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        process, address, _ = start(directory, "--durability", durability)
        try:
            yield Target(f"shoal ({durability})", address, process.pid)
        finally:
            stop(process)


@contextmanager
def apache_kafka(settings: dict[str, str] | None = None) -> Iterator[Target]:
    """``settings``: further lines of its ``server.properties``."""
    from tests.peers.kafka import ApacheKafka

    with ApacheKafka(settings=settings) as kafka:
        host, port = kafka.bootstrap_servers.split(",")[0].rsplit(":", 1)
        yield Target(PEER, (host, int(port)), kafka.pid())


def has_peer() -> bool:
    """Are Java and Apache Kafka's jars here? Says so if not."""
    try:
        java()
        kafka_jars()
    except PeerMissingError as error:
        print(f"  {PEER} is left out: {error}")
        return False
    return True


Measure = Callable[[Target], Mapping[str, float]]


def in_turns(
    makers: Sequence[Callable[[], AbstractContextManager[Target]]], measure: Measure, rounds: int
) -> dict[str, dict[str, float]]:
    """Medians by broker and measure: a fresh broker of each kind in every round, in turns."""
    results: dict[str, list[Mapping[str, float]]] = {}
    for _ in range(rounds):
        for make in makers:
            with make() as target:
                results.setdefault(target.name, []).append(measure(target))
    return {
        name: {key: statistics.median(each[key] for each in found) for key in found[0]}
        for name, found in results.items()
    }


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


def many_pipelined(
    address: Address,
    frame_of: Callable[[int], bytes],
    connections: int,
    seconds: float,
    *,
    in_flight: int,
) -> float:
    """Replies per second, if every connection has so many requests in flight."""
    selector = selectors.DefaultSelector()
    # What is sent for one reply, for two, and so on.
    frames: dict[int, list[bytes]] = {}
    left_over: dict[int, int] = {}
    socks = []
    for number in range(connections):
        sock = socket.create_connection(address, timeout=30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames[sock.fileno()] = [frame_of(number) * count for count in range(in_flight + 1)]
        left_over[sock.fileno()] = 0
        selector.register(sock, selectors.EVENT_READ)
        socks.append(sock)
    socks[0].sendall(frames[socks[0].fileno()][1])
    reply_bytes = 4 + _discard(socks[0])  # they are all alike
    began = time.perf_counter()
    for sock in socks:
        sock.sendall(frames[sock.fileno()][in_flight])
    replies = 0
    end = began + seconds
    while time.perf_counter() < end:
        for key, _ in selector.select(0.1):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            received = len(sock.recv(65536))
            if not received:
                raise ConnectionError("the broker closed the connection")
            whole, left_over[key.fd] = divmod(left_over[key.fd] + received, reply_bytes)
            replies += whole
            sock.sendall(frames[key.fd][whole])
    elapsed = time.perf_counter() - began
    for sock in socks:
        sock.close()
    return replies / elapsed


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


def until_idle(pid: int, seconds: float = 60.0) -> None:
    """Wait until a broker that is asked nothing does nothing."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = cpu_seconds(pid)
        time.sleep(0.5)
        if cpu_seconds(pid) - before < 0.05:
            return


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0
