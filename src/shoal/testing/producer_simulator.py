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

import asyncio
import random as global_random
from collections import Counter, deque
from collections.abc import Callable, Collection
from random import Random
from typing import Any, Final
from zlib import crc32

from shoal.errors import ErrorCode
from shoal.testing.client_process import ClientProcess
from shoal.testing.clock import VirtualClock
from shoal.testing.faults import Fault
from shoal.testing.invariants import demand
from shoal.testing.network import Network
from shoal.testing.producer_invariants import Deliveries
from shoal.testing.producer_swarm import (
    PlannedFault,
    SendFault,
    SendReport,
    SendScenario,
    send_faults,
    send_scenario,
)
from shoal.testing.simulated_broker import BrokerDisk, CatalogueJournal, SimulatedBroker
from shoal.testing.simulated_producer import SimulatedProducer
from shoal.testing.simulated_wire import HOST, SENDING_PORT, MemoryTransport
from shoal.testing.simulator import NOTES_KEPT, Report, repeat_command
from shoal.testing.virtual_loop import Process, Stage
from shoal.types import TopicPartition

_WATCH_EVERY_MS: Final = 500
_GOODBYE_MS: Final = 60_000
_PRODUCERS_MAX: Final = 4
_PASSING: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.CORRUPT_MESSAGE,
)


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


