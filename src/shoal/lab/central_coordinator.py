"""The coordinator of scheme 2: one of the brokers, elected in the registry.

It watches the members and the topics there. When either changes it tells everybody to stop, waits
until all have stopped and committed, runs its assignor, and pushes each member its share with the
new generation. Offsets it keeps in the registry. Which share it gave whom it does not write down,
so whoever takes over reads everything and assigns from scratch.

A coordinator that is cut off, or stands still, does not know that another one was elected. It can
tell its members what it likes, but what it writes is guarded with its epoch.

Rule: a generation exists when the registry has accepted it, under the guard of the epoch. Before
that nobody is told to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.assign.model import ClusterMetadata, Subscription
from shoal.assign.range import RangeAssignor
from shoal.errors import counted
from shoal.lab.central_messages import (
    COORDINATOR,
    CentralOffsetCommit,
    CentralReply,
    Offsets,
    Register,
    Start,
    Stop,
    Stopped,
    Unregister,
)
from shoal.lab.paths import (
    COORDINATOR_NODE,
    GENERATION,
    IDS,
    TOPICS,
    broker_path,
    member_path,
    offset_path,
    topic_path,
)
from shoal.lab.registry.client import RegistryClient
from shoal.lab.registry.election import Candidate, epoch_path
from shoal.lab.registry.messages import Children, Create, Get, Put
from shoal.testing.simulation.network import SimulatedConnection
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.lab.central import CentralScheme


class CentralCoordinator:
    """A broker that coordinates, or would."""

    role = COORDINATOR

    def __init__(self, scheme: CentralScheme, name: str) -> None:
        self._scheme = scheme
        self._world = scheme.world
        self._clock = scheme.world.clock
        self.name = name
        self.is_up = True
        self.epoch = 0
        self.generation = 0
        self.is_acting = False
        """Elected, and it knows the group; as far as it knows nobody else was elected since."""
        self._connections: dict[str, SimulatedConnection] = {}
        self._wanted: dict[str, tuple[str, ...]] = {}
        """Who is in the registry, and the topics each wants."""
        self._holding: set[str] = set()
        """Who was told to start, or says so, and has not stopped since."""
        self._left_out: set[str] = set()
        """Who did not stop in time."""
        self._counts: dict[str, int] = {}
        self._offsets: dict[TopicPartition, int] = {}
        self._round = 0
        self._is_stopping = False
        self._is_assigning = False
        self._must_change = ""
        self.client = RegistryClient(self._world, scheme.registry, name, self, role=COORDINATOR)
        self._candidate = Candidate(self.client, COORDINATOR_NODE, on_elected=self._elected)

    @property
    def _guard(self) -> tuple[str, int]:
        return epoch_path(COORDINATOR_NODE), self.epoch

    def accepts(self, member: str, generation: int) -> bool:
        """Whether a commit of this member would be stored."""
        return (
            self.is_up
            and self.is_acting
            and self._scheme.registry.guard_holds(self._guard)
            and generation == self.generation
            and member in self._wanted
            and member not in self._left_out
        )

    # --- the election --------------------------------------------------------------------------

    def session_began(self, *, is_first: bool) -> None:
        if not is_first:
            self._step_down()
        self.client.ask(Create((broker_path(self.name),), self.name))
        self._candidate.run()

    def _elected(self, epoch: int) -> None:
        self.epoch = epoch
        self.client.ask(Get((GENERATION,)), self._saw_generation)

    def _saw_generation(self, known: tuple[int | None, ...]) -> None:
        self.generation = known[0] or 0
        self._look_at_topics(self._saw_topics_first)

    def _saw_topics_first(self) -> None:
        partitions = [
            TopicPartition(topic, number)
            for topic, count in sorted(self._counts.items())
            for number in range(count)
        ]

        def saw_offsets(offsets: tuple[int | None, ...]) -> None:
            self._offsets = {
                tp: at for tp, at in zip(partitions, offsets, strict=True) if at is not None
            }
            self._look_at_members(self._take_over)

        self.client.ask(Get(tuple(map(offset_path, partitions))), saw_offsets)

    def _take_over(self) -> None:
        self.is_acting = True
        known = counted(len(self._wanted), "member")
        why = f"elected with epoch {self.epoch}, and it has read {known}"
        self._world.ledger.mark(None, f"{self.name} coordinates", why)
        self._scheme.took_over()
        self._change("a new coordinator knows nobody's share")

    def _step_down(self) -> None:
        if self.is_acting:
            self._world.ledger.mark(
                None, f"{self.name} steps down", "another was elected meanwhile"
            )
        self.is_acting = self._is_stopping = self._is_assigning = False
        self._round += 1
        self._wanted.clear()
        self._holding.clear()
        self._left_out.clear()
        self._hang_up()

    def _deposed(self) -> None:
        """A guarded write was refused: another was elected, and this is how one learns of it."""
        if self.is_acting:
            self._step_down()
            self._candidate.run()

    def _hang_up(self) -> None:
        for connection in self._connections.values():
            connection.cut(survivors=0, late_ms=0, notice_ms=1)
        self._connections.clear()

    # --- watches -------------------------------------------------------------------------------

    def changed(self, path: str) -> None:
        if path == COORDINATOR_NODE:
            self._candidate.changed()
        elif path == IDS:
            self._look_at_members(lambda: self._members_changed(path))
        else:
            self._look_at_topics(lambda: self._change(f"{path} has changed"))

    def _members_changed(self, path: str) -> None:
        if self.is_acting:
            self._change(f"{path} has changed")

    def _look_at_members(self, then: Any) -> None:
        epoch = self.epoch

        def saw_names(names: tuple[str, ...]) -> None:
            ordered = tuple(sorted(names))
            paths = tuple(map(member_path, ordered))
            self.client.ask(Get(paths), lambda wanted: saw_wishes(ordered, wanted))

        def saw_wishes(names: tuple[str, ...], wanted: tuple[Any, ...]) -> None:
            if epoch != self.epoch:
                return
            self._wanted = {
                name: topics
                for name, topics in zip(names, wanted, strict=True)
                if topics is not None
            }
            self._left_out &= self._wanted.keys()
            then()

        self.client.ask(Children(IDS), saw_names)

    def _look_at_topics(self, then: Any) -> None:
        def saw_names(names: tuple[str, ...]) -> None:
            topics = tuple(sorted(names))
            paths = tuple(map(topic_path, topics))
            self.client.ask(Get(paths, watch=True), lambda counts: saw_counts(topics, counts))

        def saw_counts(topics: tuple[str, ...], counts: tuple[Any, ...]) -> None:
            self._counts = dict(zip(topics, counts, strict=True))
            then()

        self.client.ask(Children(TOPICS), saw_names)

    # --- rebalancing ---------------------------------------------------------------------------

    def _change(self, why: str) -> None:
        self._scheme.refresh_all()
        if not self.is_acting:
            return
        if self._is_assigning:
            self._must_change = why
            return
        if not self._is_stopping:
            self._is_stopping = True
            self._round += 1
            self._world.ledger.mark(None, "everybody is told to stop", why)
            limit_ms = self._world.scenario.timing.max_poll_interval_ms
            self._clock.after(limit_ms, self._lose_patience, self._round)
            for name in self._wanted:
                self._tell_to_stop(name)
        self._assign_if_stopped()

    def _tell_to_stop(self, name: str) -> None:
        if name in self._holding and name in self._connections:
            self._connections[name].answer(Stop(self.epoch))

    def _lose_patience(self, number: int) -> None:
        """Go on without those who do not stop; what they still read they cannot commit."""
        if number != self._round or not self._is_stopping or not self.is_up:
            return
        for name in self._wanted:
            if name in self._holding or name not in self._connections:
                self._left_out.add(name)
                self._holding.discard(name)
                self._world.ledger.mark(name, "left out", "it did not stop in time")
        self._scheme.refresh_all()
        self._assign_if_stopped()

    def _members(self) -> list[str]:
        return [name for name in self._wanted if name not in self._left_out]

    def _assign_if_stopped(self) -> None:
        if not self._is_stopping or not all(
            name in self._connections and name not in self._holding for name in self._members()
        ):
            return
        self._is_stopping = False
        self._is_assigning = True
        generation, number = self.generation + 1, self._round

        def accepted(is_done: bool) -> None:
            if number != self._round:
                return
            self._is_assigning = False
            if is_done:
                self._start(generation)
            else:
                self._deposed()

        self.client.ask(Put(((GENERATION, generation),), self._guard), accepted)

    def _start(self, generation: int) -> None:
        self.generation = generation
        self._world.ledger.mark(None, f"generation {generation}", f"{self.name} has assigned")
        subscriptions = {
            name: Subscription(self._wanted[name])
            for name in self._members()
            if name in self._connections
        }
        metadata = ClusterMetadata(self._counts)
        shares = RangeAssignor().assign(metadata, subscriptions) if subscriptions else {}
        for name, share in shares.items():
            given = tuple((tp, self._offsets.get(tp, 0)) for tp in share.partitions)
            self._holding.add(name)
            self._connections[name].answer(Start(self.epoch, generation, given))
        self._scheme.refresh_all()
        if self._must_change:
            why, self._must_change = self._must_change, ""
            self._change(why)

    # --- requests ------------------------------------------------------------------------------

    def asked(self, connection: SimulatedConnection, message: Any) -> None:
        if not self.is_up:
            return
        if isinstance(message, Register):
            self._register(connection, message)
            return
        name, what = message.name, type(message).__name__
        if isinstance(message, Stopped | Unregister):
            self._holding.discard(name)
        if isinstance(message, Unregister):
            self._connections.pop(name, None)
        self._store(connection, message, what)
        if isinstance(message, Unregister) and self._wanted.pop(name, None) is not None:
            self._change(f"{name} leaves")
        elif isinstance(message, Stopped):
            if name in self._left_out:
                self._left_out.discard(name)
                self._change(f"{name} is back")
            else:
                self._assign_if_stopped()

    def _register(self, connection: SimulatedConnection, message: Register) -> None:
        name = message.name
        self._connections[name] = connection
        (self._holding.add if message.holds else self._holding.discard)(name)
        is_current = message.generation == self.generation and name not in self._left_out
        if not self.is_acting or name not in self._wanted:
            return  # the watch will tell
        if self._is_stopping:
            self._tell_to_stop(name)
            self._assign_if_stopped()
        elif not is_current or not message.holds:
            self._left_out.discard(name)
            self._change(f"{name} was away")

    def _store(
        self,
        connection: SimulatedConnection,
        message: Stopped | CentralOffsetCommit | Unregister,
        what: str,
    ) -> None:
        """Offsets are kept in the registry, if it still knows us as the coordinator."""
        offsets: Offsets = message.offsets
        if not offsets and not isinstance(message, CentralOffsetCommit):
            return
        if not self.accepts_generation(message.name, message.generation):
            self._world.trace.commits_refused += 1
            connection.answer(CentralReply(what, False, offsets))
            return

        def stored(is_done: bool) -> None:
            if is_done:
                self._offsets.update(offsets)
            else:
                self._world.trace.commits_refused += 1
                self._deposed()
            connection.answer(CentralReply(what, is_done, offsets))

        values = tuple((offset_path(tp), at) for tp, at in offsets)
        # Sent again until there is an answer, in whatever session: the guard keeps it harmless.
        self.client.ask(Put(values, self._guard), stored, survives=True)

    def accepts_generation(self, member: str, generation: int) -> bool:
        """By what it knows itself; the guard decides whether it is still true."""
        return (
            self.is_acting
            and generation == self.generation
            and member in self._wanted
            and member not in self._left_out
        )

    # --- what happens to the broker ------------------------------------------------------------

    def die(self) -> None:
        self.is_up = False
        self.client.crash()
        self._hang_up()

    def leave(self) -> None:
        """In order: somebody else is elected at once."""
        if self.is_acting:
            self._candidate.resign()
        self.is_up = self.is_acting = False
        self.client.close()
        self._hang_up()
