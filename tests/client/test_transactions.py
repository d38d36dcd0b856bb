"""A producer's transactions, call by call: what is asked of the coordinator, and what it means.

On a scripted coordinator, in both protocols. The same on a real one, and what its readers see, is
in ``test_transactions_end_to_end.py``.
"""

from __future__ import annotations

import logging
import os
import threading
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest

from shoal import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from shoal.client.transaction_reactions import TransactionReaction, transaction_reaction
from shoal.errors import (
    ConfigError,
    ErrorCode,
    ProducerFencedError,
    RequestTimeoutError,
    ShoalError,
    TransactionAbortableError,
    TransactionFatalError,
)
from shoal.records.batch import read_header
from tests.client.scripted_transactions import ScriptedCoordinator
from tests.patience import PATIENCE_S

T0 = TopicPartition("t", 0)
GROUP = ConsumerGroupMetadata("g", 3, "member-1", "static-1")
OFFSETS = {T0: OffsetAndMetadata(5, "note", 2)}
FAST: dict[str, Any] = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "linger_ms": 0}


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def coordinator(request):
    with ScriptedCoordinator(request.param) as coordinator:
        yield coordinator


def made(coordinator, **settings):
    settings = {"max_block_ms": int(PATIENCE_S * 1000), **FAST, **settings}
    return Producer(bootstrap_servers=coordinator.servers, transactional_id="billing-1", **settings)


@pytest.fixture
def producer(coordinator):
    producer = made(coordinator)
    try:
        producer.init_transactions()
        yield producer
    finally:
        producer.close(PATIENCE_S)


def identities(coordinator, name):
    """Producer id and epoch in each request of this name."""
    found: list[Any] = []
    for told, _, request in coordinator.log:
        if told != name:
            continue
        if name == "Produce":
            header = read_header(bytes(request.topic_data[0].partition_data[0].records))
            found.append((header.producer_id, header.producer_epoch, header.base_sequence))
        else:
            found.append((request.producer_id, request.producer_epoch))
    return found


# --- the flow ---


def test_a_transaction_is_sent_whole_and_then_committed(coordinator, producer):
    with producer.transaction():
        futures = [producer.send("t", b"x", partition=0) for _ in range(3)]
    assert all(future.done() and future.exception() is None for future in futures)
    added = [] if coordinator.level == 2 else ["AddPartitionsToTxn"]
    # On a busy machine the three records may leave in more than one batch.
    in_turn = [name for name, _ in groupby(coordinator.told)]
    assert in_turn == ["InitProducerId", *added, "Produce", "commit"]
    produced = next(request for name, _, request in coordinator.log if name == "Produce")
    assert produced.transactional_id == "billing-1"
    assert produced.acks == -1
    assert read_header(bytes(produced.topic_data[0].partition_data[0].records)).is_transactional


def test_versions_are_those_of_the_protocol(coordinator, producer):
    with producer.transaction():
        producer.send("t", b"x")
        producer.send_offsets_to_transaction(OFFSETS, GROUP)
    versions = {name: version for name, version, _ in coordinator.log}
    if coordinator.level == 2:
        assert versions == {
            "InitProducerId": 5,
            "Produce": 12,
            "TxnOffsetCommit": 5,
            "EndTxn": 5,
        }
    else:
        assert versions == {
            "InitProducerId": 5,
            "AddPartitionsToTxn": 3,
            "Produce": 11,
            "AddOffsetsToTxn": 4,
            "TxnOffsetCommit": 4,
            "EndTxn": 4,
        }


def test_new_partitions_are_added_once_and_together(coordinator, producer):
    producer.partitions_for("t")
    with producer.transaction():
        for _ in range(3):
            for n in range(2):
                producer.send("t", b"x", partition=n)
            producer.flush()
    if coordinator.level == 2:
        assert "AddPartitionsToTxn" not in coordinator.told
        return
    added = [
        number
        for name, _, request in coordinator.log
        if name == "AddPartitionsToTxn"
        for number in request.v3_and_below_topics[0].partitions
    ]
    assert sorted(added) == [0, 1]


