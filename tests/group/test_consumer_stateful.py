"""Members of the new protocol and their coordinator, both real, between them whatever can happen.

Requests and answers are delivered when the machine says so, in order within a connection, or are
lost with it; polls, callbacks and time come when they come. At the end everything is delivered and
everybody polls, and the group must come to rest with each partition owned once.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shoal.group.member.consumer_member import ConsumerMember
from shoal.group.member.consumer_states import ConsumerMemberState
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
)
from shoal.machine.decision import Caller
from shoal.types import TopicPartition
from tests.group.consumer_shell import ConsumerShell, topic_id

POLL_MS = 30_000
PEERS = range(3)


class Peer:
    """A member, its user, and its connection."""

    def __init__(self, world: Conversation, number: int) -> None:
        self.world = world
        self.member = ConsumerMember(
            MemberConfig(group_id="g", max_poll_interval_ms=POLL_MS, auto_commit=number == 0),
            member_id=f"m{number}",
            chance=lambda: 0.5,
        )
        self.has: set[TopicPartition] = set()
        self.callback: Revoked | Assigned | Lost | None = None
        self.owes_commit = False
        self.outbox: deque[Send] = deque()
        self.inbox: deque[tuple[int, Any]] = deque()

    @property
    def now(self) -> int:
        return self.world.shell.now_ms

    def perform(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Send():
                    self.outbox.append(output)
                case Disconnect():
                    self.outbox.clear()
                    self.inbox.clear()
                case FindCoordinator():
                    self.perform(self.member.coordinator_found(self.now))
                case RefreshMetadata() | ResolveTopics():
                    self.perform(self.member.update_metadata(self.world.metadata(), self.now))
                case CommitPositions(held):
                    assert set(held) <= self.has
                    self.owes_commit = True
                case Assigned() | Revoked() | Lost():
                    assert self.callback is None, "one callback at a time"
                    self.callback = output
                case Failed(error):
                    raise error

    def run_callback(self) -> None:
        step, self.callback = self.callback, None
        match step:
            case Assigned(partitions, owned):
                assert not self.has & set(partitions), "told of what it has"
                self.has |= set(partitions)
                assert self.has == set(owned)
            case Revoked(partitions) | Lost(partitions):
                assert set(partitions) <= self.has, "told of what it has not"
                self.has -= set(partitions)
            case None:
                return
        self.perform(self.member.callback_done(self.now))

    def poll(self) -> None:
        if self.callback is None:
            self.perform(self.member.poll(self.now))

    def committed(self) -> None:
        if self.owes_commit:
            self.owes_commit = False
            self.member.positions_committed(CommitVerdict.DONE, self.now)

    def deliver(self) -> None:
        if self.outbox:
            send = self.outbox.popleft()
            shell = self.world.shell
            ticket = next(shell.tickets)
            caller = Caller(1, "c", "/127.0.0.1", ticket)
            shell.obey(shell.coordinator.handle(send.request, caller, shell.now_ms))
            self.inbox.append((send.ticket, shell.replies[ticket]))

    def receive(self) -> None:
        if self.inbox:
            self.perform(self.member.receive(*self.inbox.popleft(), self.now))

    def lose(self) -> None:
        self.outbox.clear()
        self.inbox.clear()
        if self.member.knows_coordinator:
            self.perform(self.member.connection_lost(self.now))

    def tick(self) -> None:
        for _ in range(50):
            deadline = self.member.next_deadline()
            if deadline is None or deadline > self.now:
                return
            self.perform(self.member.tick(self.now))
        raise AssertionError("ticks without end")


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shell = ConsumerShell()
        self.topics = {"t": 4}
        self.shell.topic("t", 4)
        self.peers = [Peer(self, number) for number in PEERS]
        for peer in self.peers[:2]:
            peer.perform(peer.member.subscribe(["t"], peer.now))

    def metadata(self) -> ClusterTopics:
        return ClusterTopics(dict(self.topics), ids={name: topic_id(name) for name in self.topics})

    # --- what happens ----------------------------------------------------------------------------

    @rule(which=st.sampled_from(PEERS), topics=st.sampled_from([["t"], ["t", "u"], ["u"]]))
    def subscribe(self, which: int, topics: list[str]) -> None:
        peer = self.peers[which]
        if peer.callback is None:
            peer.perform(peer.member.subscribe(topics, peer.now))

    @rule(which=st.sampled_from(PEERS))
    def unsubscribe(self, which: int) -> None:
        peer = self.peers[which]
        if peer.callback is None and peer.member.is_subscribed:
            peer.perform(peer.member.unsubscribe(peer.now))

    @rule(which=st.sampled_from(PEERS), times=st.integers(1, 3))
    def poll(self, which: int, times: int) -> None:
        for _ in range(times):
            self.peers[which].poll()

    @rule(which=st.sampled_from(PEERS))
    def run_callback(self, which: int) -> None:
        self.peers[which].run_callback()

    @rule(which=st.sampled_from(PEERS))
    def commit(self, which: int) -> None:
        self.peers[which].committed()

    @rule(which=st.sampled_from(PEERS))
    def deliver(self, which: int) -> None:
        self.peers[which].deliver()

    @rule(which=st.sampled_from(PEERS))
    def receive(self, which: int) -> None:
        self.peers[which].receive()

    @rule(which=st.sampled_from(PEERS))
    def a_round(self, which: int) -> None:
        """All of it, as it goes when nothing is wrong."""
        peer = self.peers[which]
        for _ in range(4):
            peer.poll()
            peer.committed()
            peer.run_callback()
            peer.deliver()
            peer.receive()

    @rule(which=st.sampled_from(PEERS))
    def lose_connection(self, which: int) -> None:
        self.peers[which].lose()

    @rule()
    def coordinator_restarts(self) -> None:
        self.shell = self.shell.restarted()
        for peer in self.peers:
            peer.lose()

    @rule()
    def topic_grows(self) -> None:
        if self.topics["t"] < 6:
            self.topics["t"] += 1
            self.shell.topic("t", self.topics["t"])

    @rule()
    def topic_appears(self) -> None:
        if "u" not in self.topics:
            self.topics["u"] = 2
            self.shell.topic("u", 2)
            for peer in self.peers[:2]:  # the third hears of it when it needs it
                peer.perform(peer.member.update_metadata(self.metadata(), peer.now))

    @rule(duration_ms=st.sampled_from([100, 1_000, 5_000, 20_000, 46_000]))
    def time_passes(self, duration_ms: int) -> None:
        self._advance(duration_ms)

    def _advance(self, duration_ms: int) -> None:
        end_ms = self.shell.now_ms + duration_ms
        while self.shell.now_ms < end_ms:
            self.shell.advance(min(1_000, end_ms - self.shell.now_ms))
            for peer in self.peers:
                peer.tick()

    # --- what must hold --------------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners_who_are_members(self) -> None:
        group = self.shell.coordinator.group("g")
        members = {} if group is None else getattr(group, "members", {})
        taken: set[TopicPartition] = set()
        for peer in self.peers:
            if peer.member.member_epoch > 0 and f"m{self.peers.index(peer)}" in members:
                assert not taken & peer.has, "two members read the same"
                taken |= peer.has

    @invariant()
    def who_is_not_told_to_give_up_holds_what_the_member_says(self) -> None:
        for peer in self.peers:
            if peer.callback is None:
                assert peer.has == set(peer.member.owned)

    def teardown(self) -> None:
        """Nothing goes wrong any more: everybody gets there."""
        for _ in range(400):
            for peer in self.peers:
                peer.poll()
                peer.committed()
                peer.run_callback()
                peer.deliver()
                peer.receive()
            self._advance(200)
            if self._is_at_rest():
                return
        states = [(peer.member.state, peer.member.member_epoch, peer.has) for peer in self.peers]
        raise AssertionError(f"not at rest: {states}")

    def _is_at_rest(self) -> bool:
        """Those who subscribe are in the group and have everything, each partition once."""
        subscribed = [peer for peer in self.peers if peer.member.is_subscribed]
        wanted = {
            TopicPartition(topic, number)
            for peer in subscribed
            for topic in peer.member.topics
            for number in range(self.topics.get(topic, 0))
        }
        found = sorted(tp for peer in self.peers for tp in peer.has)
        is_stable = all(peer.member.state is ConsumerMemberState.STABLE for peer in subscribed)
        epochs = {peer.member.member_epoch for peer in subscribed}
        return is_stable and len(epochs) <= 1 and found == sorted(wanted)


TestConversation = Conversation.TestCase
TestConversation.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
