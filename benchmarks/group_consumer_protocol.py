"""The coordinator of consumer groups (KIP-848) alone: heartbeats, a join, a restart, an assignor.

CPU of the coordinator on one core; journal records are encoded to bytes; no disk, no socket.
Goals: 30 µs per heartbeat at rest; with 2,000 members on 10,000 partitions 99 % of heartbeats take
less than 50 ms, and one that joins has its share in less than 5 s of CPU for all heartbeats that
takes; 1,000 groups of 100 members are loaded in less than 3 s.

    python -m benchmarks group_consumer_protocol
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from benchmarks.measuring import Report, Row, json_argument
from shoal.group.coordinator import journal
from shoal.group.coordinator.cluster_image import ClusterImage, ImageTopic
from shoal.group.coordinator.config import ConsumerGroupConfig, GroupConfig
from shoal.group.coordinator.coordinator import Coordinator
from shoal.group.coordinator.decision import GroupDecision
from shoal.machine.decision import Caller
from shoal.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

MEMBERS = 2_000
PARTITIONS = 10_000
TOPIC_ID = b"orders".rjust(16, b"-")
GROUPS, MEMBERS_EACH = 1_000, 100
ROUNDS = 3

_Rows = ConsumerGroupHeartbeatRequest.TopicPartitions


class Shell:
    """Encodes what is to be written, keeps it for a restart, and remembers the last answer."""

    def __init__(self, partitions: int) -> None:
        ids = count()
        self.image = ClusterImage()
        self.image.put(ImageTopic("orders", TOPIC_ID, partitions))
        settings = ConsumerGroupConfig(assignment_interval_ms=1_000)
        self.config = GroupConfig(consumer=settings)
        self.coordinator = Coordinator(
            self.config, new_id=lambda: f"{next(ids):032x}", image=self.image
        )
        self.now_ms = 1_700_000_000_000
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.answer: Any = None
        self.coordinator.load([], self.now_ms)

    def obey(self, decision: GroupDecision) -> None:
        if decision.journal:
            self.coordinator.replay_all(decision.journal, len(self.journal))
            self.journal.extend(map(journal.encode, decision.journal))
        for reply in decision.replies:
            self.answer = reply.response

    def send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        caller = Caller(1, "consumer-orders-1", "/127.0.0.1", None)
        self.obey(self.coordinator.handle(request, caller, self.now_ms))
        answer = self.answer
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        return answer

    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        while (due := self.coordinator.next_deadline()) is not None and due <= self.now_ms:
            self.obey(self.coordinator.tick(self.now_ms))


class Member:
    """Does what it is told: owns what it was assigned, and says so once."""

    def __init__(self, shell: Shell, group: str, number: int) -> None:
        self.shell = shell
        self.group = group
        self.name = f"member-{number:05}"
        self.epoch = 0
        self.owned: list[Any] = []
        self.told = True

    def request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.name, member_epoch=self.epoch
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms = 300_000
            request.subscribed_topic_names = ["orders"]
            request.topic_partitions = []
        elif not self.told:
            request.topic_partitions = [
                _Rows(topic_id=row.topic_id, partitions=row.partitions) for row in self.owned
            ]
        return request

    def beat(self) -> float:
        """CPU seconds of one heartbeat."""
        request = self.request()
        start = time.process_time()
        answer = self.shell.send(request)
        took = time.process_time() - start
        self.epoch = answer.member_epoch
        self.told = True
        if answer.assignment is not None:
            self.owned, self.told = list(answer.assignment.topic_partitions), False
        return took

    @property
    def count(self) -> int:
        return sum(len(row.partitions) for row in self.owned)


def settled(shell: Shell, members: Sequence[Member]) -> list[float]:
    """Rounds of heartbeats until everybody has its share; what each heartbeat took."""
    total, took = 0, []
    while total != PARTITIONS or not all(member.told for member in members):
        shell.wait(1_000)
        took += [member.beat() for member in members]
        counts = [member.count for member in members]
        total = sum(counts) if max(counts) - min(counts) <= 1 else -1
    return took


def large_group() -> tuple[float, float, float, float]:
    """Microseconds per heartbeat at rest, p99 and maximum in ms of all, seconds of a join."""
    shell = Shell(PARTITIONS)
    members = [Member(shell, "orders", number) for number in range(MEMBERS)]
    took = [member.beat() for member in members]
    took += settled(shell, members)
    rest = []
    for _ in range(ROUNDS):
        requests = [member.request() for member in members]
        start = time.process_time()
        for request in requests:
            shell.send(request)
        rest.append((time.process_time() - start) / MEMBERS * 1e6)
        shell.wait(1_000)
    newcomer = Member(shell, "orders", MEMBERS)
    joining = [newcomer.beat(), *settled(shell, [*members, newcomer])]
    took += joining
    quantiles = statistics.quantiles(took, n=100)
    return statistics.median(rest), quantiles[98] * 1e3, max(took) * 1e3, sum(joining)


def restart() -> float:
    """Seconds of CPU to load what 1,000 groups of 100 members wrote, and to serve them."""
    shell = Shell(MEMBERS_EACH)
    for group in range(GROUPS):
        members = [Member(shell, f"group-{group}", number) for number in range(MEMBERS_EACH)]
        for member in members:
            member.beat()
        shell.now_ms += 1_000
        for member in members:
            member.beat()
    ids = count()
    fresh = Coordinator(shell.config, new_id=lambda: str(next(ids)), image=shell.image)
    kept = dict(shell.journal)  # as compaction leaves it
    gc.disable()  # as the broker's process does until it has started
    start = time.process_time()
    for offset, (key, value) in enumerate(kept.items()):
        record = journal.decode(key, value)
        if record is not None:
            fresh.replay(record, offset)
    fresh.loaded(shell.now_ms)
    took = time.process_time() - start
    gc.enable()
    group_one = fresh.group("group-1")
    assert group_one is not None
    return took


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    report = Report("group_consumer_protocol")
    rest_us, p99_ms, max_ms, join_s = large_group()
    what = f"{MEMBERS:,} members, {PARTITIONS:,} partitions: "
    rows: list[tuple[str, str, float, str]] = [
        (what + "a heartbeat at rest", "µs CPU", rest_us, "<= 30"),
        (what + "p99 of all heartbeats, from none to all", "ms CPU", p99_ms, "< 50"),
        (what + "the longest, with a target", "ms CPU", max_ms, ""),
        (what + "one joins, until all is even", "s CPU", join_s, "< 5"),
        (f"load {GROUPS:,} groups of {MEMBERS_EACH} members", "s CPU", restart(), "< 3"),
    ]
    for name, unit, value, goal in rows:
        report.add(Row(name, unit, value, goal=goal, higher_is_better=False))
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