def test_each_transaction_has_the_epoch_the_last_one_brought(coordinator, producer):
    for _ in range(3):
        with producer.transaction():
            producer.send("t", b"x", partition=0).result(10)
            producer.send("t", b"y", partition=0)
    ends = identities(coordinator, "EndTxn")
    sent = identities(coordinator, "Produce")
    if coordinator.level == 2:
        assert ends == [(7, 0), (7, 1), (7, 2)]
        assert sent == [(7, epoch, n) for epoch in range(3) for n in range(2)]
    else:
        assert ends == [(7, 0)] * 3
        assert sent == [(7, 0, n) for n in range(6)]


def test_a_transaction_in_which_nothing_was_sent_costs_no_request(coordinator, producer):
    with producer.transaction():
        pass
    producer.begin_transaction()
    producer.abort_transaction()
    assert coordinator.told == ["InitProducerId"]


def test_arrow_rows_are_part_of_the_transaction(coordinator, producer):
    with producer.transaction():
        producer.send_arrow("t", pa.table({"value": [b"a", b"b"]}), partition=0)
    produced = next(request for name, _, request in coordinator.log if name == "Produce")
    header = read_header(bytes(produced.topic_data[0].partition_data[0].records))
    assert header.is_transactional
    assert (header.producer_id, header.record_count) == (7, 2)


def test_offsets_go_with_the_identity_of_the_member(coordinator, producer):
    with producer.transaction():
        producer.send_offsets_to_transaction(OFFSETS, GROUP)
        producer.send_offsets_to_transaction({}, GROUP)
    added = [] if coordinator.level == 2 else ["AddOffsetsToTxn"]
    assert coordinator.told == ["InitProducerId", *added, "TxnOffsetCommit", "commit"]
    request = coordinator.log[-2][2]
    assert (request.group_id, request.generation_id) == ("g", 3)
    assert (request.member_id, request.group_instance_id) == ("member-1", "static-1")
    (part,) = request.topics[0].partitions
    assert (part.committed_offset, part.committed_metadata) == (5, "note")
    assert part.committed_leader_epoch == 2


def test_callbacks_were_called_when_commit_returns(coordinator, producer):
    called: list[Any] = []
    with producer.transaction():
        for _ in range(20):
            producer.send("t", b"x", on_delivery=called.append)
    assert len(called) == 20


# --- aborts ---


