"""Simulations with real producers and the real broker, on a loop with virtual time.

    report = simulate_producers(7)    # raises Violation, which says how to see it again

Producers send, connections break, the broker dies and starts again from what its disk kept, and
after everything that happens C10 is checked (``producer_invariants.py``). Then the faults stop:
every record's fate must become known, and new records must get through.

``SendingWorld`` is the broker, its network and its producers; it lives on a stage of its own here,
and beside a consumer group in ``client_simulator.py``.

Rule: a fault only pushes; it never looks at the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from shoal.broker.catalogue import Topic
from shoal.log.partition import PartitionLog
from shoal.testing.simulation.broker_world import BrokerSimulation, BrokerWorld
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.producer_invariants import Deliveries
from shoal.testing.simulation.producer_swarm import (
    PlannedFault,
    SendReport,
    SendScenario,
    send_faults,
    send_scenario,
)
from shoal.testing.simulation.simulated_producer import SimulatedProducer
from shoal.testing.simulation.simulator import Report, repeat_command
from shoal.testing.simulation.virtual_loop import SimulationStage
from shoal.types import TopicPartition

_WATCH_EVERY_MS: Final = 500
_GOODBYE_MS: Final = 60_000
_PRODUCERS_MAX: Final = 4


def simulate_producers(seed: int, *, without: Collection[int] = ()) -> Report:
    """Run one seed, leaving out the faults with these numbers.

    Raises:
        Violation: with notes that say how to repeat the run.
    """
    world = send_scenario(seed)
    kept = [fault for number, fault in enumerate(send_faults(world)) if number not in without]
    simulation = ProducerSimulation(world, kept)
    try:
        return simulation.run()
    except AssertionError as failure:
        failure.add_note(repeat_command(seed, without, kind="producers"))
        failure.add_note("last events:\n  " + "\n  ".join(simulation.notes))
        raise
    finally:
        simulation.stage.end()


class ProducerSimulation(BrokerSimulation):
    """One run of producers alone."""

    def __init__(self, scenario: SendScenario, faults: Collection[PlannedFault] = ()) -> None:
        super().__init__()
        self.sending = SendingWorld(self.clock, self.stage, scenario, faults, self.note)
        self.world = self.sending

    def run(self) -> Report:
        report = self.play(self.sending.finish)
        report.sending = self.sending.report()
        return report


class SendingWorld(BrokerWorld):
    """A broker, a network, producers, and what goes wrong with them."""

    invariant = "C10"

    def __init__(
        self,
        clock: VirtualClock,
        stage: SimulationStage,
        scenario: SendScenario,
        faults: Collection[PlannedFault],
        note: Callable[[str, str], None],
    ) -> None:
        self.scenario = scenario
        self.deliveries = Deliveries()
        self.producers: list[SimulatedProducer] = []
        """Everybody, the dead too: what they were in the middle of is not to be cleared away."""
        self._started = 0
        super().__init__(clock, stage, scenario, note)
        for settings_number in range(len(scenario.producers)):
            clock.at(1 + settings_number, self.start_producer)
        for fault in faults:
            clock.at(fault.at_ms, self._go_wrong, fault)
        clock.at(_WATCH_EVERY_MS, self._watch)

    @property
    def topic_names(self) -> list[str]:
        return list(self.scenario.topics)

    @property
    def alive(self) -> list[SimulatedProducer]:
        return [each for each in self.producers if each.is_alive]

    def is_new(self, client_id: str) -> bool:
        return client_id not in self.deliveries.heard_of

    def look(self) -> None:
        for tp, log in self.broker.directory.partitions.items():
            topic = self.broker.catalogue.get(tp.topic)
            if topic is not None:
                self.deliveries.look(tp, topic.id, log)

    def reopened(self, tp: TopicPartition, topic: Topic, log: PartitionLog | None) -> None:
        if log is None:
            self.deliveries.missing(tp, topic.id)
        else:
            self.deliveries.reopened(tp, topic.id, log)

    # --- life ------------------------------------------------------------------------------------

    def start_producer(self, _: None = None) -> None:
        if len(self.alive) >= _PRODUCERS_MAX or self.is_over:
            return
        kinds = self.scenario.producers
        settings = kinds[self._started % len(kinds)]
        self._started += 1
        name = f"s{self._started}"
        self.note(name, "starts")
        self.producers.append(SimulatedProducer(self, name, settings))

    def _watch(self, _: None) -> None:
        for producer in self.producers:
            producer.check_patience()
        self.clock.after(_WATCH_EVERY_MS, self._watch)

    # --- what goes wrong -------------------------------------------------------------------------

    def _one(self, pick: int) -> SimulatedProducer | None:
        alive = self.alive
        return alive[pick % len(alive)] if alive else None

    def _send_cut(self, pick: int, amount_ms: int) -> None:
        producer = self._one(pick)
        if producer is not None:
            producer.process.cut(
                survivors=pick % 6,
                late_ms=amount_ms if pick % 2 == 0 else 0,
                notice_ms=amount_ms if pick % 5 == 0 else 1 + pick % 20,
                at_next_send=pick % 7 < 4,
            )

    def _log_partitions(self, pick: int, _: int) -> None:
        topics = list(self.broker.catalogue)
        if topics:
            topic = topics[pick % len(topics)]
            entry = {"kind": "partitions", "name": topic.name}
            self._change(entry | {"partitions": topic.partition_count + 1})

    def _log_recreation(self, pick: int, amount_ms: int) -> None:
        topics = list(self.broker.catalogue)
        if topics:
            topic = topics[pick % len(topics)]
            self._change({"kind": "delete", "name": topic.name})
            self.clock.after(amount_ms, lambda _: self._create_missing())

    def _create_missing(self) -> None:
        missing = [name for name in self.scenario.topics if name not in self.broker.catalogue]
        self._change(*(self._topic(name, self.scenario.topics[name]) for name in missing))

    def _producer_pause(self, pick: int, amount_ms: int) -> None:
        producer = self._one(pick)
        if producer is not None:
            producer.process.pause(amount_ms)

    def _producer_death(self, pick: int, amount_ms: int) -> None:
        producer = self._one(pick)
        if producer is not None:
            producer.process.die()
            self.clock.after(amount_ms, self.start_producer)

    def _producer_leave(self, pick: int, amount_ms: int) -> None:
        producer = self._one(pick)
        if producer is not None:
            producer.leave()
            self.clock.after(amount_ms, self.start_producer)

    # --- the second phase ------------------------------------------------------------------------

    def finish(self, run_until: Callable[[int], None]) -> int:
        """The faults are over: everything must become known, and go through."""
        self.note("senders", "heal")
        self._heal()
        began_ms = self.clock.now_ms
        run_until(began_ms + 6_000)
        self._create_missing()
        run_until(began_ms + 7_000)
        topics = {topic.name: topic.partition_count for topic in self.broker.catalogue}
        demand(topics.keys() == self.scenario.topics.keys(), "C10", f"there are {list(topics)}")
        # A record for a partition that is no more waits for it until its time is over.
        longest_ms = max(each.delivery_timeout_ms for each in self.scenario.producers)
        goodbyes = [each.say_goodbye(topics) for each in self.alive]
        while not all(each.done() for each in goodbyes):
            waited_ms = self.clock.now_ms - began_ms
            undecided = [each.name for each in self.alive if each.unsettled]
            is_patient = waited_ms < longest_ms + _GOODBYE_MS
            demand(is_patient, "C10", f"{undecided} are not done: {waited_ms} ms")
            run_until(self.clock.now_ms + 100)
        return self.clock.now_ms - began_ms

    def report(self) -> SendReport:
        deliveries = self.deliveries
        return SendReport(
            producers=self._started,
            stored=deliveries.stored,
            acknowledged=deliveries.acknowledged,
            failed=deliveries.failed,
            duplicates=deliveries.duplicates,
            restarts=self._restarts,
            late_messages=self.network.late_count,
            faults=self.counts,
        )
