"""Drives one member of the new protocol by hand: the test plays coordinator, clock and user.

As ``member_driver.py`` does for a classic one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shoal.errors import ErrorCode
from shoal.group.member.consumer_member import ConsumerMember
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
    ResolveTopics,
    Revoked,
    Send,
    Warn,
)
from shoal.types import TopicPartition
from shoal.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

INTERVAL_MS = 5_000
POLL_MS = 60_000


def topic_id(name: str, generation: int = 0) -> bytes:
    """The id of a topic; another generation is the same name made anew."""
    return f"{name}#{generation}".encode().ljust(16, b"\0")


def partitions(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def assignment(
    owned: Iterable[TopicPartition], ids: Mapping[str, bytes] | None = None
) -> ConsumerGroupHeartbeatResponse.Assignment:
    by_topic: dict[str, list[int]] = {}
    for tp in owned:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponse.TopicPartitions(
                topic_id=(ids or {}).get(topic, topic_id(topic)), partitions=numbers
            )
            for topic, numbers in by_topic.items()
        ]
    )


def told(request: ConsumerGroupHeartbeatRequest) -> list[tuple[bytes, list[int]]] | None:
    """What a heartbeat says is owned."""
    if request.topic_partitions is None:
        return None
    return [(one.topic_id, list(one.partitions)) for one in request.topic_partitions]


class ConsumerDriver:
    def __init__(
        self,
        *,
        topics: Iterable[str] = ("t",),
        hold_callbacks: bool = False,
        member_id: str = "m",
        **settings: Any,
    ) -> None:
        given = {
            "group_id": "g",
            "max_poll_interval_ms": POLL_MS,
            "auto_commit": False,
            **settings,
        }
        self.member = ConsumerMember(MemberConfig(**given), member_id=member_id, chance=lambda: 0.5)
        self.now = 0
        self.known = {name: topic_id(name) for name in topics}
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
                case (
                    FindCoordinator() | RefreshMetadata() | ResolveTopics() | Disconnect() | Warn()
                ):
                    self.orders.append(output)
                case _:
                    assert position == len(outputs) - 1, "a step is the last output"
                    self.steps.append(output)
                    if isinstance(output, Revoked | Assigned | Lost) and not self.hold_callbacks:
                        error, self.callback_error = self.callback_error, None
                        self.perform(self.member.callback_done(self.now, error))

    def done(self, error: Exception | None = None) -> None:
        """The callback that is held back has run."""
        self.perform(self.member.callback_done(self.now, error))

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

    def give_metadata(self, asked: Iterable[str] | None = None, **ids: bytes) -> None:
        self.known.update(ids)
        wanted = None if asked is None else frozenset(asked)
        names = {n: i for n, i in self.known.items() if wanted is None or n in wanted}
        answer = ClusterTopics(dict.fromkeys(names, 4), asked=wanted, ids=names)
        self.perform(self.member.update_metadata(answer, self.now))

    def find(self) -> None:
        self.take_order(FindCoordinator)
        self.perform(self.member.coordinator_found(self.now))

    def take_order(self, kind: type) -> Any:
        found = [order for order in self.orders if isinstance(order, kind)]
        assert found, f"no {kind.__name__} in {self.orders}"
        self.orders.remove(found[0])
        return found[0]

    def warnings(self) -> list[str]:
        return [order.text for order in self.orders if isinstance(order, Warn)]

    # --- the coordinator -------------------------------------------------------------------------

    def take(self) -> Send:
        assert self.sent, "no heartbeat was sent"
        return self.sent.pop(0)

    def take_heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        request = self.take().request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        return request

    def answer(
        self,
        epoch: int,
        owned: Iterable[TopicPartition] | None = None,
        *,
        ids: Mapping[str, bytes] | None = None,
        interval_ms: int = INTERVAL_MS,
    ) -> ConsumerGroupHeartbeatRequest:
        """Answer the heartbeat that is on its way; ``owned`` ``None``: nothing new."""
        send = self.take()
        response = ConsumerGroupHeartbeatResponse(
            member_id="m",
            member_epoch=epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=None if owned is None else assignment(owned, ids),
        )
        self.perform(self.member.receive(send.ticket, response, self.now))
        assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
        return send.request

    def refuse(self, code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatRequest:
        send = self.take()
        response = ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
        self.perform(self.member.receive(send.ticket, response, self.now))
        assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
        return send.request

    def await_heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Let time pass until one is sent; it stays unanswered."""
        while not self.sent:
            deadline = self.member.next_deadline()
            assert deadline is not None, "no heartbeat will ever be sent"
            self.after(max(deadline - self.now, 0))
        request = self.sent[0].request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        return request

    # --- shortcuts -------------------------------------------------------------------------------

    def joining(self, *topics: str) -> None:
        """Subscribed, polled, and the first heartbeat is on its way."""
        self.subscribe(*(topics or ("t",)))
        self.find()
        self.give_metadata(self.member.wanted_topics)
        self.poll()
        self.orders.clear()

    def stable(self, *owned: TopicPartition, epoch: int = 2) -> None:
        """From nothing to a member that owns this and has said so."""
        self.joining(*sorted({tp.topic for tp in owned}))
        self.answer(epoch, owned)
        self.poll()
        self.answer(epoch)
        self.steps.clear()
        self.orders.clear()

    def commit_done(self, verdict: CommitVerdict = CommitVerdict.DONE) -> None:
        assert isinstance(self.steps[-1], CommitPositions)
        self.member.positions_committed(verdict, self.now)

    def failures(self) -> list[Exception]:
        return [step.error for step in self.steps if isinstance(step, Failed)]

    def take_steps(self) -> list[Output]:
        steps, self.steps = self.steps, []
        return steps
