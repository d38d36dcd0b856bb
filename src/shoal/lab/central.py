"""Scheme 2: a coordinator that assigns on the server, the first redesign.

Members register and send heartbeats when they poll (there was no thread for it before 0.10.1).
When anything changes the coordinator tells everybody to stop, waits until all have stopped and
committed, runs its assignor, and pushes each member its share with the new generation. A commit
carries the generation and is refused if it is an old one.

It never shipped: the strategy is the server's, so a new one means a new server, and the server
computes for all groups. What it knows of a group lives in its memory; after a failover members
register anew and everything is assigned from scratch.

Rule: members decide nothing here but when they come to poll.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from shoal.assign.model import ClusterMetadata, Subscription
from shoal.assign.range import RangeAssignor
from shoal.lab.link import Link
from shoal.lab.reading import Reader
from shoal.lab.world import World
from shoal.testing.network import Connection
from shoal.types import TopicPartition

COORDINATOR: Final = "coordinator"
_CHECK_MS: Final = 500


class Register(NamedTuple):
    """I want to read these topics."""

    name: str
    topics: tuple[str, ...]


class Heartbeat(NamedTuple):
    name: str
    generation: int


class Stopped(NamedTuple):
    """I read nothing any more; this is how far I came."""

    name: str
    generation: int
    offsets: tuple[tuple[TopicPartition, int], ...]


class OffsetCommit(NamedTuple):
    name: str
    generation: int
    offsets: tuple[tuple[TopicPartition, int], ...]


class Unregister(NamedTuple):
    """I leave; this is how far I came."""

    name: str
    generation: int
    offsets: tuple[tuple[TopicPartition, int], ...]


class Reply(NamedTuple):
    what: str
    is_known: bool


class Stop(NamedTuple):
    """Pushed: stop reading."""


class Start(NamedTuple):
    """Pushed: read these, from these offsets."""

    generation: int
    share: tuple[tuple[TopicPartition, int], ...]


def describe(message: Any) -> tuple[str, int, str, bool]:
    if isinstance(message, Reply):
        return f"{message.what} reply", 1, "" if message.is_known else "UNKNOWN_MEMBER", False
    return type(message).__name__, 1, "", isinstance(message, Stop | Start)


class _Seat:
    """What the coordinator knows of a member."""

    __slots__ = ("connection", "has_stopped", "heard_ms", "topics")

    def __init__(self, connection: Connection, topics: tuple[str, ...], now_ms: int) -> None:
        self.connection = connection
        self.topics = topics
        self.heard_ms = now_ms
        self.has_stopped = True


class CentralScheme:
    """The coordinator, and its members."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._clock = world.clock
        self.is_up = True
        self._seats: dict[str, _Seat] = {}
        self._generation = 0
        self._is_stopping = False
        self._is_dirty = False
        self._offsets: dict[TopicPartition, int] = {}
        self._members: dict[str, CentralMember] = {}
        self._clock.after(_CHECK_MS, self._check)

    def start(
        self,
        name: str,
        topics: tuple[str, ...],
        instance_id: str | None,  # noqa: ARG002  # there were no static members
    ) -> CentralMember:
        self._members[name] = CentralMember(self, name, topics)
        return self._members[name]

    def committed(self) -> dict[TopicPartition, int]:
        return dict(self._offsets)

    def partitions_added(self, topic: str) -> None:  # noqa: ARG002  # any change is a change
        if self.is_up:
            self._change()

    def fail_over(self, down_ms: int) -> None:
        self.is_up = False
        for seat in self._seats.values():
            seat.connection.cut(survivors=0, late_ms=0, notice_ms=1)
        self._seats.clear()
        self._is_stopping = self._is_dirty = False
        self._clock.after(down_ms, self._come_back)

    def _come_back(self, _: None) -> None:
        self.is_up = True

    # --- requests ------------------------------------------------------------------------------

    def asked(self, connection: Connection, message: Any) -> None:
        if not self.is_up:
            return
        what = type(message).__name__
        if isinstance(message, Register):
            self._seats.pop(message.name, None)
            self._seats[message.name] = _Seat(connection, message.topics, self._clock.now_ms)
            connection.answer(Reply(what, True))
            self._change()
            return
        seat = self._seats.get(message.name)
        is_current = seat is not None and message.generation == self._generation
        if seat is None or (isinstance(message, OffsetCommit) and not is_current):
            if isinstance(message, OffsetCommit):
                self.world.trace.commits_refused += 1
            connection.answer(Reply(what, False))
            return
        seat.heard_ms = self._clock.now_ms
        if is_current and not isinstance(message, Heartbeat):
            self._offsets.update(message.offsets)
        if isinstance(message, Unregister):
            del self._seats[message.name]
            self._change()
        elif isinstance(message, Stopped):
            seat.has_stopped = True
            self._assign_if_stopped()
        connection.answer(Reply(what, True))

    def _check(self, _: None) -> None:
        """Sessions end when nothing was heard for too long."""
        self._clock.after(_CHECK_MS, self._check)
        if not self.is_up:
            return
        oldest_ms = self._clock.now_ms - self.world.scenario.timing.session_timeout_ms
        dead = [name for name, seat in self._seats.items() if seat.heard_ms < oldest_ms]
        for name in dead:
            del self._seats[name]
            self.world.ledger.mark(name, "expired")
        if dead:
            self._change()

    # --- rebalancing ---------------------------------------------------------------------------

    def _change(self) -> None:
        self._refresh()
        if self._is_stopping:
            self._assign_if_stopped()
        else:
            self._is_stopping = True
            for seat in self._seats.values():
                if not seat.has_stopped:
                    seat.connection.answer(Stop())
            self._assign_if_stopped()

    def _assign_if_stopped(self) -> None:
        if not self._is_stopping or not all(seat.has_stopped for seat in self._seats.values()):
            return
        self._is_stopping = False
        self._generation += 1
        self.world.ledger.mark(None, f"generation {self._generation}")
        subscriptions = {name: Subscription(seat.topics) for name, seat in self._seats.items()}
        metadata = ClusterMetadata(dict(self.world.topics.counts))
        shares = RangeAssignor().assign(metadata, subscriptions) if subscriptions else {}
        for name, seat in self._seats.items():
            seat.has_stopped = False
            share = tuple((tp, self._offsets.get(tp, 0)) for tp in shares[name].partitions)
            seat.connection.answer(Start(self._generation, share))
        self._refresh()

    def _refresh(self) -> None:
        for member in self._members.values():
            self.refresh(member)

    def refresh(self, member: CentralMember) -> None:
        """Between stop and start the old generation is the current one."""
        if self.is_up and member.reader.positions:
            is_current = member.name in self._seats and member.generation == self._generation
            self.world.ledger.set_fenced(member.name, is_fenced=not is_current)


