"""Schemes 3 and 4: the real coordinator and the real members, eager or cooperative.

Nothing of the protocol is here. The coordinator sits in the simulator's cluster, each member in
the simulator's engine, and this file is the user around them: it polls, obeys the steps a member
hands out, and tells the ledger. The simulator's watcher checks its invariants on the way.

Rule: no request is made and no answer is read here but for offsets, which are the user's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from shoal.errors import ErrorCode
from shoal.group.classic import ClassicGroup
from shoal.group.config import GroupConfig
from shoal.group.coordinator import Phase
from shoal.group.decision import Decision, EventKind
from shoal.group.journal import JournalRecord, OffsetRecord
from shoal.group.membership import (
    Assigned,
    CommitPositions,
    CommitVerdict,
    Failed,
    FindCoordinator,
    MemberConfig,
    Output,
    Step,
)
from shoal.group.states import GroupState
from shoal.lab.reading import Reader
from shoal.lab.trace import Message
from shoal.lab.world import World
from shoal.testing.invariants import Watcher
from shoal.testing.network import Client, Connection, Server
from shoal.testing.simulated_cluster import Node, SimulatedCluster
from shoal.testing.simulated_engine import ConsumerSettings, SimulatedEngine
from shoal.testing.simulated_offsets import (
    commit_request,
    fetch_request,
    fetched_offsets,
    first_error,
)
from shoal.types import TopicPartition
from shoal.wire.apis.join_group import JoinGroupResponse
from shoal.wire.apis.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from shoal.testing.simulator import Simulation

GROUP_ID: Final = "lab"
COORDINATOR: Final = "coordinator"
_JOIN_VERSION: Final = 9
_COMMIT_VERSION: Final = 9
_OFFSET_FETCH_VERSION: Final = 8
CHECKED_MEMBERS_MAX: Final = 50
"""In larger groups the simulator's invariants are not checked: that takes longer than the group."""
_CLOSE_MS: Final = 5_000
"""How long closing may take."""


def describe(message: Any) -> tuple[str, int, str, bool]:
    """The name of a request or response on a connection, and its error if it has one."""
    body = message[-1]
    name = type(body).__name__
    if name.endswith("Request"):
        return name.removesuffix("Request"), 1, "", False
    return f"{name.removesuffix('Response')} reply", 1, _detail(body), False


def _detail(body: Any) -> str:
    """The error of a response, or what it brings."""
    code = getattr(body, "error_code", 0)
    if code:
        return ErrorCode.of(code).name
    match body:
        case JoinGroupResponse(generation_id=generation_id):
            role = "leader" if body.leader == body.member_id else "follower"
            return f"generation {generation_id}, {role}"
        case SyncGroupResponse():
            return "assignment"
        case _:
            return ""


def _note_nothing(who: str, what: str) -> None:
    """The lab has a trace of its own."""


def _nothing_more() -> None:
    """After a JoinGroup was answered."""


class _LabWatcher(Watcher):
    """The simulator's watcher, which passes on what the coordinator decides.

    Its checks look at every member again and again; a group of hundreds runs without them.
    """

    def __init__(
        self, world: World, config: GroupConfig, on_decision: Callable[[Decision], None]
    ) -> None:
        super().__init__(GROUP_ID, world.topics, config)
        self._trace = world.trace
        self._on_decision = on_decision
        self._checks = world.scenario.members <= CHECKED_MEMBERS_MAX

    # What the cluster tells beside the first argument is between it and the watcher.

    def appended(self, records: Iterable[JournalRecord], *rest: Any, **named: Any) -> None:
        written = tuple(records)
        for record in written:
            if isinstance(record, OffsetRecord):
                tp = TopicPartition(record.topic, record.partition)
                self._trace.commits_backwards += record.offset < self.committed.get(tp, (0, 0))[0]
                if not self._checks:
                    self.committed[tp] = (record.offset, 0)
        if self._checks:
            super().appended(written, *rest, **named)

    def decided(self, request: Any, decision: Decision, *rest: Any, **named: Any) -> None:
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


