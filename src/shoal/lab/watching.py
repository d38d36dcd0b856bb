"""Scheme 1: watchers on a registry, the high-level consumer before 0.9.

    ids/<member>                what a member wants; ephemeral
    owners/<topic>/<partition>  who reads it; ephemeral
    offsets/<topic>/<partition> how far it was read; anybody may write it
    topics/<topic>              how many partitions there are

Every member watches ``ids`` and the topics. When something changes, *every* member stops reading,
commits, gives up what it owns, looks at the registry, decides alone with ``range`` what is its
own, and claims that. A claim on what somebody else still owns fails; then everything that was
claimed is given back, and after a wait it tries again, a few times.

Rule: no member knows what the others decide. Whether they agree depends on what each of them saw,
and whether a partition has one owner depends on sessions alone: a member that has lost its session
reads on until it hears of that, and nobody refuses its offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.assign.model import ClusterMetadata, Subscription
from shoal.assign.range import RangeAssignor
from shoal.lab.reading import Reader
from shoal.lab.registry import (
    Answer,
    Changed,
    Children,
    Close,
    Connect,
    Connected,
    Create,
    Delete,
    Get,
    Ping,
    Put,
    Registry,
    Request,
)
from shoal.lab.world import World
from shoal.testing.network import Connection
from shoal.types import TopicPartition

IDS, OWNERS, OFFSETS, TOPICS = "ids", "owners", "offsets", "topics"

View = tuple[tuple[str, tuple[str, ...]], ...]
"""Who is there and what they want, as one member saw it."""


def _path(root: str, tp: TopicPartition) -> str:
    return f"{root}/{tp.topic}/{tp.partition}"


def decide(view: View, counts: tuple[tuple[str, int], ...]) -> dict[str, list[TopicPartition]]:
    """What each member should own; the same for all who see the same."""
    subscriptions = {name: Subscription(topics) for name, topics in view}
    assignment = RangeAssignor().assign(ClusterMetadata(dict(counts)), subscriptions)
    return {name: list(given.partitions) for name, given in assignment.items()}


class WatcherScheme:
    """A registry and nothing else: there is no coordinator."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.registry = Registry(world.clock, world.scenario.timing.registry_operation_us)
        self.registry.on_put = self._offset_put
        self._decisions: dict[Any, dict[str, list[TopicPartition]]] = {}
        for topic, count in world.topics.counts.items():
            self.registry.put(f"{TOPICS}/{topic}", count)

    def start(
        self,
        name: str,
        topics: tuple[str, ...],
        instance_id: str | None,  # noqa: ARG002  # there were no static members
    ) -> WatcherMember:
        return WatcherMember(self, name, topics)

    def _offset_put(self, path: str, before: Any, data: Any) -> None:
        if path.startswith(OFFSETS) and before is not None and data < before:
            self.world.trace.commits_backwards += 1

    def fail_over(self, down_ms: int) -> None:
        self.registry.fail(down_ms)

    def partitions_added(self, topic: str) -> None:
        self.registry.put(f"{TOPICS}/{topic}", self.world.topics.counts[topic])

    def committed(self) -> dict[TopicPartition, int]:
        found = {}
        for topic, count in self.world.topics.counts.items():
            for number in range(count):
                tp = TopicPartition(topic, number)
                found[tp] = self.registry.data(_path(OFFSETS, tp)) or 0
        return found

    def decision(
        self, view: View, counts: tuple[tuple[str, int], ...], name: str
    ) -> list[TopicPartition]:
        """Each member decides for itself; who sees the same need not be computed twice."""
        known = self._decisions.get((view, counts))
        if known is None:
            known = self._decisions[view, counts] = decide(view, counts)
        return known[name]


