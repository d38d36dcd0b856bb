"""Groups of the new protocol (KIP-848) in virtual time: the real coordinator, real members of
either protocol, and everything that can go wrong between them.

    report = simulate_consumer_groups(7)    # raises Violation, which says how to see it again

Members come back in the other protocol, so groups change their kind while they run, in both
directions. The two phases are those of ``simulator.py``.

Rule: nothing of the protocol is here; what must hold is in ``consumer_group_invariants.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from shoal.assign.server import SERVER_ASSIGNORS, ServerMember, Target, TargetAssignor, TopicId
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.config import ConsumerGroupConfig, GroupConfig
from shoal.group.coordinator.consumer_group import ConsumerGroup, ConsumerGroupState
from shoal.group.coordinator.regex_resolution import MIN_INTERVAL_MS
from shoal.group.coordinator.states import GroupState
from shoal.group.member.consumer_states import ConsumerMemberState
from shoal.group.member.member_interface import MemberState
from shoal.testing.simulation.consumer_group_invariants import ConsumerGroupWatcher
from shoal.testing.simulation.consumer_group_swarm import (
    ConsumerGroupFault,
    ConsumerGroupScenario,
    consumer_group_faults,
    consumer_group_scenario,
)
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.simulated_consumer import SimulatedConsumer
from shoal.testing.simulation.simulated_consumer_member import SimulatedConsumerMember
from shoal.testing.simulation.simulated_engine import ASSIGNOR_FAILURE, SimulatedConsumerSettings
from shoal.testing.simulation.simulator import GROUP_ID, Report, Simulation, repeat_command
from shoal.testing.simulation.swarm import Planned
from shoal.wire.apis.leave_group import LeaveGroupRequest

_REGEXES: Final = ("t.*", "t[01]", "t[0-9]+", "(t0)|(t2)")
_LEAVE_VERSION: Final = 4


def simulate_consumer_groups(seed: int, *, without: Collection[int] = ()) -> Report:
    """Run one seed, leaving out the faults with these numbers.

    Raises:
        Violation: with notes that say how to repeat the run.
    """
    world = consumer_group_scenario(seed)
    drawn = consumer_group_faults(world)
    kept = [fault for number, fault in enumerate(drawn) if number not in without]
    simulation = ConsumerGroupSimulation(world, kept)
    try:
        return simulation.run()
    except AssertionError as failure:
        failure.add_note(repeat_command(seed, without, kind="consumer-groups"))
        failure.add_note("last events:\n  " + "\n  ".join(simulation.notes))
        raise


class _BreakableServerAssignor:
    """A built-in assignor of the broker which raises when the simulation says so."""

    def __init__(self, inner: TargetAssignor, is_broken: Callable[[], bool]) -> None:
        self.name = inner.name
        self._inner = inner
        self._is_broken = is_broken

    def assign(
        self, members: Mapping[str, ServerMember], counts: Mapping[TopicId, int]
    ) -> dict[str, Target]:
        if self._is_broken():
            raise RuntimeError(ASSIGNOR_FAILURE)
        return self._inner.assign(members, counts)


class ConsumerGroupSimulation(Simulation):
    """One run."""

    scenario: ConsumerGroupScenario
    watcher: ConsumerGroupWatcher

    def __init__(
        self, scenario: ConsumerGroupScenario, faults: Collection[Planned[Any]] = ()
    ) -> None:
        self.consumer_share = scenario.consumer_share
        super().__init__(scenario, faults)

    def _group_config(self) -> GroupConfig:
        scenario = self.scenario
        return replace(
            super()._group_config(),
            consumer=ConsumerGroupConfig(
                session_timeout_ms=scenario.session_timeout_ms,
                min_session_timeout_ms=scenario.session_timeout_ms,
                heartbeat_interval_ms=scenario.heartbeat_told_ms,
                assignment_interval_ms=scenario.assignment_interval_ms,
                migration_policy=scenario.policy,
                assignors=tuple(
                    _BreakableServerAssignor(make(), self.take_assignor_error)
                    for make in SERVER_ASSIGNORS.values()
                ),
            ),
        )

    def _new_watcher(self, config: GroupConfig) -> ConsumerGroupWatcher:
        return ConsumerGroupWatcher(GROUP_ID, self.topics, config)

    def new_consumer(self, settings: SimulatedConsumerSettings) -> Any:
        if not self._speaks_new_protocol(settings.config.group_instance_id):
            return SimulatedConsumer(self, settings)
        config = replace(settings.config, group_remote_assignor=self.scenario.remote_assignor)
        regex = ""
        if self.random.random() < self.scenario.regex_share:
            regex = _REGEXES[0] if self.is_over else self.random.choice(_REGEXES)
        return SimulatedConsumerMember(self, replace(settings, config=config), regex)

    def _speaks_new_protocol(self, instance_id: str | None) -> bool:
        """As another process of its name does, if there is one: of two in both protocols each
        would turn the other out forever, because a group that changes its kind forgets names."""
        is_new = self.random.random() < self.consumer_share
        for each in self.consumers:
            config = each.settings.config
            if (
                instance_id is not None
                and each.is_alive
                and config.group_instance_id == instance_id
            ):
                return isinstance(each, SimulatedConsumerMember)
        return is_new

    # --- the second phase ----------------------------------------------------------------------

    def _heal(self) -> None:
        """Somebody also ends all but the last process of each name.

        In a group of this kind, here and in Apache Kafka, a commit under a member id that was
        replaced is answered with UNKNOWN_MEMBER_ID and not with FENCED_INSTANCE_ID, so two classic
        processes of one ``group.instance.id`` turn each other out as long as both of them run.
        """
        super()._heal()
        last: dict[str, Any] = {}
        for consumer in self.alive:
            name = consumer.settings.config.group_instance_id
            if name is None:
                continue
            earlier = last.get(name)
            if earlier is not None:
                earlier.do(earlier.close)
            last[name] = consumer

    def healing_limit_ms(self) -> int:
        # A clone that gives way, and an expression that is new, take their time.
        return (
            super().healing_limit_ms() + 3 * self.scenario.session_timeout_ms + self._regex_limit_ms
        )

    @property
    def _regex_limit_ms(self) -> int:
        return 2 * MIN_INTERVAL_MS

    def arrival_limit_ms(self) -> int:
        """Two heartbeats of those who give and take, and in mixed groups two joins more."""
        scenario = self.scenario
        limit_ms = super().arrival_limit_ms() + 2 * scenario.heartbeat_interval_ms
        limit_ms += 2 * (scenario.heartbeat_told_ms or 1_000) + scenario.assignment_interval_ms
        has_classic = any(isinstance(each, SimulatedConsumer) for each in self.alive)
        if has_classic or self.consumer_share < 1.0:
            limit_ms += 6 * scenario.heartbeat_interval_ms + 4 * scenario.poll_interval_ms
            limit_ms += scenario.initial_rebalance_delay_ms
        return limit_ms + self._regex_limit_ms

    def rebalances_per_arrival(self) -> int:
        """One epoch, one more for an expression; a group that changes its kind has others."""
        is_alone = self.consumer_share == 1.0 and not self.scenario.regex_share
        return 1 if is_alone and not self.scenario.own_fault_kinds else 4

    def _change_once(self) -> None:
        """G8, and the same for a partition that is new: nobody but the broker sees it at first."""
        super()._change_once()
        if isinstance(self.cluster.coordinator.group(GROUP_ID), ConsumerGroup):
            topic = next(iter(self.scenario.topics))
            self.topics.grow(topic, self.topics.counts[topic] + 1)
            self.run_until(self.clock.now_ms + self.arrival_limit_ms())
            reason = self.why_not_stable()
            demand(reason is None, "G8", f"a new partition took too long: {reason}")

    def why_not_stable(self) -> str | None:
        group = self.cluster.coordinator.group(GROUP_ID)
        if not self.cluster.is_up or group is None:
            return "there is no group"
        is_classic = isinstance(group, ClassicGroup)
        if group.state_name not in (GroupState.STABLE.value, ConsumerGroupState.STABLE.value):
            return f"the group is {group.state_name}"
        for consumer in self.consumers:
            if consumer.is_alive and consumer.is_busy:
                return f"{consumer.name} has something to do"
        for consumer in self.alive:
            member = consumer.member
            if member.state not in (MemberState.STABLE, ConsumerMemberState.STABLE):
                return f"{consumer.name} is {member.state.value}"
            if member.wants_poll:
                return f"{consumer.name} is to poll"
            identity = member.group_metadata
            if isinstance(group, ConsumerGroup):
                reason = self._why_not_there(group, identity.member_id, identity.generation_id)
            else:
                assert is_classic
                is_there = identity.generation_id == self.watcher.model.generation
                reason = None if is_there else "in another generation"
            if reason is not None:
                return f"{consumer.name} is {reason}"
        if len(group.members) != len(self.alive):
            return f"{len(group.members)} members, {len(self.alive)} consumers"
        return self._why_not_read()

    def _why_not_there(self, group: ConsumerGroup, member_id: str, epoch: int) -> str | None:
        member = group.members.get(member_id)
        if member is None:
            return "not in the group"
        if member.current.member_epoch != epoch:
            return f"at epoch {epoch}, not {member.current.member_epoch}"
        if member_id in self.watcher.to_sync:
            return "to sync, or to be removed"
        wanted = self.watcher.group.subscribed(member_id) if self.watcher.group else frozenset()
        if wanted != set(self.scenario.topics):
            return f"subscribed to {sorted(wanted)}"
        return None

    def _why_not_read(self) -> str | None:
        """Of members whose topics the broker knows, all are wanted."""
        owned = {tp: each.name for each in self.alive for tp in each.member.owned}
        count = sum(len(each.member.owned) for each in self.alive)
        demand(count == len(owned), "E11", "a partition has two owners in a stable group")
        if gone := sorted(owned.keys() - self.topics.ends.keys()):
            return f"{gone[0]} is owned, and not there any more"
        for tp, end in self.topics.ends.items():
            if tp not in owned:
                return f"nobody owns {tp}"
            offset, _ = self.watcher.committed.get(tp, (0, 0))
            if offset < end:
                return f"{tp} was read up to {offset} of {end}"
        return None

    def _close_all(self) -> None:
        """G11, when sessions are over: a classic member whose group has just changed its kind is
        told that it is none, and does not say goodbye. Then others may have to join once more."""
        for consumer in self.alive:
            consumer.do(consumer.close)
        scenario = self.scenario
        session_ms, rebalance_ms = scenario.session_timeout_ms, scenario.max_poll_interval_ms
        self.run_until(self.clock.now_ms + 3 * (session_ms + rebalance_ms))
        self._expect_empty()

    def _expect_empty(self) -> None:
        group = self.cluster.coordinator.group(GROUP_ID)
        if group is None:
            return
        demand(not group.members, "G11", f"still there: {list(group.members)}")
        demand(group.state_name == GroupState.EMPTY.value, "G11", f"it is {group.state_name}")

    # --- faults --------------------------------------------------------------------------------

    def _go_wrong(self, fault: Planned[Any]) -> None:
        if not isinstance(fault.kind, ConsumerGroupFault):
            super()._go_wrong(fault)
            return
        self.counts[fault.kind] += 1
        self.note("world", str(fault))
        if not self.alive:
            return
        consumer = self.alive[fault.pick % len(self.alive)]
        amount_ms = min(fault.amount_ms, self.remaining_ms())
        match fault.kind:
            case ConsumerGroupFault.MIGRATION:
                self._migrate(consumer, amount_ms)
            case ConsumerGroupFault.EXPRESSION:
                self._change_expression(consumer, fault.pick)
            case ConsumerGroupFault.REMOVAL:
                self._remove(consumer)
            case ConsumerGroupFault.STATIC_RETURN:
                self._return(consumer, amount_ms)

    def _migrate(self, consumer: Any, amount_ms: int) -> None:
        self.consumer_share = 0.0 if isinstance(consumer, SimulatedConsumerMember) else 1.0
        self._return(consumer, amount_ms)

    def _return(self, consumer: Any, amount_ms: int) -> None:
        consumer.do(consumer.close)
        instance_id = consumer.settings.config.group_instance_id
        self.clock.after(amount_ms, self.start_consumer, instance_id)

    def _change_expression(self, consumer: Any, pick: int) -> None:
        if isinstance(consumer, SimulatedConsumerMember):
            consumer.regex = "" if consumer.regex and pick % 2 else _REGEXES[pick % len(_REGEXES)]
            consumer.do(lambda: consumer.subscribe(consumer.settings.topics))

    def _remove(self, consumer: Any) -> None:
        """As tools do it, on somebody else's connection: that of another member, say."""
        other = next((each for each in self.alive if each is not consumer), consumer)
        identity = consumer.member.group_metadata
        if not identity.member_id or not other.engine.is_connected:
            return
        leaving = LeaveGroupRequest.MemberIdentity(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id
        )
        request = LeaveGroupRequest(group_id=GROUP_ID, members=[leaving])
        other.engine.ask(request, _LEAVE_VERSION, lambda _: None)