def test_an_exception_in_the_block_aborts_and_is_raised(coordinator, producer):
    def fail():
        with producer.transaction():
            producer.send("t", b"x").result(10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert coordinator.told[-1] == "abort"
    with producer.transaction():
        producer.send("t", b"y")
    assert coordinator.told[-1] == "commit"


@pytest.mark.parametrize("commit", [True, False])
def test_a_block_that_ends_its_transaction_itself_ends_so(coordinator, producer, commit):
    with producer.transaction():
        producer.send("t", b"x").result(10)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert coordinator.told.count("commit") == commit
    assert coordinator.told.count("abort") == (not commit)
    with producer.transaction():
        producer.send("t", b"y")
    assert coordinator.told[-1] == "commit"


def test_what_was_not_sent_fails_at_an_abort_and_is_never_sent(coordinator):
    with made(coordinator, linger_ms=60_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send("t", b"x")
        producer.abort_transaction()
        with pytest.raises(TransactionAbortableError, match="aborted before this"):
            future.result(10)
    assert coordinator.told == ["InitProducerId"]


def test_what_is_under_way_is_awaited_before_an_abort(coordinator, producer):
    held, go = threading.Event(), threading.Event()

    def hold(frame):
        held.set()
        go.wait(PATIENCE_S)
        return frame

    coordinator.spoil("Produce", hold)
    producer.begin_transaction()
    future = producer.send("t", b"x")
    assert held.wait(PATIENCE_S)
    aborting = threading.Thread(target=producer.abort_transaction)
    aborting.start()
    aborting.join(0.2)
    early = list(coordinator.told)
    go.set()
    aborting.join(PATIENCE_S)
    assert "abort" not in early
    assert coordinator.told[-1] == "abort"
    assert future.exception(1) is None


def test_a_batch_that_failed_makes_the_transaction_one_to_abort(coordinator, producer):
    coordinator.fail("Produce", ErrorCode.INVALID_RECORD)
    producer.begin_transaction()
    future = producer.send("t", b"x")
    assert future.exception(10) is not None
    for call in (producer.commit_transaction, lambda: producer.send("t", b"y")):
        with pytest.raises(TransactionAbortableError, match="INVALID_RECORD") as caught:
            call()
        assert caught.value.code is ErrorCode.INVALID_RECORD
    producer.abort_transaction()
    assert coordinator.told[-1] == ("abort" if coordinator.level == 2 else "InitProducerId")
    with producer.transaction():
        producer.send("t", b"z")
    # The number of what failed is missing in its epoch, so there is another.
    assert identities(coordinator, "Produce")[-1] == (7, 1, 0)


def test_a_commit_that_meets_a_failure_aborts_at_the_end_of_the_block(coordinator, producer):
    coordinator.fail("Produce", ErrorCode.INVALID_RECORD)
    with pytest.raises(TransactionAbortableError), producer.transaction():
        producer.send("t", b"x")
    assert "abort" in coordinator.told
    assert "commit" not in coordinator.told
    with producer.transaction():
        producer.send("t", b"y")


def test_an_abort_of_what_was_only_refused_asks_nothing():
    with ScriptedCoordinator(1) as coordinator, made(coordinator) as producer:
        producer.init_transactions()
        coordinator.fail("AddPartitionsToTxn", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        producer.begin_transaction()
        error = producer.send("t", b"x").exception(10)
        assert isinstance(error, TransactionAbortableError)
        assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        producer.abort_transaction()
        assert coordinator.told == ["InitProducerId", "AddPartitionsToTxn"]


# --- codes ---


PASSES = (
    TransactionReaction.ACCEPT,
    TransactionReaction.RETRY,
    TransactionReaction.REDISCOVER,
)


def ends_as(call, reaction, code):
    """Make ``call`` and see that it ends as the table says."""
    if reaction in PASSES:
        call()
        return
    kind: type[TransactionAbortableError | TransactionFatalError]
    kind = TransactionAbortableError
    if reaction is TransactionReaction.FENCED:
        kind = ProducerFencedError
    elif reaction is TransactionReaction.FATAL:
        kind = TransactionFatalError
    with pytest.raises(kind, match=code.name) as caught:
        call()
    assert isinstance(caught.value, (TransactionAbortableError, TransactionFatalError))
    assert caught.value.code is code
    assert "\n" not in str(caught.value)


CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]


def one_by_one(coordinator, api, work, *, commits=False):
    """``work(producer)`` once for each code that ``api`` answers first; then go on if one may."""
    for code in CODES:
        coordinator.producer = (7, 0)
        with made(coordinator) as producer:
            if api != "InitProducerId":
                producer.init_transactions()
                producer.begin_transaction()
            coordinator.log.clear()
            coordinator.fail(api, code)
            reaction = transaction_reaction(api, code)
            ends_as(lambda p=producer: work(p), reaction, code)
            if reaction in (TransactionReaction.FENCED, TransactionReaction.FATAL):
                with pytest.raises(TransactionFatalError, match=code.name):
                    producer.abort_transaction()
                continue
            if api == "InitProducerId":
                continue
            if not commits or reaction not in PASSES:
                producer.abort_transaction()
            with producer.transaction():
                producer.send("t", b"later")
            assert coordinator.told[-1] == "commit", code


@pytest.mark.slow
def test_every_code_of_init_producer_id(coordinator):
    one_by_one(coordinator, "InitProducerId", Producer.init_transactions)


@pytest.mark.slow
def test_every_code_of_end_txn(coordinator):
    def work(producer):
        producer.send("t", b"x")
        producer.commit_transaction()

    one_by_one(coordinator, "EndTxn", work, commits=True)


@pytest.mark.slow
def test_every_code_of_add_partitions():
    def work(producer):
        producer.send("t", b"x", partition=0)
        producer.commit_transaction()

    with ScriptedCoordinator(1) as coordinator:
        one_by_one(coordinator, "AddPartitionsToTxn", work, commits=True)


@pytest.mark.slow
def test_every_code_of_add_offsets():
    with ScriptedCoordinator(1) as coordinator:
        one_by_one(
            coordinator,
            "AddOffsetsToTxn",
            lambda producer: producer.send_offsets_to_transaction(OFFSETS, GROUP),
        )


@pytest.mark.slow
def test_every_code_of_txn_offset_commit(coordinator):
    one_by_one(
        coordinator,
        "TxnOffsetCommit",
        lambda producer: producer.send_offsets_to_transaction(OFFSETS, GROUP),
    )


def test_a_failed_produce_is_told_as_what_it_makes_of_the_transaction(coordinator):
    for code in (
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        with made(coordinator) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            coordinator.fail("Produce", code)
            producer.send("t", b"x")
            ends_as(producer.commit_transaction, transaction_reaction("Produce", code), code)


def test_a_concurrent_transaction_is_waited_for_without_a_busy_loop(coordinator, producer):
    coordinator.fail("EndTxn", ErrorCode.CONCURRENT_TRANSACTIONS, times=3)
    with producer.transaction():
        producer.send("t", b"x")
    assert coordinator.told.count("commit") == 4


def test_a_coordinator_that_moved_is_looked_for(coordinator, producer):
    known = coordinator.asked["FindCoordinator"]
    coordinator.fail("EndTxn", ErrorCode.NOT_COORDINATOR)
    with producer.transaction():
        producer.send("t", b"x")
    assert coordinator.asked["FindCoordinator"] == known + 1


# --- answers that do not come ---


def test_an_end_that_was_not_answered_is_asked_for_again(coordinator, producer):
    coordinator.spoil("EndTxn", lambda frame: None)
    with producer.transaction():
        producer.send("t", b"x")
    told = coordinator.told
    assert told.count("commit") == 2
    # Before version 2 a late copy could end the next transaction, if that had the same epoch.
    assert told[-1] == ("commit" if coordinator.level == 2 else "InitProducerId")
    if coordinator.level == 1:
        assert identities(coordinator, "InitProducerId")[-1] == (7, 0)
    with producer.transaction():
        producer.send("t", b"y")


def test_a_new_epoch_that_is_refused_fails_the_next_transaction_and_not_the_committed_one():
    # A coordinator that died with its answer takes the repeated question for a zombie's. Whoever
    # took that for a commit that failed would do its work again: this one doubled a record once.
    with ScriptedCoordinator(1) as coordinator, made(coordinator) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"x").result(PATIENCE_S)
        coordinator.spoil("EndTxn", lambda frame: None)
        coordinator.fail("InitProducerId", ErrorCode.PRODUCER_FENCED)
        producer.commit_transaction()
        assert coordinator.told[-2:] == ["commit", "InitProducerId"]
        with pytest.raises(ProducerFencedError):
            producer.begin_transaction()


def test_an_end_that_was_confirmed_is_not_asked_for_again_with_the_next_epoch():
    is_over = threading.Event()
    with ScriptedCoordinator(1) as coordinator, made(coordinator, max_block_ms=300) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"x").result(PATIENCE_S)
        coordinator.spoil("EndTxn", lambda frame: None)

        def never_answered(frame: bytes) -> None:
            is_over.wait(20)

        coordinator.spoil("InitProducerId", never_answered)
        try:
            with pytest.raises(RequestTimeoutError, match=r"call commit_transaction\(\) again"):
                producer.commit_transaction()
        finally:
            is_over.set()
        ends = coordinator.told.count("commit")
        producer.commit_transaction()
        assert coordinator.told.count("commit") == ends, "the coordinator may be an epoch ahead"
        with producer.transaction():
            producer.send("t", b"y")


def test_a_commit_that_is_not_known_in_time_can_only_be_repeated(coordinator):
    end = threading.Event()
    with made(coordinator, max_block_ms=300) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"x").result(10)
        coordinator.spoil("EndTxn", lambda frame: end.wait(20) and None)
        try:
            with pytest.raises(RequestTimeoutError, match=r"call commit_transaction\(\) again"):
                producer.commit_transaction()
            for call in (producer.abort_transaction, producer.begin_transaction):
                with pytest.raises(RuntimeError, match="not known whether the last commit"):
                    call()
            with pytest.raises(RuntimeError, match="not known whether the last commit"):
                producer.send("t", b"y")
        finally:
            end.set()
        producer.commit_transaction()
        with producer.transaction():
            producer.send("t", b"y")


