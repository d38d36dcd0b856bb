"""Two-phase commit (KIP-939), as far as Apache Kafka 4.3 has it: transactions without a timeout."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.transaction.coordinator import TransactionConfig
from shoal.transaction.journal import NO_TIMEOUT_MS
from shoal.transaction.requests import AddPartitions
from shoal.transaction.states import TransactionState as State
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from tests.transaction.shell import TP, TV2, Shell, through_bytes

ENABLED = TransactionConfig(two_phase_commit_enable=True, transactional_id_expiration_ms=10**12)
A_YEAR_MS = 365 * 86_400_000
NONE = ErrorCode.NONE


def two_phase(**given: Any) -> InitProducerIdRequest:
    fields: dict[str, Any] = {
        "transactional_id": "t",
        "transaction_timeout_ms": 60_000,
        "enable2_pc": True,
    }
    return InitProducerIdRequest(**fields | given)


def opened(shell: Shell, tv: int) -> tuple[int, int]:
    answer = shell.ask(two_phase(), version=6)
    assert answer.error_code == NONE
    producer = (answer.producer_id, answer.producer_epoch)
    assert shell.add(producer, TP, tv=tv) == NONE
    return producer


@pytest.mark.parametrize("tv", [0, TV2])
def test_a_transaction_of_two_phases_has_no_timeout(tv: int) -> None:
    shell = Shell(config=ENABLED)
    producer = opened(shell, tv)
    assert shell.record().timeout_ms == NO_TIMEOUT_MS
    shell.advance(A_YEAR_MS)
    assert shell.record().state is State.ONGOING
    assert shell.end(producer, commit=True, version=5 if tv else 4).error_code == NONE
    assert shell.record().state is State.COMPLETE_COMMIT


def test_others_beside_it_keep_theirs() -> None:
    shell = Shell(config=ENABLED)
    opened(shell, 0)
    other = shell.init("other")
    who = (other.producer_id, other.producer_epoch)
    shell.ask(AddPartitions("other", *who, frozenset({TP})))
    shell.advance(120_000)
    assert shell.record().state is State.ONGOING
    assert shell.record("other").state is State.COMPLETE_ABORT


def test_it_has_none_after_a_restart_either_nor_when_the_setting_is_off_by_then() -> None:
    shell = Shell(config=ENABLED)
    opened(shell, 0)
    for config in (ENABLED, TransactionConfig()):
        again = Shell([through_bytes(each) for each in shell.records], config=config)
        again.advance(A_YEAR_MS)
        assert again.record().state is State.ONGOING


def test_it_has_none_after_an_append_that_failed() -> None:
    shell = Shell(config=ENABLED)
    producer = opened(shell, 0)
    shell.fail_appends_with = ErrorCode.KAFKA_STORAGE_ERROR
    shell.end(producer, commit=True)
    shell.fail_appends_with = None
    shell.advance(A_YEAR_MS)
    assert shell.record().state is State.ONGOING
    assert shell.end(producer, commit=True).error_code == NONE


@pytest.mark.parametrize("timeout_ms", [0, -1, 2**31 - 1])
def test_what_timeout_was_asked_for_does_not_matter(timeout_ms: int) -> None:
    shell = Shell(config=ENABLED)
    answer = shell.ask(two_phase(transaction_timeout_ms=timeout_ms), version=6)
    assert answer.error_code == NONE
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)
    assert shell.record().timeout_ms == NO_TIMEOUT_MS


def test_an_init_without_it_gives_the_id_a_timeout_again() -> None:
    shell = Shell(config=ENABLED)
    shell.ask(two_phase(), version=6)
    again = shell.init()
    assert shell.record().timeout_ms < NO_TIMEOUT_MS
    shell.add((again.producer_id, again.producer_epoch), TP)
    shell.advance(A_YEAR_MS)
    assert shell.record().state is State.COMPLETE_ABORT


def test_an_init_ends_what_is_open_as_ever() -> None:
    shell = Shell(config=ENABLED)
    producer = opened(shell, 0)
    answer = shell.ask(two_phase(), version=6)
    assert answer.error_code == NONE
    assert shell.record().state is State.EMPTY
    assert shell.end(producer, commit=True).error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("config", "given", "error"),
    [
        (TransactionConfig(), {}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (
            TransactionConfig(),
            {"keep_prepared_txn": True},
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (ENABLED, {"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
        (
            ENABLED,
            {"enable2_pc": False, "keep_prepared_txn": True},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        (ENABLED, {"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        (
            ENABLED,
            {"enable2_pc": False, "transaction_timeout_ms": 2**31 - 1},
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ),
    ],
)
def test_what_cannot_be_had_is_refused_with_kafkas_code_and_nothing_is_written(
    config: TransactionConfig, given: dict[str, Any], error: ErrorCode
) -> None:
    shell = Shell(config=config)
    assert shell.ask(two_phase(**given), version=6).error_code == error
    assert not shell.records


def test_a_refused_init_leaves_an_open_transaction_alone() -> None:
    shell = Shell(config=ENABLED)
    producer = opened(shell, 0)
    shell.ask(two_phase(keep_prepared_txn=True), version=6)
    assert shell.end(producer, commit=True).error_code == NONE
    assert shell.record().state is State.COMPLETE_COMMIT
