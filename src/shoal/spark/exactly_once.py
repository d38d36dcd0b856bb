"""The sink with ``exactlyOnce=true``: its tasks, and what its driver does at the end of each batch.

A task writes its rows in a transaction of its own and leaves it prepared. Its transactional id,
``shoal-sink.<query>.<run>.<task>.<attempt>``, belongs to no other attempt, so that attempts never
fence each other: whichever Spark counts is named in the decision, and the others are aborted.

What may be done is decided in ``sink_decisions.py``; here it is done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from shoal.client.transaction_admin import (
    end_transaction,
    init_producer_id,
    list_transactions,
)
from shoal.errors import BrokerError, ConfigError, ErrorCode, ShoalError, TransactionFatalError
from shoal.records.batch import encode_batch
from shoal.records.compression import Codec
from shoal.spark.fingerprint import RowsFingerprint
from shoal.spark.sink_decisions import (
    PREFIX,
    AttemptReport,
    BatchDecision,
    JournalKey,
    QueryJournal,
    SinkConflictError,
    TaskPlan,
    TaskRows,
    Token,
    decide,
    encode_claim,
    in_vain,
    task_plan,
)
from shoal.types import PreparedTransaction

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.client.cluster import Cluster
    from shoal.client.deadlines import Deadline
    from shoal.client.producer import Producer
    from shoal.client.producer_batch import SendFuture
    from shoal.spark.ledger import SinkLedger

    Send = Callable[[Producer, str, pa.RecordBatch], list[SendFuture]]

logger = logging.getLogger(__name__)

TIMEOUT: Final = "transaction.timeout.ms"
TIMEOUT_MS: Final = 900_000
"""As long as brokers allow by default (``transaction.max.timeout.ms``)."""
_TOKEN_TIMEOUT_MS: Final = 60_000
_EPOCH_MAX: Final = 32767
_ENDS_AT_ONCE: Final = 32
_LOST: Final = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
_FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


@dataclass(frozen=True, slots=True)
class TaskOrigin:
    """Which attempt of which task of which micro-batch."""

    query_id: str
    run_id: str
    batch_id: int
    task: int
    attempt: int

    @property
    def transactional_id(self) -> str:
        return f"{PREFIX}{self.query_id}.{self.run_id}.{self.task}.{self.attempt}"


class PreparedTask:
    """One task's rows on their way into prepared transactions."""

    def __init__(
        self, ledger: SinkLedger, properties: Mapping[str, str], origin: TaskOrigin, send: Send
    ) -> None:
        self._ledger = ledger
        self._properties = properties
        self._origin = origin
        self._send = send
        self._producer: Producer | None = None
        self._sent: list[SendFuture] = []
        self._claims = 0

    def write(self, parts: Iterable[tuple[str, pa.RecordBatch]]) -> AttemptReport:
        """Store the rows, unless they are stored; nobody sees them before the driver decides."""
        origin, fingerprint = self._origin, RowsFingerprint()
        journal = self._ledger.journal(origin.query_id)
        self._claims = journal.claims
        self._check_switch(journal)
        plan, before = task_plan(journal.decision, origin.batch_id, origin.task)
        is_repetition = plan is not TaskPlan.WRITE
        transaction = None if before is None else before.transaction
        lost: PreparedTransaction | None = None
        if plan is TaskPlan.FINISH:
            assert transaction is not None
            if commit_all(self._ledger, [transaction]):
                lost, plan = transaction, TaskPlan.WRITE
        if plan is TaskPlan.WRITE:
            transaction = self._prepare(_told(parts, fingerprint))
        else:
            for _ in _told(parts, fingerprint):
                pass
        has = TaskRows(fingerprint.rows, fingerprint.sum, transaction)
        return AttemptReport(origin.task, has, lost, is_repetition)

    def _check_switch(self, journal: QueryJournal) -> None:
        """The first micro-batch with transactions must not have rows without them."""
        query_id, batch_id = self._origin.query_id, self._origin.batch_id
        if journal.decision is None and self._ledger.has_plain_rows(query_id, batch_id):
            raise ConfigError(
                f"micro-batch {batch_id} was begun without option exactlyOnce, and its rows can be "
                "seen: let the query finish it with exactlyOnce=false, then switch it on"
            )

    def _prepare(self, parts: Iterator[tuple[str, pa.RecordBatch]]) -> PreparedTransaction | None:
        try:
            for topic, rows in parts:
                if rows.num_rows:
                    self._ledger.connection.need_topic(topic)
                    self._sent += self._send(self._begun(), topic, rows)
            if self._producer is None:
                return None
            prepared = self._producer.prepare_transaction()
            for future in self._sent:
                future.result(0)
            try:
                self._check_in_time()
            except SinkConflictError:
                self._producer.abort_transaction()
                raise
            return prepared
        finally:
            if self._producer is not None:
                self._producer.close()  # aborts what is not prepared

    def _check_in_time(self) -> None:
        origin = self._origin
        if self._ledger.journal(origin.query_id).claims != self._claims:
            raise SinkConflictError(
                f"task {origin.task} (attempt {origin.attempt}) of micro-batch {origin.batch_id} "
                "came too late: its driver, or another one, has ended the micro-batch without it. "
                "Nothing of it will be seen"
            )

    def _begun(self) -> Producer:
        if self._producer is None:
            given = {"acks": "all", TIMEOUT: str(TIMEOUT_MS), **self._properties}
            self._producer = self._made(given)
            try:
                self._producer.init_transactions()
            except TransactionFatalError as error:
                raise _explained(error, given[TIMEOUT]) from error
            self._check_in_time()
            self._producer.begin_transaction()
        return self._producer

    def _made(self, given: Mapping[str, str]) -> Producer:
        from shoal.client.config import ProducerConfig
        from shoal.client.producer import Producer

        named = {**given, "transactional.id": self._origin.transactional_id}
        return Producer(ProducerConfig.from_properties(named))


