"""A whole consumer group in one thread, from one seed, with faults: the real coordinator, real
members, and everything between them made up.

    report = simulate(7)              # raises Violation, which says how to see it again
    report.events, report.faults

A run has two phases. First *safety*: faults happen, and no invariant may be broken. Then
*liveness*: the faults stop, and the group must become stable in bounded time, read everything
there is, and stay as it is.

Rule: the same seed (and the same faults left out) gives the same run, on every machine and under
every hash seed; ``Report.trace`` is how that is seen.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, Final
from zlib import crc32

from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.states import GroupState
from shoal.group.member.member_interface import MemberConfig, MemberState
from shoal.testing.simulation import swarm
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.invariants import Violation, Watcher, demand
from shoal.testing.simulation.network import Network
from shoal.testing.simulation.producer_swarm import SendReport
from shoal.testing.simulation.simulated_cluster import SimulatedCluster, SimulatedTopics
from shoal.testing.simulation.simulated_consumer import SimulatedConsumer
from shoal.testing.simulation.simulated_engine import SimulatedConsumerSettings
from shoal.testing.simulation.simulated_faults import go_wrong
from shoal.testing.simulation.sink_swarm import SinkReport
from shoal.testing.simulation.swarm import Fault, GroupScenario
from shoal.testing.simulation.transaction_swarm import TransactionReport
from shoal.types import TopicPartition

GROUP_ID: Final = "simulated"
_STEP_MS: Final = 500
_SETTLING_MS: Final = 2_000
"""A member that is about to rejoin looks stable for a moment."""
_ON_THE_WAY: Final = (MemberState.UNJOINED, MemberState.PREPARING, MemberState.COMPLETING)
_QUIET_MS: Final = 30_000
_CALM: Final = 10
_VERIFY_EVERY_MS: Final = 20_000
NOTES_KEPT: Final = 60


@dataclass(slots=True)
class Report:
    """What a run, or several of them, consisted of."""

    seeds: int = 0
    events: int = 0
    simulated_ms: int = 0
    generations: int = 0
    late_messages: int = 0
    faults: Counter[Enum] = field(default_factory=Counter)
    trace: int = 0
    """A checksum of everything that happened, in order."""
    slowest_healing_ms: int = 0
    sending: SendReport = field(default_factory=SendReport)
    """What producers did, if there were any."""
    transactions: TransactionReport = field(default_factory=TransactionReport)
    """What became of transactions, if there were any."""
    sinks: SinkReport = field(default_factory=SinkReport)
    """What became of queries that write exactly once, if there were any."""

    def add(self, other: Report) -> None:
        self.seeds += other.seeds
        self.events += other.events
        self.simulated_ms += other.simulated_ms
        self.generations += other.generations
        self.late_messages += other.late_messages
        self.faults += other.faults
        self.trace = crc32(other.trace.to_bytes(4, "big"), self.trace)
        self.slowest_healing_ms = max(self.slowest_healing_ms, other.slowest_healing_ms)
        self.sending.add(other.sending)
        self.transactions.add(other.transactions)
        self.sinks.add(other.sinks)


def simulate(seed: int, *, without: Collection[int] = ()) -> Report:
    """Run one seed, leaving out the faults with these numbers.

    Raises:
        Violation: with notes that say how to repeat the run.
    """
    world = swarm.scenario(seed)
    drawn = swarm.faults(world)
    kept = [fault for number, fault in enumerate(drawn) if number not in without]
    simulation = Simulation(world, kept)
    try:
        return simulation.run()
    except AssertionError as failure:
        failure.add_note(repeat_command(seed, without))
        failure.add_note("last events:\\n  " + "\\n  ".join(simulation.notes))
        raise


def repeat_command(seed: int, without: Collection[int] = (), *, kind: str = "") -> str:
    """``kind`` is nothing for bare members, or what else the command line can simulate."""
    command = f"make simulate SEED={seed}"
    arguments = [f"--{kind}"] if kind else []
    if without:
        arguments.append("--without " + ",".join(str(number) for number in sorted(without)))
    if arguments:
        command += f' ARGS="{" ".join(arguments)}"'
    return f"to see it again: {command}"


class Simulation:
    """One run. Scenarios of one's own can be made and driven by hand, as the lab does."""

    def __init__(self, scenario: GroupScenario, faults: Collection[Fault] = ()) -> None:
        self.scenario = scenario
        self.clock = VirtualClock()
        self.random = Random(scenario.seed)
        self.network = Network(self.clock, self.random, delay_ms_max=scenario.network_delay_ms)
        self.topics = SimulatedTopics(scenario.topics)
        self.consumers: list[Any] = []
        """``SimulatedUser``s, or whole clients that look like them."""
        self.calm = 1
        """Users wait this many times longer between polls."""
        self.events = 0
        self.trace = 0
        self.notes: deque[str] = deque(maxlen=NOTES_KEPT)
        self.counts: Counter[Enum] = Counter()
        config = self._group_config()
        self.watcher = self._new_watcher(config)
        self.cluster = SimulatedCluster(
            self.clock, self.random, self.topics, self.watcher, config, GROUP_ID, self.note
        )
        self.cluster.disk_delay_ms = scenario.disk_delay_ms
        self._started = 0
        self.assignor_errors = 0
        for _ in range(scenario.members):
            self.clock.at(self.random.randrange(3_000), self.start_consumer)
        self.clock.at(0, self._produce)
        self.clock.at(_VERIFY_EVERY_MS, self._verify)
        for fault in faults:
            self.clock.at(fault.at_ms, self._go_wrong, fault)

    def _group_config(self) -> GroupConfig:
        return GroupConfig(
            group_initial_rebalance_delay_ms=self.scenario.initial_rebalance_delay_ms,
            offsets_retention_minutes=1,
            offsets_retention_check_interval_ms=5_000,
        )

    def _new_watcher(self, config: GroupConfig) -> Watcher:
        return Watcher(GROUP_ID, self.topics, config)

    # --- running -------------------------------------------------------------------------------

    def run(self) -> Report:
        """Both phases, and then everybody goes home."""
        # One more, for what was to happen in the last moment.
        self.run_until(self.scenario.duration_ms + 1)
        self._heal()
        if self.scenario.static_share:
            self._ask_for_new_partitions()
        healing_ms = self._converge()
        self._stay_quiet()
        self._change_once()
        self._close_all()
        return Report(
            seeds=1,
            events=self.events,
            simulated_ms=self.clock.now_ms,
            generations=self.watcher.generations,
            late_messages=self.network.late_count,
            faults=self.counts,
            trace=self.trace,
            slowest_healing_ms=healing_ms,
        )

    def run_until(self, end_ms: int) -> None:
        self.events += self.clock.run_until(end_ms)

    def remaining_ms(self) -> int:
        """Of the phase with faults."""
        return max(self.scenario.duration_ms - self.clock.now_ms, 0)

    def note(self, who: str, what: str) -> None:
        text = f"{self.clock.now_ms} {who} {what}"
        self.trace = crc32(text.encode(), self.trace)
        self.notes.append(text)

    @property
    def alive(self) -> list[Any]:
        return [each for each in self.consumers if each.is_alive and not each.is_closing]

    @property
    def is_over(self) -> bool:
        return self.clock.now_ms >= self.scenario.duration_ms

    # --- the second phase ----------------------------------------------------------------------

    def _heal(self) -> None:
        self.note("world", "heals")
        self.cluster.heal()
        self.restore_network()
        self.restore_disk()
        self.assignor_errors = 0
        for topic in self.scenario.topics:
            self.create_topic(topic)
        for consumer in self.consumers:
            consumer.heal()

    def _ask_for_new_partitions(self, _: None = None) -> None:
        """A static leader that came back is told to skip the assignment (KIP-814), and cannot know
        of partitions that were added while it was away. Kafka's cannot either.

        Only a member that is there can ask: the join of one that is on its way counts as the
        rebalance asked for, and that join may be the one that skips the assignment.
        """
        if not self.alive:
            return
        consumer = self.alive[0]
        if consumer.is_busy or consumer.member.state in _ON_THE_WAY:
            self.clock.after(_STEP_MS, self._ask_for_new_partitions)
        else:
            consumer.do(lambda: consumer.member.enforce_rebalance("to see new partitions"))

    def _converge(self) -> int:
        """G8: stable within the longest chain of timeouts that a ghost can cause."""
        patience_ms = self.healing_limit_ms()
        started_ms = self.clock.now_ms
        calm_since_ms = None
        while calm_since_ms is None or self.clock.now_ms - calm_since_ms < _SETTLING_MS:
            reason = self.why_not_stable()
            waited_ms = self.clock.now_ms - started_ms
            demand(waited_ms < patience_ms, "G8", f"after {waited_ms} ms: {reason}")
            if reason is not None:
                calm_since_ms = None
            elif calm_since_ms is None:
                calm_since_ms = self.clock.now_ms
            if not self.alive:  # the last one was fenced by its own past
                self.start_consumer()
            self.run_until(self.clock.now_ms + _STEP_MS)
        return calm_since_ms - started_ms

    def healing_limit_ms(self) -> int:
        scenario = self.scenario
        return (
            3 * (scenario.max_poll_interval_ms + scenario.session_timeout_ms)
            + max(scenario.request_timeout_ms, scenario.max_poll_interval_ms + 5_000)
            + scenario.initial_rebalance_delay_ms
        )

    def why_not_stable(self) -> str | None:
        """What is missing: a stable group that has read everything."""
        group = self.cluster.coordinator.group(GROUP_ID)
        if not self.cluster.is_up or not isinstance(group, ClassicGroup):
            return "there is no group"
        if group.state is not GroupState.STABLE:
            return f"the group is {group.state_name}"
        for consumer in self.consumers:
            if consumer.is_alive and consumer.is_busy:
                return f"{consumer.name} has something to do"
        for consumer in self.alive:
            member = consumer.member
            if member.state is not MemberState.STABLE or member.wants_poll:
                return f"{consumer.name} is {member.state.value}"
            if member.generation.generation_id != group.generation:
                return f"{consumer.name} is in another generation"
            told = self.watcher.model.subscriptions.get(member.generation.member_id, frozenset())
            if told != member.topics:
                return f"{consumer.name} wants {sorted(member.topics)}, not {sorted(told)}"
        if len(group.members) != len(self.alive):
            return f"{len(group.members)} members, {len(self.alive)} consumers"
        return self._why_not_read()

    def _why_not_read(self) -> str | None:
        owned: dict[TopicPartition, str] = {}
        wanted: set[str] = set()
        for consumer in self.alive:
            wanted |= consumer.member.topics
            for tp in consumer.member.owned:
                if tp in owned:
                    raise Violation("G1", f"{tp} is owned by {owned[tp]} and {consumer.name}")
                owned[tp] = consumer.name
        for tp, end in self.topics.ends.items():
            if tp.topic not in wanted:
                continue
            if tp not in owned:
                return f"nobody owns {tp}"
            offset, _ = self.watcher.committed.get(tp, (0, 0))
            if offset < end:
                return f"{tp} was read up to {offset} of {end}"
        return None

    def _stay_quiet(self) -> None:
        """G8: without a reason there is no rebalance."""
        self.calm = _CALM
        before = self.watcher.generations
        self.run_until(self.clock.now_ms + _QUIET_MS)
        rebalances = self.watcher.generations - before
        demand(rebalances == 0, "G8", f"{rebalances} rebalances without a reason")
        reason = self.why_not_stable()
        demand(reason is None, "G8", f"stable no more: {reason}")
        self.cluster.verify()

    def _change_once(self) -> None:
        """G8: one arrival is one rebalance (cooperative: two), as fast as heartbeats tell of it."""
        scenario = self.scenario
        self.calm = 1
        self.run_until(self.clock.now_ms + _CALM * scenario.poll_interval_ms)
        before = self.watcher.generations
        self.start_consumer()
        self.run_until(self.clock.now_ms + self.arrival_limit_ms())
        reason = self.why_not_stable()
        demand(reason is None, "G8", f"an arrival took too long: {reason}")
        rebalances = self.watcher.generations - before
        allowed = self.rebalances_per_arrival()
        demand(rebalances <= allowed, "G8", f"{rebalances} rebalances for one arrival")

    def rebalances_per_arrival(self) -> int:
        return 2 if self.scenario.assignors == ("cooperative-sticky",) else 1

    def arrival_limit_ms(self) -> int:
        scenario = self.scenario
        return scenario.heartbeat_interval_ms + 4 * scenario.poll_interval_ms + 4_000

    def _close_all(self) -> None:
        """G11: nothing is left of a group that everybody has left."""
        for consumer in self.alive:
            consumer.do(consumer.close)
        self.run_until(self.clock.now_ms + 5_000)
        if not self.scenario.static_share:
            self._expect_empty()
        # Static members do not say goodbye.
        session_ms = self.scenario.session_timeout_ms
        self.run_until(self.clock.now_ms + session_ms + self.scenario.max_poll_interval_ms)
        self._expect_empty()

    def _expect_empty(self) -> None:
        group = self.cluster.coordinator.group(GROUP_ID)
        assert isinstance(group, ClassicGroup)
        left = [*group.members, *group.pending_ids]
        demand(not left, "G11", f"still there: {left}")
        demand(group.state is GroupState.EMPTY, "G11", f"the group is {group.state_name}")

    # --- life ----------------------------------------------------------------------------------

    def _produce(self, _: None) -> None:
        if not self.is_over:
            self.topics.produce(self.random)
            self.clock.after(self.scenario.produce_interval_ms, self._produce)

    def _verify(self, _: None) -> None:
        if not self.is_over:
            self.cluster.verify()
            self.clock.after(_VERIFY_EVERY_MS, self._verify)

    def start_consumer(self, instance_id: str | None = None) -> None:
        """``None`` draws whether it is a static one."""
        if len(self.alive) >= self.scenario.members_max:
            return
        self._started += 1
        number = self._started
        if instance_id is None and self.random.random() < self.scenario.static_share:
            instance_id = f"i{number}"
        settings = self._settings(number, instance_id)
        self.note(settings.name, "starts")
        self.consumers = [each for each in self.consumers if each.is_alive]
        self.consumers.append(self.new_consumer(settings))

    def new_consumer(self, settings: SimulatedConsumerSettings) -> Any:
        return SimulatedConsumer(self, settings)

    def _settings(self, number: int, instance_id: str | None) -> SimulatedConsumerSettings:
        scenario = self.scenario
        topics = tuple(scenario.topics)
        return SimulatedConsumerSettings(
            name=f"c{number}",
            config=MemberConfig(
                GROUP_ID,
                group_instance_id=instance_id,
                session_timeout_ms=scenario.session_timeout_ms,
                heartbeat_interval_ms=scenario.heartbeat_interval_ms,
                max_poll_interval_ms=scenario.max_poll_interval_ms,
                request_timeout_ms=scenario.request_timeout_ms,
                auto_commit=self.random.random() < scenario.auto_commit_share,
            ),
            assignors=scenario.mixed_assignors if number % 2 else scenario.assignors,
            topics=topics,
            pattern="t.*" if scenario.uses_pattern else None,
            through_bytes=scenario.through_bytes,
            join_version=scenario.join_version,
            offset_fetch_version=scenario.offset_fetch_version,
            poll_interval_ms=scenario.poll_interval_ms,
        )

    def take_assignor_error(self) -> bool:
        if self.assignor_errors:
            self.assignor_errors -= 1
            return True
        return False

    # --- faults --------------------------------------------------------------------------------

    def _go_wrong(self, fault: Fault) -> None:
        self.counts[fault.kind] += 1
        self.note("world", str(fault))
        go_wrong(self, fault)

    def restore_network(self, _: None = None) -> None:
        self.network.delay_ms_max = 5 if self.is_over else self.scenario.network_delay_ms

    def restore_disk(self, _: None = None) -> None:
        self.cluster.disk_is_full = False
        self.cluster.disk_delay_ms = 0 if self.is_over else self.scenario.disk_delay_ms

    def create_topic(self, topic: str) -> None:
        if topic not in self.topics.counts:
            self.topics.create(topic, self.scenario.topics[topic])
