"""The error table and the step from codes to exceptions."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import kafka.errors
import pytest

import shoal
from shoal.errors import (
    BrokerError,
    ErrorCode,
    RetriableError,
    ShoalError,
    TransactionFatalError,
    error_for,
)
from shoal.types import Record, TimestampType, TopicPartition

# What each parameter of an error's constructor may be given.
ARGUMENTS = {
    "assignor": "mine",
    "advice": "seek",
    "base_offset": 7,
    "code": ErrorCode.NOT_COORDINATOR,
    "detail": "of group 'g'",
    "divergent_offset": 3,
    "end": 9,
    "error": ShoalError("topic 'a' does not exist"),
    "expected": "must be a list",
    "failures": [(Record("a", 1, 5, 0, TimestampType.CREATE_TIME, b"k", b"v"), ShoalError("no"))],
    "group_id": "g",
    "hint": "it speaks HTTP",
    "invariant": "G1",
    "java": "NullPointerException",
    "limit_bytes": 10,
    "losses": ["a-0", "a-1"],
    "members": 2,
    "offset": 5,
    "outcomes": [7, ShoalError("it is too large")],
    "part": "value",
    "partition": 1,
    "path": "/data/x.log",
    "place": "members[2]",
    "position": 61,
    "reason": "its checksum fails",
    "start": 4,
    "text": "two owners",
    "topic": "a",
    "topic_partition": TopicPartition("a", 1),
    "topic_partitions": [TopicPartition("a", 1), TopicPartition("a", 0)],
    "tp": TopicPartition("a", 1),
    "status": None,
    "work": print,
    "user": "alice",
    "value": {"n": 1},
}


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
        getattr(cls, "errno", None)
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


def _error_classes() -> list[type[Exception]]:
    """Every class that can be raised, of the tree or not, wherever in the package it is."""
    source = Path(shoal.__file__).parent
    for path in source.rglob("*.py"):
        if re.search(r"^class \w+\(.*(Error|Exception)\)", path.read_text(), re.MULTILINE):
            import_module(".".join(path.relative_to(source.parent).with_suffix("").parts))

    def below(kind: type[Exception]) -> Iterator[type[Exception]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    found = {kind for kind in below(Exception) if kind.__module__.startswith("shoal.")}
    return sorted(found, key=lambda kind: kind.__name__)


def _made(kind: type[Exception], *, in_full: bool) -> Exception:
    if not inspect.isfunction(kind.__init__):  # Python's own, which takes anything
        return kind("it does not answer")
    places = []
    names: dict[Any, Any] = {}
    for name, parameter in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY:
            names |= {name: ARGUMENTS[name]} if in_full else {}
        elif in_full or parameter.default is parameter.empty:
            places.append(ARGUMENTS[name])
    return kind(*places, **names)


def _there_and_back(error: Exception) -> Exception:
    return pickle.loads(pickle.dumps(error))


def _attributes(error: Exception) -> dict[str, object]:
    """An error that another one holds, be it in a list, is equal if it says the same."""

    def told(value: object) -> object:
        if isinstance(value, BaseException):
            return type(value), value.args
        return [told(one) for one in value] if isinstance(value, list | tuple) else value

    return {name: told(value) for name, value in vars(error).items()}


@pytest.mark.parametrize("in_full", [True, False], ids=["in full", "by default"])
@pytest.mark.parametrize("travel", [_there_and_back, copy.copy, copy.deepcopy])
def test_every_error_travels_between_processes_and_stays_what_it_is(
    travel: Callable[[Exception], Exception], in_full: bool
) -> None:
    classes = _error_classes()
    assert len(classes) > 30
    for kind in classes:
        error = _made(kind, in_full=in_full)
        error.add_note("a note")
        back = travel(error)
        assert type(back) is kind
        assert (back.args, str(back), repr(back)) == (error.args, str(error), repr(error))
        assert _attributes(back) == _attributes(error)


def test_an_error_of_the_system_travels_with_its_number() -> None:
    back = _there_and_back(shoal.errors.ConnectionFailedError(111, "refused"))
    assert isinstance(back, OSError)
    assert (back.errno, back.strerror) == (111, "refused")


def _fail(code: int) -> None:
    raise error_for(code, "of group 'g'")


def test_a_pool_of_processes_hands_errors_back() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        outcome = pool.apply_async(_fail, [ErrorCode.REBALANCE_IN_PROGRESS])
        with pytest.raises(shoal.errors.RebalanceInProgressError, match="of group 'g'") as caught:
            outcome.get(30)
    assert caught.value.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_transaction_timeout_above_the_limit_is_told_with_what_to_change() -> None:
    refused = TransactionFatalError("no", ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert "at most the broker's transaction.max.timeout.ms" in str(refused)
    assert str(TransactionFatalError("no")) == "no; close this producer"
