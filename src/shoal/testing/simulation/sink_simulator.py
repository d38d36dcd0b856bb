"""Simulations of a streaming query that writes exactly once: driver, tasks, broker, virtual time.

    report = simulate_sinks(7)    # raises Violation, which says how to see it again

The sink's own code runs (``spark/exactly_once.py``, ``spark/sink_decisions.py``) with the real
client and the real broker; what is played is Spark: a checkpoint, micro-batches whose tasks run in
processes of their own and are tried again elsewhere, drivers that die, come back, or are two at
once. After everything that happens T14 is checked (``sink_invariants.py``). Then the faults stop,
everybody dies, and one more driver has to finish the query.

Rule: a fault only pushes; it never looks at the outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pyarrow as pa

from shoal.broker.catalogue import Topic
from shoal.client.batch_append import append_batch
from shoal.client.broker_links import Links
from shoal.client.cluster import Cluster
from shoal.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from shoal.client.consumer_core import ConsumerCore
from shoal.client.deadlines import Deadline
from shoal.client.offsets import LATEST, list_offsets
from shoal.client.producer import Producer
from shoal.client.producer_batch import SendFuture
from shoal.errors import RequestTimeoutError, ShoalError
from shoal.log.partition import PartitionLog
from shoal.spark.exactly_once import PreparedTask, SinkDriver, TaskOrigin
from shoal.spark.sink_decisions import AttemptReport, JournalKey, QueryJournal, SinkConflictError
from shoal.testing.faults import Fault
from shoal.testing.simulation.blocking_caller import BlockingCaller, ProcessEndedError
from shoal.testing.simulation.broker_world import BrokerSimulation, BrokerWorld
from shoal.testing.simulation.client_process import ClientProcess
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.simulated_cluster import EPOCH_MS
from shoal.testing.simulation.simulated_producer import VirtualProducer
from shoal.testing.simulation.simulated_wire import HOST, SENDING_PORT
from shoal.testing.simulation.simulator import Report, repeat_command
from shoal.testing.simulation.sink_invariants import SinkWatcher
from shoal.testing.simulation.sink_swarm import (
    JOURNAL,
    OUTPUT,
    PlannedSinkFault,
    SinkReport,
    SinkScenario,
    sink_faults,
    sink_scenario,
)
from shoal.testing.simulation.virtual_loop import SimulationStage
from shoal.types import PreparedTransaction, TopicPartition

if TYPE_CHECKING:
    from shoal.spark.ledger import SinkLedger

T = TypeVar("T")
QUERY: Final = "q"
_ATTEMPTS: Final = 4
_ATTEMPT_S: Final = 5.0
_SETTLING_MS: Final = 3_000
_GOODBYE_MS: Final = 120_000
_RECORDS_MAX: Final = 100
_APIS: Final = (
    "EndTxn",
    "InitProducerId",
    "Produce",
    "AddPartitionsToTxn",
    "ListTransactions",
    "Fetch",
)


def simulate_sinks(seed: int, *, without: Collection[int] = ()) -> Report:
    """Run one seed, leaving out the faults with these numbers.

    Raises:
        Violation: with notes that say how to repeat the run.
    """
    world = sink_scenario(seed)
    kept = [fault for number, fault in enumerate(sink_faults(world)) if number not in without]
    simulation = SinkSimulation(world, kept)
    try:
        return simulation.run()
    except AssertionError as failure:
        failure.add_note(repeat_command(seed, without, kind="sinks"))
        failure.add_note("last events:\n  " + "\n  ".join(simulation.notes))
        raise
    finally:
        simulation.stage.end()


class SinkSimulation(BrokerSimulation):
    """One run."""

    def __init__(self, scenario: SinkScenario, faults: Collection[PlannedSinkFault] = ()) -> None:
        super().__init__()
        self.sinks = SinkWorld(self.clock, self.stage, scenario, faults, self.note)
        self.world = self.sinks

    def run(self) -> Report:
        report = self.play(self.sinks.finish)
        report.sinks = self.sinks.report()
        return report


# --- what the sink's code stands on --------------------------------------------------------------


class _Connection:
    """A cluster as the sink asks it: blocking, one question at a time."""

    def __init__(self, caller: BlockingCaller, name: str) -> None:
        self._caller = caller
        self.config = AdminConfig(
            bootstrap_servers=f"{HOST}:{SENDING_PORT}",
            client_id=name,
            request_timeout_ms=2_000,
            default_api_timeout_ms=6_000,
        )
        self._cluster: Cluster | None = None

    def ask(self, work: Callable[[Cluster, Deadline], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            if self._cluster is None:
                self._cluster = Cluster(self.config, Links(self.config, None))
            return await work(self._cluster, Deadline(self.config.default_api_timeout_ms / 1000))

        return self._caller.ask(run)

    def need_topic(self, _: str) -> None:
        """It is there."""


class _Ledger:
    """The journal, as ``SinkLedger`` shows it to drivers and tasks."""

    def __init__(self, world: SinkWorld, caller: BlockingCaller, name: str) -> None:
        self.connection = _Connection(caller, name)
        self._world = world
        self._name = name
        self._tp = TopicPartition(JOURNAL, 0)
        self._journal = QueryJournal(QUERY)
        self._next = 0

    def journal(self, _: str) -> QueryJournal:
        self.connection.ask(self._follow)
        return self._journal

    def has_plain_rows(self, *_: Any) -> bool:
        return False

    def append(self, _: str, batch: bytes) -> int | None:
        return self.connection.ask(
            lambda cluster, deadline: append_batch(cluster, self._tp, batch, deadline)
        )

    async def _follow(self, cluster: Cluster, deadline: Deadline) -> None:
        found = (await list_offsets(cluster, {self._tp: LATEST}, deadline))[self._tp]
        end = 0 if found is None else found.offset
        if self._next >= end:
            return
        core = ConsumerCore(
            ConsumerConfig(
                bootstrap_servers=f"{HOST}:{SENDING_PORT}",
                client_id=self._name,
                enable_auto_commit=False,
                request_timeout_ms=2_000,
                fetch_max_wait_ms=100,
            )
        )
        await core.assign([self._tp])
        await core.seek(self._tp, self._next, None)
        try:
            while self._next < end:
                if deadline.left_s <= 0:
                    raise RequestTimeoutError("the journal cannot be read")
                await self._take(core)
        finally:
            await core.close(0.5)

    async def _take(self, core: ConsumerCore) -> None:
        try:
            await core.prepare(0.2)
            records = core.reader.take(_RECORDS_MAX)
        except ShoalError:
            # What a power cut took and nobody was promised cannot be read.
            while self._next in self._world.watcher.holes:
                self._next += 1
            await core.seek(self._tp, self._next, None)
            return
        for record in records:
            named = JournalKey.decode(record.key)
            if named is not None:
                self._journal.replay(named, record.value)
            self._next = record.offset + 1
        position = core.positions[self._tp].position
        self._next = max(self._next, position or 0)


class _TaskProducer:
    """The producer of one attempt, blocking."""

    def __init__(self, caller: BlockingCaller, producer: VirtualProducer) -> None:
        self._caller = caller
        self._producer = producer

    def send(self, topic: str, rows: pa.RecordBatch, partitions: int) -> list[SendFuture]:
        async def send() -> list[SendFuture]:
            await self._producer.know(topic, partitions)
            return [
                self._producer.send(
                    topic, row.encode(), partition=number % partitions, timestamp_ms=EPOCH_MS
                )
                for number, row in enumerate(rows.column("value").to_pylist())
            ]

        return self._caller.ask(send)

    def init_transactions(self) -> None:
        self._caller.ask(self._producer.transactions_here.init)

    def begin_transaction(self) -> None:
        self._caller.ask(self._producer.transactions_here.begin)

    def abort_transaction(self) -> None:
        self._caller.ask(self._producer.transactions_here.abort)

    def prepare_transaction(self) -> PreparedTransaction | None:
        return self._caller.ask(self._producer.transactions_here.prepare)

    def close(self) -> None:
        self._caller.ask(self._producer.close_here)


class _Task(PreparedTask):
    """The sink's task, whose producer lives in a simulated process."""

    def __init__(
        self, attempt: TaskAttemptProcess, ledger: _Ledger, origin: TaskOrigin, partitions: int
    ) -> None:
        def send(producer: Producer, topic: str, rows: pa.RecordBatch) -> list[SendFuture]:
            return cast("_TaskProducer", producer).send(topic, rows, partitions)

        super().__init__(cast("SinkLedger", ledger), {}, origin, send)
        self._attempt = attempt

    def _made(self, given: Mapping[str, str]) -> Producer:
        del given
        made = self._attempt.caller.ask(self._make)
        return cast("Producer", _TaskProducer(self._attempt.caller, made))

    async def _make(self) -> VirtualProducer:
        attempt = self._attempt
        config = ProducerConfig(
            bootstrap_servers=f"{HOST}:{SENDING_PORT}",
            client_id=attempt.name,
            transactional_id=self._origin.transactional_id,
            transaction_timeout_ms=attempt.world.scenario.timeout_ms,
            request_timeout_ms=1_000,
            delivery_timeout_ms=3_000,
            linger_ms=0,
            max_block_ms=3_000,
        )
        return VirtualProducer(config, attempt.process, flow=attempt.flow)


