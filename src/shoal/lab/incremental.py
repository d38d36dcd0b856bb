"""Scheme 5: server-side again, incremental (KIP-848): the real coordinator and the real members.

One request, ConsumerGroupHeartbeat, does everything. The coordinator holds the target, each
member moves towards it in its own time: it is told what it has, gives up what is missing from
that, says so at once, and is given the rest when others have done the same.

Rule: as for schemes 3 and 4 (``classic.py``), of whose parts this is made: nothing of the protocol
is here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shoal.group.coordinator.config import ConsumerGroupConfig, GroupConfig
from shoal.group.coordinator.consumer_group import ConsumerGroup
from shoal.group.coordinator.decision import EventKind, GroupDecision
from shoal.group.member.consumer_member import ConsumerMember
from shoal.lab.classic import CoordinatedScheme, LabConsumer, LabWatcher
from shoal.lab.classic_engine import LabConsumerEngine, LabSurroundings
from shoal.testing.simulation.consumer_group_invariants import ConsumerGroupWatcher
from shoal.testing.simulation.simulated_engine import SimulatedConsumerSettings

_GONE: Final = frozenset(
    {EventKind.MEMBER_LEFT, EventKind.MEMBER_EXPIRED, EventKind.MEMBER_REPLACED}
)
"""After these, somebody may read what is not theirs any more."""


class _ConsumerGroupLabWatcher(LabWatcher, ConsumerGroupWatcher):
    """What must hold in groups of the new protocol is checked on the way."""


class IncrementalScheme(CoordinatedScheme["IncrementalConsumer"]):
    """A group of the new protocol."""

    def _config(self) -> GroupConfig:
        timing = self.world.scenario.timing
        session_ms = timing.session_timeout_ms
        return replace(
            super()._config(),
            consumer=ConsumerGroupConfig(
                session_timeout_ms=session_ms,
                min_session_timeout_ms=min(6_000, session_ms),
                # What a scenario says is obeyed; our own coordinator would ask for it more often
                # while partitions move.
                heartbeat_interval_ms=min(timing.consumer_heartbeat_interval_ms, session_ms // 2),
            ),
        )

    def _new_watcher(self, config: GroupConfig) -> LabWatcher:
        return _ConsumerGroupLabWatcher(self.world, config, self._decided, self._loaded)

    def _new_consumer(self, settings: SimulatedConsumerSettings) -> IncrementalConsumer:
        return IncrementalConsumer(self, settings)

    def _decided(self, decision: GroupDecision) -> None:
        if any(event.kind in _GONE for event in decision.events):
            super()._decided(decision)
        else:
            self._mark(decision)

    def refresh(self, consumer: IncrementalConsumer) -> None:
        """Whoever is a member may commit what it has: others have not got it yet."""
        group = self._serving_group()
        if isinstance(group, ConsumerGroup) and consumer.reader.positions:
            known = group.members.get(consumer.member_id)
            is_current = known is not None and not known.is_away
            self.world.ledger.set_fenced(consumer.name, is_fenced=not is_current)


class IncrementalConsumer(LabConsumer[ConsumerMember]):
    """Its member speaks the new protocol."""

    def _new_engine(
        self, surroundings: LabSurroundings, settings: SimulatedConsumerSettings
    ) -> LabConsumerEngine:
        self.member_id = f"{self.name}-{self._scheme.next_id()}"
        return LabConsumerEngine(
            surroundings, settings, self.member_id, self._take_step, self._performed
        )

    def _known_generation(self) -> int:
        return self.member.member_epoch
