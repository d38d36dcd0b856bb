"""The states of a transactional producer: every call in every state, and what errors leave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import TopicPartition
from shoal.client.producer_transaction import CALLS, EndPlan, ProducerState, ProducerTransaction
from shoal.client.transaction_reactions import TransactionReaction as R
from shoal.errors import (
    ErrorCode,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionFatalError,
)

S = ProducerState
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

# Rows: states. Columns: the calls of CALLS in their order. "-" is refused, "=" stays.
TABLE = """
UNINITIALIZED    INITIALIZING  -               -  -  -  -           -
INITIALIZING     =             -               -  -  -  -           -
READY            -             IN_TRANSACTION  -  -  -  -           -
IN_TRANSACTION   -             -               =  =  =  COMMITTING  ABORTING
PREPARED         -             -               -  -  -  COMMITTING  ABORTING
COMMITTING       -             -               -  -  -  =           -
ABORTING         -             -               -  -  -  -           =
ABORTABLE_ERROR  -             -               -  -  -  -           ABORTING
FATAL_ERROR      -             -               -  -  -  -           -
"""
ROWS = {line.split()[0]: line.split()[1:] for line in TABLE.split("\n") if line}


def in_state(state: ProducerState, *, is_v2: bool = True) -> ProducerTransaction:
    core = ProducerTransaction()
    if state is S.UNINITIALIZED:
        return core
    core.called("init_transactions")
    if state is S.INITIALIZING:
        return core
    core.initialized(7, 0)
    if state is S.READY:
        return core
    core.called("begin_transaction")
    core.begun(is_v2=is_v2)
    match state:
        case S.PREPARED:
            core.called("prepare_transaction")
            core.prepared()
        case S.COMMITTING:
            core.called("commit_transaction")
        case S.ABORTING:
            core.called("abort_transaction")
        case S.ABORTABLE_ERROR:
            core.failed(R.ABORT, "it was refused", ErrorCode.INVALID_RECORD)
        case S.FATAL_ERROR:
            core.failed(R.FENCED, "it was refused", ErrorCode.PRODUCER_FENCED)
    return core


@pytest.mark.parametrize("state", list(S), ids=lambda state: state.name)
@pytest.mark.parametrize("call", CALLS)
def test_every_call_in_every_state(state, call):
    core = in_state(state)
    assert core.state is state
    leads_to = ROWS[state.name][list(CALLS).index(call)]
    if leads_to != "-":
        core.called(call)
        assert core.state.name == (state.name if leads_to == "=" else leads_to)
        return
    kinds = {S.ABORTABLE_ERROR: TransactionAbortableError, S.FATAL_ERROR: ProducerFencedError}
    with pytest.raises(kinds.get(state, RuntimeError)) as caught:
        core.called(call)
    assert core.state is state, "a refused call changes nothing"
    assert "\n" not in str(caught.value)


def test_the_first_error_is_the_one_told_and_each_time_as_a_new_object():
    core = in_state(S.IN_TRANSACTION)
    core.failed(R.ABORT, "the first", ErrorCode.INVALID_RECORD)
    core.failed(R.ABORT_AND_BUMP, "the second", ErrorCode.MESSAGE_TOO_LARGE)
    first, second = core.refusal("send"), core.refusal("commit_transaction")
    assert isinstance(first, TransactionAbortableError)
    assert first.code is ErrorCode.INVALID_RECORD
    assert "the first" in str(second)
    assert first is not second


@pytest.mark.parametrize("state", list(S), ids=lambda state: state.name)
def test_a_fatal_error_comes_from_everywhere_and_stays(state):
    core = in_state(state)
    was_fatal = state is S.FATAL_ERROR
    core.failed(R.FATAL, "no right", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    core.failed(R.ABORT, "later", None)
    assert core.state is S.FATAL_ERROR
    for call in CALLS:
        error = core.refusal(call)
        assert isinstance(error, TransactionFatalError)
        assert ("no right" in str(error)) is not was_fatal


def test_a_transaction_that_ended_leaves_nothing_to_the_next():
    core = in_state(S.IN_TRANSACTION, is_v2=False)
    assert not core.takes(T0)
    core.added({T0})
    core.added_offsets("g")
    core.failed(R.ABORT_AND_BUMP, "refused", None)
    core.called("abort_transaction")
    assert core.end_plan() == EndPlan(end=True, bump=True)
    core.ended()
    core.called("begin_transaction")
    assert not core.takes(T0)
    assert core.groups == set()
    core.called("commit_transaction")
    assert core.end_plan() == EndPlan(end=False, bump=False)


def test_a_partition_is_taken_only_when_it_was_added_before_version_2():
    core = in_state(S.IN_TRANSACTION, is_v2=False)
    assert not core.takes(T0)
    assert core.wanted == {T0}
    core.added({T0})
    assert core.wanted == set()
    assert core.takes(T0)
    assert not core.takes(T1)
    assert in_state(S.IN_TRANSACTION).takes(T0)


def test_an_implicit_add_is_ended_even_if_nothing_was_stored():
    # The broker adds the partition before it stores: the next transaction would join this one.
    core = in_state(S.IN_TRANSACTION)
    core.sends(T0)
    core.batch_failed(R.ABORT, "refused", ErrorCode.INVALID_RECORD, ValueError())
    core.called("abort_transaction")
    assert core.end_plan().end


def test_a_coordinator_that_forgot_the_producer_is_not_asked_to_abort():
    for is_v2 in (False, True):
        core = in_state(S.IN_TRANSACTION, is_v2=is_v2)
        core.sends(T0)
        core.failed(R.REINITIALIZE, "forgotten", ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        core.called("abort_transaction")
        assert core.end_plan() == EndPlan(end=False, bump=True)


def test_a_refused_abort_is_no_error_if_what_was_in_doubt_never_arrived():
    core = in_state(S.IN_TRANSACTION, is_v2=False)
    core.takes(T0)
    core.asks()
    core.failed(R.ABORT_AND_BUMP, "no answer", None)
    core.called("abort_transaction")
    assert core.end_plan() == EndPlan(end=True, bump=True)
    assert core.ended_without(ErrorCode.INVALID_TXN_STATE)
    assert not core.ended_without(ErrorCode.PRODUCER_FENCED)
    certain = in_state(S.IN_TRANSACTION, is_v2=False)
    certain.added({T0})
    certain.called("abort_transaction")
    assert not certain.ended_without(ErrorCode.INVALID_TXN_STATE)


def test_a_commit_never_ends_without_an_answer_that_says_so():
    core = in_state(S.IN_TRANSACTION, is_v2=False)
    core.asks()
    core.called("commit_transaction")
    for code in ErrorCode:
        assert not core.ended_without(code)


def test_while_a_transaction_is_aborted_failed_records_are_no_news():
    core = in_state(S.ABORTING, is_v2=False)
    core.batch_failed(R.ABORT_AND_BUMP, "late", None, ValueError())
    states = [core.state]
    assert core.end_plan().bump
    core.batch_failed(R.FENCED, "fenced", ErrorCode.PRODUCER_FENCED, ValueError())
    assert [*states, core.state] == [S.ABORTING, S.FATAL_ERROR]


STEPS = st.lists(
    st.one_of(
        st.sampled_from(sorted(CALLS)),
        st.sampled_from([R.ABORT, R.ABORT_AND_BUMP, R.REINITIALIZE]),
        st.just("ended"),
    ),
    max_size=30,
)


@given(STEPS, st.booleans())
def test_no_order_of_calls_and_errors_commits_what_failed(steps, is_v2):
    core = in_state(S.READY)
    failed = False
    for step in steps:
        if step == "ended":
            if core.state in (S.COMMITTING, S.ABORTING):
                assert not (failed and core.state is S.COMMITTING)
                core.ended()
        elif isinstance(step, R):
            if core.state is S.IN_TRANSACTION:
                core.failed(step, "failed", None)
                failed = True
        elif core.refusal(step) is None:
            core.called(step)
            if step == "begin_transaction":
                core.begun(is_v2=is_v2)
                failed = False


def test_an_error_of_what_was_under_way_does_not_end_an_abort() -> None:
    core = in_state(S.ABORTING, is_v2=False)
    error = core.failed(R.ABORT_AND_BUMP, "partitions were not added", ErrorCode.NETWORK_EXCEPTION)
    assert isinstance(error, TransactionAbortableError)
    assert core.state is S.ABORTING
    assert core.end_plan().bump


def test_who_is_fenced_while_it_aborts_is_at_its_end() -> None:
    core = in_state(S.ABORTING)
    core.failed(R.FENCED, "somebody else has the id", ErrorCode.PRODUCER_FENCED)
    assert isinstance(core.refusal("abort_transaction"), ProducerFencedError)
