"""Scheme 5: server-side again, incremental (KIP-848).

One request, ConsumerGroupHeartbeat, does everything. The coordinator holds the target, each
member moves towards it in its own time: it is told what it has, gives up what is missing from
that, says so at once, and is given the rest when others have done the same.

Rule: the decisions are in ``epochs``; here are the connections, the user and the ledger.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from shoal.lab.epochs import JOIN, LEAVE, LEAVE_FOR_A_WHILE, Beat, EpochGroup
from shoal.lab.link import Link
from shoal.lab.reading import Reader
from shoal.lab.world import World
from shoal.testing.network import Connection
from shoal.types import TopicPartition

COORDINATOR: Final = "coordinator"
_CHECK_MS: Final = 500


class ConsumerGroupHeartbeat(NamedTuple):
    """Fields that are None have not changed."""

    member_id: str
    epoch: int
    topics: tuple[str, ...] | None = None
    owned: tuple[TopicPartition, ...] | None = None
    instance_id: str | None = None


class OffsetCommit(NamedTuple):
    member_id: str
    epoch: int
    offsets: tuple[tuple[TopicPartition, int], ...]


class OffsetFetch(NamedTuple):
    partitions: tuple[TopicPartition, ...]


class OffsetReply(NamedTuple):
    """What was committed; None for a commit that was refused."""

    what: str
    offsets: tuple[tuple[TopicPartition, int], ...] | None


def describe(message: Any) -> tuple[str, int, str, bool]:
    if isinstance(message, Beat):
        return "ConsumerGroupHeartbeat reply", 1, "" if message.epoch else "FENCED", False
    if isinstance(message, OffsetReply):
        return f"{message.what} reply", 1, "" if message.offsets is not None else "STALE", False
    return type(message).__name__, 1, "", False


class IncrementalScheme:
    """The coordinator, and its members."""

    def __init__(self, world: World) -> None:
        timing = world.scenario.timing
        self.world = world
        self._clock = world.clock
        self.is_up = True
        self.group = EpochGroup(
            session_timeout_ms=timing.session_timeout_ms,
            rebalance_timeout_ms=timing.max_poll_interval_ms,
        )
        self.group.topics_changed(world.topics.counts)
        self._connections: dict[Connection, None] = {}
        self._offsets: dict[TopicPartition, int] = {}
        self._members: dict[str, IncrementalMember] = {}
        self._started = 0
        self._clock.after(_CHECK_MS, self._check)

    def start(
        self, name: str, topics: tuple[str, ...], instance_id: str | None
    ) -> IncrementalMember:
        self._started += 1
        member_id = f"{name}-{self._started}"
        self._members[name] = IncrementalMember(self, (name, member_id), topics, instance_id)
        return self._members[name]

    def committed(self) -> dict[TopicPartition, int]:
        return dict(self._offsets)

    def partitions_added(self, topic: str) -> None:  # noqa: ARG002  # all counts are compared
        self.group.topics_changed(self.world.topics.counts)

    def fail_over(self, down_ms: int) -> None:
        """Another broker reads the group from the log: nothing is lost, sessions start anew."""
        self.is_up = False
        for connection in self._connections:
            connection.cut(survivors=0, late_ms=0, notice_ms=1)
        self._connections.clear()
        self._clock.after(down_ms, self._come_back)

    def _come_back(self, _: None) -> None:
        self.is_up = True
        for member in self.group.members.values():
            member.heard_ms = self._clock.now_ms

    def asked(self, connection: Connection, message: Any) -> None:
        if not self.is_up:
            return
        self._connections[connection] = None
        if isinstance(message, ConsumerGroupHeartbeat):
            connection.answer(self._beat(message))
        elif isinstance(message, OffsetCommit):
            is_accepted = self.group.accepts_commit(message.member_id, message.epoch)
            if is_accepted:
                for tp, offset in message.offsets:
                    self.world.trace.commits_backwards += offset < self._offsets.get(tp, 0)
                    self._offsets[tp] = offset
            else:
                self.world.trace.commits_refused += 1
            connection.answer(OffsetReply("OffsetCommit", () if is_accepted else None))
        else:
            assert isinstance(message, OffsetFetch)
            found = tuple((tp, self._offsets.get(tp, 0)) for tp in message.partitions)
            connection.answer(OffsetReply("OffsetFetch", found))

    def _beat(self, message: ConsumerGroupHeartbeat) -> Beat:
        before = self.group.epoch
        if message.epoch in (LEAVE, LEAVE_FOR_A_WHILE):
            self.group.leave(message.member_id, for_a_while=message.epoch == LEAVE_FOR_A_WHILE)
            answer = Beat(message.epoch)
            self._refresh_all()
        else:
            answer = self.group.heartbeat(
                message.member_id,
                message.epoch,
                self._clock.now_ms,
                topics=message.topics,
                owned=message.owned,
                instance_id=message.instance_id,
            )
        if self.group.epoch != before:
            self.world.ledger.mark(None, f"epoch {self.group.epoch}")
        return answer

    def _check(self, _: None) -> None:
        self._clock.after(_CHECK_MS, self._check)
        if self.is_up:
            for member_id in self.group.expire(self._clock.now_ms):
                self.world.ledger.mark(member_id.rsplit("-", 1)[0], "expired")
                self._refresh_all()

    def _refresh_all(self) -> None:
        for member in self._members.values():
            self.refresh(member)

    def refresh(self, member: IncrementalMember) -> None:
        """Who is no member (any more) is fenced."""
        known = self.group.members.get(member.member_id)
        is_current = known is not None and not known.is_away
        if member.reader.positions:
            self.world.ledger.set_fenced(member.name, is_fenced=not is_current)


class IncrementalMember:
    """One process: a heartbeat in the background, and a user."""

    def __init__(
        self,
        scheme: IncrementalScheme,
        names: tuple[str, str],
        topics: tuple[str, ...],
        instance_id: str | None,
    ) -> None:
        self._scheme = scheme
        self._world = scheme.world
        self._clock = scheme.world.clock
        self._timing = scheme.world.scenario.timing
        self.name, self.member_id = names
        self._topics = topics
        self._instance_id = instance_id
        self._epoch = JOIN
        self._is_lost = False
        self._wanted: tuple[TopicPartition, ...] | None = None
        """The assignment that the user's next poll will adopt."""
        self._must_tell = False
        self._must_leave = False
        self._is_beating = False
        self._polled_ms = self._clock.now_ms
        self._commit_at_ms = self._clock.now_ms + scheme.world.scenario.work.commit_interval_ms
        self.reader = Reader(self._world, self.name, self._on_poll)
        self.link = Link(
            self._world, self.name, scheme, on_message=self._received, on_connected=self._connected
        )
        self._clock.after(self._timing.consumer_heartbeat_interval_ms, self._beat_by_timer)

    # --- heartbeats ----------------------------------------------------------------------------

    def _connected(self) -> None:
        self._is_beating = False
        self._beat()

    def _beat_by_timer(self, _: None) -> None:
        if self.link.is_held_up(self._beat_by_timer):
            return
        self._clock.after(self._timing.consumer_heartbeat_interval_ms, self._beat_by_timer)
        silent_ms = self._clock.now_ms - self._polled_ms
        if silent_ms >= self._timing.max_poll_interval_ms and self._epoch > 0:
            # The user is stuck: leave, so that others can have the partitions.
            self._world.ledger.mark(self.name, "poll timeout")
            self.link.ask(ConsumerGroupHeartbeat(self.member_id, LEAVE))
            self._epoch = LEAVE
            self._is_lost = True
        elif self._epoch >= 0:
            self._is_beating = False  # an answer that has not come by now will not come
            self._beat()

    def _beat(self) -> None:
        if self._is_beating:
            self._must_tell = True
            return
        is_joining = self._epoch == JOIN
        owned = () if is_joining else tuple(self.reader.positions)
        message = ConsumerGroupHeartbeat(
            self.member_id,
            self._epoch,
            topics=self._topics if is_joining else None,
            owned=owned if is_joining or self._must_tell else None,
            instance_id=self._instance_id,
        )
        self._must_tell = False
        self._is_beating = self.link.ask(message)

    def _received(self, message: Any) -> None:
        if isinstance(message, Beat):
            self._is_beating = False
            if message.epoch < 0:
                return
            self._answered(message)
            if self._must_tell:
                self._beat()
        elif message.what == "OffsetFetch":
            for tp, offset in message.offsets:
                if self.reader.positions.get(tp, 0) is None:
                    self.reader.positions[tp] = offset
            self.reader.wake()
        elif message.offsets is None:
            # The epoch has moved on meanwhile: again, with the one we know by then.
            self._commit_at_ms = self._clock.now_ms

    def _answered(self, beat: Beat) -> None:
        if beat.epoch == 0:
            if self._epoch > 0:
                self._epoch = JOIN
                self._is_lost = True
                self.reader.wake()
            return
        self._epoch = beat.epoch
        if beat.assigned is not None:
            self._wanted = beat.assigned
            self.reader.wake()

    # --- the user ------------------------------------------------------------------------------

    def _on_poll(self) -> bool:
        now_ms = self._clock.now_ms
        self._polled_ms = now_ms
        if self._must_leave:
            self._close()
            return False
        if self._is_lost:
            self._is_lost = False
            self._wanted = None
            self.reader.release(list(self.reader.positions))
            self._epoch = JOIN
            self._beat()
        if self._wanted is not None:
            self._adopt(self._wanted)
            self._wanted = None
        if now_ms >= self._commit_at_ms and self.reader.positions:
            self._commit_at_ms = now_ms + self._world.scenario.work.commit_interval_ms
            self._commit()
        return True

    def _adopt(self, wanted: tuple[TopicPartition, ...]) -> None:
        kept = set(wanted)
        gone = [tp for tp in self.reader.positions if tp not in kept]
        new = [tp for tp in wanted if tp not in self.reader.positions]
        if not gone and not new:
            return
        if gone:
            self._commit()
            self.reader.release(gone)
        for tp in new:
            self.reader.hold(tp, None)
        if new:
            self.link.ask(OffsetFetch(tuple(new)))
        self._scheme.refresh(self)
        # Tell at once: somebody may wait for what was given up.
        self._must_tell = True
        self._beat()

    def _commit(self) -> None:
        offsets = tuple(self.reader.consumed(with_record_in_hand=False).items())
        if offsets:
            self.link.ask(OffsetCommit(self.member_id, self._epoch, offsets))

    # --- what the scenario does ----------------------------------------------------------------

    def leave(self) -> None:
        self._must_leave = True
        self.reader.wake()

    def _close(self) -> None:
        self._commit()
        epoch = LEAVE if self._instance_id is None else LEAVE_FOR_A_WHILE
        self.link.ask(ConsumerGroupHeartbeat(self.member_id, epoch))
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
        if self._epoch > 0:
            owned = tuple(self.reader.positions)
            self.link.ask(
                ConsumerGroupHeartbeat(self.member_id, self._epoch, topics=topics, owned=owned)
            )