def _told(
    parts: Iterable[tuple[str, pa.RecordBatch]], fingerprint: RowsFingerprint
) -> Iterator[tuple[str, pa.RecordBatch]]:
    for topic, rows in parts:
        fingerprint.add(topic, rows)
        yield topic, rows


def _explained(error: TransactionFatalError, timeout_ms: str) -> Exception:
    if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(
            f"the broker allows no transaction of {timeout_ms} ms: set option kafka.{TIMEOUT} to "
            "its transaction.max.timeout.ms"
        )
    if error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return ConfigError(
            "no right to write in transactions: allow WRITE and DESCRIBE on transactional ids with "
            f"prefix {PREFIX}"
        )
    return error


class SinkDriver:
    """The end of a query's micro-batches; one of several drivers may rule at a time."""

    def __init__(self, ledger: SinkLedger, query_id: str) -> None:
        self._ledger = ledger
        self._client = ledger.connection
        self._query_id = query_id
        self._token = Token(-1, -1)
        self._sequence = 0
        self.claimed_at: int | None = None
        """Where the claim lies: what the journal has to say of this micro-batch is behind it."""

    def commit(self, batch_id: int, reports: Sequence[AttemptReport]) -> None:
        """Make all rows of a micro-batch visible, once.

        Raises:
            SinkConflictError: this driver may not, or cannot yet; the error says what to do.
        """
        reports = sorted(reports)
        if not any(one.has.transaction or one.is_repetition for one in reports):
            return  # no rows at all
        before = self._claim().decision
        try:
            verdict = decide(before, batch_id, reports, self._token)
        except SinkConflictError:
            self._abort(in_vain(before, reports))
            raise
        self._abort(verdict.to_abort)
        if verdict.is_new:
            self._append("decision", verdict.decision.encode())
        self._carry_out(verdict.decision)

    def _carry_out(self, decision: BatchDecision) -> None:
        if not decision.is_done:
            lost = commit_all(self._ledger, decision.transactions())
            if lost:
                raise SinkConflictError(
                    f"{len(lost)} of {len(decision.transactions())} transactions of micro-batch "
                    f"{decision.batch_id} ended before they were committed (the first is "
                    f"{lost[0].transactional_id}): restart the query, with {len(decision.tasks)} "
                    "tasks as it had, and those write again"
                )
            self._append("decision", replace(decision.done(), token=self._token).encode())
        self._sweep()

    def abort(self, batch_id: int, reports: Sequence[AttemptReport]) -> bool:
        """Give up what tasks have prepared, unless it was decided: then it will be committed.

        Whatever else they have open is aborted, too, or they do it when they find the claim.

        Returns:
            Whether nothing was decided.
        """
        before = self._claim().decision  # from here on no decision of ours can arrive late
        named = before if before is not None and before.batch_id == batch_id else None
        self._abort(in_vain(named, reports))
        self._sweep(keep=() if named is None else named.transactions())
        return named is None

    def forget(self) -> None:
        """Nothing of this query will be asked for again."""
        for kind in ("decision", "claim"):
            self._append(kind, None)

    def _claim(self) -> QueryJournal:
        """Become who decides; what was decided before."""
        last = self._ledger.journal(self._query_id).claim
        mine = f"{PREFIX}{self._query_id}"
        self._token = Token(
            *self._client.ask(
                lambda cluster, deadline: init_producer_id(
                    cluster, mine, _TOKEN_TIMEOUT_MS, deadline
                )
            )
        )
        self._sequence = 0
        if last is not None and last.producer_id != self._token.producer_id:
            # Epochs are used up, or the id had expired: the last epoch ends the old one.
            self._retire(last)
        self.claimed_at = self._append("claim", encode_claim(self._token))
        return self._ledger.journal(self._query_id)

    def _retire(self, last: Token) -> None:
        retired = Token(last.producer_id, _EPOCH_MAX)
        if last == retired:
            return
        batch = self._batch(retired, 0, "claim", encode_claim(retired))
        self._ledger.append(self._query_id, batch)

    def _append(self, kind: str, value: bytes | None) -> int | None:
        batch = self._batch(self._token, self._sequence, kind, value)
        self._sequence += 1
        try:
            return self._ledger.append(self._query_id, batch)
        except BrokerError as error:
            if error.code in _FENCED:
                raise SinkConflictError(
                    f"another driver has taken over query {self._query_id}: stop one of the two"
                ) from error
            raise

    def _batch(self, token: Token, sequence: int, kind: str, value: bytes | None) -> bytes:
        assert kind in ("claim", "decision")
        key = JournalKey(self._query_id, kind).encode()  # type: ignore[arg-type]  # one of the two
        return encode_batch(
            [(key, value, (), int(time.time() * 1000))],
            codec=Codec.GZIP,
            producer_id=token.producer_id,
            producer_epoch=token.epoch,
            base_sequence=sequence,
        )

    def _abort(self, prepared: Sequence[PreparedTransaction]) -> None:
        """As far as it can be done: the timeout of a transaction does the rest."""
        if prepared:
            self._client.ask(partial(_end_all, prepared, commit=False))

    def _sweep(self, keep: Iterable[PreparedTransaction] = ()) -> None:
        """Abort what attempts that do not count have left open: it would hold readers up."""
        kept = {one.transactional_id for one in keep}
        prefix = f"{PREFIX}{self._query_id}."

        async def sweep(cluster: Cluster, deadline: Deadline) -> None:
            listed = await list_transactions(cluster, ("Ongoing",), (), None, None, deadline)
            for one in listed:
                if one.transactional_id.startswith(prefix) and one.transactional_id not in kept:
                    logger.info("aborted, for it counts in no micro-batch: %s", one)
                    await init_producer_id(
                        cluster, one.transactional_id, _TOKEN_TIMEOUT_MS, deadline
                    )

        try:
            self._client.ask(sweep)
        except ShoalError as error:
            logger.warning("transactions that do not count stay open for now: %s", error)


