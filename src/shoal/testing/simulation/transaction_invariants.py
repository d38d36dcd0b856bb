"""What transactions must keep, whatever goes wrong: T1 to T13.

    T1  a transaction has one end, the same in every partition and for its offsets, and what is
        committed is all of it, each record once
    T2  only what its user asked to commit is committed; what was told stays true forever
    T3  a reader of committed records gets exactly those, in order, once, below the last stable
        offset
    T4  the last stable offset is where the oldest open transaction begins, or the high watermark;
        it never goes back
    T5  nobody writes after being fenced: epochs of a producer only grow, in every log, and what
        begins in a log is in a coordinator's books
    T6  nothing joins another transaction: between two markers stand records of one
    T7  no producer id and epoch is used twice: by two transactions in the new flow, by two
        producers in the old one
    T8  nothing hangs: when all producers are gone, every transaction ends in time
    T9  a group's offset is the newest committed one, unstable while a transaction will decide
    T10 the list of aborted transactions of a read is complete, and has nothing else
    T11 coordinators are what their logs say, before and after every restart, and a state follows
        only where it may
    T12 a call ends in time, and after the last fault transactions get through: what was read is
        written exactly once
    T13 compaction takes nothing that counts (``compaction_invariants.py``)

A record's value names its transaction, and so does the note beside a committed offset. The models
here are made of what stands in the logs below their high watermarks, which is what readers see and
what must survive; they share no code with what they judge.

Rule: a log is looked at whenever it may have changed, and only its new part; after a restart all
of it is read again and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from shoal.broker.broker import Broker
from shoal.broker.catalogue import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from shoal.errors import ErrorCode
from shoal.group.coordinator.coordinator import Phase
from shoal.group.coordinator.journal import OffsetRecord, OffsetTombstone
from shoal.group.coordinator.journal import decode as decode_group_record
from shoal.log.partition import PartitionLog
from shoal.records.batch import BatchHeader, decode_batch, iter_headers
from shoal.records.markers import is_abort_marker
from shoal.testing.simulation.compaction_invariants import (
    check_compacted,
    check_fences,
    key_of,
)
from shoal.testing.simulation.invariants import demand
from shoal.transaction.journal import TransactionRecord, TransactionTombstone
from shoal.transaction.journal import decode as decode_transaction
from shoal.transaction.states import TransactionState
from shoal.types import TopicPartition

_READ_BYTES: Final = 1 << 20
_S = TransactionState
_IDLE: Final = (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
_AFTER: Final = {
    _S.EMPTY: (_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT),
    _S.ONGOING: (_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT),
    _S.PREPARE_COMMIT: (_S.COMPLETE_COMMIT,),
    _S.PREPARE_ABORT: (_S.COMPLETE_ABORT,),
    _S.COMPLETE_COMMIT: (_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT),
    _S.COMPLETE_ABORT: (_S.EMPTY, _S.ONGOING, _S.COMPLETE_ABORT),
}
_EXHAUSTED: Final = 32_766


@dataclass(eq=False, slots=True)
class Transaction:
    """One transaction, as its user knows it, and what became of it."""

    name: str
    producer: str
    flow: int
    """1 or 2: ``transaction.version`` as this producer speaks it."""
    sent: dict[TopicPartition, list[bytes]] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    asked: bool = False
    """Whether its user has asked to commit."""
    told: bool | None = None
    """Committed or aborted, as the user heard."""
    outcome: bool | None = None
    """What the first marker said."""
    ended: set[TopicPartition] = field(default_factory=set)
    """Where it has a marker."""


class _Span(NamedTuple):
    """What a producer wrote in a partition since its last marker there."""

    first: int
    epoch: int
    transaction: Transaction
    values: list[bytes]
    offsets: list[int]


def value_of(transaction: Transaction, number: int, source: str = "") -> bytes:
    return f"{transaction.name}/{number}={source}".encode()


class History:
    """Every transaction, by what its user did and heard."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.committed = 0
        self.aborted = 0
        self.copies: Counter[str] = Counter()
        """How often each record was copied, by committed transactions."""
        self._begun: Counter[str] = Counter()

    def begin(self, producer: str, flow: int) -> Transaction:
        self._begun[producer] += 1
        name = f"{producer}.{self._begun[producer]}"
        made = self.transactions[name] = Transaction(name, producer, flow)
        return made

    def sends(self, transaction: Transaction, tp: TopicPartition, source: str = "") -> bytes:
        """The value of its next record, which may be in the log from now on."""
        value = value_of(transaction, sum(map(len, transaction.sent.values())), source)
        transaction.sent.setdefault(tp, []).append(value)
        return value

    def told(self, transaction: Transaction, *, committed: bool) -> None:
        transaction.told = committed
        self._agrees(transaction)

    def ends(self, span: _Span, tp: TopicPartition, *, commit: bool) -> None:
        """A marker has become visible behind what was written."""
        transaction = span.transaction
        name = transaction.name
        if transaction.outcome is None:
            transaction.outcome = commit
            self.committed += commit
            self.aborted += not commit
        one = transaction.outcome is commit
        # A part that no coordinator knew is aborted by itself, if the rest never commits.
        demand(one, "T1", f"{name} is {_end(commit)} in {tp}, {_end(not commit)} elsewhere")
        transaction.ended.add(tp)
        self._agrees(transaction)
        if commit:
            self._is_whole(span, tp)

    def _agrees(self, transaction: Transaction) -> None:
        outcome, told = transaction.outcome, transaction.told
        name = transaction.name
        if outcome is not None:
            demand(outcome is False or transaction.asked, "T2", f"nobody asked to commit {name}")
            fits = told is None or told is outcome
            demand(fits, "T2", f"{name} is {_end(outcome)}, its user was told it is not")

    def _is_whole(self, span: _Span, tp: TopicPartition) -> None:
        transaction = span.transaction
        if tp.topic == OFFSETS_TOPIC:
            return  # its offsets are compared where they count
        wanted = transaction.sent.get(tp, [])
        said = f"{transaction.name} is committed in {tp} with {span.values}, not {wanted}"
        demand(span.values == wanted, "T1", said)
        for value in span.values:
            source = value.decode().partition("=")[2]
            if source:
                self.copies[source] += 1
                demand(self.copies[source] == 1, "T12", f"{source} was copied twice, in {value!r}")

    def judge(self) -> None:
        """In the end everything that was committed has its end everywhere."""
        for transaction in self.transactions.values():
            name, ended = transaction.name, transaction.ended
            if transaction.told and (transaction.sent or transaction.offsets):
                demand(transaction.outcome is True, "T2", f"{name} was committed, and is not")
            if transaction.outcome:
                left = transaction.sent.keys() - ended
                demand(not left, "T1", f"{name} is committed, but not in {sorted(left)}")
                has_offsets = any(tp.topic == OFFSETS_TOPIC for tp in ended)
                is_whole = has_offsets or not transaction.offsets
                demand(is_whole, "T1", f"{name} is committed without its offsets")


