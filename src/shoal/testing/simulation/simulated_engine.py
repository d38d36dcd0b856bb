"""The engine of a simulated consumer: the real member, its connection, its timers.

Rule: this is the half of a shell which never runs user code. It obeys orders, hands answers to
the member, and passes steps on to the user. When the process is paused, everything that would
happen waits until it goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from shoal.assign.loading import load
from shoal.errors import ErrorCode
from shoal.group.member.classic_member import ClassicMember
from shoal.group.member.member_interface import (
    ClusterTopics,
    Disconnect,
    FindCoordinator,
    GroupMember,
    MemberConfig,
    MemberState,
    Output,
    RefreshMetadata,
    ResolveTopics,
    Send,
    Step,
    Warn,
)
from shoal.testing.simulation.invariants import Violation, demand
from shoal.testing.simulation.network import SimulatedConnection
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from shoal.testing.simulation.simulator import Simulation

_METADATA_AGE_MS: Final = 5_000
_LOOKUPS_PER_SECOND_MAX: Final = 30
_VERSION: Final = 4
"""Of Heartbeat, LeaveGroup and SyncGroup; the last one's protocol name comes with v5."""

ASSIGNOR_FAILURE: Final = "the assignor was told to fail"

_ANSWERS_TO_JOINS: Final = (JoinGroupResponse, ConsumerGroupHeartbeatResponse)

Member = TypeVar("Member", bound=GroupMember)

OnAnswer = Callable[[Any], None]
"""Called with the response, or with ``None`` if the connection was lost."""


@dataclass(frozen=True, slots=True)
class SimulatedConsumerSettings:
    """What one consumer is like."""

    name: str
    config: MemberConfig
    assignors: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str | None
    through_bytes: bool
    join_version: int
    offset_fetch_version: int
    poll_interval_ms: int


def through_bytes(message: Any, version: int) -> Any:
    """The message as the other side reads it."""
    return type(message).decode(message.encode(version), version)


class BreakableAssignor:
    """A built-in assignor which raises when the simulation says so."""

    def __init__(self, inner: Any, is_broken: Callable[[], bool]) -> None:
        self._inner = inner
        self._is_broken = is_broken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def assign(self, metadata: Any, subscriptions: Any) -> Any:
        if self._is_broken():
            raise RuntimeError(ASSIGNOR_FAILURE)
        return self._inner.assign(metadata, subscriptions)


def breakable(names: Sequence[str], is_broken: Callable[[], bool]) -> list[Any]:
    """The assignors of these names, each of which raises when it is told to."""
    return [BreakableAssignor(each, is_broken) for each in load(names)]


