"""The error table and the step from codes to exceptions."""

from __future__ import annotations

import kafka.errors
import pytest

from shoal.errors import BrokerError, ErrorCode, RetriableError, error_for


def test_codes_are_dense_from_minus_one() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_becomes_an_exception_that_carries_it(code: ErrorCode) -> None:
    error = error_for(int(code))
    assert isinstance(error, BrokerError)
    assert error.code is code
    assert code.name in str(error)
    if code.retriable:
        assert isinstance(error, RetriableError)


def test_an_unknown_code_is_named_in_the_exception() -> None:
    error = error_for(9999)
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9999" in str(error)


def test_every_code_kafka_python_knows_is_in_the_table() -> None:
    codes = {
        cls.errno
        for cls in vars(kafka.errors).values()
        if isinstance(cls, type) and issubclass(cls, kafka.errors.BrokerResponseError)
    }
    assert len(codes) > 100
    assert codes - {None} <= {int(code) for code in ErrorCode}


def test_retriability_is_that_of_apache_kafka() -> None:
    # kafka-python calls a corrupt message final; Apache Kafka's own class is retriable.
    assert ErrorCode.CORRUPT_MESSAGE.retriable
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.retriable
    assert not ErrorCode.REBALANCE_IN_PROGRESS.retriable
    assert not ErrorCode.ILLEGAL_GENERATION.retriable
