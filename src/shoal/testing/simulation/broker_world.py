"""The world around a simulated broker: its network, its lives, and what goes wrong with them.

``SendingWorld`` (``producer_simulator.py``) puts producers into it, ``TransactionWorld``
(``transaction_simulator.py``) whole pipelines of transactions.

Rule: a fault only pushes; it never looks at the outcome. What must hold is checked by those who
live here: they are shown the logs whenever those may have changed, and after every restart.
"""

from __future__ import annotations

import asyncio
import random as global_random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from time import perf_counter
from typing import Any, Final, Protocol
from zlib import crc32

from shoal.broker import dispatch, slices
from shoal.broker.catalogue import Topic
from shoal.errors import ErrorCode
from shoal.log.partition import PartitionLog
from shoal.testing.faults import Fault
from shoal.testing.simulation.client_process import ClientProcess
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.network import Network
from shoal.testing.simulation.simulated_broker import BrokerDisk, CatalogueJournal, SimulatedBroker
from shoal.testing.simulation.simulated_wire import HOST, SENDING_PORT, MemoryTransport
from shoal.testing.simulation.simulator import NOTES_KEPT, Report
from shoal.testing.simulation.swarm import Planned
from shoal.testing.simulation.virtual_loop import SimulatedProcess, SimulationStage, VirtualLoop
from shoal.types import TopicPartition

_STOPWATCH: Final = "perf_counter"
_PASSING: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.CORRUPT_MESSAGE,
)


class BrokerScenario(Protocol):
    """What a seed says about a broker and its surroundings."""

    @property
    def seed(self) -> int: ...
    @property
    def duration_ms(self) -> int: ...
    @property
    def topics(self) -> dict[str, int]: ...
    @property
    def configs(self) -> dict[str, str]: ...
    @property
    def durability(self) -> str: ...
    @property
    def network_delay_ms(self) -> int: ...
    @property
    def disk_delay_ms(self) -> int: ...


@contextmanager
def repeatable(seed: int, loop: VirtualLoop) -> Iterator[None]:
    """So that runs repeat: dice and stopwatches are ours for a while.

    The client jitters its pauses; the broker measures how long it has held its loop.
    """
    dice = global_random.getstate()
    global_random.seed(seed)
    for module in (dispatch, slices):
        setattr(module, _STOPWATCH, loop.time)
    try:
        yield
    finally:
        global_random.setstate(dice)
        for module in (dispatch, slices):
            setattr(module, _STOPWATCH, perf_counter)


