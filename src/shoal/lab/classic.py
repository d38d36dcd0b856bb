"""Schemes 3 and 4: the real coordinator and the real members, eager or cooperative. Scheme 5
(``incremental.py``) is made of the same parts, with members that speak the new protocol.

Nothing of the protocol is here. The coordinator sits in the simulator's cluster, each member in
the simulator's engine, and this file is the user around them: it polls, obeys the steps a member
hands out, and tells the ledger. The simulator's watcher checks its invariants on the way.

Rule: no request is made and no answer is read here but for offsets, which are the user's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any, Final, Generic, TypeVar

from shoal.errors import ErrorCode
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.coordinator import Phase
from shoal.group.coordinator.decision import EventKind, GroupDecision
from shoal.group.coordinator.group_interface import Group
from shoal.group.coordinator.journal import JournalRecord, OffsetRecord
from shoal.group.coordinator.states import GroupState
from shoal.group.member.classic_member import ClassicMember
from shoal.group.member.member_interface import (
    Assigned,
    CommitPositions,
    CommitVerdict,
    Failed,
    MemberConfig,
    Step,
)
from shoal.lab.classic_engine import LabEngine, LabSurroundings
from shoal.lab.reading import Reader
from shoal.lab.scenario import Act
from shoal.lab.world import World
from shoal.testing.simulation.invariants import Watcher
from shoal.testing.simulation.simulated_cluster import SimulatedCluster
from shoal.testing.simulation.simulated_engine import (
    Member,
    MemberEngine,
    SimulatedConsumerSettings,
)
from shoal.testing.simulation.simulated_offsets import (
    commit_request,
    fetch_request,
    fetched_offsets,
    first_error,
)
from shoal.types import TopicPartition
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from shoal.wire.apis.join_group import JoinGroupResponse
from shoal.wire.apis.sync_group import SyncGroupResponse

GROUP_ID: Final = "lab"
_JOIN_VERSION: Final = 9
_COMMIT_VERSION: Final = 9
_OFFSET_FETCH_VERSION: Final = 8
CHECKED_MEMBERS_MAX: Final = 50
"""In larger groups the simulator's invariants are not checked: that takes longer than the group."""
_NOTHING: Final[frozenset[TopicPartition]] = frozenset()
Consumer = TypeVar("Consumer", bound="LabConsumer[Any]")
_CLOSE_MS: Final = 5_000
"""How long closing may take."""


def describe(message: Any) -> tuple[str, int, str, bool]:
    """The name of a request or response on a connection, and its error if it has one."""
    body = message[-1]
    name, is_request = _name(type(body).__name__)
    return name, 1, "" if is_request else _detail(body), False


@cache
def _name(name: str) -> tuple[str, bool]:
    """How a class of messages is called here, and whether it is a request."""
    if name.endswith("Request"):
        return name.removesuffix("Request"), True
    return f"{name.removesuffix('Response')} reply", False


def _detail(body: Any) -> str:
    """The error of a response, or what it brings."""
    code = getattr(body, "error_code", 0)
    if code:
        return ErrorCode.of(code).name
    if isinstance(body, ConsumerGroupHeartbeatResponse):
        return "assignment" if body.assignment is not None else ""
    if isinstance(body, JoinGroupResponse):
        role = "leader" if body.leader == body.member_id else "follower"
        return f"generation {body.generation_id}, {role}"
    return "assignment" if isinstance(body, SyncGroupResponse) else ""


class LabWatcher(Watcher):
    """The simulator's watcher, which passes on what the coordinator decides.

    Its checks look at every member again and again; a group of hundreds runs without them.
    """

    def __init__(
        self,
        world: World,
        config: GroupConfig,
        on_decision: Callable[[GroupDecision], None],
        on_loaded: Callable[[], None],
    ) -> None:
        super().__init__(GROUP_ID, world.topics, config)
        self._trace = world.trace
        self._commits = world.commits
        self._on_decision = on_decision
        self._on_loaded = on_loaded
        self._checks = world.scenario.members <= CHECKED_MEMBERS_MAX

    # What the cluster tells beside the first argument is between it and the watcher.

    def appended(self, records: Iterable[JournalRecord], *rest: Any, **named: Any) -> None:
        written = tuple(records)
        for record in written:
            if isinstance(record, OffsetRecord):
                tp = TopicPartition(record.topic, record.partition)
                self._commits.stored(tp, record.offset)
                self._trace.commits_backwards += record.offset < self.committed.get(tp, (0, 0))[0]
                if not self._checks:
                    self.committed[tp] = (record.offset, 0)
        if self._checks:
            super().appended(written, *rest, **named)

    def decided(self, request: Any, decision: GroupDecision, *rest: Any, **named: Any) -> None:
        if self._checks:
            super().decided(request, decision, *rest, **named)
        if decision.events:
            self._on_decision(decision)

    def asked(self, *told: Any, **named: Any) -> None:
        if self._checks:
            super().asked(*told, **named)

    def sent(self, *told: Any, **named: Any) -> None:
        if self._checks:
            super().sent(*told, **named)

    def check(self, *told: Any, **named: Any) -> None:
        if self._checks:
            super().check(*told, **named)

    def loaded(self, *told: Any, **named: Any) -> None:
        if self._checks:
            super().loaded(*told, **named)
        self._on_loaded()


