"""Simulations with real transactional producers, readers and the real broker, in virtual time.

    report = simulate_transactions(7)    # raises Violation, which says how to see it again

Writers send to several partitions and commit or abort, copiers read what is committed and write it
elsewhere with their offsets in the same transaction, readers read what is committed; the broker
runs its transaction and group coordinators on a disk that forgets. After everything that happens
T1 to T13 are checked (``transaction_invariants.py``). Then the faults stop and everybody dies in
the middle of whatever it was: nothing may hang, and whoever comes next must get through.

Rule: a fault only pushes; it never looks at the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from shoal.broker.catalogue import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topic
from shoal.errors import ErrorCode
from shoal.log.partition import Origin, PartitionLog
from shoal.machine.internal_topic import partition_for
from shoal.records.batch import encode_batch
from shoal.testing.faults import Fault
from shoal.testing.simulation.broker_world import BrokerSimulation, BrokerWorld
from shoal.testing.simulation.clock import VirtualClock
from shoal.testing.simulation.invariants import demand
from shoal.testing.simulation.simulated_broker import SimulatedBroker
from shoal.testing.simulation.simulated_cluster import EPOCH_MS
from shoal.testing.simulation.simulated_transactions import (
    GROUP,
    CommittedReader,
    Copier,
    TransactionalUser,
    Writer,
)
from shoal.testing.simulation.simulator import Report, repeat_command
from shoal.testing.simulation.transaction_invariants import History, TransactionWatcher
from shoal.testing.simulation.transaction_swarm import (
    INPUT,
    RECORDS,
    PlannedTransactionFault,
    TransactionalSettings,
    TransactionReport,
    TransactionScenario,
    transaction_faults,
    transaction_scenario,
)
from shoal.testing.simulation.virtual_loop import SimulationStage
from shoal.transaction.journal import TransactionRecord, encode
from shoal.types import TopicPartition

_USERS_MAX: Final = 8
_SETTLING_MS: Final = 3_000
"""Beside the longest timeout of a transaction: markers are tried again every half second."""
_GOODBYE_MS: Final = 40_000
_AGED_PRODUCER_ID: Final = 900_000
_APIS: Final = (
    "EndTxn",
    "EndTxn",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "InitProducerId",
    "Produce",
)
_PASSING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def simulate_transactions(seed: int, *, without: Collection[int] = ()) -> Report:
    """Run one seed, leaving out the faults with these numbers.

    Raises:
        Violation: with notes that say how to repeat the run.
    """
    world = transaction_scenario(seed)
    drawn = transaction_faults(world)
    kept = [fault for number, fault in enumerate(drawn) if number not in without]
    simulation = TransactionSimulation(world, kept)
    try:
        return simulation.run()
    except AssertionError as failure:
        failure.add_note(repeat_command(seed, without, kind="transactions"))
        failure.add_note("last events:\n  " + "\n  ".join(simulation.notes))
        raise
    finally:
        simulation.stage.end()


class TransactionSimulation(BrokerSimulation):
    """One run."""

    def __init__(
        self, scenario: TransactionScenario, faults: Collection[PlannedTransactionFault] = ()
    ) -> None:
        super().__init__()
        self.transactions = TransactionWorld(self.clock, self.stage, scenario, faults, self.note)
        self.world = self.transactions

    def run(self) -> Report:
        report = self.play(self.transactions.finish)
        report.transactions = self.transactions.report()
        return report


class TransactionWorld(BrokerWorld):
    """A broker, a network, users of transactions, and what goes wrong with them."""

    invariant = "T2"

    def __init__(
        self,
        clock: VirtualClock,
        stage: SimulationStage,
        scenario: TransactionScenario,
        faults: Collection[PlannedTransactionFault],
        note: Callable[[str, str], None],
    ) -> None:
        self.scenario = scenario
        self.history = History()
        self.compacted = () if scenario.compaction is None else (RECORDS,)
        """Topics whose records have keys."""
        self.watcher = TransactionWatcher(self.history, scenario.seed, self.compacted)
        self._compactions = 0
        self.is_final = False
        self.users: list[TransactionalUser] = []
        """Everybody, the dead too: what they were in the middle of is not to be cleared away."""
        self.readers: list[CommittedReader] = []
        self._fenced = 0
        self._started = 0
        super().__init__(clock, stage, scenario, note)
        self._age_ids()
        for settings in (*scenario.writers, *scenario.copiers):
            clock.at(1, self._start_user, settings)
        for number in range(scenario.readers):
            clock.at(2, self._start_reader, number == 0)
        for fault in faults:
            clock.at(fault.at_ms, self._go_wrong, fault)
        if scenario.compaction is not None:
            clock.at(scenario.compaction.every_ms, self._compact)

    def _age_ids(self) -> None:
        """Ids that were used for long: their epochs are nearly exhausted."""
        broker = self.broker
        for number, settings in enumerate((*self.scenario.writers, *self.scenario.copiers)):
            if settings.first_epoch is None:
                continue
            topic = broker.catalogue.get(TRANSACTIONS_TOPIC)
            assert topic is not None
            at = partition_for(settings.transactional_id, topic.partition_count)
            partition = broker.partitions.get(topic, at)
            assert not isinstance(partition, ErrorCode)
            record = TransactionRecord(
                transactional_id=settings.transactional_id,
                producer_id=_AGED_PRODUCER_ID + number,
                epoch=settings.first_epoch,
                timeout_ms=settings.timeout_ms,
                update_ms=EPOCH_MS,
            )
            key, value = encode(record)
            batch = bytearray(encode_batch([(key, value, (), EPOCH_MS)]))
            partition.append(batch, EPOCH_MS, origin=Origin.BROKER)
            partition.log.sync()

    # --- what users and the broker ask of their world --------------------------------------------

    @property
    def partition_counts(self) -> dict[str, int]:
        internal = (TRANSACTIONS_TOPIC, OFFSETS_TOPIC)
        return {name: n for name, n in self.scenario.topics.items() if name not in internal}

    @property
    def alive(self) -> list[TransactionalUser]:
        return [each for each in self.users if each.is_alive]

    def is_new(self, client_id: str) -> bool:
        return client_id not in self.history.transactions

    def topic_configs(self, name: str) -> dict[str, str]:
        compaction = self.scenario.compaction
        if compaction is None or not (name in self.compacted or name.startswith("__")):
            return super().topic_configs(name)
        return {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": str(compaction.delete_retention_ms),
        }

    def was_fenced(self) -> None:
        self._fenced += 1

    def look(self) -> None:
        self.watcher.look(self.broker)

    def reopened(self, tp: TopicPartition, topic: Topic, log: PartitionLog | None) -> None:
        del topic
        self.watcher.reopened(tp, log)

    # --- compaction ------------------------------------------------------------------------------

    def _compact(self, _: None = None) -> None:
        assert self.scenario.compaction is not None
        self.clock.after(self.scenario.compaction.every_ms, self._compact)
        if self._is_up and self.resume_ms() is None:
            self.broker.spawn(self._compact_now(self.broker))

    async def _compact_now(self, broker: SimulatedBroker) -> None:
        await broker.run_job(broker.directory.compact(broker.now_ms()))
        if broker is self.broker and self._is_up:
            self._compactions += 1
            self.looked_at()
            try:
                self.watcher.cleaned(broker)
            except AssertionError as failure:
                self.fail(failure)

    # --- life ------------------------------------------------------------------------------------

    def _start_user(self, settings: TransactionalSettings) -> None:
        if len(self.alive) >= _USERS_MAX:
            return
        self._started += 1
        kind = Copier if settings in self.scenario.copiers else Writer
        name = f"{settings.transactional_id}-{self._started}"
        self.note(name, "starts")
        self.users.append(kind(self, name, settings))

    def _replace(self, settings: TransactionalSettings) -> None:
        has_heir = any(each.transactional_id == settings.transactional_id for each in self.alive)
        if not has_heir and not self.is_over:
            self._start_user(settings)

    def _start_reader(self, from_start: bool) -> None:
        self._started += 1
        self.readers.append(CommittedReader(self, f"r{self._started}", from_start=from_start))

    # --- what goes wrong -------------------------------------------------------------------------

    def _one(self, pick: int) -> TransactionalUser | None:
        """Somebody; who ended by itself is replaced first, as by an operator."""
        for settings in (*self.scenario.writers, *self.scenario.copiers):
            self._replace(settings)
        alive = self.alive
        return alive[pick % len(alive)] if alive else None

    def _send_cut(self, pick: int, amount_ms: int) -> None:
        user = self._one(pick)
        if user is not None:
            user.process.cut(
                survivors=pick % 6,
                late_ms=amount_ms if pick % 2 == 0 else 0,
                notice_ms=amount_ms if pick % 5 == 0 else 1 + pick % 20,
                at_next_send=pick % 7 < 4,
            )

    def _txn_refusal(self, pick: int, _: int) -> None:
        api = _APIS[pick % (len(_APIS) - 1)]
        self.broker.faults.add(Fault(api, 1 + pick % 2, error=_PASSING[pick % len(_PASSING)]))

    def _txn_lost_request(self, pick: int, _: int) -> None:
        self.broker.faults.add(Fault(_APIS[pick % len(_APIS)], 1, drop=True))

    def _txn_lost_answer(self, pick: int, _: int) -> None:
        self.broker.faults.add(Fault(_APIS[pick % len(_APIS)], 1, drop=True, after=True))

    def _txn_delay(self, pick: int, amount_ms: int) -> None:
        api = _APIS[pick % len(_APIS)]
        self.broker.faults.add(Fault(api, 1, delay_seconds=(1 + amount_ms) / 1000))

    def _user_pause(self, pick: int, amount_ms: int) -> None:
        user = self._one(pick)
        if user is not None:
            user.process.pause(amount_ms)

    def _user_death(self, pick: int, amount_ms: int) -> None:
        user = self._one(pick)
        if user is not None:
            user.process.die()
            self.clock.after(amount_ms, self._replace, user.settings)

    def _user_twin(self, pick: int, _: int) -> None:
        user = self._one(pick)
        if user is not None:
            self._start_user(user.settings)

    def _user_dawdle(self, pick: int, amount_ms: int) -> None:
        user = self._one(pick)
        if user is not None:
            user.dawdles_ms = 1 + amount_ms

    def _reader_death(self, pick: int, amount_ms: int) -> None:
        reader = self.readers[pick % len(self.readers)]
        if reader.is_alive:
            reader.process.die()
            self.clock.after(amount_ms, self._start_reader, pick % 3 == 0)

    # --- the second phase ------------------------------------------------------------------------

    def finish(self, run_until: Callable[[int], None]) -> int:
        """The faults are over: nothing hangs, everybody new gets through, all is read."""
        self.note("transactions", "heal")
        self._heal()
        for user in self.alive:
            user.process.die()
        everybody = (*self.scenario.writers, *self.scenario.copiers)
        longest_ms = max(each.timeout_ms for each in everybody)
        run_until(self.clock.now_ms + longest_ms + _SETTLING_MS)
        self.watcher.demand_nothing_open(self.broker)
        began_ms = self.clock.now_ms
        self.is_final = True
        self._start_reader(True)
        for settings in everybody:
            self._start_user(settings)
        while waits_for := self._unfinished():
            waited_ms = self.clock.now_ms - began_ms
            demand(waited_ms < _GOODBYE_MS, "T12", f"after {waited_ms} ms: {waits_for}")
            run_until(self.clock.now_ms + 100)
        healing_ms = self.clock.now_ms - began_ms
        run_until(self.clock.now_ms + _SETTLING_MS)
        self.watcher.demand_nothing_open(self.broker)
        self.history.judge()
        self._judge_copies()
        return healing_ms

    def _unfinished(self) -> str:
        for settings in self.scenario.writers:
            mine = [each for each in self.users if each.settings is settings]
            if not any(isinstance(each, Writer) and each.has_said_goodbye for each in mine):
                if not any(each.is_alive for each in mine):
                    self._start_user(settings)
                return f"{settings.transactional_id} has not committed"
        for settings in self.scenario.copiers:
            if not any(each.is_alive and each.settings is settings for each in self.users):
                self._start_user(settings)
        if self.scenario.copiers and self._left_to_copy():
            return f"{len(self._left_to_copy())} records are not copied"
        for reader in self.readers:
            for tp, position in reader.positions.items() if reader.is_alive else ():
                left = self.watcher.unread(tp, position)
                if left:
                    return f"{reader.name} has not read {tp} from {left[0]} on"
        return ""

    def _sources(self) -> set[str]:
        """Every committed record of the topic that is copied."""
        found = set()
        for number in range(self.scenario.topics[INPUT]):
            tp = TopicPartition(INPUT, number)
            found |= {f"{tp}@{offset}" for offset in self.watcher.unread(tp, 0)}
        return found

    def _left_to_copy(self) -> set[str]:
        return self._sources() - self.history.copies.keys()

    def _judge_copies(self) -> None:
        if self.scenario.copiers:
            self.watcher.copied(self._sources())
        for number in range(self.scenario.topics[INPUT] if self.scenario.copiers else 0):
            tp = TopicPartition(INPUT, number)
            runtime = self.broker.groups.runtime_of(GROUP)
            assert not isinstance(runtime, ErrorCode)
            held = runtime.machine.offsets.get(GROUP, tp)
            left = self.watcher.unread(tp, held.offset if held is not None else 0)
            demand(not left, "T9", f"{GROUP} is at {held} of {tp}, and has copied it all")

    def report(self) -> TransactionReport:
        history = self.history
        return TransactionReport(
            begun=len(history.transactions),
            committed=history.committed,
            aborted=history.aborted,
            copied=sum(history.copies.values()),
            read=sum(each.count for each in self.readers),
            fenced=self._fenced,
            restarts=self._restarts,
            late_messages=self.network.late_count,
            compactions=self._compactions,
            faults=self.counts,
        )