def _end(commit: bool) -> str:
    return "committed" if commit else "aborted"


class _LogModel:
    """One partition that transactions write to."""

    __slots__ = ("aborted", "epochs", "fates", "last", "lso", "open", "values")

    def __init__(self) -> None:
        self.values: list[bytes] = []
        """By offset; empty for a marker, or where a power cut took what nobody was promised."""
        self.fates: list[bool | None] = []
        """By offset: whether readers get it; ``None`` if that is not decided."""
        self.open: dict[int, _Span] = {}
        self.epochs: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        """Producer id, first offset, marker's offset."""
        self.last: dict[bytes, int] = {}
        """By key: where the last committed record is, in a topic that is compacted."""
        self.lso = 0

    def stable(self, high_watermark: int) -> int:
        return min((span.first for span in self.open.values()), default=high_watermark)


class _OffsetsModel:
    """What the records of one partition of ``__consumer_offsets`` amount to."""

    __slots__ = ("committed", "pending")

    def __init__(self) -> None:
        self.committed: dict[tuple[str, str, int], tuple[int, int]] = {}
        """Group, topic and partition: position, and the offset of its record."""
        self.pending: dict[int, dict[tuple[str, str, int], tuple[int, int]]] = {}

    def replay(self, record: object, offset: int) -> None:
        if isinstance(record, OffsetRecord):
            key = (record.group_id, record.topic, record.partition)
            if record.producer_id is None:
                self.committed[key] = record.offset, offset
            else:
                self.pending.setdefault(record.producer_id, {})[key] = record.offset, offset
        elif isinstance(record, OffsetTombstone):
            key = (record.group_id, record.topic, record.partition)
            self.committed.pop(key, None)
            for staged in self.pending.values():
                staged.pop(key, None)

    def ends(self, producer_id: int, *, commit: bool) -> None:
        for key, (position, offset) in self.pending.pop(producer_id, {}).items():
            if commit and self.committed.get(key, (0, -1))[1] < offset:
                self.committed[key] = position, offset


