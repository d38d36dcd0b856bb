"""Exactly once out of Spark: what a query's driver and tasks may do, decided from its journal.

Tasks write their rows in transactions and leave them prepared: stored, and not committed. The
driver then appends *one decision* to the journal: which prepared transactions make up the
micro-batch. Only after that is anything committed, and everything in it is. So a micro-batch is
decided by one record, which is there or is not.

Two keys per query in the topic ``__shoal_sink`` (``ledger.py``); the last record of each counts:

    ["<query id>", "claim"]     {"token": [12, 3]}
    ["<query id>", "decision"]  {"token": [12, 3], "batch": 7, "revision": 0, "is_done": false,
                                 "tasks": [{"rows": 10, "fingerprint": 8714, "transaction":
                                            ["shoal-sink.<query>.<run>.0.0", 44, 0, true]}, …]}

Before a driver reads the journal to decide, it *claims* the query: it becomes the owner of the
transactional id ``shoal-sink.<query id>``, whose producer id and epoch are its token, and writes
with it. From then on the broker refuses what an older token writes, so nobody else can decide
between this driver's reading and its deciding. Where a broker has forgotten the older token, the
order of records says the same: a decision behind another driver's claim does not count.

An attempt of a task may still run when its micro-batch has ended without it: another copy was
faster, or another task failed. Its transaction must not stay open. A driver claims first and then
aborts what it finds open; an attempt looks for new claims before its first row and after its last.
So either the driver finds the transaction, or the attempt finds the claim.

When a micro-batch is repeated, its decision may be there already:

- done: all of it is committed, and the repetition writes nothing.
- not done: each transaction in it is committed now. That can fail for one reason only: the time
  of a transaction was over while no driver ran. Then its task writes again, and the decision is
  *revised*; but only if every task has the same rows as before, or if all of it was lost and all
  of it is written again. If not, some rows of the micro-batch are visible and the others cannot be
  told from them: an error, nothing doubled.

Rule: no I/O. ``exactly_once.py`` asks, writes and commits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from shoal.errors import ShoalError
from shoal.types import PreparedTransaction

PREFIX: Final = "shoal-sink."
"""Of all transactional ids of sinks; access rules are given for it."""


class Token(NamedTuple):
    """Whose word counts: the producer id and epoch of a driver."""

    producer_id: int
    epoch: int


class JournalKey(NamedTuple):
    """What a record of the journal is about."""

    query_id: str
    kind: Literal["claim", "decision"]

    def encode(self) -> bytes:
        return json.dumps(list(self)).encode()

    @classmethod
    def decode(cls, key: bytes) -> JournalKey | None:
        """``None``: the record is about something else, such as a task of a sink's ledger."""
        document = json.loads(key)
        return cls(*document) if document[1] in ("claim", "decision") else None


@dataclass(frozen=True, slots=True)
class TaskRows:
    """What one task has for a micro-batch. ``transaction``: where it is, if it has any rows."""

    rows: int
    fingerprint: int
    transaction: PreparedTransaction | None

    def is_same(self, other: TaskRows) -> bool:
        return (self.rows, self.fingerprint) == (other.rows, other.fingerprint)


class AttemptReport(NamedTuple):
    """What one attempt of a task tells its driver."""

    task: int
    has: TaskRows
    lost: PreparedTransaction | None = None
    """A transaction of an earlier decision that cannot be committed any more; ``has`` replaces
    it."""
    is_repetition: bool = False
    """Whether it found a decision about its micro-batch."""


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """Which transactions make up a micro-batch; by task, from 0."""

    token: Token
    batch_id: int
    tasks: tuple[TaskRows, ...]
    revision: int = 0
    is_done: bool = False
    """All of them are committed; which those were does not matter any more."""

    def transactions(self) -> list[PreparedTransaction]:
        return [one.transaction for one in self.tasks if one.transaction is not None]

    def encode(self) -> bytes:
        tasks = [
            {
                "rows": one.rows,
                "fingerprint": one.fingerprint,
                "transaction": _as_list(one.transaction),
            }
            for one in self.tasks
        ]
        document = {
            "token": self.token,
            "batch": self.batch_id,
            "revision": self.revision,
            "is_done": self.is_done,
            "tasks": tasks,
        }
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, value: bytes) -> BatchDecision:
        document = json.loads(value)
        tasks = tuple(
            TaskRows(one["rows"], one["fingerprint"], _from_list(one["transaction"]))
            for one in document["tasks"]
        )
        return cls(
            Token(*document["token"]),
            document["batch"],
            tasks,
            document["revision"],
            document["is_done"],
        )

    def done(self) -> BatchDecision:
        return replace(self, is_done=True, tasks=())


def _as_list(one: PreparedTransaction | None) -> list[Any] | None:
    if one is None:
        return None
    return [one.transactional_id, one.producer_id, one.producer_epoch, one.is_v2]


def _from_list(found: list[Any] | None) -> PreparedTransaction | None:
    return None if found is None else PreparedTransaction(*found)