class ProducerSimulation:
    """One run of producers alone."""

    def __init__(self, scenario: SendScenario, faults: Collection[PlannedFault] = ()) -> None:
        self.clock = VirtualClock()
        self.stage = Stage(self.clock, self._connect)
        self.notes: deque[str] = deque(maxlen=NOTES_KEPT)
        self.trace = 0
        self.events = 0
        self.sending = SendingWorld(self.clock, self.stage, scenario, faults, self._note)

    def _note(self, who: str, what: str) -> None:
        text = f"{self.clock.now_ms} {who} {what}"
        self.trace = crc32(text.encode(), self.trace)
        self.notes.append(text)

    async def _connect(
        self, process: Process, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert (host, port) == self.sending.address
        return await self.sending.connect(process, protocol_factory)

    def run_until(self, end_ms: int) -> None:
        self.events += self.stage.run_until(end_ms)

    def run(self) -> Report:
        # The client jitters its pauses; so that runs repeat, the dice are ours for a while.
        dice = global_random.getstate()
        global_random.seed(self.sending.scenario.seed)
        try:
            self.run_until(self.sending.scenario.duration_ms + 1)
            healing_ms = self.sending.finish(self.run_until)
        finally:
            global_random.setstate(dice)
        return Report(
            seeds=1,
            events=self.events,
            simulated_ms=self.clock.now_ms,
            trace=self.trace,
            slowest_healing_ms=healing_ms,
            sending=self.sending.report(),
        )


class SendingWorld:
    """A broker, a network, producers, and what goes wrong with them."""

    def __init__(
        self,
        clock: VirtualClock,
        stage: Stage,
        scenario: SendScenario,
        faults: Collection[PlannedFault],
        note: Callable[[str, str], None],
    ) -> None:
        self.scenario = scenario
        self.clock = clock
        self.loop = stage.loop
        self.fail = stage.fail
        self.note = note
        self.random = Random(scenario.seed)
        self.network = Network(clock, self.random, delay_ms_max=scenario.network_delay_ms)
        self.deliveries = Deliveries()
        self.address = (HOST, SENDING_PORT)
        self.producers: list[SimulatedProducer] = []
        """Everybody, the dead too: what they were in the middle of is not to be cleared away."""
        self.counts: Counter[SendFault] = Counter()
        self._started = 0
        self._restarts = 0
        self._ids = 0
        self._disk_delay_ms = scenario.disk_delay_ms
        self._paused_until_ms = 0
        self._changing: set[str] = set()
        self._ambush: tuple[int, bool] | None = None
        self.loop.work_ms = self.disk_delay
        self._is_up = True
        topics = [self._topic(name, count) for name, count in scenario.topics.items()]
        self.broker = self._new_broker(BrokerDisk(), CatalogueJournal(topics))
        for settings_number in range(len(scenario.producers)):
            clock.at(1 + settings_number, self.start_producer)
        for fault in faults:
            clock.at(fault.at_ms, self._go_wrong, fault)
        clock.at(_WATCH_EVERY_MS, self._watch)

    # --- what producers and the broker ask of their world ----------------------------------------

    @property
    def is_over(self) -> bool:
        return self.clock.now_ms >= self.scenario.duration_ms

    def remaining_ms(self) -> int:
        return max(self.scenario.duration_ms - self.clock.now_ms, 0)

    @property
    def topic_names(self) -> list[str]:
        return list(self.scenario.topics)

    @property
    def alive(self) -> list[SimulatedProducer]:
        return [each for each in self.producers if each.is_alive]

    def disk_delay(self) -> int:
        return 1 + int(self.random.random() * self._disk_delay_ms)

    def resume_ms(self) -> int | None:
        return self._paused_until_ms if self.clock.now_ms < self._paused_until_ms else None

    def is_new(self, client_id: str) -> bool:
        return client_id not in self.deliveries.heard_of

    def looked_at(self) -> None:
        try:
            for tp, log in self.broker.directory.partitions.items():
                topic = self.broker.catalogue.get(tp.topic)
                if topic is not None:
                    self.deliveries.look(tp, topic.id, log)
        except AssertionError as failure:
            self.fail(failure)
        if self._ambush is not None and self._is_unsynced(after_roll=self._ambush[1]):
            self.clock.after(0, self._strike, self._ambush[0])
            self._ambush = None

    def _is_unsynced(self, *, after_roll: bool) -> bool:
        """Whether a power cut could take something, in two segments even."""
        return any(
            log.end_offset > log.high_watermark
            and (not after_roll or log.active.base_offset > log.high_watermark)
            for log in self.broker.directory.partitions.values()
        )

    def _strike(self, down_ms: int) -> None:
        self.stop_broker(has_power=False, down_ms=down_ms)

    async def connect(
        self, process: Process, protocol_factory: Callable[[], Any]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert isinstance(process, ClientProcess)
        process.count_connect()
        await asyncio.sleep((self.network.delay() + self.network.delay()) / 1000)
        if not self._is_up:
            raise ConnectionRefusedError("the broker is down")
        protocol = protocol_factory()
        transport = MemoryTransport(process, protocol, process.on_request)
        connection = self.broker.accept(lambda server: self.network.connect(transport, server))
        transport.connection = connection
        process.connections.append(connection)
        protocol.connection_made(transport)
        return transport, protocol

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

    def _topic(self, name: str, count: int) -> dict[str, Any]:
        self._ids += 1
        entry = {"kind": "topic", "name": name, "partitions": count, "configs": {}}
        return entry | {"id": self._ids.to_bytes(16, "big").hex()}

    def _new_broker(self, disk: BrokerDisk, journal: CatalogueJournal) -> SimulatedBroker:
        scenario = self.scenario
        return SimulatedBroker(self, scenario.durability, scenario.configs, disk, journal)

    def _change(self, *entries: dict[str, Any]) -> None:
        """One change of a topic at a time, as whoever administrates them would."""
        broker = self.broker
        chosen = [entry for entry in entries if entry["name"] not in self._changing]

        async def commit() -> None:
            names = {entry["name"] for entry in chosen}
            self._changing |= names
            try:
                await broker.changes.commit(chosen)
            finally:
                self._changing -= names

        if self._is_up and chosen:
            broker.spawn(commit())

    # --- the broker dies and comes back ----------------------------------------------------------

    def stop_broker(self, *, has_power: bool, down_ms: int) -> None:
        if not self._is_up:
            return
        self.looked_at()
        self._is_up = False
        self._paused_until_ms = 0
        self._restarts += 1
        self.note("broker", "is killed" if has_power else "loses power")
        left = self.broker.die(has_power=has_power, random=self.random)
        self.clock.after(down_ms, self._start_broker, left)

    def _start_broker(self, left: tuple[BrokerDisk, CatalogueJournal]) -> None:
        self.broker = self._new_broker(*left)
        self._is_up = True
        offline = self.broker.directory.offline
        demand(not offline, "C10", f"cannot be opened: {offline}")
        logs = self.broker.directory.partitions
        for topic in self.broker.catalogue:
            for number in range(topic.partition_count):
                tp = TopicPartition(topic.name, number)
                log = logs.get(tp)
                if log is None:
                    self.deliveries.missing(tp, topic.id)
                else:
                    self.note("broker", f"has {tp} up to {log.end_offset}")
                    self.deliveries.reopened(tp, topic.id, log)

    # --- what goes wrong -------------------------------------------------------------------------

    def _go_wrong(self, fault: PlannedFault) -> None:
        self.note("fault", fault.kind.name)
        self.counts[fault.kind] += 1
        amount_ms = min(fault.amount_ms, self.remaining_ms())
        getattr(self, f"_{fault.kind.name.lower()}")(fault.pick, amount_ms)

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

    def _send_slow_network(self, _: int, amount_ms: int) -> None:
        self.network.delay_ms_max = 2_000
        self.clock.after(amount_ms, self._restore_network)

    def _restore_network(self, _: None = None) -> None:
        self.network.delay_ms_max = self.scenario.network_delay_ms

    def _send_refusal(self, pick: int, _: int) -> None:
        code = _PASSING[pick % len(_PASSING)]
        if pick % 4 == 0:
            self.broker.faults.refuse_newcomer(code)
            return
        self.broker.faults.add(Fault("Produce", 1 + pick % 3, error=code))

    def _send_lost_request(self, _pick: int, _ms: int) -> None:
        self.broker.faults.add(Fault("Produce", 1, drop=True))

    def _send_lost_answer(self, _pick: int, _ms: int) -> None:
        self.broker.faults.add(Fault("Produce", 1, drop=True, after=True))

    def _send_overruled(self, pick: int, _: int) -> None:
        self.broker.faults.overrule(1 + pick % 3)

    def _log_kill(self, _: int, amount_ms: int) -> None:
        self.stop_broker(has_power=True, down_ms=amount_ms)

    def _log_power_cut(self, pick: int, amount_ms: int) -> None:
        if pick % 5 == 0:
            self.stop_broker(has_power=False, down_ms=amount_ms)
        else:
            # Between appending and acknowledging, which a cut at any time would seldom hit.
            self._ambush = amount_ms, pick % 5 > 1

    def _log_sync_error(self, pick: int, amount_ms: int) -> None:
        self.broker.disk.next_sync_fails = True
        # Somebody notices that it takes no more records, and restarts it.
        has_power = pick % 2 == 0
        self.clock.after(amount_ms, lambda _: self.stop_broker(has_power=has_power, down_ms=100))

    def _log_disk_full(self, pick: int, amount_ms: int) -> None:
        # With room for the start of a batch, or none at all, beside what is kept in reserve.
        self.broker.disk.fill((1 << 16) + pick % 500 if pick % 2 else pick % 100)
        self.clock.after(amount_ms, self._restore_disk)

    def _log_slow_disk(self, _: int, amount_ms: int) -> None:
        self._disk_delay_ms = 2_000
        self.clock.after(amount_ms, self._restore_disk)

    def _restore_disk(self, _: None = None) -> None:
        self._disk_delay_ms = self.scenario.disk_delay_ms
        self.broker.disk.empty()

    def _log_pause(self, _: int, amount_ms: int) -> None:
        if self._is_up:
            self._paused_until_ms = max(self._paused_until_ms, self.clock.now_ms + amount_ms)

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
        self._ambush = None
        self._paused_until_ms = 0
        self._restore_network()
        self._restore_disk()
        self.broker.faults.clear()
        # What was fenced by a failed sync takes records again after a restart.
        self.stop_broker(has_power=True, down_ms=100)
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