def commit_all(
    ledger: SinkLedger, prepared: Sequence[PreparedTransaction]
) -> list[PreparedTransaction]:
    """Commit transactions that a decision names, again and again until it is known; those of them
    that have been aborted before.

    Raises:
        SinkConflictError: nobody can tell any more how one of them ended.
        ShoalError: a coordinator does not answer.
    """
    outcomes = ledger.connection.ask(partial(_end_all, prepared, commit=True))
    lost: list[PreparedTransaction] = []
    for one, outcome in zip(prepared, outcomes, strict=True):
        if isinstance(outcome, BrokerError) and outcome.code in _LOST:
            lost.append(one)
        elif (
            isinstance(outcome, BrokerError)
            and outcome.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        ):
            raise SinkConflictError(
                f"whether {one.transactional_id} was committed is not known any more: its "
                "coordinator has forgotten it (transactional.id.expiration.ms). Compare the "
                "output, then start the query with a new checkpoint"
            )
        elif outcome is not None:
            raise outcome
    return lost


async def _end_all(
    prepared: Sequence[PreparedTransaction], cluster: Cluster, deadline: Deadline, *, commit: bool
) -> list[BaseException | None]:
    at_once = asyncio.Semaphore(_ENDS_AT_ONCE)

    async def end(one: PreparedTransaction) -> None:
        async with at_once:
            await end_transaction(cluster, one, deadline, commit=commit)

    return await asyncio.gather(*(end(one) for one in prepared), return_exceptions=True)