class QueryJournal:
    """What the journal says of one query; ``replay`` it in the order of offsets."""

    def __init__(self, query_id: str) -> None:
        self.query_id = query_id
        self.claim: Token | None = None
        self.claims = 0
        """Records about claims that were read: a driver adds one before it ends a micro-batch."""
        self.decision: BatchDecision | None = None

    def replay(self, key: JournalKey, value: bytes | None) -> None:
        if key.query_id != self.query_id:
            return
        if key.kind == "claim":
            self.claims += 1
            self.claim = None if value is None else Token(*json.loads(value)["token"])
        elif value is None:
            self.decision = None
        else:
            decision = BatchDecision.decode(value)
            # Compaction takes old claims: without one before it, a decision stands.
            if self.claim is None or self.claim == decision.token:
                self.decision = decision


def encode_claim(token: Token) -> bytes:
    return json.dumps({"token": token}).encode()


# --- tasks ---


class TaskPlan(Enum):
    """What a task has to do with its rows."""

    WRITE = "write them, and leave the transaction prepared"
    FINISH = "commit the transaction that the decision names; write only if that is lost"
    LEAVE = "nothing: they are committed, or others are"


def task_plan(
    decision: BatchDecision | None, batch_id: int, task: int
) -> tuple[TaskPlan, TaskRows | None]:
    """What a task does in a micro-batch that may be a repetition, and what it had before."""
    if decision is None or decision.batch_id < batch_id:
        return TaskPlan.WRITE, None
    if decision.batch_id > batch_id or decision.is_done or task >= len(decision.tasks):
        return TaskPlan.LEAVE, None
    before = decision.tasks[task]
    return (TaskPlan.LEAVE if before.transaction is None else TaskPlan.FINISH), before


# --- the driver ---


class SinkConflictError(ShoalError):
    """A micro-batch cannot be committed, and nothing of it was."""


@dataclass(frozen=True, slots=True)
class BatchVerdict:
    """What the driver does at the end of a micro-batch."""

    decision: BatchDecision
    """To be carried out."""
    is_new: bool
    """Whether it must be appended first."""
    to_abort: tuple[PreparedTransaction, ...]
    """What tasks have prepared and nobody will commit."""


def decide(
    before: BatchDecision | None, batch_id: int, reports: Sequence[AttemptReport], token: Token
) -> BatchVerdict:
    """What becomes of a micro-batch whose tasks have all ended.

    Args:
        before: the query's last decision, read after this driver's claim.
        reports: of every task, by number.

    Raises:
        SinkConflictError: the query has gone on without this driver, or a micro-batch of which a
            part is committed was repeated with other rows.
    """
    tasks = tuple(one.has for one in reports)
    if before is None or before.batch_id < batch_id:
        return BatchVerdict(BatchDecision(token, batch_id, tasks), is_new=True, to_abort=())
    if before.batch_id > batch_id:
        raise SinkConflictError(
            f"micro-batch {batch_id} was written before: the output is at {before.batch_id}. "
            "Another driver runs this query, or its checkpoint is an old copy"
        )
    new = in_vain(before, reports)
    # Only what its task has found lost, of this very decision, may be replaced: anything else may
    # be committed, and would be there twice.
    are_replacements = all(
        one.task < len(before.tasks) and one.lost == before.tasks[one.task].transaction
        for one in reports
        if one.has.transaction in new
    )
    if before.is_done or not new or not are_replacements:
        return BatchVerdict(before, is_new=False, to_abort=new)
    same = len(tasks) == len(before.tasks) and all(
        now.is_same(then) for now, then in zip(tasks, before.tasks, strict=True)
    )
    if not same and not _are_all_written_again(before, reports, new):
        raise SinkConflictError(
            f"micro-batch {batch_id} is committed in part: no driver ran until the time of its "
            "other transactions was over, and its repetition has other rows in its tasks. Restart "
            f"the query so that it has {len(before.tasks)} tasks with the same rows; or write the "
            "micro-batch once with exactlyOnce=false, which repeats the rows that are there"
        )
    revised = BatchDecision(token, batch_id, tasks, before.revision + 1)
    return BatchVerdict(revised, is_new=True, to_abort=())


def _are_all_written_again(
    before: BatchDecision, reports: Sequence[AttemptReport], new: Collection[PreparedTransaction]
) -> bool:
    """Nothing that was decided is committed or ever will be, and every row is in what is new."""
    lost = {one.lost for one in reports}
    return lost.issuperset(before.transactions()) and all(
        one.has.transaction in new for one in reports if one.has.rows
    )


def in_vain(
    before: BatchDecision | None, reports: Sequence[AttemptReport]
) -> tuple[PreparedTransaction, ...]:
    """What tasks have prepared that no decision names."""
    known = set() if before is None else set(before.transactions())
    prepared = (one.has.transaction for one in reports)
    return tuple(one for one in prepared if one is not None and one not in known)
