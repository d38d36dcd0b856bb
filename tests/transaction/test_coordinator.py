"""The transaction coordinator, answer by answer: ids, epochs, fencing, ends, time, restarts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal.errors import ErrorCode
from shoal.transaction.coordinator import PARKED_MAX_MS, TransactionConfig
from shoal.transaction.journal import (
    EPOCH_MAX,
    TransactionRecord,
    TransactionTombstone,
    decode,
    encode,
)
from shoal.transaction.requests import TV0, AbortByAdmin, VerifyPartitions
from shoal.transaction.states import TransactionState as State
from shoal.transaction.states import may_move
from shoal.types import TopicPartition
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from tests.transaction.shell import START_MS, TP, TV2, Shell, add, end, init, through_bytes

OTHER = TopicPartition("orders", 1)
NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
WRONG_STATE = ErrorCode.INVALID_TXN_STATE


# --- Ids and epochs ------------------------------------------------------------------------------


def test_a_new_id_begins_with_epoch_0_and_each_init_gets_the_next() -> None:
    shell = Shell()
    first, second = shell.init(), shell.init()
    assert (first.producer_id, first.producer_epoch) == (1_000, 0)
    assert (second.producer_id, second.producer_epoch) == (1_000, 1)
    assert shell.init("other").producer_id == 1_001


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (init(""), ErrorCode.INVALID_REQUEST),
        (init("t", (5, -1)), ErrorCode.INVALID_REQUEST),
        (init("t", (-1, 5)), ErrorCode.INVALID_REQUEST),
        (init(timeout_ms=0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (init(timeout_ms=900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_request_that_cannot_be_is_refused_and_nothing_written(
    request_: InitProducerIdRequest, error: ErrorCode
) -> None:
    shell = Shell()
    assert shell.ask(request_).error_code == error
    assert not shell.records


def test_a_producer_that_goes_on_gets_the_next_epoch_and_the_same_answer_again() -> None:
    """KIP-360: the answer may be lost."""
    shell = Shell()
    shell.init()
    bumped = shell.init(expected=(1_000, 0))
    assert bumped.producer_epoch == 1
    again = shell.init(expected=(1_000, 0))
    assert (again.error_code, again.producer_epoch) == (0, 1)
    assert shell.init(expected=(1_000, 1)).producer_epoch == 2
    assert shell.init(expected=(1_000, 0)).error_code == FENCED
    assert shell.init(expected=(999, 0)).error_code == FENCED


def test_old_clients_are_told_an_error_they_know() -> None:
    shell = Shell()
    shell.init()
    stale = init(expected=(999, 0))
    assert shell.ask(stale, 3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert shell.ask(stale, 4).error_code == FENCED
    shell.add((1_000, 0))
    shell.init()
    assert shell.end((1_000, 0), commit=True, version=1).error_code == 47
    assert shell.end((1_000, 0), commit=True, version=2).error_code == FENCED


def test_an_exhausted_producer_id_is_followed_by_a_new_one() -> None:
    shell = Shell()
    shell.init()
    last = shell.record()._replace(epoch=EPOCH_MAX - 1)
    shell = Shell([last], producer_ids=[7_000])
    rotated = shell.init(expected=(1_000, EPOCH_MAX - 1))
    assert (rotated.producer_id, rotated.producer_epoch) == (7_000, 0)
    again = shell.init(expected=(1_000, EPOCH_MAX - 1))
    assert (again.producer_id, again.producer_epoch) == (7_000, 0)
    assert shell.init(expected=(1_000, EPOCH_MAX - 2)).error_code == FENCED


def test_without_a_producer_id_at_hand_the_client_asks_again() -> None:
    shell = Shell(producer_ids=[])
    assert shell.init().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not shell.records


# --- Adding partitions ---------------------------------------------------------------------------


def test_partitions_are_added_once_and_the_clock_starts_with_the_first() -> None:
    shell = Shell()
    shell.init()
    shell.now_ms += 5_000
    assert shell.add((1_000, 0)) is NONE
    written = len(shell.records)
    assert shell.add((1_000, 0)) is NONE
    assert len(shell.records) == written
    shell.now_ms += 5_000
    assert shell.add((1_000, 0), OTHER) is NONE
    assert shell.record().partitions == {TP, OTHER}
    assert shell.record().start_ms == START_MS + 5_000


def test_strangers_and_zombies_add_nothing() -> None:
    shell = Shell()
    assert shell.add((1_000, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    shell.init()
    shell.init()
    assert shell.add((1_000, 0)) is FENCED
    assert shell.add((1_001, 1)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shell.state() is State.EMPTY


def test_verifying_says_whether_a_batch_may_be_stored() -> None:
    shell = Shell(markers_at_once=False)
    shell.init()

    def verify(epoch: int, partition: TopicPartition = TP) -> ErrorCode:
        answer = shell.ask(VerifyPartitions("t", 1_000, epoch, frozenset({partition})))
        assert isinstance(answer, ErrorCode)
        return answer

    assert verify(0) is ErrorCode.TRANSACTION_ABORTABLE
    shell.add((1_000, 0))
    assert verify(0) is NONE
    assert verify(0, OTHER) is ErrorCode.TRANSACTION_ABORTABLE
    assert verify(1) is FENCED
    shell.end((1_000, 0), commit=True)
    assert verify(0) is ErrorCode.CONCURRENT_TRANSACTIONS


# --- Ending --------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_in_every_partition_before_it_is_complete(commit: bool) -> None:
    shell = Shell(markers_at_once=False)
    shell.init()
    shell.add((1_000, 0), TP, OTHER)
    assert shell.end((1_000, 0), commit=commit).error_code == NONE
    (order,) = shell.orders
    assert (order.commit, order.epoch) == (commit, 0)
    assert order.partitions == {TP, OTHER}
    assert shell.state().is_prepared
    shell.written(order)
    assert shell.state() is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert not shell.record().partitions


def ended(shell: Shell, how: str) -> tuple[int, int]:
    """Brings ``t`` into a state; returns the producer id and the epoch its client has."""
    shell.init()
    producer = (1_000, 0)
    if how == "Empty":
        return producer
    shell.add(producer)
    if how == "Ongoing":
        return producer
    shell.markers_at_once = how.startswith("Complete")
    shell.end(producer, commit=how.endswith("Commit"))
    return producer


OLD_FLOW = [
    ("Empty", True, WRONG_STATE),
    ("Empty", False, WRONG_STATE),
    ("PrepareCommit", False, WRONG_STATE),
    ("PrepareAbort", True, WRONG_STATE),
    ("CompleteCommit", True, NONE),
    ("CompleteCommit", False, WRONG_STATE),
    ("CompleteAbort", False, NONE),
    ("CompleteAbort", True, WRONG_STATE),
]


@pytest.mark.parametrize(("state", "commit", "error"), OLD_FLOW)
def test_endings_of_the_old_flow(state: str, commit: bool, error: ErrorCode) -> None:
    shell = Shell()
    producer = ended(shell, state)
    before = len(shell.records)
    assert shell.state().title == state
    assert shell.end(producer, commit=commit).error_code == error
    assert len(shell.records) == before
    stranger = shell.end((producer[0], 7), commit=commit)
    assert stranger.error_code == FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_an_ending_that_is_repeated_while_markers_are_written_is_answered_when_they_are(
    commit: bool,
) -> None:
    shell = Shell(markers_at_once=False)
    producer = ended(shell, "Ongoing")
    shell.end(producer, commit=commit)
    ticket = shell.send(end(producer, commit=commit), 4)
    assert ticket not in shell.replies
    shell.written(shell.orders[0])
    assert shell.replies[ticket].error_code == NONE


NEW_FLOW = [
    # state, is the request of the epoch before, commit, error, does the epoch grow
    ("Empty", True, False, FENCED, False),
    ("Empty", False, False, NONE, True),
    ("Empty", True, True, FENCED, False),
    ("Empty", False, True, WRONG_STATE, False),
    ("CompleteAbort", True, False, NONE, False),
    ("CompleteAbort", False, False, NONE, True),
    ("CompleteAbort", True, True, FENCED, False),
    ("CompleteAbort", False, True, WRONG_STATE, False),
    ("CompleteCommit", True, False, WRONG_STATE, False),
    ("CompleteCommit", False, False, NONE, True),
    ("CompleteCommit", True, True, NONE, False),
    ("CompleteCommit", False, True, WRONG_STATE, False),
]


@pytest.mark.parametrize(("state", "is_retry", "commit", "error", "bumps"), NEW_FLOW)
def test_endings_of_the_new_flow(
    state: str, is_retry: bool, commit: bool, error: ErrorCode, bumps: bool
) -> None:
    shell = Shell()
    shell.init()
    shell.init()
    if state != "Empty":
        shell.add((1_000, 1), tv=TV2)
        shell.end((1_000, 1), commit=state == "CompleteCommit", version=5)
    epoch = shell.record().epoch
    asked = epoch - 1 if is_retry else epoch
    answer = shell.end((1_000, asked), commit=commit, version=5)
    assert answer.error_code == error
    assert shell.record().epoch == epoch + bumps
    if error is NONE:
        assert (answer.producer_id, answer.producer_epoch) == (1_000, epoch + bumps)


def test_in_the_new_flow_the_markers_carry_the_next_epoch() -> None:
    shell = Shell()
    shell.init()
    shell.add((1_000, 0), tv=TV2)
    answer = shell.end((1_000, 0), commit=True, version=5)
    assert (answer.producer_id, answer.producer_epoch) == (1_000, 1)
    assert [(order.epoch, order.client_version) for order in shell.orders] == [(1, TV2)]
    # Whatever of the old epoch is still under way finds nothing that belongs to it.
    assert shell.add((1_000, 0)) is FENCED


def test_an_epoch_that_runs_out_in_the_new_flow_gives_the_next_producer_id() -> None:
    shell = Shell()
    shell.init()
    last = shell.record()._replace(epoch=EPOCH_MAX - 1)
    shell = Shell([last], producer_ids=[7_000], markers_at_once=False)
    producer = (1_000, EPOCH_MAX - 1)
    shell.add(producer, tv=TV2)
    answer = shell.end(producer, commit=True, version=5)
    assert (answer.producer_id, answer.producer_epoch) == (7_000, 0)
    (order,) = shell.orders
    assert (order.producer_id, order.epoch) == (1_000, EPOCH_MAX)
    # A restart in between goes on with the id that was promised (KAFKA-20310).
    shell = shell.rebuilt()
    shell.written(shell.orders[0])
    assert (shell.record().producer_id, shell.record().epoch) == (7_000, 0)
    again = shell.end(producer, commit=True, version=5)
    assert (again.error_code, again.producer_id) == (NONE, 7_000)


@pytest.mark.parametrize("tv", [TV0, TV2])
def test_a_coordinator_that_fences_with_the_last_epoch_leaves_a_new_producer_id(tv: int) -> None:
    """KAFKA-20090, and in the old flow too."""
    shell = Shell()
    shell.init()
    last = shell.record()._replace(epoch=EPOCH_MAX - 1)
    shell = Shell([last], producer_ids=[7_000])
    shell.add((1_000, EPOCH_MAX - 1), tv=tv)
    taken = shell.init()
    assert [(order.producer_id, order.epoch) for order in shell.orders] == [(1_000, EPOCH_MAX)]
    assert (taken.producer_id, taken.producer_epoch) == (7_000, 1)
    late = shell.add((1_000, EPOCH_MAX - 1), tv=tv)
    assert late is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# --- Fencing and waiting -------------------------------------------------------------------------


def test_an_init_fences_the_open_transaction_and_waits_for_its_end() -> None:
    shell = Shell(markers_at_once=False)
    producer = ended(shell, "Ongoing")
    ticket = shell.send(init())
    assert ticket not in shell.replies
    (order,) = shell.orders
    assert (order.commit, order.epoch) == (False, 1)
    assert shell.end(producer, commit=True).error_code == FENCED
    shell.written(order)
    assert shell.replies[ticket].producer_epoch == 2
    assert shell.state() is State.EMPTY


def test_the_next_transaction_waits_for_the_markers_of_the_last() -> None:
    shell = Shell(markers_at_once=False)
    producer = ended(shell, "Ongoing")
    shell.end(producer, commit=True)
    first, second = shell.send(add(producer, TP)), shell.send(add(producer, OTHER))
    assert first not in shell.replies
    shell.written(shell.orders[0])
    assert shell.replies[first] is NONE
    assert shell.replies[second] is NONE
    assert shell.record().partitions == {TP, OTHER}


def test_who_waits_is_served_in_the_order_of_coming() -> None:
    shell = Shell(markers_at_once=False)
    producer = ended(shell, "Ongoing")
    shell.end(producer, commit=True)
    first, second = shell.send(add(producer, TP)), shell.send(init())
    shell.written(shell.orders[0])
    assert shell.replies[first] is NONE, "the init that came later fences it afterwards"
    (_, order) = shell.orders
    assert not order.commit
    shell.written(order)
    assert shell.replies[second].error_code == NONE


def test_an_administrator_aborts_the_transaction_that_was_meant_and_no_other() -> None:
    shell = Shell()
    producer_id, _ = ended(shell, "Ongoing")
    wrong = shell.ask(AbortByAdmin("t", producer_id + 1))
    assert wrong is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shell.state() is State.ONGOING
    assert shell.ask(AbortByAdmin("t", producer_id)) is NONE
    assert shell.state() is State.COMPLETE_ABORT


def test_who_has_waited_long_enough_is_told_to_come_back() -> None:
    shell = Shell(markers_at_once=False)
    producer = ended(shell, "Ongoing")
    shell.end(producer, commit=True)
    ticket = shell.send(add(producer))
    shell.advance(PARKED_MAX_MS)
    assert shell.replies[ticket] is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_late_answer_about_markers_completes_nothing_of_a_later_transaction() -> None:
    shell = Shell(markers_at_once=False)
    ended(shell, "Ongoing")
    shell.send(init())
    (first,) = shell.orders
    shell.written(first)
    assert shell.add((1_000, 2)) is NONE
    shell.end((1_000, 2), commit=True)
    shell.written(first)
    assert shell.state() is State.PREPARE_COMMIT


def test_a_zombie_that_initialises_again_does_not_abort_its_successor() -> None:
    shell = Shell()
    shell.init()
    shell.init()
    shell.init()
    shell.add((1_000, 2))
    assert shell.init(expected=(1_000, 0)).error_code == FENCED
    assert shell.state() is State.ONGOING


# --- Time ----------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    shell = Shell()
    producer = ended(shell, "Ongoing")
    shell.advance(59_999)
    assert shell.state() is State.ONGOING
    shell.advance(1)
    assert shell.state() is State.COMPLETE_ABORT
    assert [(order.commit, order.epoch) for order in shell.orders] == [(False, 1)]
    assert shell.end(producer, commit=True).error_code == FENCED


def test_the_time_of_a_transaction_counts_on_through_a_restart() -> None:
    shell = Shell()
    ended(shell, "Ongoing")
    again = shell.rebuilt()
    again.markers_at_once = True
    again.advance(60_000)
    assert again.state() is State.COMPLETE_ABORT


def test_a_committed_transaction_does_not_time_out() -> None:
    shell = Shell()
    ended(shell, "CompleteCommit")
    shell.advance(120_000)
    assert shell.state() is State.COMPLETE_COMMIT


def test_ids_nobody_uses_expire_and_others_do_not() -> None:
    config = TransactionConfig(transactional_id_expiration_ms=10_000)
    shell = Shell(config=config)
    shell.init()
    shell.advance(3_600_000)
    assert shell.coordinator.record("t") is None
    assert shell.records[-1] == TransactionTombstone("t")
    assert shell.end((1_000, 0), commit=True).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_id_does_not_expire_while_its_transaction_is_open() -> None:
    config = TransactionConfig(
        transactional_id_expiration_ms=1_000, remove_expired_interval_ms=10_000
    )
    shell = Shell(config=config)
    ended(shell, "Ongoing")
    shell.advance(50_000)
    assert shell.state() is State.ONGOING


# --- The journal ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit"])
def test_a_restart_finds_what_was_and_orders_the_markers_again(state: str) -> None:
    shell = Shell()
    ended(shell, state)
    again = shell.rebuilt()
    assert again.coordinator.durable() == shell.coordinator.durable()
    assert len(again.orders) == state.startswith("Prepare")
    for order in again.orders:
        again.written(order)
        again.written(order)  # and again, by whom was asked before the restart
        assert again.state().title == state.replace("Prepare", "Complete")


@pytest.mark.parametrize("step", ["init", "add", "end", "markers"])
def test_a_journal_that_refuses_changes_nothing_and_the_work_is_done_later(step: str) -> None:
    shell = Shell(markers_at_once=False)
    refused = ErrorCode.KAFKA_STORAGE_ERROR
    told = ErrorCode.NOT_COORDINATOR
    if step == "init":
        shell.fail_appends_with = refused
        assert shell.init().error_code == told
        assert shell.coordinator.record("t") is None
        return
    shell.init()
    producer = (1_000, 0)
    if step == "add":
        shell.fail_appends_with = refused
        assert shell.add(producer) is told
        assert shell.state() is State.EMPTY
        shell.advance(120_000)  # nothing was begun, so nothing times out
        assert not shell.orders
        return
    shell.add(producer)
    if step == "end":
        shell.fail_appends_with = refused
        assert shell.end(producer, commit=True).error_code == told
        assert shell.state() is State.ONGOING
        assert not shell.orders, "no marker without its decision"
        shell.fail_appends_with = None
        shell.advance(60_000)  # it still has its time
        assert shell.state() is State.PREPARE_ABORT
        return
    shell.end(producer, commit=True)
    shell.fail_appends_with = refused
    shell.written(shell.orders[0])
    assert shell.state() is State.PREPARE_COMMIT
    shell.fail_appends_with = None
    shell.advance(1_000)
    first, again = shell.orders
    assert again == first
    shell.written(again)
    assert shell.state() is State.COMPLETE_COMMIT


def test_who_waits_is_told_when_the_coordinator_goes() -> None:
    shell = Shell(markers_at_once=False)
    producer = ended(shell, "Ongoing")
    shell.end(producer, commit=True)
    ticket = shell.send(add(producer))
    shell.obey(shell.coordinator.unload(shell.now_ms))
    assert shell.replies[ticket] is ErrorCode.NOT_COORDINATOR
    assert shell.init().error_code == ErrorCode.NOT_COORDINATOR


steps = st.lists(
    st.one_of(
        st.tuples(st.just("init"), st.integers(0, 1)),
        st.tuples(st.just("add"), st.integers(0, 2)),
        st.tuples(st.just("commit"), st.integers(4, 5)),
        st.tuples(st.just("abort"), st.integers(4, 5)),
        st.tuples(st.just("markers"), st.just(0)),
        st.tuples(st.just("time"), st.integers(1, 40_000)),
        st.tuples(st.just("stale"), st.integers(4, 5)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


@given(steps)
def test_any_history_keeps_its_promises(steps: list[tuple[str, int]]) -> None:
    """Epochs never go back, a decision never changes, a rebuilt coordinator equals the living."""
    shell = Shell(markers_at_once=False)
    highest = (0, -1)
    for step, number in steps:
        record = shell.coordinator.record("t")
        producer = (record.producer_id, record.epoch) if record is not None else (1_000, 0)
        if step == "init":
            shell.send(init(expected=producer if number and record is not None else (-1, -1)))
        elif step == "add":
            shell.send(add(producer, TopicPartition("orders", number)))
        elif step in ("commit", "abort"):
            shell.send(end(producer, commit=step == "commit"), number)
        elif step == "stale":
            stale = (producer[0], max(producer[1] - 2, 0))
            shell.send(end(stale, commit=True), number)
        elif step == "markers":
            for order in shell.orders:
                shell.written(order)
        elif step == "time":
            shell.advance(number)
        else:
            shell = shell.rebuilt()
        now = shell.coordinator.record("t")
        if now is not None:
            assert (now.producer_id, now.epoch) >= highest
            highest = (now.producer_id, now.epoch)
            assert now.epoch <= EPOCH_MAX
        again = Shell(shell.records, markers_at_once=False)
        assert again.coordinator.durable() == shell.coordinator.durable()
    states = [each.state for each in shell.records if isinstance(each, TransactionRecord)]
    for before, after in pairwise(states):
        assert may_move(before, after), "what was decided is what is completed"


@given(
    st.builds(
        TransactionRecord,
        transactional_id=st.text(min_size=1, max_size=20),
        producer_id=st.integers(0, 2**63 - 1),
        epoch=st.integers(0, EPOCH_MAX),
        timeout_ms=st.integers(1, 900_000),
        state=st.sampled_from([each for each in State if each is not State.EMPTY]),
        partitions=st.frozensets(
            st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5)), max_size=6
        ),
        update_ms=st.integers(0, 2**40),
        start_ms=st.none() | st.integers(0, 2**40),
        previous_producer_id=st.none() | st.integers(0, 2**40),
        next_producer_id=st.none() | st.integers(0, 2**40),
        last_epoch=st.none(),
        client_version=st.integers(0, 2),
    )
)
def test_a_record_survives_its_bytes(record: TransactionRecord) -> None:
    assume(record.previous_producer_id != record.producer_id)
    assert through_bytes(record) == record


def test_the_bytes_of_a_key_and_of_an_empty_id_are_kafkas() -> None:
    record = TransactionRecord(
        transactional_id="my-txn", producer_id=1_000, epoch=3, timeout_ms=60_000, update_ms=5
    )
    key, value = encode(record)
    assert key == bytes.fromhex("0000 0006") + b"my-txn"
    # Version 1: id, epoch, timeout, Empty, no partitions, last update, no start, and one tag, in
    # which Kafka names the id itself where there was no other before it.
    assert value == bytes.fromhex(
        "0001 00000000000003e8 0003 0000ea60 00 00 0000000000000005 ffffffffffffffff"
        "01 00 08 00000000000003e8"
    )
    old = bytes.fromhex(
        "0000 00000000000003e8 0003 0000ea60 00 ffffffff 0000000000000005 ffffffffffffffff"
    )
    assert decode(key, old) == record
    assert decode(bytes.fromhex("0009 0000"), b"") is None
