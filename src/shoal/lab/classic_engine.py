"""The engine of a member of schemes 3 to 5: the simulator's, with the lab's network around it.

Rule: the engine and its member are the real ones. What is added here writes down messages, tells
racks, and keeps each member's way to the coordinator apart, so that one of them can be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from shoal.errors import ErrorCode
from shoal.group.member.member_interface import ClusterTopics, Output, Step
from shoal.lab.trace import SentMessage
from shoal.lab.world import World
from shoal.testing.simulation.network import Client, SimulatedConnection, SimulatedServer
from shoal.testing.simulation.simulated_cluster import SimulatedCluster, SimulatedNode
from shoal.testing.simulation.simulated_consumer_member import ConsumerMemberEngine
from shoal.testing.simulation.simulated_engine import (
    MemberEngine,
    SimulatedConsumerSettings,
    SimulatedEngine,
)

if TYPE_CHECKING:
    from shoal.testing.simulation.simulator import Simulation

COORDINATOR: Final = "coordinator"


def _nothing_more() -> None:
    """After a JoinGroup was answered."""


class LabSurroundings:
    """What an engine needs of a simulation; each member has its own way to the coordinator."""

    def __init__(self, world: World, coordinators: SimulatedCluster, name: str) -> None:
        self._world = world
        self._coordinators = coordinators
        self._name = name
        self.clock = world.clock
        self.random = world.random
        self.network = self
        self.topics = world.topics
        self.cluster = self
        self._cut_until_ms = 0
        self._connection: SimulatedConnection | None = None

    def find(self) -> SimulatedNode | None:
        """The answer of FindCoordinator arrives at this moment."""
        is_cut = self.clock.now_ms < self._cut_until_ms
        found = None if is_cut else self._coordinators.find()
        detail = "" if found else ErrorCode.COORDINATOR_NOT_AVAILABLE.name
        self._message(COORDINATOR, self._name, "FindCoordinator reply", detail)
        return found

    def connect(self, client: Client, server: SimulatedServer) -> SimulatedConnection:
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
            SentMessage(sent_ms, arrives_ms, sender, receiver, what, 1, detail)
        )

    def racks(self) -> dict[str, list[list[str | None]]]:
        """Topic → partition → racks of its replicas; nothing if brokers name none."""
        if not self._world.scenario.racks:
            return {}
        return {topic: self._world.brokers.racks(topic) for topic in self.topics.counts}

    def note(self, who: str, what: str) -> None:
        """The lab has a trace of its own."""

    def take_assignor_error(self) -> bool:
        return False


class _EngineInTheLab(MemberEngine[Any]):
    """The simulator's engine, which says when it has done something."""

    _surroundings: LabSurroundings
    _on_performed: Callable[[], None]

    def perform(self, outputs: Iterable[Output]) -> None:
        super().perform(outputs)
        self._on_performed()

    def _find(self) -> None:
        self._surroundings.asks()
        super()._find()

    def _give_metadata(self, _: None) -> None:
        """With racks, if brokers have any: where replicas are may matter to an assignor."""
        racks = self._surroundings.racks()
        if not racks or not self.is_alive or self.is_paused:
            super()._give_metadata(None)
            return
        asked = self.member.wanted_topics
        counts = self._surroundings.topics.counts
        known = {topic: n for topic, n in counts.items() if asked is None or topic in asked}
        ids = self._surroundings.topics.ids
        answer = ClusterTopics(
            known,
            {topic: racks[topic] for topic in known},
            asked=asked,
            ids={topic: ids[topic] for topic in known},
        )
        self.perform(self.member.update_metadata(answer, self._clock.now_ms))


class LabEngine(_EngineInTheLab, SimulatedEngine):
    """Of a member of the classic protocol."""

    def __init__(
        self,
        surroundings: LabSurroundings,
        settings: SimulatedConsumerSettings,
        on_step: Callable[[Step], None],
        on_performed: Callable[[], None],
    ) -> None:
        self._surroundings = surroundings
        self._on_performed = on_performed
        # Of a whole simulation an engine uses just what the surroundings have.
        world = cast("Simulation", surroundings)
        SimulatedEngine.__init__(self, world, settings, on_step=on_step, on_joined=_nothing_more)


class LabConsumerEngine(_EngineInTheLab, ConsumerMemberEngine):
    """Of a member of the new protocol."""

    def __init__(
        self,
        surroundings: LabSurroundings,
        settings: SimulatedConsumerSettings,
        member_id: str,
        on_step: Callable[[Step], None],
        on_performed: Callable[[], None],
    ) -> None:
        self._surroundings = surroundings
        self._on_performed = on_performed
        world = cast("Simulation", surroundings)
        ConsumerMemberEngine.__init__(
            self, world, settings, member_id, on_step=on_step, on_joined=_nothing_more
        )