class TransactionWatcher:
    """Watches the logs of a broker, its coordinators, and what users are told."""

    def __init__(self, history: History, seed: int, compacted: Collection[str] = ()) -> None:
        """``compacted``: topics of which compaction may take what has been replaced."""
        self.history = history
        self._compacted = compacted
        self._dice = Random(seed)
        self._logs: dict[TopicPartition, _LogModel] = {}
        self._offsets: dict[TopicPartition, _OffsetsModel] = {}
        self._states: dict[TopicPartition, dict[str, TransactionRecord]] = {}
        self._read_to: dict[TopicPartition, int] = {}
        """Of ``__transaction_state``."""
        self._by_producer: dict[int, TransactionRecord] = {}
        """The last record of each producer id, durable."""
        self._owners: dict[tuple[int, int], str] = {}
        """Producer id and epoch: the transaction, or in the old flow the producer, that has it."""
        self._seen_open: set[tuple[TopicPartition, int, int, int]] = set()

    # --- looking ---------------------------------------------------------------------------------

    def look(self, broker: Broker) -> None:
        logs = broker.directory.partitions
        for tp, log in logs.items():
            if tp.topic == TRANSACTIONS_TOPIC:
                self._look_at_states(tp, log)
        for tp, log in logs.items():
            if tp.topic != TRANSACTIONS_TOPIC:
                self._look_at_log(tp, log)
        self._look_at_books(broker)
        self._compare(broker)

    def reopened(self, tp: TopicPartition, log: PartitionLog | None) -> None:
        """Everything that was visible must be there, as it was."""
        if tp.topic == TRANSACTIONS_TOPIC:
            if log is None:
                demand(tp not in self._read_to, "T11", f"{tp} is gone")
            else:
                before, visible = dict(self._states.get(tp, {})), self._read_to.get(tp, 0)
                self._read_to[tp] = 0
                self._look_at_states(tp, log, again=True)
                demand(self._read_to[tp] >= visible, "T11", f"{tp} is shorter than it was")
                for transactional_id, record in before.items():
                    now = self._states[tp].get(transactional_id)
                    is_newer = now is not None and now.update_ms >= record.update_ms
                    demand(is_newer, "T11", f"{record} was stored, now there is {now}")
            return
        known = self._logs.get(tp)
        if log is None:
            demand(known is None or not known.values, "T2", f"{tp} is gone")
            return
        if known is not None and not self._is_compacted(log):
            there = [value for value, *_ in _contents(tp, log, 0, known.values)]
            same = there[: len(known.values)] == known.values
            demand(same, "T2", f"{tp} is not what it was")
        for found in log.open_transactions():
            self._seen_open.add((tp, found.producer_id, found.producer_epoch, found.first_offset))
        self._look_at_log(tp, log, is_new_life=True)
        if known is not None and self._is_compacted(log):
            self._check_compacted(tp, log, known)
            check_fences(log, known)

    def cleaned(self, broker: Broker) -> None:
        """A round of compaction is over: T13."""
        for tp, log in broker.directory.partitions.items():
            known = self._logs.get(tp)
            if known is not None and self._is_compacted(log):
                self._check_compacted(tp, log, known)

    def _is_compacted(self, log: PartitionLog) -> bool:
        return log.state.cleaned_until > 0

    def _check_compacted(self, tp: TopicPartition, log: PartitionLog, model: _LogModel) -> None:
        internal = tp.topic == OFFSETS_TOPIC
        check_compacted(
            log,
            model,
            self._dice,
            _stored_key if internal else key_of,
            _joined_up if internal else lambda _, value: value,
        )

    def _look_at_log(
        self, tp: TopicPartition, log: PartitionLog, is_new_life: bool = False
    ) -> None:
        model = self._logs.setdefault(tp, _LogModel())
        end = log.high_watermark
        if end > len(model.values):
            aborts = len(model.aborted)
            may_miss = model.values if is_new_life else None
            for value, header, commit in _contents(tp, log, len(model.values), may_miss):
                self._found(tp, model, value, header, commit)
            if len(model.aborted) > aborts:
                self._check_aborted(tp, model, log)
        stable = model.stable(end)
        found = log.last_stable_offset
        demand(found == stable, "T4", f"the last stable offset of {tp} is {found}, not {stable}")
        demand(found >= model.lso, "T4", f"the last stable offset of {tp} went back to {found}")
        model.lso = found

    # --- records and markers ---------------------------------------------------------------------

    def _found(
        self,
        tp: TopicPartition,
        model: _LogModel,
        value: bytes,
        header: BatchHeader | None,
        commit: bool | None,
    ) -> None:
        offset = len(model.values)
        model.values.append(value)
        if header is None:
            model.fates.append(False)  # a hole, never promised
            return
        if commit is not None:
            model.fates.append(False)
            self._ended(tp, model, header, offset, commit=commit)
        elif not header.is_transactional:
            model.fates.append(True)
            self._counts(tp, model, offset)
            if tp.topic == OFFSETS_TOPIC:
                self._offset_found(tp, header, value, offset)
        else:
            model.fates.append(None)
            if tp.topic == OFFSETS_TOPIC:
                self._offset_found(tp, header, value, offset)
            self._joined(tp, model, header, value, offset)

    def _joined(
        self, tp: TopicPartition, model: _LogModel, header: BatchHeader, value: bytes, offset: int
    ) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        known = model.epochs.get(producer_id, -1)
        who = f"producer {producer_id} in epoch {epoch}"
        demand(epoch >= known, "T5", f"{who} writes to {tp} at {offset}, where {known} was seen")
        model.epochs[producer_id] = epoch
        name = _transaction_of(tp, value)
        transaction = self.history.transactions[name]
        owner = name if transaction.flow == 2 else transaction.producer
        had = self._owners.setdefault((producer_id, epoch), owner)
        demand(had == owner, "T7", f"{who} is {owner}, and was {had}")
        span = model.open.get(producer_id)
        if span is None:
            span = model.open[producer_id] = _Span(offset, epoch, transaction, [], [])
        is_one = span.transaction is transaction and span.epoch == epoch
        demand(is_one, "T6", f"{name} joins {span.transaction.name} in {tp} at {offset}")
        span.values.append(value)
        span.offsets.append(offset)

    def _ended(
        self,
        tp: TopicPartition,
        model: _LogModel,
        header: BatchHeader,
        offset: int,
        *,
        commit: bool,
    ) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        known = model.epochs.get(producer_id, -1)
        what = f"a marker of producer {producer_id} in epoch {epoch}"
        demand(epoch >= known, "T5", f"{what} stands in {tp} at {offset}, where {known} was seen")
        model.epochs[producer_id] = epoch
        if tp.topic == OFFSETS_TOPIC:
            self._offsets.setdefault(tp, _OffsetsModel()).ends(producer_id, commit=commit)
        span = model.open.pop(producer_id, None)
        if span is None:
            return
        if commit:
            record = self._by_producer.get(producer_id)
            is_decided = (
                record is not None
                and record.state in (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT)
                and record.epoch == epoch
            )
            demand(is_decided, "T1", f"{what} commits in {tp}, the coordinator says {record}")
        is_new_flow = span.transaction.flow == 2 and tp.topic != OFFSETS_TOPIC
        is_next = epoch == span.epoch + 1 or not is_new_flow
        demand(is_next, "T6", f"{what} ends records of epoch {span.epoch} in {tp}")
        if not commit:
            model.aborted.append((producer_id, span.first, offset))
        for each in span.offsets:
            model.fates[each] = commit
            if commit:
                self._counts(tp, model, each)
        if commit or tp.topic != OFFSETS_TOPIC or self._was_decided(producer_id, epoch):
            self.history.ends(span, tp, commit=commit)

    def _counts(self, tp: TopicPartition, model: _LogModel, offset: int) -> None:
        if tp.topic in self._compacted:
            key = key_of(model.values[offset])
            model.last[key] = max(offset, model.last.get(key, -1))

    def _was_decided(self, producer_id: int, epoch: int) -> bool:
        """Or do staged offsets end that no coordinator knows? Their user sends them again."""
        record = self._by_producer.get(producer_id)
        ends = (_S.PREPARE_ABORT, _S.COMPLETE_ABORT)
        return record is not None and record.state in ends and record.epoch == epoch

    def _offset_found(
        self, tp: TopicPartition, header: BatchHeader, value: bytes, offset: int
    ) -> None:
        key, _, stored = value.partition(_BETWEEN)
        record = decode_group_record(key, stored or None)
        if isinstance(record, OffsetRecord) and header.is_transactional:
            record = record._replace(
                producer_id=header.producer_id, producer_epoch=header.producer_epoch
            )
        self._offsets.setdefault(tp, _OffsetsModel()).replay(record, offset)

    def _check_aborted(self, tp: TopicPartition, model: _LogModel, log: PartitionLog) -> None:
        """T10, for a read of any part."""
        start = self._dice.randrange(len(model.values))
        end = self._dice.randrange(start, len(model.values)) + 1
        wanted = {
            (producer_id, first)
            for producer_id, first, last in model.aborted
            if last >= start and first < end
        }
        # The end of one that is open here may be on its way to the disk.
        ending = {(producer_id, span.first) for producer_id, span in model.open.items()}
        found = set(log.aborted_transactions(start, end)) - ending
        if self._is_compacted(log):
            wanted &= found  # whether enough of them are left is T13's business
        said = f"{tp} from {start} to {end}: aborted are {sorted(found)}, not {sorted(wanted)}"
        demand(found == wanted, "T10", said)

    # --- coordinators ----------------------------------------------------------------------------

    def _look_at_states(self, tp: TopicPartition, log: PartitionLog, again: bool = False) -> None:
        offset = self._read_to.get(tp, 0)
        if log.high_watermark <= offset:
            return
        states = self._states.setdefault(tp, {})
        # What compaction has left is what was seen before, with others in between.
        sparse = again and self._is_compacted(log)
        unsure: set[str] = set()
        if again:
            states.clear()
        for value, header, _ in _contents(tp, log, offset, [] if again else None, sparse=sparse):
            if header is None:
                unsure |= states.keys()  # what follows does not follow what stands before
                continue
            key, _, stored = value.partition(_BETWEEN)
            record = decode_transaction(key, stored or None)
            if isinstance(record, TransactionTombstone):
                states.pop(record.transactional_id, None)
            elif record is not None:
                if not sparse and record.transactional_id not in unsure:
                    self._moved(states.get(record.transactional_id), record)
                unsure.discard(record.transactional_id)
                states[record.transactional_id] = record
                self._by_producer[record.producer_id] = record
        self._read_to[tp] = log.high_watermark

    def _moved(self, before: TransactionRecord | None, after: TransactionRecord) -> None:
        if before is None:
            return
        told = f"{before} is followed by {after}"
        demand(after.state in _AFTER[before.state], "T11", told)
        if after.producer_id == before.producer_id:
            demand(after.epoch >= before.epoch, "T5", told)
        else:
            demand(before.epoch >= _EXHAUSTED and after.epoch == 0, "T7", told)

    def _look_at_books(self, broker: Broker) -> None:
        """T5: what begins in a log is known to a coordinator that has not decided it yet."""
        books: dict[tuple[int, TopicPartition], TransactionRecord] | None = None
        for tp, log in broker.directory.partitions.items():
            if not log.producers.open:
                continue
            for found in log.open_transactions():
                key = (tp, found.producer_id, found.producer_epoch, found.first_offset)
                if key in self._seen_open:
                    continue
                self._seen_open.add(key)
                if books is None:
                    books = {
                        (record.producer_id, each): record
                        for record in broker.transactions.records()
                        for each in record.partitions
                    }
                record = books.get((found.producer_id, tp))
                is_known = record is not None and (
                    record.state is _S.ONGOING and record.epoch == found.producer_epoch
                )
                who = f"producer {found.producer_id} in epoch {found.producer_epoch}"
                demand(is_known, "T5", f"{who} begins in {tp}; the coordinator knows {record}")

    def _compare(self, broker: Broker) -> None:
        """T11 and T9: machines hold what their logs say, if everything in those is stored."""
        if broker._transactions is not None:
            for number, runtime in broker._transactions.runtimes.items():
                log, machine = runtime.partition.log, runtime.machine
                if log.end_offset != log.high_watermark or not machine.is_active:
                    continue
                tp = TopicPartition(TRANSACTIONS_TOPIC, number)
                for record in machine.records:
                    stored = self._states.get(tp, {}).get(record.transactional_id)
                    same = stored is not None and (
                        (record.producer_id, record.epoch, record.state, record.partitions)
                        == (stored.producer_id, stored.epoch, stored.state, stored.partitions)
                    )
                    demand(same, "T11", f"in memory {record}, in the log {stored}")
                missing = len(self._states.get(tp, {})) - len(machine.records)
                demand(not missing, "T11", f"{missing} ids of {tp} are not in memory")
        if broker._groups is not None:
            for number, groups in broker._groups.runtimes.items():
                log = groups.partition.log
                is_active = groups.machine.phase is Phase.ACTIVE
                if log.end_offset == log.high_watermark and is_active:
                    self._compare_offsets(TopicPartition(OFFSETS_TOPIC, number), groups.machine)

    def _compare_offsets(self, tp: TopicPartition, machine: object) -> None:
        model = self._offsets.get(tp)
        if model is None:
            return
        store = machine.offsets  # type: ignore[attr-defined]  # a group coordinator's
        for (group, topic, number), (position, _) in model.committed.items():
            found = store.get(group, TopicPartition(topic, number))
            held = None if found is None else found.offset
            what = f"{group} is at {held} of {topic}-{number}, by its log at {position}"
            demand(held == position, "T9", what)
        for staged in model.pending.values():
            for group, topic, number in staged:
                unstable = store.is_unstable(group, TopicPartition(topic, number))
                demand(
                    unstable, "T9", f"{topic}-{number} of {group} will be decided, and is stable"
                )
        pending = sum(map(len, model.pending.values()))
        held_back = sum(len(tps) for one in store._pending.values() for tps in one.values())
        demand(held_back == pending, "T9", f"{held_back} offsets are staged, by the log {pending}")

    # --- readers ---------------------------------------------------------------------------------

    def readable(self, tp: TopicPartition) -> _LogModel:
        return self._logs.setdefault(tp, _LogModel())

    def read(self, tp: TopicPartition, position: int, offset: int, value: bytes) -> None:
        """T3: what a reader got that had come to ``position``."""
        model = self.readable(tp)
        what = f"{value!r} was read in {tp} at {offset}"
        demand(offset < model.lso, "T3", f"{what}, beyond the last stable offset {model.lso}")
        demand(model.values[offset] == value, "T3", f"{what}, there is {model.values[offset]!r}")
        demand(model.fates[offset] is True, "T3", f"{what}, and is not committed")
        demand(offset >= position, "T3", f"{what}, a second time")
        skipped = self._missed(tp, model, range(position, offset))
        demand(not skipped, "T3", f"{what}, and {skipped} before it was not")

    def unread(self, tp: TopicPartition, position: int) -> list[int]:
        """What a reader at ``position`` has still to get."""
        model = self.readable(tp)
        return self._missed(tp, model, range(position, len(model.values)))

    def _missed(self, tp: TopicPartition, model: _LogModel, offsets: range) -> list[int]:
        """Which of them a reader must get: compaction may have taken what was replaced."""
        missed = [at for at in offsets if model.fates[at] is not False]
        if tp.topic in self._compacted:
            return [
                at
                for at in missed
                if model.fates[at] is None or model.last[key_of(model.values[at])] <= at
            ]
        return missed

    def hole_at(self, tp: TopicPartition, position: int) -> int | None:
        """Where a hole ends that begins at ``position``; ``None`` if there is none."""
        values = self.readable(tp).values
        end = position
        while end < len(values) and values[end] == HOLE:
            end += 1
        return end if end > position else None

    # --- the end ---------------------------------------------------------------------------------

    def demand_nothing_open(self, broker: Broker) -> None:
        """T8, when there was time enough."""
        for tp, log in broker.directory.partitions.items():
            stable, end = log.last_stable_offset, log.high_watermark
            hanging = [each.producer_id for each in log.open_transactions()]
            demand(stable == end, "T8", f"{tp} is stable up to {stable} of {end}: {hanging}")
        for record in broker.transactions.records():
            demand(record.state in _IDLE, "T8", f"{record} has not ended")

    def copied(self, sources: set[str]) -> None:
        """T12: what was read is written, each once."""
        left = sorted(sources - self.history.copies.keys())
        demand(not left, "T12", f"{left[:5]} were never copied, {len(left)} in all")
        added = sorted(self.history.copies.keys() - sources)
        demand(not added, "T12", f"{added[:5]} were copied, and are not committed")