class CentralMember:
    """One process. Everything it does it does in poll."""

    def __init__(self, scheme: CentralScheme, name: str, topics: tuple[str, ...]) -> None:
        self._scheme = scheme
        self._world = scheme.world
        self._clock = scheme.world.clock
        self._timing = scheme.world.scenario.timing
        self.name = name
        self._topics = topics
        self.generation = 0
        self._inbox: list[Any] = []
        self._beat_at_ms = 0
        self._commit_at_ms = self._clock.now_ms + scheme.world.scenario.work.commit_interval_ms
        self._is_registered = False
        self._must_leave = False
        self.reader = Reader(self._world, name, self._on_poll)
        self.link = Link(
            self._world,
            name,
            scheme,
            on_message=self._received,
            on_connected=self._connected,
        )

    def _connected(self) -> None:
        # Whoever answers now may know nothing of us: register, and be told anew.
        self._is_registered = False
        self.reader.wake()

    def _received(self, message: Any) -> None:
        self._inbox.append(message)
        if not isinstance(message, Reply) or not message.is_known:
            self.reader.wake()

    def _on_poll(self) -> bool:
        inbox, self._inbox = self._inbox, []
        for message in inbox:
            self._obey(message)
        now_ms = self._clock.now_ms
        if self._must_leave:
            self._close()
            return False
        if not self._is_registered:
            self._is_registered = self.link.ask(Register(self.name, self._topics))
        elif now_ms >= self._beat_at_ms:
            self._beat_at_ms = now_ms + self._timing.heartbeat_interval_ms
            self.link.ask(Heartbeat(self.name, self.generation))
        if now_ms >= self._commit_at_ms and self.reader.positions:
            self._commit_at_ms = now_ms + self._world.scenario.work.commit_interval_ms
            self.link.ask(OffsetCommit(self.name, self.generation, self._consumed()))
        return True

    def _obey(self, message: Any) -> None:
        if isinstance(message, Stop):
            offsets = self._consumed()
            self.reader.release(list(self.reader.positions))
            self.link.ask(Stopped(self.name, self.generation, offsets))
        elif isinstance(message, Start):
            self._adopt(message)
        elif not message.is_known and message.what != "Stopped":
            # Thrown out: somebody else reads what was ours.
            self.reader.release(list(self.reader.positions))
            self._is_registered = False

    def _adopt(self, message: Start) -> None:
        share = dict(message.share)
        self.generation = message.generation
        self.reader.release([tp for tp in self.reader.positions if tp not in share])
        for tp, offset in share.items():
            # What it reads already (nobody told it to stop after a failover) it goes on with.
            if tp not in self.reader.positions:
                self.reader.hold(tp, offset)
        self._scheme.refresh(self)

    def _consumed(self) -> tuple[tuple[TopicPartition, int], ...]:
        return tuple(self.reader.consumed(with_record_in_hand=False).items())

    # --- what the scenario does ----------------------------------------------------------------

    def leave(self) -> None:
        self._must_leave = True
        self.reader.wake()

    def _close(self) -> None:
        self.link.ask(Unregister(self.name, self.generation, self._consumed()))
        self.crash()

    def crash(self) -> None:
        self.reader.stop()
        self.link.close()

    def stall(self, for_ms: int) -> None:
        self.reader.freeze(for_ms)

    def pause(self, for_ms: int) -> None:
        self.reader.freeze(for_ms)
        self.link.paused_until_ms = self.reader.frozen_until_ms

    def cut(self, for_ms: int) -> None:
        self.link.cut(for_ms)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self._topics = topics
        self._is_registered = False
        self.reader.wake()