# --- Spark, played -------------------------------------------------------------------------------


class _BlockingProcess:
    """A process whose code blocks."""

    def __init__(self, world: SinkWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.process = ClientProcess(world, name)
        self.caller = BlockingCaller()
        self.is_done = False
        self.result: asyncio.Future[Any] = world.loop.create_future()
        self._life = world.loop.create_task(self._live(), context=self.process.context)

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive and not self.is_done

    async def _live(self) -> None:
        await asyncio.sleep(self.world.random.randrange(1, 20) / 1000)
        try:
            returned = await self.caller.run(self._work)
        except ShoalError as error:
            self.world.note(self.name, f"fails: {type(error).__name__}: {error}"[:150])
            self._end(error)
        except ProcessEndedError:
            raise asyncio.CancelledError from None
        except Exception as error:  # noqa: BLE001 - our bug, or a broken invariant
            self.world.fail(error)
        else:
            self._end(returned)

    def _end(self, outcome: Any) -> None:
        self.is_done = True
        if not self.result.done():
            self.result.set_result(outcome)

    def _work(self) -> Any:
        raise NotImplementedError


class TaskAttemptProcess(_BlockingProcess):
    """An executor with one attempt of one task."""

    def __init__(self, world: SinkWorld, origin: TaskOrigin, rows: Sequence[str]) -> None:
        self._origin = origin
        self._rows = rows
        self.flow = world.scenario.flow or world.random.choice((1, 2))
        super().__init__(world, f"{origin.run_id}.{origin.batch_id}.{origin.task}.{origin.attempt}")

    def _work(self) -> AttemptReport:
        ledger = _Ledger(self.world, self.caller, self.name)
        parts = [(OUTPUT, pa.record_batch({"value": pa.array(self._rows, pa.string())}))]
        partitions = self.world.scenario.topics[OUTPUT]
        return _Task(self, ledger, self._origin, partitions).write(parts)


class DriverProcess(_BlockingProcess):
    """A run of the query: from the checkpoint on, micro-batch after micro-batch."""

    def __init__(self, world: SinkWorld, name: str, tasks: int) -> None:
        self._tasks = tasks
        self._attempts = 0
        super().__init__(world, name)

    def _work(self) -> None:
        world = self.world
        while world.checkpoint + 1 < len(world.scenario.rows):
            if world.is_over and not world.is_final:
                return
            batch_id = world.checkpoint + 1
            reports = self.caller.ask(partial(self._run_tasks, batch_id))
            ledger = _Ledger(world, self.caller, self.name)
            driver = SinkDriver(cast("SinkLedger", ledger), QUERY)
            try:
                driver.commit(batch_id, reports)
            except SinkConflictError:
                world.conflicts += 1
                raise
            world.note(self.name, f"has committed micro-batch {batch_id}")
            world.checkpoint = max(world.checkpoint, batch_id)

    async def _run_tasks(self, batch_id: int) -> list[AttemptReport]:
        await asyncio.sleep(self.world.random.randrange(1, self.world.scenario.trigger_ms) / 1000)
        rows = self.world.rows[batch_id]
        count = self._tasks
        tasks = [self._run(batch_id, task, rows[task::count]) for task in range(count)]
        return list(await asyncio.gather(*tasks))

    async def _run(self, batch_id: int, task: int, rows: Sequence[str]) -> AttemptReport:
        for _ in range(_ATTEMPTS):
            started = [self._start(batch_id, task, rows)]
            if self.world.speculates:
                started.append(self._start(batch_id, task, rows))
            waited = {one.result for one in started}
            try:
                async with asyncio.timeout(_ATTEMPT_S):
                    while waited:
                        done, waited = await asyncio.wait(
                            waited, return_when=asyncio.FIRST_COMPLETED
                        )
                        await asyncio.sleep(0.001)  # a paused driver notices later
                        for one in done:
                            if isinstance(one.result(), AttemptReport):
                                return cast("AttemptReport", one.result())
            except TimeoutError:
                continue  # its executor is lost
        raise RequestTimeoutError(f"task {task} failed {_ATTEMPTS} times")

    def _start(self, batch_id: int, task: int, rows: Sequence[str]) -> TaskAttemptProcess:
        self._attempts += 1
        origin = TaskOrigin(QUERY, self.name, batch_id, task, self._attempts)
        return self.world.start_task(origin, rows)


class SinkWorld(BrokerWorld):
    """A broker, a network, a query, and what goes wrong with them."""

    invariant = "T14"

    def __init__(
        self,
        clock: VirtualClock,
        stage: SimulationStage,
        scenario: SinkScenario,
        faults: Collection[PlannedSinkFault],
        note: Callable[[str, str], None],
    ) -> None:
        self.scenario = scenario
        self.rows = {
            batch_id: [f"{batch_id}/{number}" for number in range(count)]
            for batch_id, count in enumerate(scenario.rows)
        }
        self.watcher = SinkWatcher(self.rows)
        self.checkpoint = -1
        """Spark's own: the last micro-batch it has in its commit log."""
        self.is_final = False
        self.conflicts = 0
        self._speculate_until_ms = 0
        self._runs = 0
        self._attempts = 0
        self._drivers: list[DriverProcess] = []
        self._executors: list[TaskAttemptProcess] = []
        super().__init__(clock, stage, scenario, note)
        clock.at(1, self._start_driver)
        for fault in faults:
            clock.at(fault.at_ms, self._go_wrong, fault)

    # --- what its parts ask of it ----------------------------------------------------------------

    def is_new(self, client_id: str) -> bool:
        del client_id
        return False

    def topic_configs(self, name: str) -> dict[str, str]:
        found = super().topic_configs(name)
        if name == JOURNAL:  # its drivers read a clock on the wall
            found["message.timestamp.after.max.ms"] = str(1 << 62)
        return found

    def look(self) -> None:
        self.watcher.look(self.broker)

    def reopened(self, tp: TopicPartition, topic: Topic, log: PartitionLog | None) -> None:
        del tp, topic
        if log is not None:
            self.watcher.look(self.broker)

    @property
    def speculates(self) -> bool:
        return self.clock.now_ms < self._speculate_until_ms

    def start_task(self, origin: TaskOrigin, rows: Sequence[str]) -> TaskAttemptProcess:
        self._attempts += 1
        made = TaskAttemptProcess(self, origin, rows)
        self._executors.append(made)
        return made

    # --- drivers ---------------------------------------------------------------------------------

    def _start_driver(self, _: None = None) -> None:
        self._runs += 1
        # Another number of tasks, as after a restart on another cluster; not after a conflict,
        # which says how many it has to be.
        tasks = self.scenario.tasks + (self._runs % 4 == 0)
        if self.is_final or self.conflicts:
            tasks = self._tasks_decided(self.checkpoint + 1) or self.scenario.tasks
        name = f"run{self._runs}"
        self.note(name, f"starts behind micro-batch {self.checkpoint}")
        self._drivers.append(DriverProcess(self, name, tasks))

    def _tasks_decided(self, batch_id: int) -> int:
        """How many tasks of a micro-batch the last decision about it names, or 0."""
        revisions = [place for place in self.watcher.decided if place[0] == batch_id]
        return len(self.watcher.decided[max(revisions)]) if revisions else 0

    def _restart(self, _: None = None) -> None:
        if not self.is_over and not any(one.is_alive for one in self._drivers):
            self._start_driver()

    def _one(self, pick: int) -> DriverProcess | None:
        """Some driver; if all have failed, another one is started first, as by an operator."""
        self._restart()
        alive = [one for one in self._drivers if one.is_alive]
        return alive[pick % len(alive)] if alive else None

    def _executor(self, pick: int) -> TaskAttemptProcess | None:
        alive = [one for one in self._executors if one.is_alive]
        return alive[pick % len(alive)] if alive else None

    # --- what goes wrong -------------------------------------------------------------------------

    def _send_cut(self, pick: int, amount_ms: int) -> None:
        victim = self._executor(pick) if pick % 2 else self._one(pick)
        if victim is not None:
            victim.process.cut(
                survivors=pick % 6,
                late_ms=amount_ms if pick % 4 == 0 else 0,
                notice_ms=amount_ms if pick % 5 == 0 else 1 + pick % 20,
                at_next_send=pick % 7 < 4,
            )

    def _sink_lost_request(self, pick: int, _: int) -> None:
        self.broker.faults.add(Fault(_APIS[pick % len(_APIS)], 1, drop=True))

    def _sink_lost_answer(self, pick: int, _: int) -> None:
        self.broker.faults.add(Fault(_APIS[pick % len(_APIS)], 1, drop=True, after=True))

    def _sink_delay(self, pick: int, amount_ms: int) -> None:
        api = _APIS[pick % len(_APIS)]
        self.broker.faults.add(Fault(api, 1, delay_seconds=(1 + amount_ms) / 1000))

    def _driver_death(self, pick: int, amount_ms: int) -> None:
        driver = self._one(pick)
        if driver is not None:
            driver.process.die()
            self.clock.after(1 + amount_ms, self._restart)

    def _driver_pause(self, pick: int, amount_ms: int) -> None:
        driver = self._one(pick)
        if driver is not None:
            driver.process.pause(1 + amount_ms)
            if pick % 2:
                self._start_driver()

    def _driver_twin(self, _pick: int, _ms: int) -> None:
        if sum(one.is_alive for one in self._drivers) < 3:
            self._start_driver()

    def _task_death(self, pick: int, _: int) -> None:
        executor = self._executor(pick)
        if executor is not None:
            executor.process.die()

    def _task_pause(self, pick: int, amount_ms: int) -> None:
        executor = self._executor(pick)
        if executor is not None:
            executor.process.pause(1 + amount_ms)

    def _task_twin(self, _pick: int, _ms: int) -> None:
        self._speculate_until_ms = self.clock.now_ms + 500

    # --- the second phase ------------------------------------------------------------------------

    def finish(self, run_until: Callable[[int], None]) -> int:
        """The faults are over: everybody dies, and one more driver finishes the query."""
        self.note("sinks", "heal")
        self._heal()
        for one in (*self._drivers, *self._executors):
            one.process.die()
        run_until(self.clock.now_ms + self.random.randrange(1, 2 * self.scenario.timeout_ms))
        began_ms = self.clock.now_ms
        self.is_final = True
        while self.checkpoint + 1 < len(self.scenario.rows):
            waited_ms = self.clock.now_ms - began_ms
            behind = f"after {waited_ms} ms the query is at {self.checkpoint}"
            demand(waited_ms < _GOODBYE_MS, "T14", behind)
            if not any(one.is_alive for one in self._drivers):
                self._start_driver()
            run_until(self.clock.now_ms + 100)
        healing_ms = self.clock.now_ms - began_ms
        run_until(self.clock.now_ms + self.scenario.timeout_ms + _SETTLING_MS)
        self.looked_at()
        run_until(self.clock.now_ms + 1)
        self.watcher.demand_nothing_open(self.broker)
        self.watcher.judge()
        return healing_ms

    def report(self) -> SinkReport:
        decided = self.watcher.decided
        return SinkReport(
            batches=len(self.rows),
            rows=sum(map(len, self.rows.values())),
            decisions=len(decided),
            revisions=sum(revision > 0 for _, revision in decided),
            runs=self._runs,
            attempts=self._attempts,
            conflicts=self.conflicts,
            restarts=self._restarts,
            faults=self.counts,
        )