class MemberEngine(Generic[Member]):
    """What runs in the background of one consumer, whatever protocol its member speaks."""

    def __init__(
        self,
        world: Simulation,
        settings: SimulatedConsumerSettings,
        member: Member,
        *,
        on_step: Callable[[Step], None],
        on_joined: Callable[[], None],
    ) -> None:
        self._world = world
        self._clock = world.clock
        self._settings = settings
        self._on_step = on_step
        self._on_joined = on_joined
        self.name = settings.name
        self.member = member
        self.is_alive = True
        self.paused_until_ms = 0
        self.polled_ms = 0
        self._connection: SimulatedConnection | None = None
        self._cut: tuple[int, int, int] | None = None
        self._pending: dict[int, OnAnswer] = {}
        self.last_ticket = 0
        """Of the shell's own requests, whose numbers fall."""
        self._versions: dict[int, int] = {}
        self._wake_ms: int | None = None
        self._lookups: deque[int] = deque(maxlen=_LOOKUPS_PER_SECOND_MAX)
        self._clock.after(world.random.randrange(_METADATA_AGE_MS), self._refresh)

    @property
    def is_paused(self) -> bool:
        return self._clock.now_ms < self.paused_until_ms

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def perform(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            kind = type(output)
            if kind is Send:
                self._send(output)  # type: ignore[arg-type]  # told by its type
            elif kind is FindCoordinator:
                self._find()
            elif kind is Disconnect:
                self._disconnect()
            elif kind is RefreshMetadata:
                self._clock.after(self._world.network.delay(), self._give_metadata)
            elif kind is ResolveTopics:
                self._clock.after(self._world.network.delay(), self._resolve, output)
            elif kind is not Warn:
                self._on_step(output)  # type: ignore[arg-type]  # told by its type
        self.schedule_tick()

    def _send(self, order: Send) -> None:
        self._ask(order.ticket, self._version_of(order.request), order.request)

    def _version_of(self, request: Any) -> int:
        raise NotImplementedError

    def _ask(self, ticket: int, version: int, request: Any) -> None:
        assert self._connection is not None, "the member knows a coordinator we do not"
        if self._settings.through_bytes:
            self._versions[ticket] = version
            request = through_bytes(request, version)
        self._connection.ask((ticket, version, self.name, request))
        self._cut_now()

    def ask(self, request: Any, version: int, on_answer: OnAnswer) -> None:
        """A request of the shell's own: negative tickets."""
        self.last_ticket -= 1
        self._pending[self.last_ticket] = on_answer
        self._ask(self.last_ticket, version, request)

    def answered(self, connection: SimulatedConnection, message: Any) -> None:
        if self._clock.now_ms < self.paused_until_ms:
            self._clock.at(self.paused_until_ms, self._answered_again, (connection, message))
            return
        if connection is not self._connection or not self.is_alive:
            return
        ticket, response = message
        if self._settings.through_bytes:
            response = through_bytes(response, self._versions.pop(ticket))
        self._world.note(self.name, type(response).__name__)
        if ticket > 0:
            self.perform(self.member.receive(ticket, response, self._clock.now_ms))
            if isinstance(response, _ANSWERS_TO_JOINS) and self.is_connected:
                self._on_joined()
        else:
            on_answer = self._pending.pop(ticket, None)
            if on_answer is not None:
                on_answer(response)
                self.schedule_tick()

    def _answered_again(self, message: tuple[SimulatedConnection, Any]) -> None:
        self.answered(*message)

    def disconnected(self, connection: SimulatedConnection) -> None:
        if self.is_paused:
            self._clock.at(self.paused_until_ms, self._disconnected_again, connection)
        elif connection is self._connection and self.is_alive:
            self._disconnect()
            self.perform(self.member.connection_lost(self._clock.now_ms))

    def _disconnected_again(self, connection: SimulatedConnection) -> None:
        self.disconnected(connection)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._pending:
            pending, self._pending = self._pending, {}
            self._clock.after(0, self._fail, list(pending.values()))

    def _fail(self, pending: list[OnAnswer]) -> None:
        """Nobody will answer these: their connection is gone."""
        if self.is_paused:
            self._clock.at(self.paused_until_ms, self._fail, pending)
        elif self.is_alive:
            for on_answer in pending:
                on_answer(None)
            self.schedule_tick()

    def _find(self) -> None:
        now_ms = self._clock.now_ms
        lookups = self._lookups
        is_full = len(lookups) == _LOOKUPS_PER_SECOND_MAX
        demand(not is_full or lookups[0] <= now_ms - 1_000, "C12", f"{self.name} hammers")
        lookups.append(now_ms)
        delay_ms = self._world.network.delay() + self._world.network.delay()
        self._clock.after(delay_ms, self._found)

    def _found(self, _: None) -> None:
        if not self.is_alive:
            return
        if self.is_paused:
            self._clock.at(self.paused_until_ms, self._found)
            return
        now_ms = self._clock.now_ms
        node = self._world.cluster.find()
        if node is None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.perform(self.member.coordinator_not_found(code, now_ms))
            return
        self._connection = self._world.network.connect(self, node)
        node.connections.append(self._connection)
        self.perform(self.member.coordinator_found(now_ms))

    def _refresh(self, _: None) -> None:
        """Metadata has an age, and is asked for again."""
        if self.is_alive:
            self._give_metadata(None)
            self._clock.after(_METADATA_AGE_MS, self._refresh)

    def _give_metadata(self, _: None) -> None:
        if not self.is_alive:
            return
        if self.is_paused:
            self._clock.at(self.paused_until_ms, self._give_metadata)
            return
        asked = self.member.wanted_topics
        counts = self._world.topics.counts
        known = {t: n for t, n in counts.items() if asked is None or t in asked}
        ids = self._world.topics.ids
        answer = ClusterTopics(known, asked=asked, ids={topic: ids[topic] for topic in known})
        self.perform(self.member.update_metadata(answer, self._clock.now_ms))

    def _resolve(self, order: ResolveTopics) -> None:
        """Metadata was asked for by id; what is gone has no name."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._clock.at(self.paused_until_ms, self._resolve, order)
            return
        topics = self._world.topics
        ids = {name: each for name, each in topics.ids.items() if each in order.ids}
        counts = {name: topics.counts[name] for name in ids}
        answer = ClusterTopics(counts, asked=frozenset(ids), ids=ids)
        self.perform(self.member.update_metadata(answer, self._clock.now_ms))

    def schedule_tick(self) -> None:
        deadline = self.member.next_deadline()
        if deadline is not None and (self._wake_ms is None or deadline < self._wake_ms):
            self._wake_ms = deadline
            self._clock.at(deadline, self._tick, deadline)

    def _tick(self, wake_ms: int) -> None:
        if wake_ms != self._wake_ms or not self.is_alive:
            return
        if self.is_paused:
            self._clock.at(self.paused_until_ms, self._tick, wake_ms)
            return
        self._wake_ms = None
        now_ms = self._clock.now_ms
        deadline = self.member.next_deadline()
        if deadline is not None and deadline <= now_ms:
            self.perform(self.member.tick(now_ms))
            deadline = self.member.next_deadline()
            if deadline is not None and deadline <= now_ms:
                raise Violation("C8", f"{self.name} ticks without getting anywhere")
            self._check_poll_interval(now_ms)
        else:
            self.schedule_tick()

    def _must_be_polled(self) -> bool:
        """Whether the member is in the group only because its user polls."""
        raise NotImplementedError

    def _check_poll_interval(self, now_ms: int) -> None:
        if self._must_be_polled():
            limit_ms = self._settings.config.max_poll_interval_ms
            silent_ms = now_ms - self.polled_ms
            if silent_ms >= limit_ms:
                raise Violation("C6", f"{self.name} has not polled for {silent_ms} ms")

    # --- going wrong ---------------------------------------------------------------------------

    def cut(self, *, survivors: int, late_ms: int, notice_ms: int, at_next_send: bool) -> None:
        """Break the connection, now or when the next request is on its way."""
        self._cut = (survivors, late_ms, notice_ms)
        if not at_next_send:
            self._cut_now()

    def _cut_now(self) -> None:
        if self._cut is not None and self._connection is not None and not self._world.is_over:
            survivors, late_ms, notice_ms = self._cut
            self._cut = None
            late_ms = min(late_ms, self._world.remaining_ms())
            self._connection.cut(survivors=survivors, late_ms=late_ms, notice_ms=notice_ms)

    def die(self) -> None:
        """The process is gone; its connection is closed by the system."""
        self.is_alive = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SimulatedEngine(MemberEngine[ClassicMember]):
    """Of a member of the classic protocol."""

    def __init__(
        self,
        world: Simulation,
        settings: SimulatedConsumerSettings,
        *,
        on_step: Callable[[Step], None],
        on_joined: Callable[[], None],
    ) -> None:
        member = ClassicMember(
            settings.config,
            assignors=breakable(settings.assignors, world.take_assignor_error),
            chance=world.random.random,
        )
        self.claimed_generation = -1
        """The generation of the last JoinGroup's claims."""
        super().__init__(world, settings, member, on_step=on_step, on_joined=on_joined)

    def _version_of(self, request: Any) -> int:
        if type(request) is not JoinGroupRequest:
            return _VERSION
        self.claimed_generation = self.member.generation.generation_id
        return self._settings.join_version

    def _must_be_polled(self) -> bool:
        return self.member.state in (MemberState.COMPLETING, MemberState.STABLE)
