"""Drives one member by hand: the test plays coordinator, clock and user.

``perform`` does what a shell does with outputs, in the simplest way: requests are kept to be
answered, orders are kept to be looked at, callbacks run at once (or are held back).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shoal.assign.loading import load
from shoal.assign.model import Assignment
from shoal.errors import ErrorCode
from shoal.group.member import leadership
from shoal.group.member.classic_member import ClassicMember
from shoal.group.member.member_interface import (
    Assigned,
    ClusterTopics,
    CommitPositions,
    CommitVerdict,
    Disconnect,
    Failed,
    FindCoordinator,
    Lost,
    MemberConfig,
    Output,
    RefreshMetadata,
    Revoked,
    Send,
    Warn,
)
from shoal.types import TopicPartition
from shoal.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from shoal.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

SESSION_MS = 10_000
HEARTBEAT_MS = 3_000
POLL_MS = 60_000

_ANSWERS: dict[type, type] = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
}


def partitions(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def assignment(*topic_partitions: TopicPartition) -> bytes:
    return leadership.write_assignment(Assignment(topic_partitions))


class Driver:
    def __init__(
        self,
        *assignors: Any,
        counts: Mapping[str, int] | None = None,
        hold_callbacks: bool = False,
        chance: float = 0.5,
        **settings: Any,
    ) -> None:
        settings = {
            "group_id": "g",
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "max_poll_interval_ms": POLL_MS,
            "auto_commit": False,
            **settings,
        }
        self.member = ClassicMember(
            MemberConfig(**settings),
            assignors=load(assignors or ["range"]),
            chance=lambda: chance,
        )
        self.now = 0
        self.counts = dict(counts or {"t": 4})
        self.hold_callbacks = hold_callbacks
        self.callback_error: Exception | None = None
        self.sent: list[Send] = []
        self.orders: list[Output] = []
        self.steps: list[Output] = []

    # --- the shell -------------------------------------------------------------------------------

    def perform(self, outputs: Sequence[Output]) -> None:
        for position, output in enumerate(outputs):
            match output:
                case Send():
                    self.sent.append(output)
                case FindCoordinator() | RefreshMetadata() | Disconnect() | Warn():
                    self.orders.append(output)
                case _:
                    assert position == len(outputs) - 1, "a step is the last output"
                    self.steps.append(output)
                    if isinstance(output, Revoked | Assigned | Lost) and not self.hold_callbacks:
                        error, self.callback_error = self.callback_error, None
                        self.perform(self.member.callback_done(self.now, error))
        self._check()

    def _check(self) -> None:
        deadline = self.member.next_deadline()
        assert deadline is None or isinstance(deadline, int)

    def after(self, milliseconds: int) -> None:
        """Let time pass, ticking whenever the member asks for it."""
        end = self.now + milliseconds
        while (deadline := self.member.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.perform(self.member.tick(self.now))
            following = self.member.next_deadline()
            assert following is None or following > self.now, "a tick must move the deadline"
        self.now = end

    def poll(self) -> None:
        self.perform(self.member.poll(self.now))

    def subscribe(self, *topics: str) -> None:
        self.perform(self.member.subscribe(topics, self.now))

    def subscribe_pattern(self, pattern: str) -> None:
        self.perform(self.member.subscribe_pattern(re.compile(pattern), self.now))

    def give_metadata(
        self, asked: Iterable[str] | None = None, *, internal: Iterable[str] = (), **counts: int
    ) -> None:
        self.counts.update(counts)
        wanted = None if asked is None else frozenset(asked)
        known = {t: n for t, n in self.counts.items() if wanted is None or t in wanted}
        answer = ClusterTopics(known, asked=wanted, internal=frozenset(internal))
        self.perform(self.member.update_metadata(answer, self.now))

    def find(self) -> None:
        self.take_order(FindCoordinator)
        self.perform(self.member.coordinator_found(self.now))

    def take_order(self, kind: type) -> Any:
        found = [order for order in self.orders if isinstance(order, kind)]
        assert found, f"no {kind.__name__} in {self.orders}"
        self.orders.remove(found[0])
        return found[0]

    # --- the coordinator -------------------------------------------------------------------------

    def take(self, kind: type) -> Send:
        found = [send for send in self.sent if isinstance(send.request, kind)]
        assert found, f"no {kind.__name__} in {self.sent}"
        self.sent.remove(found[0])
        return found[0]

    def answer(self, send: Send, **fields: Any) -> None:
        response = _ANSWERS[type(send.request)](**fields)
        self.perform(self.member.receive(send.ticket, response, self.now))

    def refuse(self, kind: type, code: ErrorCode, **fields: Any) -> None:
        self.answer(self.take(kind), error_code=code, **fields)

    def join(
        self,
        generation_id: int = 1,
        *,
        member_id: str = "m",
        leader: str = "other",
        protocol_name: str = "range",
        **fields: Any,
    ) -> JoinGroupRequest:
        send = self.take(JoinGroupRequest)
        self.answer(
            send,
            generation_id=generation_id,
            member_id=member_id,
            leader=leader,
            protocol_type="consumer",
            protocol_name=protocol_name,
            **fields,
        )
        assert isinstance(send.request, JoinGroupRequest)
        return send.request

    def sync(self, *topic_partitions: TopicPartition) -> SyncGroupRequest:
        send = self.take(SyncGroupRequest)
        self.answer(send, assignment=assignment(*topic_partitions))
        assert isinstance(send.request, SyncGroupRequest)
        return send.request

    def heartbeat(self, code: ErrorCode = ErrorCode.NONE) -> HeartbeatRequest:
        """Wait for the next heartbeat and answer it."""
        while not any(isinstance(send.request, HeartbeatRequest) for send in self.sent):
            deadline = self.member.next_deadline()
            assert deadline is not None, "no heartbeat will ever be sent"
            self.after(max(deadline - self.now, 0))
        send = self.take(HeartbeatRequest)
        self.answer(send, error_code=code)
        assert isinstance(send.request, HeartbeatRequest)
        return send.request

    def live(self, milliseconds: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """Let time pass for a member whose user polls and whose heartbeats are answered."""
        end = self.now + milliseconds
        while self.now < end:
            self.after(min(500, end - self.now))
            while any(isinstance(send.request, HeartbeatRequest) for send in self.sent):
                self.refuse(HeartbeatRequest, code)
            self.poll()

    def stable(
        self, *topic_partitions: TopicPartition, generation_id: int = 1, **fields: Any
    ) -> None:
        """From nothing to a stable member of a group."""
        self.subscribe(*sorted({tp.topic for tp in topic_partitions} or {"t"}))
        self.find()
        self.give_metadata(self.member.wanted_topics)
        self.poll()
        self.rejoin(*topic_partitions, generation_id=generation_id, **fields)
        self.steps.clear()
        self.orders.clear()

    def rejoin(self, *topic_partitions: TopicPartition, generation_id: int, **fields: Any) -> None:
        self.join(generation_id, **fields)
        self.sync(*topic_partitions)
        self.poll()

    def commit_done(self, verdict: CommitVerdict = CommitVerdict.DONE) -> None:
        assert isinstance(self.steps[-1], CommitPositions)
        self.member.positions_committed(verdict, self.now)

    def failures(self) -> list[Exception]:
        return [step.error for step in self.steps if isinstance(step, Failed)]

    def take_steps(self) -> list[Output]:
        steps, self.steps = self.steps, []
        return steps
