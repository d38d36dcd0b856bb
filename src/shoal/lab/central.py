"""Scheme 2: a coordinator that assigns on the server, the first redesign.

Members and topics are in the registry, as in scheme 1, but only the coordinator watches them. It
decides for everybody and tells everybody (``central_coordinator``). A commit carries the
generation and is refused if it is an old one.

It never shipped so: the strategy is the server's, so a new one means a new server, and the server
computes for all groups.

Rule: members decide nothing here but when they come to poll.
"""

from __future__ import annotations

from typing import Any

from shoal.lab.central_coordinator import CentralCoordinator
from shoal.lab.central_messages import (
    CentralOffsetCommit,
    CentralReply,
    Offsets,
    Register,
    Start,
    Stop,
    Stopped,
    Unregister,
)
from shoal.lab.link import Link
from shoal.lab.paths import COORDINATOR_NODE, OFFSETS, member_path, partition_of, topic_path
from shoal.lab.reading import Reader
from shoal.lab.registered_broker import register_topics, stored_offsets
from shoal.lab.registry.client import RegistryClient
from shoal.lab.registry.ensemble import Registry
from shoal.lab.registry.messages import Create, Delete, Get
from shoal.lab.scenario import Act
from shoal.lab.world import World
from shoal.types import TopicPartition


