"""Who may decide what about a micro-batch: the rules, without a broker."""

from __future__ import annotations

import pytest

from shoal.spark.sink_decisions import (
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

OLD, NEW = Token(7, 3), Token(7, 4)
CLAIM, DECISION = JournalKey("q", "claim"), JournalKey("q", "decision")


def prepared(name: str, epoch: int = 0) -> PreparedTransaction:
    return PreparedTransaction(name, 100, epoch, is_v2=True)


A, B, C = prepared("a"), prepared("b"), prepared("c")
ROWS_A, ROWS_B = TaskRows(3, 11, A), TaskRows(2, 22, B)


def reported(*rows: TaskRows, lost: PreparedTransaction | None = None) -> list[AttemptReport]:
    """Of tasks in their order; ``lost`` is what the last one replaces."""
    last = len(rows) - 1
    return [
        AttemptReport(task, has, lost if task == last else None) for task, has in enumerate(rows)
    ]


DECIDED = BatchDecision(OLD, 5, (ROWS_A, ROWS_B))


def test_records_of_the_journal_are_read_as_they_were_written() -> None:
    decision = BatchDecision(OLD, 5, (ROWS_A, TaskRows(0, 0, None)), revision=2)
    assert BatchDecision.decode(decision.encode()) == decision
    assert BatchDecision.decode(decision.done().encode()) == decision.done()
    assert JournalKey.decode(DECISION.encode()) == DECISION
    assert JournalKey.decode(b'["q", 3]') is None, "a task of the ledger"


def test_a_new_micro_batch_is_decided_by_what_its_tasks_have() -> None:
    for before in (None, BatchDecision(OLD, 4, (), is_done=True)):
        verdict = decide(before, 5, reported(ROWS_A, ROWS_B), NEW)
        assert verdict.is_new
        assert verdict.decision == BatchDecision(NEW, 5, (ROWS_A, ROWS_B))
        assert verdict.to_abort == ()


def test_a_task_of_a_new_micro_batch_writes() -> None:
    assert task_plan(None, 5, 0) == (TaskPlan.WRITE, None)
    assert task_plan(BatchDecision(OLD, 4, (), is_done=True), 5, 0) == (TaskPlan.WRITE, None)


def test_a_task_of_a_repetition_finishes_what_was_decided_and_writes_nothing() -> None:
    assert task_plan(DECIDED, 5, 1) == (TaskPlan.FINISH, ROWS_B)
    assert task_plan(DECIDED, 5, 2) == (TaskPlan.LEAVE, None), "there were two tasks"
    assert task_plan(DECIDED.done(), 5, 0) == (TaskPlan.LEAVE, None)
    assert task_plan(DECIDED, 4, 0) == (TaskPlan.LEAVE, None), "the query has gone on"
    none = BatchDecision(OLD, 5, (TaskRows(0, 0, None),))
    assert task_plan(none, 5, 0) == (TaskPlan.LEAVE, TaskRows(0, 0, None))


def test_what_was_decided_stays_decided_whatever_a_repetition_has() -> None:
    for reports in (reported(ROWS_A, ROWS_B), reported(TaskRows(9, 9, None))):
        assert decide(DECIDED, 5, reports, NEW) == (verdict := decide(DECIDED, 5, reports, NEW))
        assert (verdict.decision, verdict.is_new, verdict.to_abort) == (DECIDED, False, ())


def test_what_tasks_wrote_that_knew_of_no_decision_is_aborted() -> None:
    """Another driver has decided while they wrote: what it decided may be committed."""
    mine = TaskRows(3, 11, C)
    verdict = decide(DECIDED, 5, reported(ROWS_A, mine), NEW)
    assert (verdict.decision, verdict.is_new, verdict.to_abort) == (DECIDED, False, (C,))
    # Which ones were committed is forgotten by then; to abort those is refused by their brokers.
    verdict = decide(DECIDED.done(), 5, reported(ROWS_A, mine), NEW)
    assert (verdict.decision, verdict.is_new) == (DECIDED.done(), False)
    assert C in verdict.to_abort


def test_a_transaction_that_is_lost_is_replaced_if_all_tasks_have_the_same_rows() -> None:
    again = TaskRows(2, 22, C)
    verdict = decide(DECIDED, 5, reported(ROWS_A, again, lost=B), NEW)
    assert verdict.is_new
    assert verdict.decision == BatchDecision(NEW, 5, (ROWS_A, again), revision=1)


@pytest.mark.parametrize(
    "reports",
    [
        reported(ROWS_A, TaskRows(2, 23, C), lost=B),
        reported(TaskRows(3, 12, A), TaskRows(2, 22, C), lost=B),
        [*reported(ROWS_A, TaskRows(2, 22, C), lost=B), AttemptReport(2, TaskRows(1, 1, None))],
    ],
    ids=["other rows", "other rows of another task", "another number of tasks"],
)
def test_a_half_committed_micro_batch_is_not_mended_with_other_rows(
    reports: list[AttemptReport],
) -> None:
    with pytest.raises(SinkConflictError, match="committed in part"):
        decide(DECIDED, 5, reports, NEW)
    assert in_vain(DECIDED, reports) == (C,)


def test_a_micro_batch_of_which_all_is_lost_is_written_again_with_any_number_of_tasks() -> None:
    """Nothing of it is visible, so nothing can be there twice."""
    before = BatchDecision(OLD, 5, (ROWS_A, TaskRows(0, 0, None), TaskRows(0, 0, None)))
    again = [
        AttemptReport(0, TaskRows(3, 19, C), A, is_repetition=True),
        AttemptReport(1, TaskRows(0, 0, None), None, is_repetition=True),
    ]
    verdict = decide(before, 5, again, NEW)
    assert verdict.is_new
    assert list(verdict.decision.transactions()) == [C]
    assert verdict.decision.revision == 1


def test_rows_that_nobody_has_written_again_are_not_forgotten() -> None:
    """All is lost, but a task that the decision did not know of has left its rows alone."""
    before = BatchDecision(OLD, 5, (ROWS_A,))
    again = [
        AttemptReport(0, TaskRows(2, 5, C), A, is_repetition=True),
        AttemptReport(1, TaskRows(1, 6, None), None, is_repetition=True),
    ]
    with pytest.raises(SinkConflictError, match="committed in part"):
        decide(before, 5, again, NEW)


def test_what_another_driver_has_mended_is_not_mended_again() -> None:
    """The task found B lost; by now another driver has replaced B by D, which may be committed."""
    mended = BatchDecision(OLD, 5, (ROWS_A, TaskRows(2, 22, prepared("d"))), revision=1)
    verdict = decide(mended, 5, reported(ROWS_A, TaskRows(2, 22, C), lost=B), NEW)
    assert (verdict.decision, verdict.is_new, verdict.to_abort) == (mended, False, (C,))


def test_a_driver_that_was_left_behind_is_told_so() -> None:
    with pytest.raises(SinkConflictError, match="the output is at 5"):
        decide(DECIDED, 4, reported(TaskRows(1, 1, C)), NEW)


def test_a_decision_behind_another_drivers_claim_does_not_count() -> None:
    journal = QueryJournal("q")
    journal.replay(CLAIM, encode_claim(OLD))
    journal.replay(DECISION, BatchDecision(OLD, 4, (ROWS_A,)).encode())
    journal.replay(CLAIM, encode_claim(NEW))
    journal.replay(DECISION, DECIDED.encode())
    assert journal.decision == BatchDecision(OLD, 4, (ROWS_A,))
    journal.replay(DECISION, BatchDecision(NEW, 5, (ROWS_B,)).encode())
    assert journal.decision == BatchDecision(NEW, 5, (ROWS_B,))


def test_compaction_may_take_claims_and_other_queries_are_none_of_ours() -> None:
    journal = QueryJournal("q")
    journal.replay(DECISION, DECIDED.encode())
    journal.replay(JournalKey("p", "claim"), encode_claim(NEW))
    journal.replay(JournalKey("p", "decision"), BatchDecision(NEW, 9, ()).encode())
    assert (journal.claim, journal.decision) == (None, DECIDED)
    journal.replay(DECISION, None)
    assert journal.decision is None