class WatcherMember:
    """One process with a high-level consumer."""

    def __init__(self, scheme: WatcherScheme, name: str, topics: tuple[str, ...]) -> None:
        self._scheme = scheme
        self._world = scheme.world
        self._clock = scheme.world.clock
        self._timing = scheme.world.scenario.timing
        self.name = name
        self._topics = topics
        self._is_alive = True
        self._session_id: int | None = None
        self._connection: Connection | None = None
        self._cut_until_ms = 0
        self._paused_until_ms = 0
        self._is_stopping = False
        # Requests in the order they were made; those without an answer are made again.
        self._number = 0
        self._waiting: dict[int, tuple[Any, Callable[[Any], None]]] = {}
        # The rebalance under way. Its number tells old answers from new ones.
        self._round = 0
        self._attempts = 0
        self._is_rebalancing = False
        self._was_notified = False
        self._owned: list[TopicPartition] = []
        self.reader = Reader(self._world, name, lambda: True)
        self._connect(None)
        self._ping(None)
        self._clock.after(self._world.scenario.work.commit_interval_ms, self._commit_by_timer)

    # --- the session ---------------------------------------------------------------------------

    def _is_held_up(self, action: Callable[[Any], None], argument: Any = None) -> bool:
        if self._clock.now_ms < self._paused_until_ms:
            self._clock.at(self._paused_until_ms, action, argument)
            return True
        return not self._is_alive

    def _connect(self, _: None) -> None:
        if self._is_held_up(self._connect) or self._connection is not None:
            return
        if self._clock.now_ms < self._cut_until_ms or not self._scheme.registry.is_up:
            self._clock.after(500, self._connect)
            return
        self._connection = self._world.network.connect(self, self._scheme.registry)
        self._connection.ask(Connect(self._session_id, self._timing.registry_session_timeout_ms))

    def _ping(self, _: None) -> None:
        if self._is_held_up(self._ping):
            return
        if self._connection is not None:
            self._connection.ask(Ping())
        self._clock.after(self._timing.registry_session_timeout_ms // 3, self._ping)

    def disconnected(self, connection: Connection) -> None:
        self._disconnected(connection)

    def _disconnected(self, connection: Connection) -> None:
        if self._is_held_up(self._disconnected, connection) or connection is not self._connection:
            return
        self._connection = None
        self._connect(None)

    def answered(self, connection: Connection, message: Any) -> None:
        self._answered((connection, message))

    def _answered(self, answer: tuple[Connection, Any]) -> None:
        if self._is_held_up(self._answered, answer):
            return
        connection, message = answer
        if connection is not self._connection:
            return
        if isinstance(message, Changed):
            self._notified(message.path)
        elif isinstance(message, Connected):
            self._connected(message.session_id)
        else:
            assert isinstance(message, Answer)
            _, then = self._waiting.pop(message.number, (None, None))
            if then is not None:
                then(message.value)

    def _connected(self, session_id: int) -> None:
        assert self._connection is not None
        is_new = session_id != self._session_id
        if is_new:
            # What was waiting for a connection is void, but for offsets: the thread that writes
            # them does not know of sessions. So they are written, whoever owns the partition now.
            self._waiting = {
                number: request
                for number, request in self._waiting.items()
                if isinstance(request[0], Put)
            }
        for number, (body, _) in self._waiting.items():
            self._connection.ask(Request(number, body))
        self._session_id = session_id
        if is_new:
            if self._owned:
                self._world.ledger.mark(self.name, "session expired")
            # Its owner nodes went with the session; they may be somebody else's by now.
            self._owned = []
            self._register()

    def _ask(self, body: Any, then: Callable[[Any], None] = lambda _: None) -> None:
        self._number += 1
        self._waiting[self._number] = (body, then)
        if self._connection is not None and self._session_id is not None:
            self._connection.ask(Request(self._number, body))

    def _register(self) -> None:
        self._ask(Create((f"{IDS}/{self.name}",), self._topics))
        self._start_rebalance()

    # --- notifications -------------------------------------------------------------------------

    def _notified(self, path: str) -> None:
        """Set the watch again, by looking, and rebalance."""
        self._ask(Children(path) if path == IDS else Get((path,), watch=True))
        if self._is_rebalancing:
            self._was_notified = True
        else:
            self._start_rebalance()

    def _start_rebalance(self) -> None:
        self._attempts = 0
        self._is_rebalancing = True
        self._world.ledger.mark(self.name, "rebalances")
        self._attempt(None)

    def _attempt(self, _: None) -> None:
        if self._is_held_up(self._attempt):
            return
        self._round += 1
        self._was_notified = False
        self._stop_reading()
        self._then(Children(IDS), self._saw_members)

    def _stop_reading(self) -> None:
        if self.reader.positions:
            self._commit()
            self.reader.release(list(self.reader.positions))
        if self._owned:
            self._ask(Delete(tuple(_path(OWNERS, tp) for tp in self._owned)))
            self._owned = []

    def _then(self, body: Any, then: Callable[[Any], None]) -> None:
        """Ask, and go on with the answer if the rebalance is still the same one."""
        number = self._round

        def go_on(value: Any) -> None:
            if number == self._round:
                then(value)

        self._ask(body, go_on)

    def _saw_members(self, names: tuple[str, ...]) -> None:
        ordered = tuple(sorted(names))
        paths = tuple(f"{IDS}/{name}" for name in ordered)
        self._then(Get(paths), lambda wanted: self._saw_wishes(ordered, wanted))

    def _saw_wishes(self, names: tuple[str, ...], wanted: tuple[Any, ...]) -> None:
        view = tuple(
            (name, topics) for name, topics in zip(names, wanted, strict=True) if topics is not None
        )
        topics = tuple(sorted({topic for _, topics in view for topic in topics}))
        paths = tuple(f"{TOPICS}/{topic}" for topic in topics)
        self._then(
            Get(paths, watch=True),
            lambda counts: self._decide(view, tuple(zip(topics, counts, strict=True))),
        )

    def _decide(self, view: View, counts: tuple[tuple[str, int], ...]) -> None:
        if self.name not in dict(view):
            self._conflict("not registered")
            return
        mine = self._scheme.decision(view, counts, self.name)
        paths = tuple(_path(OFFSETS, tp) for tp in mine)
        if not mine:
            self._rebalanced([], ())
        else:
            self._then(Get(paths), lambda offsets: self._claim(mine, offsets))

    def _claim(self, mine: list[TopicPartition], offsets: tuple[Any, ...]) -> None:
        paths = tuple(_path(OWNERS, tp) for tp in mine)

        def claimed(made: list[bool]) -> None:
            got = tuple(path for path, is_mine in zip(paths, made, strict=True) if is_mine)
            if len(got) == len(paths):
                self._rebalanced(mine, offsets)
            else:
                self._ask(Delete(got))
                self._conflict("conflict")

        self._then(Create(paths, self.name), claimed)

    def _rebalanced(self, mine: list[TopicPartition], offsets: tuple[Any, ...]) -> None:
        self._owned = mine
        for tp, offset in zip(mine, offsets, strict=True):
            self.reader.hold(tp, offset or 0)
        self.reader.wake()
        self._is_rebalancing = False
        if self._was_notified:
            self._start_rebalance()

    def _conflict(self, why: str) -> None:
        """Somebody else still owns something: wait, and try again, but not for ever."""
        self._attempts += 1
        if self._attempts <= self._timing.rebalance_retries_max:
            self._world.ledger.mark(self.name, why)
            self._clock.after(self._timing.rebalance_backoff_ms, self._retry, self._round)
            return
        # ConsumerRebalanceFailedException: it owns nothing until something changes again.
        self._world.ledger.mark(self.name, "gives up")
        self._is_rebalancing = False
        if self._was_notified:
            self._start_rebalance()

    def _retry(self, number: int) -> None:
        if number == self._round and not self._is_held_up(self._retry, number):
            self._attempt(None)

    # --- offsets -------------------------------------------------------------------------------

    def _commit_by_timer(self, _: None) -> None:
        if self._is_held_up(self._commit_by_timer):
            return
        if self.reader.positions:
            self._commit()
        self._clock.after(self._world.scenario.work.commit_interval_ms, self._commit_by_timer)

    def _commit(self) -> None:
        offsets = self.reader.consumed(with_record_in_hand=True)
        if offsets:
            self._ask(Put(tuple((_path(OFFSETS, tp), at) for tp, at in offsets.items())))

    # --- what the scenario does ----------------------------------------------------------------

    def leave(self) -> None:
        self._round += 1
        self._stop_reading()
        self._ask(Close(), lambda _: self.crash())
        self.reader.stop()

    def crash(self) -> None:
        self._is_alive = False
        self.reader.stop()
        if self._connection is not None:
            self._connection.close()
            self._scheme.registry.drop(self._connection)

    def stall(self, for_ms: int) -> None:
        self.reader.freeze(for_ms)

    def pause(self, for_ms: int) -> None:
        self.reader.freeze(for_ms)
        self._paused_until_ms = self.reader.frozen_until_ms
        # Whatever the server thinks of it, the connection has to be made again afterwards.
        self._lose_connection(self._paused_until_ms - self._clock.now_ms + 1)

    def cut(self, for_ms: int) -> None:
        self._cut_until_ms = self._clock.now_ms + for_ms
        self._lose_connection(self._timing.registry_session_timeout_ms * 2 // 3)

    def _lose_connection(self, notice_ms: int) -> None:
        if self._connection is not None:
            self._scheme.registry.drop(self._connection)
            self._connection.cut(survivors=0, late_ms=0, notice_ms=notice_ms)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self._topics = topics
        self._ask(Delete((f"{IDS}/{self.name}",)))
        self._register()