class CentralScheme:
    """The registry, the brokers that may coordinate, and the members."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.registry = Registry(world.clock, world.scenario.registry, world.random)
        self.registry.on_put = self._stored
        self._members: dict[str, CentralMember] = {}
        self._gone_ms: int | None = None
        register_topics(world, self.registry)
        self.coordinators = {name: CentralCoordinator(self, name) for name in world.brokers.up}

    def start(
        self,
        name: str,
        topics: tuple[str, ...],
        instance_id: str | None,  # noqa: ARG002  # there were no static members
    ) -> CentralMember:
        self._members[name] = CentralMember(self, name, topics)
        return self._members[name]

    def committed(self) -> dict[TopicPartition, int]:
        return stored_offsets(self.world, self.registry)

    def _stored(self, path: str, before: Any, data: Any) -> None:
        if path.startswith(OFFSETS):
            self.world.commits.stored(partition_of(path), data)
            self.world.trace.commits_backwards += before is not None and data < before

    def partitions_added(self, topic: str) -> None:
        self.registry.put_now(topic_path(topic), self.world.topics.counts[topic])

    # --- coordinators come and go --------------------------------------------------------------

    @property
    def _acting(self) -> CentralCoordinator | None:
        """The one with the highest epoch; others may not know that they are not."""
        acting = [each for each in self.coordinators.values() if each.is_acting and each.is_up]
        return max(acting, key=lambda each: each.epoch, default=None)

    def fail_over(self, down_ms: int) -> None:
        """The broker that coordinates dies; the group notices when its session has ended."""
        coordinator = self._acting
        if coordinator is not None:
            self._gone()
            coordinator.die()
            self.world.clock.after(down_ms, self._restart, coordinator.name)

    def _restart(self, name: str) -> None:
        self.coordinators[name] = CentralCoordinator(self, name)

    def cut_coordinator(self, for_ms: int) -> None:
        coordinator = self._acting
        if coordinator is not None:
            self._gone()
            coordinator.client.cut(for_ms)

    def broker_changed(self, broker: str, act: Act) -> None:
        if act is Act.BROKER_JOINS:
            self.coordinators[broker] = CentralCoordinator(self, broker)
            return
        coordinator = self.coordinators.get(broker)
        if coordinator is None:
            return
        if coordinator is self._acting:
            self._gone()
        coordinator.leave() if act is Act.BROKER_LEAVES else coordinator.die()

    def _gone(self) -> None:
        self._gone_ms = self.world.now()

    def took_over(self) -> None:
        """There is a coordinator that knows the group."""
        if self._gone_ms is not None:
            self.world.trace.takeovers.append((self._gone_ms, self.world.now()))
            self._gone_ms = None

    # --- who is fenced -------------------------------------------------------------------------

    def refresh_all(self) -> None:
        for member in self._members.values():
            self.refresh(member)

    def refresh(self, member: CentralMember) -> None:
        """Fenced is who finds nobody that would store its offsets, if anybody coordinates."""
        if member.reader.positions and self._acting is not None:
            is_current = any(
                each.accepts(member.name, member.generation) for each in self.coordinators.values()
            )
            self.world.ledger.set_fenced(member.name, is_fenced=not is_current)


class CentralMember:
    """One process. Everything it does for the group it does in poll."""

    def __init__(self, scheme: CentralScheme, name: str, topics: tuple[str, ...]) -> None:
        self._scheme = scheme
        self._world = scheme.world
        self._clock = scheme.world.clock
        self.name = name
        self._topics = topics
        self.generation = 0
        self._epoch = 0
        """The highest of a coordinator it has heard of."""
        self._inbox: list[Any] = []
        self._commit_at_ms = self._clock.now_ms + scheme.world.scenario.work.commit_interval_ms
        self._is_lost = False
        self._must_leave = False
        self._cut_until_ms = 0
        self._link: Link | None = None
        self._coordinator: CentralCoordinator | None = None
        self.reader = Reader(self._world, name, self._on_poll)
        self.client = RegistryClient(self._world, scheme.registry, name, self)

    # --- the registry --------------------------------------------------------------------------

    def session_began(self, *, is_first: bool) -> None:
        if not is_first:
            why = "the coordinator has seen it go, and given its partitions to others"
            self._world.ledger.mark(self.name, "session expired", why)
            self._is_lost = True
            self.reader.wake()
        self.client.ask(Create((member_path(self.name),), self._topics))
        self._look_for_coordinator()

    def changed(self, path: str) -> None:
        assert path == COORDINATOR_NODE, "a member watches nothing else"
        self._look_for_coordinator()

    def _look_for_coordinator(self) -> None:
        self.client.ask(Get((COORDINATOR_NODE,), watch=True), self._found)

    def _found(self, names: tuple[str | None, ...]) -> None:
        coordinator = self._scheme.coordinators.get(names[0] or "")
        if coordinator is None or coordinator is self._coordinator:
            return
        if self._link is not None:
            self._link.close()
        self._coordinator = coordinator
        self._link = Link(
            self._world,
            self.name,
            coordinator,
            on_message=self._received,
            on_connected=self._connected,
        )
        self._link.paused_until_ms = self.client.paused_until_ms
        if self._clock.now_ms < self._cut_until_ms:
            self._link.cut(self._cut_until_ms - self._clock.now_ms)

    # --- the coordinator -----------------------------------------------------------------------

    def _ask(self, message: Any) -> None:
        if self._link is not None:
            self._link.ask(message)

    def _connected(self) -> None:
        self._ask(Register(self.name, self.generation, bool(self.reader.positions)))

    def _received(self, message: Any) -> None:
        if isinstance(message, CentralReply):
            self._world.commits.answered(message.offsets)
            return
        self._inbox.append(message)
        self.reader.wake()

    def _on_poll(self) -> bool:
        inbox, self._inbox = self._inbox, []
        if self._is_lost:
            self._is_lost = False
            self._stop()
        for message in inbox:
            if message.epoch >= self._epoch:  # else: somebody who does not know it is over
                self._epoch = message.epoch
                self._obey(message)
        if self._must_leave:
            self._close()
            return False
        now_ms = self._clock.now_ms
        if now_ms >= self._commit_at_ms and self.reader.positions:
            self._commit_at_ms = now_ms + self._world.scenario.work.commit_interval_ms
            self._ask(CentralOffsetCommit(self.name, self.generation, self._consumed()))
        return True

    def _obey(self, message: Any) -> None:
        if isinstance(message, Stop):
            self._stop()
            return
        assert isinstance(message, Start)
        self.generation = message.generation
        for tp, offset in message.share:
            self.reader.hold(tp, offset)
        self._scheme.refresh(self)

    def _stop(self) -> None:
        offsets = self._consumed()
        self.reader.release(list(self.reader.positions))
        self._ask(Stopped(self.name, self.generation, offsets))

    def _consumed(self) -> Offsets:
        offsets = tuple(self.reader.consumed(with_record_in_hand=False).items())
        self._world.commits.made(offsets)
        return offsets

    # --- what the scenario does ----------------------------------------------------------------

    def leave(self) -> None:
        self._must_leave = True
        self.reader.wake()

    def _close(self) -> None:
        self._ask(Unregister(self.name, self.generation, self._consumed()))
        self.reader.stop()
        if self._link is not None:
            self._link.close()
        self.client.close()

    def crash(self) -> None:
        self.reader.stop()
        self.client.crash()
        if self._link is not None:
            self._link.close()

    def stall(self, for_ms: int) -> None:
        self.reader.freeze(for_ms)

    def pause(self, for_ms: int) -> None:
        self.reader.freeze(for_ms)
        self.client.pause(self.reader.frozen_until_ms)
        if self._link is not None:
            self._link.paused_until_ms = self.reader.frozen_until_ms

    def cut(self, for_ms: int) -> None:
        self._cut_until_ms = self._clock.now_ms + for_ms
        self.client.cut(for_ms)
        if self._link is not None:
            self._link.cut(for_ms)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self._topics = topics
        self.client.ask(Delete((member_path(self.name),)))
        self.client.ask(Create((member_path(self.name),), topics))