class CoordinatedScheme(Generic[Consumer]):
    """A group at a real coordinator, whatever its members speak."""

    def __init__(self, world: World, assignors: tuple[str, ...] = ()) -> None:
        self.world = world
        self.assignors = assignors
        self.consumers: dict[str, Consumer] = {}
        self._broker = next(iter(world.brokers.up))
        """Where the coordinator is."""
        self._gone_ms: int | None = None
        self._started = 0
        config = self._config()
        self.watcher = self._new_watcher(config)
        world.on_processed = self.watcher.was_processed
        self.cluster = SimulatedCluster(
            world.clock, world.random, world.topics, self.watcher, config, GROUP_ID, note=None
        )

    def _config(self) -> GroupConfig:
        timing = self.world.scenario.timing
        return GroupConfig(
            group_initial_rebalance_delay_ms=timing.initial_rebalance_delay_ms,
            group_min_session_timeout_ms=min(6_000, timing.session_timeout_ms),
        )

    def _new_watcher(self, config: GroupConfig) -> LabWatcher:
        return LabWatcher(self.world, config, self._decided, self._loaded)

    def start(self, name: str, topics: tuple[str, ...], instance_id: str | None) -> Consumer:
        consumer = self._new_consumer(self._settings(name, topics, instance_id))
        self.consumers[name] = consumer
        return consumer

    def _new_consumer(self, settings: SimulatedConsumerSettings) -> Consumer:
        raise NotImplementedError

    def next_id(self) -> int:
        """Makes the ids of members differ that start one after the other."""
        self._started += 1
        return self._started

    def _settings(
        self, name: str, topics: tuple[str, ...], instance_id: str | None
    ) -> SimulatedConsumerSettings:
        timing = self.world.scenario.timing
        return SimulatedConsumerSettings(
            name=name,
            config=MemberConfig(
                GROUP_ID,
                group_instance_id=instance_id,
                session_timeout_ms=timing.session_timeout_ms,
                heartbeat_interval_ms=timing.heartbeat_interval_ms,
                max_poll_interval_ms=timing.max_poll_interval_ms,
                client_rack=self.world.brokers.rack_of(name) if self.world.scenario.racks else None,
                request_timeout_ms=timing.request_timeout_ms,
            ),
            assignors=self.assignors,
            topics=topics,
            pattern=None,
            through_bytes=False,
            join_version=_JOIN_VERSION,
            offset_fetch_version=_OFFSET_FETCH_VERSION,
            poll_interval_ms=self.world.scenario.work.poll_interval_ms,
        )

    def fail_over(self, down_ms: int) -> None:
        if self.cluster.is_up:
            self._gone_ms = self.world.now()
            self._broker = self.world.brokers.next_after(self._broker)
            self.cluster.crash(kept=0, down_ms=down_ms, moves=True)

    def _loaded(self) -> None:
        """A coordinator has read the group from the log."""
        if self._gone_ms is not None:
            self.world.trace.takeovers.append((self._gone_ms, self.world.now()))
            self._gone_ms = None

    @property
    def registry(self) -> None:
        """There is none any more."""
        return

    def cut_coordinator(self, for_ms: int) -> None:  # noqa: ARG002  # it is replaced before
        """What it decides reaches no other broker, so nothing is acknowledged: it is replaced."""
        self.fail_over(self.world.scenario.registry.session_timeout_ms)

    def broker_changed(self, broker: str, act: Act) -> None:
        """Members learn of leaders by metadata; the coordinator moves with its broker."""
        if broker != self._broker or act is Act.BROKER_JOINS:
            return
        dies = act is Act.BROKER_DIES
        self.fail_over(self.world.scenario.registry.session_timeout_ms if dies else 1)

    def partitions_added(self, topic: str) -> None:
        """Members find out when they refresh their metadata."""

    def committed(self) -> dict[TopicPartition, int]:
        return {tp: offset for tp, (offset, _) in self.watcher.committed.items()}

    # --- who is fenced -------------------------------------------------------------------------

    def _decided(self, decision: GroupDecision) -> None:
        self._mark(decision)
        for consumer in self.consumers.values():
            self.refresh(consumer)

    def _mark(self, decision: GroupDecision) -> None:
        for event in decision.events:
            if event.kind is EventKind.GENERATION_STARTED:
                why = f"all {event.member_count} members have joined; the leader assigns"
                self.world.ledger.mark(None, f"generation {event.generation}", why)
            elif event.kind is EventKind.REBALANCE_STARTED:
                self.world.ledger.mark(None, "a rebalance begins", event.cause)
            elif event.kind is EventKind.EPOCH_BUMPED:
                self.world.ledger.mark(None, f"epoch {event.generation}", event.cause)
            elif event.kind is EventKind.MEMBER_EXPIRED and event.member_id:
                why = "nothing was heard of it for the session timeout"
                self.world.ledger.mark(event.member_id.rsplit("-", 1)[0], "expired", why)

    def refresh(self, consumer: Consumer) -> None:
        """Ask the coordinator's own state whether it would accept a commit of this member."""
        raise NotImplementedError

    def _serving_group(self) -> Group | None:
        is_serving = self.cluster.is_up and self.cluster.coordinator.phase is Phase.ACTIVE
        return self.cluster.coordinator.group(GROUP_ID) if is_serving else None