def test_init_that_is_not_answered_in_time_is_repeated(coordinator):
    end = threading.Event()
    with made(coordinator, max_block_ms=300) as producer:
        coordinator.spoil("InitProducerId", lambda frame: end.wait(20) and None)
        with pytest.raises(RequestTimeoutError, match=r"call init_transactions\(\) again"):
            producer.init_transactions()
        end.set()
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"y")


def test_offsets_without_an_answer_have_to_be_aborted(coordinator):
    end = threading.Event()
    with made(coordinator, max_block_ms=300) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        coordinator.spoil("TxnOffsetCommit", lambda frame: end.wait(20) and None)
        with pytest.raises(RequestTimeoutError, match=r"abort_transaction\(\)"):
            producer.send_offsets_to_transaction(OFFSETS, GROUP)
        end.set()
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()


def test_records_that_are_too_late_make_the_transaction_one_to_abort(coordinator):
    with made(coordinator, delivery_timeout_ms=200) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        coordinator.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=10_000)
        producer.send("t", b"x")
        with pytest.raises(TransactionAbortableError, match="delivery_timeout_ms"):
            producer.commit_transaction()
        producer.abort_transaction()


# --- wrong order, wrong settings ---


def test_calls_in_a_wrong_order_are_refused_in_one_line(coordinator):
    with made(coordinator) as producer:
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send("t", b"x"),
            lambda: producer.send_arrow("t", pa.table({"value": [b"a"]})),
            lambda: producer.send_offsets_to_transaction(OFFSETS, GROUP),
        ):
            with pytest.raises(RuntimeError, match=r"^\w+\(\): call init_transactions\(\) first$"):
                call()
        producer.init_transactions()
        with pytest.raises(RuntimeError, match="once, and was"):
            producer.init_transactions()
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send("t", b"x"),
        ):
            with pytest.raises(RuntimeError, match=r"call begin_transaction\(\) first$"):
                call()
        producer.begin_transaction()
        with pytest.raises(RuntimeError, match="a transaction is open"):
            producer.begin_transaction()
        producer.abort_transaction()


