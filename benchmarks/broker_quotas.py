"""Quotas: how well a broker holds a rate over 30 seconds, and Apache Kafka after it.

A client that believes nothing (it reads answers and asks again at once) writes, and another reads,
with a quota of a million bytes per second each. What goes through in the first windows, in which
both brokers allow a burst, is not counted. Goal: within 10 % of the quota, and not further from it
than Apache Kafka.

    python -m benchmarks broker_quotas
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence

from benchmarks.broker_setting import (
    PEER,
    Target,
    apache_kafka,
    create_topic,
    fetch_frame,
    has_peer,
    pipelined,
    produce_frame,
    shoal_broker,
)
from benchmarks.measuring import Report, Row, json_argument
from shoal import Admin

LIMIT = 1_000_000
WARM_S = 15.0
MEASURED_S = 30.0
FINEST_PERCENT = 0.1
"""An answer more or less in that time is about as much: who is nearer is not told from less."""


def rate(target: Target, frame: bytes, *, counts_replies: bool) -> float:
    """Bytes per second that go through after the first burst."""
    done: list[tuple[float, int]] = []
    end = time.monotonic() + WARM_S + MEASURED_S
    with socket.create_connection(target.address, timeout=60) as sock:
        while time.monotonic() < end:
            sock.sendall(frame)
            size = struct.unpack(">i", _exactly(sock, 4))[0]
            _exactly(sock, size)
            done.append((time.monotonic(), 4 + size if counts_replies else len(frame)))
    counted = [(when, size) for when, size in done if when > end - MEASURED_S]
    # From one answer to another: what lies before the first of them was paid for before.
    seconds = counted[-1][0] - counted[0][0]
    return sum(size for _, size in counted[1:]) / seconds


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return bytes(data)


def rates(target: Target) -> dict[str, float]:
    """Of a writer and a reader at the same time."""
    produce = produce_frame("t", 0, 16 << 10, acks=1)
    create_topic(target.address, "t")
    pipelined(target.address, [produce], 50)
    with Admin(bootstrap_servers=target.servers) as admin:
        admin.alter_quotas(
            {"producer_byte_rate": LIMIT, "consumer_byte_rate": LIMIT}, client_id="bench"
        )
    found: dict[str, float] = {}

    def read() -> None:
        fetch = fetch_frame("t", 0, 0, 64 << 10)
        found["fetch"] = rate(target, fetch, counts_replies=True)

    reader = threading.Thread(target=read)
    reader.start()
    found["produce"] = rate(target, produce, counts_replies=False)
    reader.join()
    return found


def _away(rate: float) -> float:
    return max(FINEST_PERCENT, abs(rate / LIMIT - 1) * 100)


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("broker_quotas")
    found = {}
    for make in (shoal_broker, apache_kafka)[: 1 + has_peer()]:
        with make() as target:
            found[target.name] = rates(target)
    ours, *peer = found.values()
    for what in ("produce", "fetch"):
        report.add(
            Row(
                f"{what} under a quota of 1 MB/s: of 30 s, away from it",
                "%",
                _away(ours[what]),
                _away(peer[0][what]) if peer else None,
                PEER,
                "<= 10",
                higher_is_better=False,
            )
        )
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main()
