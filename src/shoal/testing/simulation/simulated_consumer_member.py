"""A consumer of the new protocol (KIP-848) in a simulation: the real member, and a small user.

Rule: as ``simulated_consumer.py``, of which this is the other half: what differs by the protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from shoal.errors import BrokerError, ErrorCode
from shoal.group.member.consumer_member import ConsumerMember
from shoal.group.member.consumer_states import HEARTBEATING, ConsumerMemberState
from shoal.group.member.member_interface import CommitVerdict, Failed, Output, Step
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.network import SimulatedConnection
from shoal.testing.simulation.simulated_consumer import SimulatedUser
from shoal.testing.simulation.simulated_engine import MemberEngine, SimulatedConsumerSettings
from shoal.testing.simulation.simulated_offsets import stray_request
from shoal.types import TopicPartition
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.testing.simulation.consumer_group_simulator import ConsumerGroupSimulation
    from shoal.testing.simulation.simulator import Simulation

HEARTBEAT_VERSION: Final = 1


class ConsumerMemberEngine(MemberEngine[ConsumerMember]):
    """What runs in the background of a consumer of the new protocol."""

    def __init__(
        self,
        world: Simulation,
        settings: SimulatedConsumerSettings,
        member_id: str,
        *,
        on_step: Callable[[Step], None],
        on_joined: Callable[[], None],
    ) -> None:
        member = ConsumerMember(settings.config, member_id=member_id, chance=world.random.random)
        self._epoch = 0
        super().__init__(world, settings, member, on_step=on_step, on_joined=on_joined)

    def _version_of(self, request: Any) -> int:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        return HEARTBEAT_VERSION

    def _must_be_polled(self) -> bool:
        state = self.member.state
        return state in HEARTBEATING and state is not ConsumerMemberState.PREPARE_LEAVING

    def perform(self, outputs: Iterable[Output]) -> None:
        if not self.member.member_epoch:
            self._epoch = 0  # out, and perhaps on the way back in
        super().perform(outputs)

    def answered(self, connection: SimulatedConnection, message: Any) -> None:
        super().answered(connection, message)
        before, self._epoch = self._epoch, self.member.member_epoch
        grows = self._epoch >= before or self._epoch == 0
        demand(grows, "E5", f"{self.name} went from epoch {before} to {self._epoch}")


class SimulatedConsumerMember(SimulatedUser[ConsumerMember]):
    """One process whose consumer speaks the new protocol."""

    _world: ConsumerGroupSimulation
    engine: ConsumerMemberEngine

    def __init__(
        self, world: ConsumerGroupSimulation, settings: SimulatedConsumerSettings, regex: str
    ) -> None:
        """With a ``regex`` the broker matches topics, until somebody changes that."""
        self.regex = regex
        self._refused_ms: int | None = None
        super().__init__(world, settings)

    def _new_engine(self) -> ConsumerMemberEngine:
        return ConsumerMemberEngine(
            self._world,
            self.settings,
            f"{self.name}-id",
            on_step=self._take_step,
            on_joined=self._go_astray,
        )

    def subscribe(self, topics: Iterable[str]) -> None:
        now_ms = self._clock.now_ms
        if self.regex:
            self.engine.perform(self.member.subscribe_regex(self.regex, now_ms))
        else:
            super().subscribe(topics)

    def _take_step(self, step: Step) -> None:
        super()._take_step(step)
        if not isinstance(step, Failed):
            self._refused_ms = None
        elif self.member.state is ConsumerMemberState.FATAL:
            self.close()
        elif isinstance(step.error, BrokerError):
            self._give_way(step.error.code)

    def _give_way(self, code: ErrorCode) -> None:
        """Somebody else has this name: not for long, if it died; else this user gives up."""
        if code is not ErrorCode.UNRELEASED_INSTANCE_ID:
            return
        now_ms = self._clock.now_ms
        if self._refused_ms is None:
            self._refused_ms = now_ms
        limit_ms = 2 * self.settings.config.session_timeout_ms
        if self._world.is_over and now_ms - self._refused_ms > limit_ms:
            self.close()

    def _may_commit(self) -> bool:
        return self.member.member_epoch > 0

    def _is_out(self) -> bool:
        return self.member.member_epoch == 0

    def _rebalances(self) -> bool:
        return False

    def _judge(self, verdict: CommitVerdict, sent: Collection[TopicPartition]) -> CommitVerdict:
        """By its new epoch it would be believed about what somebody else reads by now."""
        if verdict is not CommitVerdict.STALE:
            return verdict
        is_ours = all(tp in self.positions for tp in sent)
        return CommitVerdict.RETRY if is_ours else CommitVerdict.REFUSED

    def _adopted(self) -> None:
        self._world.watcher.adopted(self, self._world.consumers)

    def _stray_request(self, pick: int) -> Any:
        epoch = self.member.member_epoch
        if epoch < 2:
            return None
        if pick % 4 < 2:
            return stray_request(pick, self.member.group_metadata)
        return ConsumerGroupHeartbeatRequest(
            group_id=self.settings.config.group_id,
            member_id=self.engine.member.group_metadata.member_id,
            member_epoch=epoch + 7 if pick % 4 == 2 else epoch - 1,
            instance_id=self.settings.config.group_instance_id,
        )

    def heal(self) -> None:
        super().heal()
        if self.regex:
            self.regex = "t.*"
        self.do(lambda: self.subscribe(self.settings.topics))