def test_without_a_transactional_id_there_are_no_transactions(coordinator):
    with Producer(bootstrap_servers=coordinator.servers, **FAST) as producer:
        for call in (
            producer.init_transactions,
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send_offsets_to_transaction(OFFSETS, GROUP),
        ):
            with pytest.raises(ConfigError, match="transactional_id=") as caught:
                call()
            assert "\n" not in str(caught.value)
        with pytest.raises(ConfigError), producer.transaction():
            pass
        assert producer.send("t", b"x").exception(10) is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"transactional_id": ""}, "transactional_id is empty"),
        ({"transactional_id": "a", "acks": 1}, "acks"),
        ({"transactional_id": "a", "enable_idempotence": False}, "enable_idempotence"),
        (
            {"transactional_id": "a", "max_in_flight_requests_per_connection": 6},
            "max_in_flight",
        ),
        ({"transactional_id": "a", "transaction_timeout_ms": 0}, "transaction_timeout_ms"),
        ({"transactional_id": "a", "transaction_timeout_ms": 2**31}, "transaction_timeout_ms"),
        ({"transactional_id": 7}, "transactional_id"),
    ],
)
def test_settings_that_make_no_sense_together_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        Producer(**settings)


def test_properties_have_kafkas_names(coordinator):
    properties = {
        "bootstrap.servers": coordinator.servers,
        "transactional.id": "from-a-file",
        "transaction.timeout.ms": "1234",
    }
    with Producer.from_properties(properties) as producer:
        producer.init_transactions()
    request = coordinator.log[0][2]
    assert (request.transactional_id, request.transaction_timeout_ms) == ("from-a-file", 1234)