HOLE: Final = b""
_MARKER: Final = b"-"
_BETWEEN: Final = b"\xff\xfe|\xfe\xff"


def _joined_up(key: bytes, value: bytes) -> bytes:
    return key + _BETWEEN + value


def _stored_key(value: bytes) -> bytes | None:
    """Of a record of an internal topic; a tombstone may go."""
    key, _, stored = value.partition(_BETWEEN)
    return key if stored else None


def _transaction_of(tp: TopicPartition, value: bytes) -> str:
    if tp.topic == OFFSETS_TOPIC:
        key, _, stored = value.partition(_BETWEEN)
        record = decode_group_record(key, stored)
        assert isinstance(record, OffsetRecord)
        return record.metadata
    return value.decode().partition("/")[0]


def _contents(
    tp: TopicPartition,
    log: PartitionLog,
    offset: int,
    may_miss: list[bytes] | None,
    *,
    sparse: bool = False,
) -> Iterator[tuple[bytes, BatchHeader | None, bool | None]]:
    """Offset by offset up to the high watermark: value, batch, and how a marker ends.

    Of what nobody was promised a power cut may leave a hole (L4): only after a restart, and only
    where nothing was seen before. ``sparse``: compaction has taken some, and those are left out.
    """
    internal = tp.topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
    while offset < log.high_watermark:
        read = log.read(offset, _READ_BYTES)
        if read.error is ErrorCode.CORRUPT_MESSAGE and may_miss is not None:
            is_known = offset < len(may_miss) and may_miss[offset] != HOLE
            demand(not is_known, "T2", f"{tp} had {may_miss[offset:][:1]} at {offset}, now a hole")
            yield HOLE, None, None
            offset += 1
            continue
        demand(read.error is ErrorCode.NONE, "T2", f"{tp} cannot be read at {offset}")
        data = read.read_bytes()
        began = offset
        for position, header in iter_headers(data):
            demand(sparse or header.base_offset <= offset, "T13", f"{tp} has nothing at {offset}")
            if header.is_control:
                yield _MARKER, header, not is_abort_marker(data, position)
            else:
                for record in decode_batch(data, position):
                    value = bytes(record.value or b"")
                    if internal:
                        value = _joined_up(bytes(record.key or b""), value)
                    yield value, header, None
            offset = header.next_offset
        demand(offset > began, "T2", f"{tp} ends at {offset}, not {log.high_watermark}")
