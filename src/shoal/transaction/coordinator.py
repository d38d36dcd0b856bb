"""The transaction coordinator of one partition of ``__transaction_state``.

A machine as ``shoal.machine.interface`` describes it: a call returns a decision, its records are
appended and replayed, its replies leave when they are durable.

The life of a transaction. The first partition makes it Ongoing. EndTxn writes Prepare*: from the
moment that record is durable the outcome cannot change, and the client is told. In the same
decision the markers are ordered from the shell (a reply to its own ticket, so that they are
written after the record is durable and not before). When all of them are durable,
``MarkersWritten`` comes back and Complete* is written.

Who comes between Prepare* and Complete* is not sent away with CONCURRENT_TRANSACTIONS, as by Kafka,
but waits here for the moment it takes: clients back off for much longer than that. Only who has
waited ``PARKED_MAX_MS`` hears it.

Epochs. A client of the old flow keeps its epoch from transaction to transaction; one of the new
flow (EndTxn v5, KIP-890) gets the next one with each answer. The *request version* is the switch,
so both may use one id over time. ``EPOCH_MAX`` is never given to a client: it fences the last one.

Two-phase commit (KIP-939). A producer that asks for it gets ``NO_TIMEOUT_MS``, and its transactions
end by EndTxn, by its id's next init or by an administrator, never by their age. As in Apache Kafka
4.3, an init cannot keep what is prepared yet (UNSUPPORTED_VERSION): whoever ends a transaction
after its producer died needs the producer id and epoch it had.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from shoal.errors import ErrorCode
from shoal.machine.decision import Caller, Decision, Reply, Response, Ticket
from shoal.machine.timers import Timers
from shoal.transaction.journal import (
    EPOCH_MAX,
    NO_TIMEOUT_MS,
    TransactionLogRecord,
    TransactionRecord,
    TransactionTombstone,
)
from shoal.transaction.requests import (
    TV0,
    TV2,
    AbortByAdmin,
    AddPartitions,
    MarkersWritten,
    VerifyPartitions,
    WriteMarkers,
)
from shoal.transaction.states import TransactionState, may_move
from shoal.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from shoal.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PARKED_MAX_MS: Final = 1_000
_AGAIN_MS: Final = 1_000
_EXPIRED_AT_ONCE: Final = 1_000
_FENCED_CODE_SINCE: Final[dict[type, int]] = {InitProducerIdRequest: 4, EndTxnRequest: 2}
"""Older clients do not know PRODUCER_FENCED and are told INVALID_PRODUCER_EPOCH."""

TimerName: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Kafka's names and defaults."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    remove_expired_interval_ms: int = 3_600_000
    two_phase_commit_enable: bool = False


@dataclass(frozen=True, slots=True)
class TransactionEvent:
    """Something worth a line in a log."""

    transactional_id: str
    what: str


TransactionDecision: TypeAlias = Decision[TransactionLogRecord, TransactionEvent]


class _Phase(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    UNLOADED = "unloaded"


# In Python 3.11 to look a member up takes longer than what is done with it.
_ACTIVE: Final = _Phase.ACTIVE
_ONGOING: Final = TransactionState.ONGOING
_NONE: Final = ErrorCode.NONE


class _Draft:
    """A decision being written. It lives for one call."""

    __slots__ = ("events", "journal", "now_ms", "replies")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.journal: list[TransactionLogRecord] = []
        self.replies: list[Reply] = []
        self.events: list[TransactionEvent] = []


class TransactionCoordinator:
    """All transactional ids of one partition."""

    def __init__(
        self,
        config: TransactionConfig,
        *,
        new_producer_id: Callable[[], int | None],
        markers: Ticket,
    ) -> None:
        """``new_producer_id`` gives one of a block that is durably ours, or ``None`` for now.

        ``markers`` gets the orders to write markers, as replies.
        """
        self._config = config
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._phase = _Phase.LOADING
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._records: dict[str, TransactionRecord] = {}
        self._parked: dict[str, list[tuple[Any, Caller]]] = {}
        self._timers: Timers[TimerName] = Timers()

    # --- Loading, replaying ----------------------------------------------------------------------

    def replay(self, record: TransactionLogRecord, offset: int) -> None:
        """The only place where durable state changes."""
        del offset  # The last record of an id counts, wherever it stands.
        before = self._records.get(record.transactional_id)
        if isinstance(record, TransactionTombstone):
            self._records.pop(record.transactional_id, None)
            return
        if self._phase is _ACTIVE:
            assert before is None or may_move(before.state, record.state), (before, record)
        self._records[record.transactional_id] = record

    def replay_all(self, records: Iterable[TransactionLogRecord], base_offset: int) -> None:
        for offset, record in enumerate(records, base_offset):
            self.replay(record, offset)

    def loaded(self, now_ms: int) -> TransactionDecision:
        """Markers of what was decided are ordered again; what is open has its time counted on."""
        assert self._phase is _Phase.LOADING
        self._phase = _ACTIVE
        draft = _Draft(now_ms)
        self._timers.arm(("expiry", ""), now_ms + self._config.remove_expired_interval_ms)
        for record in self._records.values():
            if record.state.is_prepared:
                self._order_markers(draft, record)
            elif record.state is _ONGOING:
                self._arm_timeout(record)
        return _decision(draft)

    def unload(self, now_ms: int) -> TransactionDecision:
        draft = _Draft(now_ms)
        self._phase = _Phase.UNLOADED
        self._refusal = ErrorCode.NOT_COORDINATOR
        for waiting in self._parked.values():
            for request, caller in waiting:
                draft.replies.append(Reply(caller.ticket, refusal(request, self._refusal)))
        self._parked = {}
        self._records = {}
        self._timers = Timers()
        return _decision(draft)

    def durable(self) -> object:
        """Without the last epochs, which the log does not hold."""
        return {key: each._replace(last_epoch=None) for key, each in self._records.items()}

    # --- Requests --------------------------------------------------------------------------------

    def handle(self, request: Any, caller: Caller, now_ms: int) -> TransactionDecision:
        draft = _Draft(now_ms)
        if self._phase is not _ACTIVE:
            draft.replies.append(Reply(caller.ticket, refusal(request, self._refusal)))
        else:
            self._answer(draft, request, caller)
        return _decision(draft)

    def _answer(self, draft: _Draft, request: Any, caller: Caller) -> None:
        match request:
            case InitProducerIdRequest():
                self._init(draft, request, caller)
            case AddPartitions():
                self._add(draft, request, caller)
            case VerifyPartitions():
                draft.replies.append(Reply(caller.ticket, self.verify(request)))
            case EndTxnRequest():
                self._end(draft, request, caller)
            case AbortByAdmin():
                draft.replies.append(Reply(caller.ticket, self._abort_by_admin(draft, request)))
            case _:
                assert isinstance(request, MarkersWritten)
                self._complete(draft, request)

    # InitProducerId

    def _init(self, draft: _Draft, request: InitProducerIdRequest, caller: Caller) -> None:
        transactional_id = request.transactional_id
        has_id, has_epoch = request.producer_id != -1, request.producer_epoch != -1
        if not transactional_id or has_id != has_epoch:
            self._refuse(draft, request, caller, ErrorCode.INVALID_REQUEST)
            return
        if request.enable2_pc and not self._config.two_phase_commit_enable:
            self._refuse(draft, request, caller, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        if request.keep_prepared_txn:
            self._refuse(draft, request, caller, ErrorCode.UNSUPPORTED_VERSION)
            return
        if not self._timeout_holds(request):
            self._refuse(draft, request, caller, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            return
        record = self._records.get(transactional_id)
        if record is None:
            self._init_new(draft, request, caller)
            return
        if has_id and not _may_continue(record, request.producer_id, request.producer_epoch):
            self._refuse(draft, request, caller, ErrorCode.PRODUCER_FENCED)
        elif record.state.is_prepared:
            self._park(draft, record, request, caller)
        elif record.state is _ONGOING:
            # Whoever had it is fenced with its transaction; the newcomer waits for the end of it.
            if self._abort(draft, record, "its id was initialised again"):
                self._park(draft, record, request, caller)
            else:
                self._refuse(draft, request, caller, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        elif has_id and request.producer_epoch != record.epoch:
            # The answer to the first attempt was lost: the same again.
            self._reply_init(draft, caller, record)
        else:
            self._init_again(draft, request, caller, record, continues=has_id)

    def _timeout_holds(self, request: InitProducerIdRequest) -> bool:
        longest_ms = self._config.transaction_max_timeout_ms
        return request.enable2_pc or 0 < request.transaction_timeout_ms <= longest_ms

    def _init_new(self, draft: _Draft, request: InitProducerIdRequest, caller: Caller) -> None:
        producer_id = self._new_producer_id()
        if producer_id is None:
            self._refuse(draft, request, caller, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        assert request.transactional_id is not None
        record = TransactionRecord(
            transactional_id=request.transactional_id,
            producer_id=producer_id,
            epoch=0,
            timeout_ms=_timeout_ms(request),
            update_ms=draft.now_ms,
        )
        draft.journal.append(record)
        self._reply_init(draft, caller, record)

    def _init_again(
        self,
        draft: _Draft,
        request: InitProducerIdRequest,
        caller: Caller,
        record: TransactionRecord,
        *,
        continues: bool,
    ) -> None:
        """The next epoch, or a new id where there is none left (KIP-360)."""
        producer_id, epoch, previous = record.producer_id, record.epoch + 1, None
        if record.is_exhausted:
            fresh = self._new_producer_id()
            if fresh is None:
                self._refuse(draft, request, caller, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                return
            producer_id, epoch, previous = fresh, 0, record.producer_id
        bumped = record._replace(
            producer_id=producer_id,
            epoch=epoch,
            previous_producer_id=previous,
            last_epoch=record.epoch if continues else None,
            timeout_ms=_timeout_ms(request),
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=None,
            update_ms=draft.now_ms,
        )
        draft.journal.append(bumped)
        self._reply_init(draft, caller, bumped)

    def _reply_init(self, draft: _Draft, caller: Caller, record: TransactionRecord) -> None:
        response = InitProducerIdResponse(
            producer_id=record.producer_id, producer_epoch=record.epoch
        )
        draft.replies.append(Reply(caller.ticket, response))

    # AddPartitionsToTxn, AddOffsetsToTxn, and what a produce request asks

    def _add(self, draft: _Draft, request: AddPartitions, caller: Caller) -> None:
        record = self._records.get(request.transactional_id)
        error = _identity_error(record, request.producer_id, request.epoch)
        if record is None or error is not _NONE:
            draft.replies.append(Reply(caller.ticket, error))
            return
        if record.state.is_prepared:
            self._park(draft, record, request, caller)
            return
        is_open = record.state is _ONGOING
        if not (is_open and request.partitions <= record.partitions):
            partitions = request.partitions | record.partitions if is_open else request.partitions
            ongoing = record._replace(
                state=_ONGOING,
                partitions=partitions,
                # The clock of a transaction starts with its first partition, not at begin.
                start_ms=record.start_ms if is_open else draft.now_ms,
                update_ms=draft.now_ms,
                client_version=request.client_version,
            )
            draft.journal.append(ongoing)
            if not is_open:
                self._arm_timeout(ongoing)
        draft.replies.append(Reply(caller.ticket, _NONE))

    def verify(self, request: VerifyPartitions) -> ErrorCode:
        """A question: it changes nothing, so whoever appends in the same breath may rely on it."""
        if self._phase is not _ACTIVE:
            return self._refusal
        record = self._records.get(request.transactional_id)
        error = _identity_error(record, request.producer_id, request.epoch)
        if record is None or error is not _NONE:
            return error
        if record.state.is_prepared:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        is_open = record.state is _ONGOING
        if is_open and request.partitions <= record.partitions:
            return _NONE
        return ErrorCode.TRANSACTION_ABORTABLE

    # EndTxn

    def _end(self, draft: _Draft, request: EndTxnRequest, caller: Caller) -> None:
        record = self._records.get(request.transactional_id)
        bumps = caller.version >= 5
        is_retry = record is not None and bumps and _is_retried_end(record, request)
        if record is None or (request.producer_id != record.producer_id and not is_retry):
            self._refuse(draft, request, caller, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return
        if record.state.is_prepared and (is_retry or request.producer_epoch == record.epoch):
            error = _NONE if _same_outcome(record, request) else _OTHER_OUTCOME
        elif bumps:
            error = _end_error(record, request, is_retry=is_retry)
        else:
            error = _old_end_error(record, request)
        if error is not _NONE:
            self._refuse(draft, request, caller, error)
        elif record.state.is_prepared:
            # It was told before, and the answer was lost: told again when it is complete.
            self._park(draft, record, request, caller)
        elif record.state is _ONGOING:
            self._prepare(draft, request, caller, record, bumps=bumps)
        elif is_retry or not bumps:
            self._reply_end(draft, caller, record.producer_id, record.epoch)
        else:
            self._abort_nothing(draft, request, caller, record)

    def _prepare(
        self,
        draft: _Draft,
        request: EndTxnRequest,
        caller: Caller,
        record: TransactionRecord,
        *,
        bumps: bool,
    ) -> None:
        prepared = self._prepared(draft, record, commit=request.committed, bumps=bumps)
        if prepared is None:
            self._refuse(draft, request, caller, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        self._write_prepared(draft, prepared)
        # What Complete* will hold: the outcome is certain once this record is durable.
        self._reply_end(draft, caller, *_producer_after(prepared))

    def _prepared(
        self, draft: _Draft, record: TransactionRecord, *, commit: bool, bumps: bool
    ) -> TransactionRecord | None:
        """``None``: a new producer id is needed, and there is none just now."""
        following: int | None = None
        epoch = record.epoch + 1 if bumps else record.epoch
        if bumps and epoch >= EPOCH_MAX:
            following = self._new_producer_id()
            if following is None:
                return None
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return record._replace(
            state=state,
            epoch=epoch,
            last_epoch=record.epoch if bumps else record.last_epoch,
            next_producer_id=following,
            update_ms=draft.now_ms,
            client_version=TV2 if bumps else TV0,
        )

    def _write_prepared(self, draft: _Draft, prepared: TransactionRecord) -> None:
        draft.journal.append(prepared)
        self._timers.cancel(("timeout", prepared.transactional_id))
        self._order_markers(draft, prepared)

    def _abort_nothing(
        self, draft: _Draft, request: EndTxnRequest, caller: Caller, record: TransactionRecord
    ) -> None:
        """How a client of the new flow clears adds whose produce failed: the epoch grows."""
        prepared = self._prepared(draft, record, commit=False, bumps=True)
        if prepared is None:
            self._refuse(draft, request, caller, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        ended = _completed(prepared, draft.now_ms)
        draft.journal.append(ended)
        self._reply_end(draft, caller, ended.producer_id, ended.epoch)

    def _reply_end(self, draft: _Draft, caller: Caller, producer_id: int, epoch: int) -> None:
        response = EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
        draft.replies.append(Reply(caller.ticket, response))

    def _abort_by_admin(self, draft: _Draft, request: AbortByAdmin) -> ErrorCode:
        record = self._records.get(request.transactional_id)
        if record is None or record.producer_id != request.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if record.state is _ONGOING:
            if self._abort(draft, record, "an administrator asked for it"):
                return _NONE
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        is_aborted = record.state in (
            TransactionState.PREPARE_ABORT,
            TransactionState.COMPLETE_ABORT,
        )
        return _NONE if is_aborted else ErrorCode.INVALID_TXN_STATE

    # Markers

    def _order_markers(self, draft: _Draft, record: TransactionRecord) -> None:
        order = WriteMarkers(
            transactional_id=record.transactional_id,
            producer_id=record.producer_id,
            epoch=record.epoch,
            commit=record.state is TransactionState.PREPARE_COMMIT,
            partitions=record.partitions,
            client_version=record.client_version,
        )
        draft.replies.append(Reply(self._markers, order))

    def _complete(self, draft: _Draft, written: MarkersWritten) -> None:
        record = self._records.get(written.transactional_id)
        is_meant = (
            record is not None
            and record.state.is_prepared
            and (record.producer_id, record.epoch) == (written.producer_id, written.epoch)
        )
        if record is None or not is_meant:
            return  # Ordered twice, after a restart: the first answer has done it.
        draft.journal.append(_completed(record, draft.now_ms))
        if record.transactional_id in self._parked:
            # Looked at again when this record is replayed.
            self._timers.arm(("parked", record.transactional_id), draft.now_ms)

    # --- Whoever waits ---------------------------------------------------------------------------

    def _park(self, draft: _Draft, record: TransactionRecord, request: Any, caller: Caller) -> None:
        self._parked.setdefault(record.transactional_id, []).append((request, caller))
        name = ("parked", record.transactional_id)
        if self._timers.deadline(name) is None:
            self._timers.arm(name, draft.now_ms + PARKED_MAX_MS)

    def _look_at_parked(self, draft: _Draft, transactional_id: str) -> None:
        """In the order they came, as far as one decision goes."""
        waiting = self._parked.pop(transactional_id, [])
        record = self._records.get(transactional_id)
        while waiting and not draft.journal:
            request, caller = waiting.pop(0)
            if record is not None and record.state.is_prepared:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
                draft.replies.append(Reply(caller.ticket, refusal(request, error)))
            else:
                self._answer(draft, request, caller)
        if waiting:
            self._parked.setdefault(transactional_id, []).extend(waiting)
            self._timers.arm(("parked", transactional_id), draft.now_ms)

    # --- Time ------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> TransactionDecision:
        """Do what is due. It stops after the first thing that writes: call until nothing is."""
        draft = _Draft(now_ms)
        while self._phase is _ACTIVE and not draft.journal:
            name = self._timers.pop_due(now_ms)
            if name is None:
                break
            self._due(draft, *name)
        return _decision(draft)

    def next_deadline(self) -> int | None:
        return self._timers.next_deadline()

    def _due(self, draft: _Draft, kind: str, transactional_id: str) -> None:
        if kind == "expiry":
            self._expire(draft)
            return
        if kind == "parked":
            self._look_at_parked(draft, transactional_id)
            return
        record = self._records.get(transactional_id)
        if record is None:
            return
        if kind == "timeout":
            if record.state is _ONGOING:
                cause = f"it was open for more than {record.timeout_ms} ms"
                if not self._abort(draft, record, cause):
                    self._timers.arm((kind, transactional_id), draft.now_ms + _AGAIN_MS)
        else:
            assert kind == "again"
            if record.state.is_prepared:
                self._order_markers(draft, record)

    def _arm_timeout(self, record: TransactionRecord) -> None:
        assert record.start_ms is not None
        if record.is_two_phase:
            return
        deadline_ms = record.start_ms + record.timeout_ms
        self._timers.arm(("timeout", record.transactional_id), deadline_ms)

    def _abort(self, draft: _Draft, record: TransactionRecord, cause: str) -> bool:
        """The coordinator's own abort: it fences whoever has the epoch. False: not possible now.

        A producer whose transaction took too long may go on with an init that names its epoch
        (KIP-588), until somebody else has the id.
        """
        bumps_to = record.epoch + 1
        following = record.next_producer_id
        if bumps_to >= EPOCH_MAX and following is None:
            following = self._new_producer_id()
            if following is None:
                return False
        prepared = record._replace(
            state=TransactionState.PREPARE_ABORT,
            epoch=bumps_to,
            last_epoch=record.epoch,
            next_producer_id=following,
            update_ms=draft.now_ms,
        )
        draft.events.append(TransactionEvent(record.transactional_id, f"aborted: {cause}"))
        self._write_prepared(draft, prepared)
        return True

    def _expire(self, draft: _Draft) -> None:
        """Forget ids nobody has used for long; some at a time, for a batch has a limit."""
        limit_ms = draft.now_ms - self._config.transactional_id_expiration_ms
        for record in self._records.values():
            is_unused = record.state.is_idle and record.update_ms < limit_ms
            if is_unused and record.transactional_id not in self._parked:
                draft.journal.append(TransactionTombstone(record.transactional_id))
                if len(draft.journal) >= _EXPIRED_AT_ONCE:
                    self._timers.arm(("expiry", ""), draft.now_ms)
                    return
        self._timers.arm(("expiry", ""), draft.now_ms + self._config.remove_expired_interval_ms)

    # --- When the journal refuses ----------------------------------------------------------------

    def append_failed(
        self, decision: TransactionDecision, error: ErrorCode, now_ms: int
    ) -> TransactionDecision:
        """Nothing was written: who asked is told, orders are forgotten, timers run again."""
        draft = _Draft(now_ms)
        for reply in decision.replies:
            if reply.ticket is not self._markers:
                draft.replies.append(Reply(reply.ticket, self.refuse(reply.response, error)))
        for decided in decision.journal:
            record = self._records.get(decided.transactional_id)
            if record is None:
                continue
            if record.state is _ONGOING:
                name = ("timeout", record.transactional_id)
                assert record.start_ms is not None
                if record.is_two_phase:
                    continue
                due_ms = record.start_ms + record.timeout_ms
                self._timers.arm(name, max(due_ms, now_ms + _AGAIN_MS))
            elif record.state.is_prepared:
                self._timers.arm(("again", record.transactional_id), now_ms + _AGAIN_MS)
            else:
                self._timers.cancel(("timeout", record.transactional_id))
        return _decision(draft)

    def refuse(self, response: Response, error: ErrorCode) -> Response:
        """In place of a response whose record was not written."""
        told = append_error(error)
        if isinstance(response, ErrorCode | WriteMarkers):
            return told
        return type(response)(error_code=told)

    def _refuse(self, draft: _Draft, request: Any, caller: Caller, error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and (
            caller.version < _FENCED_CODE_SINCE.get(type(request), 0)
        ):
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        draft.replies.append(Reply(caller.ticket, refusal(request, error)))

    # --- Questions -------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._phase is _ACTIVE

    @property
    def records(self) -> Collection[TransactionRecord]:
        return self._records.values()

    def record(self, transactional_id: str) -> TransactionRecord | None:
        return self._records.get(transactional_id)


# --- The tables of facts behind the answers ------------------------------------------------------


def _timeout_ms(request: InitProducerIdRequest) -> int:
    return NO_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms


def _may_continue(record: TransactionRecord, producer_id: int, epoch: int) -> bool:
    """KIP-360: may a producer that says it had this id and epoch go on under the next one?"""
    if producer_id == record.producer_id:
        return epoch == record.epoch or epoch == record.last_epoch
    # The id was exhausted and another one took its place; the answer that said so was lost.
    return producer_id == record.previous_producer_id and epoch == record.last_epoch


def _identity_error(record: TransactionRecord | None, producer_id: int, epoch: int) -> ErrorCode:
    if record is None or record.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return _NONE if record.epoch == epoch else ErrorCode.PRODUCER_FENCED


_OTHER_OUTCOME: Final = ErrorCode.INVALID_TXN_STATE
_COMMITTED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


def _same_outcome(record: TransactionRecord, request: EndTxnRequest) -> bool:
    return (record.state in _COMMITTED) == bool(request.committed)


def _is_retried_end(record: TransactionRecord, request: EndTxnRequest) -> bool:
    """The request has the epoch from before the bump that its first copy made."""
    if request.producer_id == record.producer_id:
        return request.producer_epoch == record.epoch - 1
    rotated = request.producer_id == record.previous_producer_id and record.epoch == 0
    return rotated and request.producer_epoch == EPOCH_MAX - 1


def _old_end_error(record: TransactionRecord, request: EndTxnRequest) -> ErrorCode:
    """EndTxn up to v4."""
    if request.producer_epoch != record.epoch:
        return ErrorCode.PRODUCER_FENCED
    if record.state is _ONGOING:
        return _NONE
    if record.state is TransactionState.EMPTY:
        return ErrorCode.INVALID_TXN_STATE
    return _NONE if _same_outcome(record, request) else _OTHER_OUTCOME


def _end_error(record: TransactionRecord, request: EndTxnRequest, *, is_retry: bool) -> ErrorCode:
    """EndTxn since v5, where a prepared transaction was looked at before."""
    is_current = request.producer_epoch == record.epoch and not is_retry
    if record.state.is_prepared or not (is_current or is_retry):
        return ErrorCode.PRODUCER_FENCED
    if record.state is _ONGOING:
        return _NONE if is_current else ErrorCode.PRODUCER_FENCED
    if is_current:
        # Nothing is open: an abort is how a client clears what it is not sure of.
        return ErrorCode.INVALID_TXN_STATE if request.committed else _NONE
    if record.state is TransactionState.EMPTY:
        return ErrorCode.PRODUCER_FENCED
    if _same_outcome(record, request):
        return _NONE
    # A commit that finds an abort: only the coordinator can have made it (KAFKA-20785).
    return ErrorCode.PRODUCER_FENCED if request.committed else _OTHER_OUTCOME


def _completed(prepared: TransactionRecord, now_ms: int) -> TransactionRecord:
    """What follows when every marker is durable."""
    commit = prepared.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    done = prepared._replace(state=state, partitions=frozenset(), update_ms=now_ms)
    if prepared.next_producer_id is None:
        return done
    producer_id, epoch = _producer_after(prepared)
    return done._replace(
        producer_id=producer_id,
        epoch=epoch,
        previous_producer_id=prepared.producer_id,
        next_producer_id=None,
    )


def _producer_after(prepared: TransactionRecord) -> tuple[int, int]:
    """Id and epoch that the next transaction has."""
    if prepared.next_producer_id is None:
        return prepared.producer_id, prepared.epoch
    return prepared.next_producer_id, 0


_APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_error(error: ErrorCode) -> ErrorCode:
    """What a client is told when the journal could not be written."""
    return _APPEND_ERRORS.get(error, error)


def refusal(request: Any, error: ErrorCode) -> Response:
    """The answer to a request that says no."""
    match request:
        case InitProducerIdRequest():
            return InitProducerIdResponse(error_code=error)
        case EndTxnRequest():
            return EndTxnResponse(error_code=error)
        case _:
            return error


def _decision(draft: _Draft) -> TransactionDecision:
    return Decision(tuple(draft.journal), tuple(draft.replies), tuple(draft.events))
