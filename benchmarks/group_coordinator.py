"""The group coordinator alone: a large rebalance, heartbeats, commits, loading after a restart.

CPU of the coordinator, journal records encoded to bytes; no disk, no socket, no assignor.
Goals: one rebalance of 1,000 members with 10,000 partitions in less than 2 s, 2,000 heartbeats in
less than 0.2 s, a journal of 1,000,000 offsets loaded in less than 10 s.

    python -m benchmarks group_coordinator
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from benchmarks.measuring import Report, Row, json_argument
from shoal.group.coordinator import journal
from shoal.group.coordinator.coordinator import Coordinator
from shoal.group.coordinator.decision import GroupDecision
from shoal.group.coordinator.journal import OffsetRecord
from shoal.machine.decision import Caller
from shoal.types import TopicPartition
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from shoal.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

MEMBERS = 1_000
PARTITIONS_EACH = 10
HEARTBEATS = 2_000
COMMITS = 2_000
STORED_OFFSETS = 1_000_000
ROUNDS = 5


class Shell:
    """Encodes what is to be written and remembers who was answered; nothing else."""

    def __init__(self) -> None:
        ids = count()
        self.coordinator = Coordinator(new_id=lambda: f"{next(ids):032x}")
        self.now_ms = 1_700_000_000_000
        self.offset = 0
        self.answers: dict[int, Any] = {}
        self.tickets = count()
        self.coordinator.load([], self.now_ms)

    def obey(self, decision: GroupDecision) -> None:
        if decision.journal:
            for record in decision.journal:
                journal.encode(record)
            self.coordinator.replay_all(decision.journal, self.offset)
            self.offset += len(decision.journal)
        for reply in decision.replies:
            self.answers[reply.ticket] = reply.response

    def send(self, request: Any) -> int:
        ticket = next(self.tickets)
        self.obey(
            self.coordinator.handle(
                request,
                Caller(type(request).MAX_VERSION, "consumer-orders-1", "/127.0.0.1", ticket),
                self.now_ms,
            )
        )
        return ticket

    def settle(self, ticket: int) -> None:
        while ticket not in self.answers:
            deadline = self.coordinator.next_deadline()
            assert deadline is not None
            self.now_ms = max(self.now_ms, deadline)
            self.obey(self.coordinator.tick(self.now_ms))


def join(member_id: str, number: int) -> JoinGroupRequest:
    start = number * PARTITIONS_EACH
    owned = [TopicPartition("orders", start + index) for index in range(PARTITIONS_EACH)]
    metadata = ConsumerProtocolSubscription(("orders",), None, owned, 1).encode()
    return JoinGroupRequest(
        group_id="orders",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequest.Protocol(name=name, metadata=metadata)
            for name in ("cooperative-sticky", "range")
        ],
    )


def sync_requests(responses: Sequence[JoinGroupResponse]) -> list[SyncGroupRequest]:
    """Followers first, then the leader with everybody's assignment."""
    leader = responses[0].leader
    assignments = []
    for number, response in enumerate(responses):
        start = number * PARTITIONS_EACH
        given = [TopicPartition("orders", start + index) for index in range(PARTITIONS_EACH)]
        assignments.append(
            SyncGroupRequest.Assignment(
                member_id=response.member_id, assignment=ConsumerProtocolAssignment(given).encode()
            )
        )
    ordered = sorted(responses, key=lambda each: each.member_id == leader)
    return [
        SyncGroupRequest(
            group_id="orders",
            generation_id=response.generation_id,
            member_id=response.member_id,
            protocol_type="consumer",
            protocol_name=response.protocol_name,
            assignments=assignments if response.member_id == leader else [],
        )
        for response in ordered
    ]


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def first_generation(shell: Shell) -> list[str]:
    ids = [shell.answers[shell.send(join("", number))].member_id for number in range(MEMBERS)]
    tickets = [shell.send(join(member_id, number)) for number, member_id in enumerate(ids)]
    shell.settle(tickets[0])
    for request in sync_requests([shell.answers[ticket] for ticket in tickets]):
        shell.send(request)
    return ids


def rebalance(shell: Shell, ids: list[str]) -> float:
    """Everybody joins again, the leader assigns, everybody syncs. Requests are made before."""
    leader = shell.coordinator.group("orders").leader_id  # type: ignore[union-attr]  # the group is there
    order = sorted(range(MEMBERS), key=lambda number: ids[number] != leader)
    requests = [join(ids[number], number) for number in order]
    tickets: list[int] = []
    cpu = cpu_seconds(lambda: tickets.extend(map(shell.send, requests)))
    syncs = sync_requests([shell.answers[ticket] for ticket in tickets])
    answers: list[int] = []
    cpu += cpu_seconds(lambda: answers.extend(map(shell.send, syncs)))
    assert all(len(shell.answers[ticket].assignment) > 0 for ticket in answers)
    return cpu


def heartbeats(shell: Shell, ids: list[str]) -> float:
    generation = shell.coordinator.group("orders").generation  # type: ignore[union-attr]  # the group is there
    requests = [
        HeartbeatRequest(group_id="orders", generation_id=generation, member_id=member_id)
        for member_id in (ids * 2)[:HEARTBEATS]
    ]
    return cpu_seconds(lambda: [shell.send(request) for request in requests])


def commits(shell: Shell, ids: list[str]) -> float:
    generation = shell.coordinator.group("orders").generation  # type: ignore[union-attr]  # the group is there
    requests = [
        OffsetCommitRequest(
            group_id="orders",
            generation_id_or_member_epoch=generation,
            member_id=ids[number % MEMBERS],
            topics=[
                OffsetCommitRequest.Topic(
                    name="orders",
                    partitions=[
                        OffsetCommitRequest.Partition(
                            partition_index=number % MEMBERS * PARTITIONS_EACH + index,
                            committed_offset=number,
                            committed_metadata="",
                        )
                        for index in range(PARTITIONS_EACH)
                    ],
                )
            ],
        )
        for number in range(COMMITS)
    ]
    return cpu_seconds(lambda: [shell.send(request) for request in requests])


def load() -> float:
    """The journal of a busy week: every group's every offset, over and over."""
    pairs = [
        journal.encode(
            OffsetRecord(f"group-{number % 100}", "orders", number % 50, number, None, "", number)
        )
        for number in range(STORED_OFFSETS // 10)
    ]
    coordinator = Coordinator(new_id=str)

    def replay() -> None:
        offset = 0
        for _ in range(10):
            for key, value in pairs:
                record = journal.decode(key, value)
                assert record is not None
                coordinator.replay(record, offset)
                offset += 1

    return cpu_seconds(replay)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    report = Report("group_coordinator")
    shell = Shell()
    ids = first_generation(shell)
    rounds = [
        (rebalance(shell, ids), heartbeats(shell, ids), commits(shell, ids)) for _ in range(ROUNDS)
    ]
    names = [
        (f"rebalance of {MEMBERS:,} members, {MEMBERS * PARTITIONS_EACH:,} partitions", "< 2"),
        (f"{HEARTBEATS:,} heartbeats", "< 0.2"),
        (f"{COMMITS:,} commits of {PARTITIONS_EACH} partitions", ""),
    ]
    for (what, goal), seconds in zip(names, zip(*rounds, strict=True), strict=True):
        median = statistics.median(seconds)
        report.add(Row(what, "s CPU", median, goal=goal, higher_is_better=False))
    row = Row(f"load {STORED_OFFSETS:,} offsets", "s CPU", load(), goal="< 10")
    report.add(row)
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
