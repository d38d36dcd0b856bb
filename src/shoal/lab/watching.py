"""Scheme 1: watchers on a registry, the high-level consumer before 0.9.

Every member watches the list of members, the brokers and the topics. When something changes,
*every* member stops reading, commits, gives up what it owns, looks at the registry, decides alone
with ``range`` what is its own, and claims that. A claim on what somebody else still owns fails;
then everything that was claimed is given back, and after a wait it tries again, a few times.

What a member sees is what the server it is connected to has applied. Two members may see different
things at the same moment, and decide differently.

Rule: no member knows what the others decide. Whether they agree depends on what each of them saw,
and whether a partition has one owner depends on its owner node alone. A member that has lost its
session, or overlooked that a claim failed, reads on, and nobody refuses its offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

from shoal.assign.model import ClusterMetadata, Subscription
from shoal.assign.range import RangeAssignor
from shoal.lab.paths import (
    BROKER_IDS,
    IDS,
    OFFSETS,
    member_path,
    offset_path,
    owner_path,
    partition_of,
    topic_path,
)
from shoal.lab.reading import Reader
from shoal.lab.registered_broker import RegisteredBrokers, stored_offsets
from shoal.lab.registry.client import RegistryClient
from shoal.lab.registry.ensemble import Registry
from shoal.lab.registry.messages import Children, Create, Delete, Get, Put, Sync
from shoal.lab.scenario import Act
from shoal.lab.world import World
from shoal.types import TopicPartition

View = tuple[tuple[str, tuple[str, ...]], ...]
"""Who is there and what they want, as one member saw it."""


def decide(view: View, counts: tuple[tuple[str, int], ...]) -> dict[str, list[TopicPartition]]:
    """What each member should own; the same for all who see the same."""
    subscriptions = {name: Subscription(topics) for name, topics in view}
    assignment = RangeAssignor().assign(ClusterMetadata(dict(counts)), subscriptions)
    return {name: list(given.partitions) for name, given in assignment.items()}


class WatcherScheme:
    """A registry and nothing else: there is no coordinator."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.registry = Registry(world.clock, world.scenario.registry, world.random)
        self.registry.on_put = self._stored
        self._brokers = RegisteredBrokers(world, self.registry)
        self._decisions: dict[Any, dict[str, list[TopicPartition]]] = {}

    def start(
        self,
        name: str,
        topics: tuple[str, ...],
        instance_id: str | None,  # noqa: ARG002  # there were no static members
    ) -> WatcherMember:
        return WatcherMember(self, name, topics)

    def _stored(self, path: str, before: Any, data: Any) -> None:
        if path.startswith(OFFSETS):
            self.world.commits.stored(partition_of(path), data)
            self.world.trace.commits_backwards += before is not None and data < before

    def fail_over(self, down_ms: int) -> None:
        self.registry.fail_over(down_ms)
        now_ms = self.world.now()
        self.world.trace.takeovers.append((now_ms, now_ms + down_ms))

    def cut_coordinator(self, for_ms: int) -> None:
        """There is none."""

    def broker_changed(self, broker: str, act: Act) -> None:
        self._brokers.changed(broker, act)

    def partitions_added(self, topic: str) -> None:
        self.registry.put_now(topic_path(topic), self.world.topics.counts[topic])

    def committed(self) -> dict[TopicPartition, int]:
        return stored_offsets(self.world, self.registry)

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
        self._syncs = scheme.world.scenario.registry.sync
        self._overlooks = scheme.world.scenario.watcher_version == "0.7"
        self.name = name
        self._topics = topics
        # The rebalance under way. Its number tells old answers from new ones.
        self._round = 0
        self._attempts = 0
        self._is_rebalancing = False
        self._was_notified = ""
        self._owned: list[TopicPartition] = []
        self.reader = Reader(self._world, name, lambda: True)
        self.client = RegistryClient(self._world, scheme.registry, name, self)
        self._clock.after(self._world.scenario.work.commit_interval_ms, self._commit_by_timer)

    # --- the session ---------------------------------------------------------------------------

    def session_began(self, *, is_first: bool) -> None:
        if not is_first:
            why = "its owner nodes went with it; they may be somebody else's by now"
            self._world.ledger.mark(self.name, "session expired", why)
        self._owned = []
        self._register("it is new" if is_first else "its session is new")

    def _register(self, why: str) -> None:
        self.client.ask(Create((member_path(self.name),), self._topics))
        self._start_rebalance(why)

    # --- notifications -------------------------------------------------------------------------

    def changed(self, path: str) -> None:
        """Set the watch again, by looking, and rebalance."""
        is_list = path in (IDS, BROKER_IDS)
        self.client.ask(Children(path) if is_list else Get((path,), watch=True))
        why = f"{path} has changed, says {self.client.server_name}"
        if self._is_rebalancing:
            self._was_notified = why
        else:
            self._start_rebalance(why)

    def _start_rebalance(self, why: str) -> None:
        self._attempts = 0
        self._is_rebalancing = True
        self._world.ledger.mark(self.name, "rebalances", why)
        self._attempt(None)

    def _attempt(self, _: None) -> None:
        if self.client.is_held_up(self._attempt):
            return
        self._round += 1
        self._was_notified = ""
        self._stop_reading()
        self._look(Children(IDS), self._saw_members)

    def _stop_reading(self) -> None:
        if self.reader.positions:
            self._commit()
            self.reader.release(list(self.reader.positions))
        if self._owned:
            # Whoever made these nodes: a delete does not ask.
            self.client.ask(Delete(tuple(owner_path(tp) for tp in self._owned)))
            self._owned = []

    def _then(self, body: Any, then: Callable[[Any], None]) -> None:
        """Ask, and go on with the answer if the rebalance is still the same one."""
        number = self._round

        def go_on(value: Any) -> None:
            if number == self._round:
                then(value)

        self.client.ask(body, go_on)

    def _look(self, body: Any, then: Callable[[Any], None]) -> None:
        """Read; if wanted, what the leader knows and not what this server happens to know."""
        if self._syncs:
            self._then(Sync(), lambda _: self._then(body, then))
        else:
            self._then(body, then)

    def _saw_members(self, names: tuple[str, ...]) -> None:
        ordered = tuple(sorted(names))
        paths = tuple(map(member_path, ordered))
        self._then(Get(paths), lambda wanted: self._saw_wishes(ordered, wanted))

    def _saw_wishes(self, names: tuple[str, ...], wanted: tuple[Any, ...]) -> None:
        view = tuple([each for each in zip(names, wanted, strict=True) if each[1] is not None])
        self._then(Children(BROKER_IDS), lambda _: self._saw_brokers(view))

    def _saw_brokers(self, view: View) -> None:
        topics = tuple(sorted(set().union(*{topics for _, topics in view})))
        paths = tuple(topic_path(topic) for topic in topics)
        self._then(
            Get(paths, watch=True),
            lambda counts: self._decide(view, tuple(zip(topics, counts, strict=True))),
        )

    def _decide(self, view: View, counts: tuple[tuple[str, int], ...]) -> None:
        seen = {name for name, _ in view}
        if seen != set(self._scheme.registry.names_below(IDS)):
            self._world.trace.stale_decisions += 1
            self._world.ledger.mark(
                self.name,
                "decides on an old view",
                f"{self.client.server_name} has not applied what the leader has",
            )
        if self.name not in seen:
            self._conflict("not registered", "its own node is not there")
            return
        mine = self._scheme.decision(view, counts, self.name)
        if not mine:
            self._rebalanced([], ())
        elif self._overlooks:
            paths = tuple(owner_path(tp) for tp in mine)
            self._look(Get(paths), lambda owners: self._saw_owners(mine, owners))
        else:
            self._read_offsets(mine)

    def _saw_owners(self, mine: list[TopicPartition], owners: tuple[Any, ...]) -> None:
        """Before 0.7.1: only what is free, by what this server knows, is claimed at all."""
        taken = [
            tp for tp, owner in zip(mine, owners, strict=True) if owner not in (None, self.name)
        ]
        if taken:
            self._conflict("conflict", f"{taken[0]} is still owned by somebody else")
        else:
            self._read_offsets(mine)

    def _read_offsets(self, mine: list[TopicPartition]) -> None:
        paths = tuple(offset_path(tp) for tp in mine)
        self._look(Get(paths), lambda offsets: self._claim(mine, offsets))

    def _claim(self, mine: list[TopicPartition], offsets: tuple[Any, ...]) -> None:
        paths = tuple(owner_path(tp) for tp in mine)

        def claimed(made: list[bool]) -> None:
            got = dict(zip(paths, made, strict=True))
            # Before 0.7.1 a loop over a hash map kept the outcome of the last claim alone.
            counts = [got[max(got, key=_hash)]] if self._overlooks else made
            if all(counts):
                self._rebalanced(mine, offsets)
            else:
                self.client.ask(Delete(tuple(path for path, is_mine in got.items() if is_mine)))
                refused = next(path for path, is_mine in got.items() if not is_mine)
                self._conflict(
                    "conflict", f"{partition_of(refused)} is still owned by somebody else"
                )

        self._then(Create(paths, self.name), claimed)

    def _rebalanced(self, mine: list[TopicPartition], offsets: tuple[Any, ...]) -> None:
        self._owned = mine
        for tp, offset in zip(mine, offsets, strict=True):
            self.reader.hold(tp, offset or 0)
        self.reader.wake()
        self._rebalance_ended()

    def _rebalance_ended(self) -> None:
        self._is_rebalancing = False
        if self._was_notified:
            self._start_rebalance(self._was_notified)

    def _conflict(self, what: str, why: str) -> None:
        """Somebody else still owns something: wait, and try again, but not forever."""
        self._attempts += 1
        if self._attempts <= self._timing.rebalance_retries_max:
            self._world.ledger.mark(self.name, what, why)
            self._clock.after(self._timing.rebalance_backoff_ms, self._retry, self._round)
            return
        # ConsumerRebalanceFailedException: it owns nothing until something changes again.
        self._world.ledger.mark(self.name, "gives up", f"after {self._attempts} attempts")
        self._rebalance_ended()

    def _retry(self, number: int) -> None:
        if number == self._round and not self.client.is_held_up(self._retry, number):
            self._attempt(None)

    # --- offsets -------------------------------------------------------------------------------

    def _commit_by_timer(self, _: None) -> None:
        if self.client.is_held_up(self._commit_by_timer):
            return
        if self.reader.positions:
            self._commit()
        self._clock.after(self._world.scenario.work.commit_interval_ms, self._commit_by_timer)

    def _commit(self) -> None:
        offsets = tuple(self.reader.consumed(with_record_in_hand=True).items())
        if offsets:
            self._world.commits.made(offsets)
            # The thread that writes offsets does not know of sessions. So they are written,
            # whoever owns the partition by then.
            self.client.ask(
                Put(tuple((offset_path(tp), at) for tp, at in offsets)),
                lambda _: self._world.commits.answered(offsets),
                survives=True,
            )

    # --- what the scenario does ----------------------------------------------------------------

    def leave(self) -> None:
        self._round += 1
        self._stop_reading()
        self.client.close()
        self.reader.stop()

    def crash(self) -> None:
        self.reader.stop()
        self.client.crash()

    def stall(self, for_ms: int) -> None:
        self.reader.freeze(for_ms)

    def pause(self, for_ms: int) -> None:
        self.reader.freeze(for_ms)
        self.client.pause(self.reader.frozen_until_ms)

    def cut(self, for_ms: int) -> None:
        self.client.cut(for_ms)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self._topics = topics
        self.client.ask(Delete((member_path(self.name),)))
        self._register("it wants other topics")


def _hash(path: str) -> int:
    """The order of a hash map: always the same, and no order at all."""
    return crc32(path.encode())