class ClassicScheme:
    """A group of the classic protocol."""

    def __init__(self, world: World, assignors: tuple[str, ...]) -> None:
        timing = world.scenario.timing
        self.world = world
        self.assignors = assignors
        self.consumers: dict[str, ClassicConsumer] = {}
        config = GroupConfig(
            group_initial_rebalance_delay_ms=timing.initial_rebalance_delay_ms,
            group_min_session_timeout_ms=min(6_000, timing.session_timeout_ms),
        )
        self.watcher = _LabWatcher(world, config, self._decided)
        world.on_processed = self.watcher.was_processed
        self.cluster = SimulatedCluster(
            world.clock, world.random, world.topics, self.watcher, config, GROUP_ID, _note_nothing
        )

    def start(self, name: str, topics: tuple[str, ...], instance_id: str | None) -> ClassicConsumer:
        consumer = ClassicConsumer(self, self._settings(name, topics, instance_id))
        self.consumers[name] = consumer
        return consumer

    def _settings(
        self, name: str, topics: tuple[str, ...], instance_id: str | None
    ) -> ConsumerSettings:
        timing = self.world.scenario.timing
        return ConsumerSettings(
            name=name,
            config=MemberConfig(
                GROUP_ID,
                group_instance_id=instance_id,
                session_timeout_ms=timing.session_timeout_ms,
                heartbeat_interval_ms=timing.heartbeat_interval_ms,
                max_poll_interval_ms=timing.max_poll_interval_ms,
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
        self.cluster.crash(kept=0, down_ms=down_ms, moves=True)

    def partitions_added(self, topic: str) -> None:
        """Members find out when they refresh their metadata."""

    def committed(self) -> dict[TopicPartition, int]:
        return {tp: offset for tp, (offset, _) in self.watcher.committed.items()}

    # --- who is fenced -------------------------------------------------------------------------

    def _decided(self, decision: Decision) -> None:
        for event in decision.events:
            if event.kind is EventKind.GENERATION_STARTED:
                self.world.ledger.mark(None, f"generation {event.generation}")
        for consumer in self.consumers.values():
            self.refresh(consumer)

    def refresh(self, consumer: ClassicConsumer) -> None:
        """Ask the coordinator's own state whether it would accept a commit of this member."""
        group = self.cluster.coordinator.group(GROUP_ID)
        is_serving = self.cluster.is_up and self.cluster.coordinator.phase is Phase.ACTIVE
        if not is_serving or not isinstance(group, ClassicGroup) or not consumer.reader.positions:
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


class _Surroundings:
    """What an engine needs of a simulation; each member has its own way to the coordinator."""

    def __init__(self, scheme: ClassicScheme, name: str) -> None:
        world = scheme.world
        self._world = world
        self._scheme = scheme
        self._name = name
        self.clock = world.clock
        self.random = world.random
        self.network = self
        self.topics = world.topics
        self.cluster = self
        self._cut_until_ms = 0
        self._connection: Connection | None = None

    def find(self) -> Node | None:
        """The answer of FindCoordinator arrives at this moment."""
        is_cut = self.clock.now_ms < self._cut_until_ms
        found = None if is_cut else self._scheme.cluster.find()
        detail = "" if found else ErrorCode.COORDINATOR_NOT_AVAILABLE.name
        self._message(COORDINATOR, self._name, "FindCoordinator reply", detail)
        return found

    def connect(self, client: Client, server: Server) -> Connection:
        self._connection = self._world.network.connect(client, server)
        return self._connection

    def delay(self) -> int:
        return self._world.network.delay()

    def cut(self, for_ms: int) -> None:
        """Nothing gets through for a while, and nobody says so: only patience tells."""
        self._cut_until_ms = self.clock.now_ms + for_ms
        if self._connection is not None:
            self._connection.cut(survivors=0, late_ms=0, notice_ms=for_ms)

    def asks(self) -> None:
        self._message(self._name, COORDINATOR, "FindCoordinator", "")

    def _message(self, sender: str, receiver: str, what: str, detail: str) -> None:
        now_ms = self._world.now()
        sent_ms, arrives_ms = (
            (now_ms - 1, now_ms) if detail or "reply" in what else (now_ms, now_ms + 1)
        )
        self._world.trace.messages.append(
            Message(sent_ms, arrives_ms, sender, receiver, what, 1, detail)
        )

    def note(self, who: str, what: str) -> None:
        """The lab has a trace of its own."""

    def take_assignor_error(self) -> bool:
        return False


class _Engine(SimulatedEngine):
    """The simulator's engine, which says when it has done something."""

    def __init__(
        self,
        surroundings: _Surroundings,
        settings: ConsumerSettings,
        on_step: Callable[[Step], None],
        on_performed: Callable[[], None],
    ) -> None:
        self._surroundings = surroundings
        self._on_performed = on_performed
        # Of a whole simulation an engine uses just what the surroundings have.
        world = cast("Simulation", surroundings)
        super().__init__(world, settings, on_step=on_step, on_joined=_nothing_more)

    def perform(self, outputs: Iterable[Output]) -> None:
        given = list(outputs)
        for output in given:
            if isinstance(output, FindCoordinator):
                self._surroundings.asks()
        super().perform(given)
        self._on_performed()


class ClassicConsumer:
    """One process: the real member, and a user."""

    def __init__(self, scheme: ClassicScheme, settings: ConsumerSettings) -> None:
        self._scheme = scheme
        self._world = scheme.world
        self._clock = scheme.world.clock
        self.name = settings.name
        self._surroundings = _Surroundings(scheme, self.name)
        self.reader = Reader(self._world, self.name, self._on_poll)
        self.engine = _Engine(self._surroundings, settings, self._take_step, self._performed)
        self.member = self.engine.member
        self._generation_id = -1
        self._commit_at_ms = self._clock.now_ms + self._world.scenario.work.commit_interval_ms
        self._is_fetching = False
        self._must_leave = False
        self._wanted = settings.topics
        self._wants_change = False
        self.engine.polled_ms = self._clock.now_ms
        self.engine.perform(self.member.subscribe(self._wanted, self._clock.now_ms))

    # --- the user ------------------------------------------------------------------------------

    def _performed(self) -> None:
        """The engine did something: perhaps a user who waits in poll should know."""
        generation_id = self.member.generation.generation_id
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
        self.engine.perform(self.member.poll(now_ms))
        self._fetch_offsets()
        if now_ms >= self._commit_at_ms:
            self._commit_at_ms = now_ms + self._world.scenario.work.commit_interval_ms
            self._commit(lambda _: None)
        return not self.member.holds_records

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

        def on_answer(response: Any) -> None:
            verdict = CommitVerdict.RETRY
            if response is not None:
                code = first_error(response)
                now_ms = self._clock.now_ms
                verdict, outputs = self.member.commit_answered(code, identity, now_ms)
                self._world.trace.commits_refused += verdict is CommitVerdict.REFUSED
                self.engine.perform(outputs)
            then(verdict)

        self.engine.ask(commit_request(identity, offsets), _COMMIT_VERSION, on_answer)

    def _fetch_offsets(self) -> None:
        wanted = [tp for tp, position in self.reader.positions.items() if position is None]
        if not wanted or self._is_fetching or not self.engine.is_connected:
            return
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
