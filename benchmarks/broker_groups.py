"""Groups under load: thousands of heart-beating members, and a large rebalance.

Goals: 500 members and 5,000 partitions within 5 s after the last join; 2,000 members on as many
connections, one heartbeat each in 3 s, within 50 ms at p99 and 300 MB.

    python -m benchmarks broker_groups
"""

from __future__ import annotations

import resource
import selectors
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.broker_setting import Address, create_topic, resident_mb, start, stop
from benchmarks.measuring import Report, Row, json_argument
from shoal.types import TopicPartition
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from shoal.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from shoal.wire.frames import decode_response, encode_request

LARGE = 500
PARTITIONS = 5_000
MEMBERS = 2_000
SECONDS = 9.0
ROUNDS = 3
JOIN, SYNC, BEAT = (11, 5), (14, 3), (12, 3)


class Member:
    """One connection and its place in a group."""

    def __init__(self, address: Address, group: str) -> None:
        self.sock = socket.create_connection(address, timeout=60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.joined: Any = None
        self.sent_at = 0.0

    def send(self, api: tuple[int, int], request: Any) -> None:
        self.sock.sendall(b"".join(encode_request(api[0], api[1], 1, "bench", request)))

    def receive(self, api: tuple[int, int]) -> Any:
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            more = self.sock.recv(1 << 20)
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return decode_response(data[4:], *api)[1]

    def join(self, topics: list[str]) -> None:
        self.send(
            JOIN,
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=120_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequest.Protocol(
                        name="range", metadata=ConsumerProtocolSubscription(topics=topics).encode()
                    )
                ],
            ),
        )

    def sync(self, plan: dict[str, bytes]) -> None:
        is_leader = self.joined.leader == self.member_id
        assignments = [
            SyncGroupRequest.Assignment(member_id=member, assignment=data)
            for member, data in (plan.items() if is_leader else ())
        ]
        self.send(
            SYNC,
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                assignments=assignments,
            ),
        )


def rebalance(members: list[Member], partitions: int, *, known: bool = False) -> float:
    """Everybody joins and syncs; seconds from the last join to the last assignment."""
    first, *others = members
    if not known:
        for member in members:
            member.join(["orders"])
            member.member_id = member.receive(JOIN).member_id
        # The first is answered at once and alone (no initial delay); the others wait for it.
        first.join(["orders"])
        first.receive(JOIN)
    # Only the leader, the first, starts a rebalance by joining what it knows.
    for member in [first, *others] if known else [*others, first]:
        member.join(["orders"])
    began = time.perf_counter()
    for member in members:
        member.joined = member.receive(JOIN)
        member.generation = member.joined.generation_id
    assert len({member.generation for member in members}) == 1
    leader = next(m for m in members if m.joined.leader == m.member_id)
    ids = [each.member_id for each in leader.joined.members]
    plan = {
        member_id: ConsumerProtocolAssignment(
            [TopicPartition("orders", p) for p in range(n, partitions, len(ids))]
        ).encode()
        for n, member_id in enumerate(ids)
    }
    for member in members:
        member.sync(plan)
    for member in members:
        answer = member.receive(SYNC)
        assert answer.error_code == 0, answer.error_code
    return time.perf_counter() - began


def beat(members: list[Member], seconds: float) -> tuple[float, float]:
    """Everybody's heartbeat every 3 s, spread evenly: (p50, p99) in ms."""
    selector = selectors.DefaultSelector()
    for member in members:
        selector.register(member.sock, selectors.EVENT_READ, member)
    latencies: list[float] = []
    interval = 3.0 / len(members)
    began = time.perf_counter()
    turn = 0
    while (now := time.perf_counter()) < began + seconds:
        while began + turn * interval <= now:
            member = members[turn % len(members)]
            member.sent_at = time.perf_counter()
            member.send(
                BEAT,
                HeartbeatRequest(
                    group_id=member.group,
                    generation_id=member.generation,
                    member_id=member.member_id,
                ),
            )
            turn += 1
        for key, _ in selector.select(interval):
            answer = key.data.receive(BEAT)
            assert answer.error_code == 0, answer.error_code
            latencies.append(time.perf_counter() - key.data.sent_at)
    latencies.sort()
    return (
        latencies[len(latencies) // 2] * 1e3,
        latencies[len(latencies) * 99 // 100] * 1e3,
    )


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("broker_groups")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as directory:
        process, address, _ = start(directory)
        create_topic(address, "orders", PARTITIONS)
        members = [Member(address, "large") for _ in range(LARGE)]
        times = [rebalance(members, PARTITIONS)]
        times += [rebalance(members, PARTITIONS, known=True) for _ in range(ROUNDS - 1)]
        what = f"rebalance of {LARGE} members with {PARTITIONS:,} partitions, after the last join"
        report.add(Row(what, "s", statistics.median(times), goal="<= 5", higher_is_better=False))
        while len(members) < MEMBERS:
            count = min(100, MEMBERS - len(members))
            time.sleep(0.2)  # a broker takes a thousand connections a second and no more
            group = [Member(address, f"g{len(members)}") for _ in range(count)]
            rebalance(group, 100)
            members += group
        rounds = [beat(members, SECONDS) for _ in range(ROUNDS)]
        p50, p99 = (statistics.median(column) for column in zip(*rounds, strict=True))
        what = f"heartbeat of {MEMBERS:,} members on {MEMBERS:,} connections"
        report.add(Row(what, "ms, p50", p50, higher_is_better=False))
        report.add(Row(what, "ms, p99", p99, goal="<= 50", higher_is_better=False))
        resident = resident_mb(process.pid)
        report.add(Row("  resident", "MB", resident, goal="<= 300", higher_is_better=False))
        for member in members:
            member.sock.close()
        stop(process)
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main()