class ClassicScheme(CoordinatedScheme["ClassicConsumer"]):
    """A group of the classic protocol."""

    def _new_consumer(self, settings: SimulatedConsumerSettings) -> ClassicConsumer:
        return ClassicConsumer(self, settings)

    def refresh(self, consumer: ClassicConsumer) -> None:
        group = self._serving_group()
        if not isinstance(group, ClassicGroup) or not consumer.reader.positions:
            return
        known = consumer.member.generation
        is_current = known.member_id in group.members and (
            known.generation_id == group.generation
            # All have joined, nobody has been given anything: the old owners still read.
            or (
                group.state is GroupState.COMPLETING_REBALANCE
                and known.generation_id == group.generation - 1
            )
        )
        self.world.ledger.set_fenced(consumer.name, is_fenced=not is_current)


class LabConsumer(Generic[Member]):
    """One process: the real member, and a user."""

    def __init__(self, scheme: CoordinatedScheme[Any], settings: SimulatedConsumerSettings) -> None:
        self._scheme = scheme
        self._world = scheme.world
        self._clock = scheme.world.clock
        self.name = settings.name
        self._surroundings = LabSurroundings(scheme.world, scheme.cluster, self.name)
        self.reader = Reader(self._world, self.name, self._on_poll)
        self.engine = self._new_engine(self._surroundings, settings)
        self.member = self.engine.member
        self._generation_id = -1
        self._commit_at_ms = self._clock.now_ms + self._world.scenario.work.commit_interval_ms
        self._is_fetching = False
        self._must_leave = False
        self._wanted = settings.topics
        self._wants_change = False
        self.engine.polled_ms = self._clock.now_ms
        self.engine.perform(self.member.subscribe(self._wanted, self._clock.now_ms))

    def _new_engine(
        self, surroundings: LabSurroundings, settings: SimulatedConsumerSettings
    ) -> MemberEngine[Member]:
        raise NotImplementedError

    def _known_generation(self) -> int:
        """The generation, or the epoch, that the member takes for its own."""
        raise NotImplementedError

    # --- the user ------------------------------------------------------------------------------

    def _performed(self) -> None:
        """The engine did something: perhaps a user who waits in poll should know."""
        generation_id = self._known_generation()
        if generation_id != self._generation_id:
            self._generation_id = generation_id
            self._scheme.refresh(self)
        if self.member.wants_poll:
            self.reader.wake()

    def _on_poll(self) -> bool:
        now_ms = self._clock.now_ms
        if self._must_leave:
            self._must_leave = False
            self._commit(self._close)
            return False
        if self.member.is_closed:
            return False
        if self._wants_change:
            self._wants_change = False
            self.engine.perform(self.member.subscribe(self._wanted, now_ms))
        self.engine.polled_ms = now_ms
        outputs = self.member.poll(now_ms)
        if outputs:  # else nothing has changed but when the user was last here
            self.engine.perform(outputs)
        self._fetch_offsets()
        held = self.member.held
        if now_ms >= self._commit_at_ms and not held:  # else a commit is under way already
            self._commit_at_ms = now_ms + self._world.scenario.work.commit_interval_ms
            self._commit(lambda _: None)
        self.reader.leaving = frozenset(held) if held else _NOTHING
        return True

    def _take_step(self, step: Step) -> None:
        if isinstance(step, CommitPositions):
            self._commit(self._positions_committed)
            return
        if isinstance(step, Failed):
            self.crash()
            return
        if isinstance(step, Assigned):
            for tp in step.partitions:
                self.reader.hold(tp, None)
            self._scheme.refresh(self)
        else:
            self.reader.release(step.partitions)
        self.engine.perform(self.member.callback_done(self._clock.now_ms))

    # --- offsets -------------------------------------------------------------------------------

    def _positions_committed(self, verdict: CommitVerdict) -> None:
        self.member.positions_committed(verdict, self._clock.now_ms)
        self.engine.schedule_tick()
        self._performed()

    def _commit(self, then: Callable[[CommitVerdict], None]) -> None:
        offsets = self.reader.consumed(with_record_in_hand=False)
        identity = self.member.commit_as()
        if not offsets or isinstance(identity, CommitVerdict):
            then(identity if isinstance(identity, CommitVerdict) else CommitVerdict.DONE)
            return
        if not self.engine.is_connected:
            then(CommitVerdict.RETRY)
            return

        sent = tuple(offsets.items())
        self._world.commits.made(sent)

        def on_answer(response: Any) -> None:
            verdict = CommitVerdict.RETRY
            if response is not None:
                self._world.commits.answered(sent)
                code = first_error(response)
                now_ms = self._clock.now_ms
                verdict, outputs = self.member.commit_answered(code, identity, now_ms)
                if verdict is CommitVerdict.STALE:
                    verdict = self._again_if_owned(offsets)
                self._world.trace.commits_refused += verdict is CommitVerdict.REFUSED
                self.engine.perform(outputs)
            then(verdict)

        self.engine.ask(commit_request(identity, offsets), _COMMIT_VERSION, on_answer)

    def _again_if_owned(self, offsets: Collection[TopicPartition]) -> CommitVerdict:
        """The epoch has moved on meanwhile: again, by the one we know by then."""
        self._commit_at_ms = self._clock.now_ms
        is_ours = all(tp in self.reader.positions for tp in offsets)
        return CommitVerdict.RETRY if is_ours else CommitVerdict.REFUSED

    def _fetch_offsets(self) -> None:
        positions = self.reader.positions
        if None not in positions.values() or self._is_fetching or not self.engine.is_connected:
            return
        wanted = [tp for tp, position in positions.items() if position is None]
        self._is_fetching = True
        generation_id = self.member.group_metadata.generation_id

        def on_answer(response: Any) -> None:
            self._is_fetching = False
            if response is None or self.member.group_metadata.generation_id != generation_id:
                return
            for tp, offset in fetched_offsets(response):
                if self.reader.positions.get(tp, 0) is None:
                    self.reader.positions[tp] = max(offset, 0)
            self.reader.wake()

        request = fetch_request(GROUP_ID, wanted, _OFFSET_FETCH_VERSION)
        self.engine.ask(request, _OFFSET_FETCH_VERSION, on_answer)

    # --- what the scenario does ----------------------------------------------------------------

    def leave(self) -> None:
        self._must_leave = True
        self.reader.wake()

    def _close(self, _: CommitVerdict) -> None:
        if self.engine.is_alive and not self.member.is_closed:
            self.engine.perform(self.member.close(self._clock.now_ms))
            self._clock.after(_CLOSE_MS, self._vanish)
            self.reader.stop()

    def _vanish(self, _: None) -> None:
        self.engine.die()

    def crash(self) -> None:
        self.reader.stop()
        self.engine.die()

    def stall(self, for_ms: int) -> None:
        self.reader.freeze(for_ms)

    def pause(self, for_ms: int) -> None:
        self.reader.freeze(for_ms)
        self.engine.paused_until_ms = self.reader.frozen_until_ms

    def cut(self, for_ms: int) -> None:
        self._surroundings.cut(for_ms)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self._wanted = topics
        self._wants_change = True
        self.reader.wake()


class ClassicConsumer(LabConsumer[ClassicMember]):
    """Its member speaks the classic protocol."""

    def _new_engine(
        self, surroundings: LabSurroundings, settings: SimulatedConsumerSettings
    ) -> LabEngine:
        return LabEngine(surroundings, settings, self._take_step, self._performed)

    def _known_generation(self) -> int:
        return self.member.generation.generation_id