def test_group_metadata_is_asked_for_by_its_name(producer):
    producer.begin_transaction()
    with pytest.raises(TypeError, match=r"consumer\.group_metadata\(\)"):
        producer.send_offsets_to_transaction(OFFSETS, "g")
    producer.abort_transaction()


# --- the end ---


def test_close_inside_a_transaction_aborts_it_and_says_so(coordinator, caplog):
    producer = made(coordinator)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"x").result(10)
    with caplog.at_level(logging.WARNING, "shoal"):
        producer.close()
    assert coordinator.told[-1] == "abort"
    assert "close() inside a transaction of 'billing-1': it is aborted" in caplog.text


def test_close_after_a_commit_is_silent(coordinator, caplog):
    with caplog.at_level(logging.WARNING, "shoal"), made(coordinator) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"x")
    assert caplog.text == ""
    assert coordinator.told[-1] == "commit"


def test_a_fenced_producer_says_so_at_every_call_and_closes(coordinator):
    with made(coordinator) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"x").result(10)
        coordinator.fail("EndTxn", ErrorCode.PRODUCER_FENCED)
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            producer.begin_transaction,
            lambda: producer.send("t", b"y"),
            producer.init_transactions,
        ):
            with pytest.raises(ProducerFencedError, match="another producer has this"):
                call()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork_the_child_is_told_and_the_parent_goes_on(coordinator, producer):
    producer.begin_transaction()
    producer.send("t", b"x").result(10)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for call in (
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send_offsets_to_transaction(OFFSETS, GROUP),
            lambda: producer.send("t", b"y"),
        ):
            try:
                call()
            except RuntimeError as error:
                said.append(str(error))
        os.write(write, "\n".join(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(read, 10_000).decode().splitlines()
    os.close(read)
    os.close(write)
    assert len(said) == 4
    assert set(said) == {"this client works in the process it was made in; make one after the fork"}
    producer.commit_transaction()
    assert coordinator.told[-1] == "commit"


def test_a_broker_too_old_to_bump_epochs_ends_the_producer_after_a_failure():
    with ScriptedCoordinator(0, init_producer_id=2) as coordinator, made(coordinator) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        coordinator.fail("Produce", ErrorCode.INVALID_RECORD)
        producer.send("t", b"x")
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        with pytest.raises(TransactionFatalError, match="KIP-360"):
            producer.abort_transaction()


def test_sends_from_many_threads_are_all_in_one_transaction_or_refused(coordinator, producer):
    futures, refused = [], []

    def send():
        for _ in range(200):
            try:
                futures.append(producer.send("t", b"x"))
            except (RuntimeError, ShoalError) as error:
                refused.append(error)

    producer.begin_transaction()
    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    while not futures:  # with nothing in it, a transaction is not worth a request
        threads[0].join(0.001)
    producer.commit_transaction()
    for thread in threads:
        thread.join()
    assert all(future.done() and future.exception() is None for future in futures)
    assert len(futures) + len(refused) == 800
    assert coordinator.told[-1] == "commit"