class BrokerSimulation:
    """One run: a clock, a stage, and what happened on it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.stage = SimulationStage(self.clock, self._connect)
        self.notes: deque[str] = deque(maxlen=NOTES_KEPT)
        self.trace = 0
        self.events = 0
        self.world: BrokerWorld

    def note(self, who: str, what: str) -> None:
        text = f"{self.clock.now_ms} {who} {what}"
        self.trace = crc32(text.encode(), self.trace)
        self.notes.append(text)

    async def _connect(
        self, process: SimulatedProcess, protocol_factory: Callable[[], Any], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert (host, port) == self.world.address
        return await self.world.connect(process, protocol_factory)

    def run_until(self, end_ms: int) -> None:
        self.events += self.stage.run_until(end_ms)

    def play(self, finish: Callable[[Callable[[int], None]], int]) -> Report:
        """The time of the faults, and what ``finish`` does after it; it says how long that took."""
        scenario = self.world.surroundings
        with repeatable(scenario.seed, self.stage.loop):
            self.run_until(scenario.duration_ms + 1)
            healing_ms = finish(self.run_until)
        return Report(
            seeds=1,
            events=self.events,
            simulated_ms=self.clock.now_ms,
            trace=self.trace,
            slowest_healing_ms=healing_ms,
        )


class BrokerWorld:
    """A broker that dies and comes back, and a network that breaks."""

    invariant = ""
    """What is broken if a log cannot be opened."""

    def __init__(
        self,
        clock: VirtualClock,
        stage: SimulationStage,
        scenario: BrokerScenario,
        note: Callable[[str, str], None],
    ) -> None:
        self.clock = clock
        self.loop = stage.loop
        self.fail = stage.fail
        self.note = note
        self.random = Random(scenario.seed)
        self.network = Network(clock, self.random, delay_ms_max=scenario.network_delay_ms)
        self.address = (HOST, SENDING_PORT)
        self.counts: Counter[Any] = Counter()
        self.surroundings = scenario
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

    # --- what is asked of who lives here ---------------------------------------------------------

    def is_new(self, client_id: str) -> bool:
        """Whether nothing of this producer is stored."""
        raise NotImplementedError

    def look(self) -> None:
        """The logs may have changed."""
        raise NotImplementedError

    def reopened(self, tp: TopicPartition, topic: Topic, log: PartitionLog | None) -> None:
        """After a restart; there may be no log of a partition that was never written to."""
        raise NotImplementedError

    def topic_configs(self, name: str) -> dict[str, str]:
        return {"cleanup.policy": "compact"} if name.startswith("__") else {}

    # --- what its parts ask of their world -------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.clock.now_ms >= self.surroundings.duration_ms

    def remaining_ms(self) -> int:
        return max(self.surroundings.duration_ms - self.clock.now_ms, 0)

    def disk_delay(self) -> int:
        return 1 + int(self.random.random() * self._disk_delay_ms)

    def resume_ms(self) -> int | None:
        return self._paused_until_ms if self.clock.now_ms < self._paused_until_ms else None

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:08d}"

    def looked_at(self) -> None:
        try:
            self.look()
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
        self, process: SimulatedProcess, protocol_factory: Callable[[], Any]
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

    # --- topics ----------------------------------------------------------------------------------

    def _topic(self, name: str, count: int) -> dict[str, Any]:
        self._ids += 1
        configs = self.topic_configs(name)
        entry = {"kind": "topic", "name": name, "partitions": count, "configs": configs}
        return entry | {"id": self._ids.to_bytes(16, "big").hex()}

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

    def _new_broker(self, disk: BrokerDisk, journal: CatalogueJournal) -> SimulatedBroker:
        scenario = self.surroundings
        return SimulatedBroker(self, scenario.durability, scenario.configs, disk, journal)

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
        demand(not offline, self.invariant, f"cannot be opened: {offline}")
        logs = self.broker.directory.partitions
        # What coordinators decided comes first: the other logs follow from it.
        for topic in sorted(self.broker.catalogue, key=lambda topic: not topic.is_internal):
            for number in range(topic.partition_count):
                tp = TopicPartition(topic.name, number)
                log = logs.get(tp)
                if log is not None:
                    self.note("broker", f"has {tp} up to {log.end_offset}")
                self.reopened(tp, topic, log)

    # --- what goes wrong -------------------------------------------------------------------------

    def _go_wrong(self, fault: Planned[Any]) -> None:
        self.note("fault", fault.kind.name)
        self.counts[fault.kind] += 1
        amount_ms = min(fault.amount_ms, self.remaining_ms())
        getattr(self, f"_{fault.kind.name.lower()}")(fault.pick, amount_ms)

    def _send_slow_network(self, _: int, amount_ms: int) -> None:
        self.network.delay_ms_max = 2_000
        self.clock.after(amount_ms, self._restore_network)

    def _restore_network(self, _: None = None) -> None:
        self.network.delay_ms_max = self.surroundings.network_delay_ms

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
        self._disk_delay_ms = self.surroundings.disk_delay_ms
        self.broker.disk.empty()

    def _log_pause(self, _: int, amount_ms: int) -> None:
        if self._is_up:
            self._paused_until_ms = max(self._paused_until_ms, self.clock.now_ms + amount_ms)

    def _heal(self) -> None:
        """The faults are over. What was fenced by a failed sync needs a restart."""
        self._ambush = None
        self._paused_until_ms = 0
        self._restore_network()
        self._restore_disk()
        self.broker.faults.clear()
        self.stop_broker(has_power=True, down_ms=100)
