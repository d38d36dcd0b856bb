"""Ids whose epochs are used up: our broker answers as Apache Kafka does, answer by answer.

What Apache Kafka 4.3 answers is kept in ``tests/golden/old_epochs.json``: an id is asked for 32,765
times before each history begins, which takes a while. The last test tells the histories to both
brokers and, with ``SHOAL_WRITE_GOLDEN`` set, writes the file.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from tests.broker.transactional import Transactional
from tests.differential.old_epochs import HISTORIES, OldStage
from tests.differential.transactions import Stage, patiently, stage
from tests.peers.cache import need
from tests.peers.kafka import ApacheKafka

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "old_epochs.json"
ACCEPTED: Final = {
    # An answer that was lost is asked for again. Apache Kafka fails with an exception of its own:
    # it takes the retry for a request to raise an epoch that cannot be raised.
    ("asked_for_again_when_the_answer_was_lost", "again"): ("UNKNOWN_SERVER_ERROR", "NONE"),
    # Apache Kafka has it so since KAFKA-20785, which is not in 4.3.
    ("timed_out_in_the_new_flow", "commit"): ("INVALID_TXN_STATE", "PRODUCER_FENCED"),
}
EACH = pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
History = Callable[[OldStage], None]


def told(
    history: History, port: int, age: Callable[[Stage, str, int], None] | None = None
) -> list[list[Any]]:
    with stage(port, f"old_{history.__name__}") as at:
        history(OldStage(at, age))
    return json.loads(json.dumps(at.heard, default=repr))  # type: ignore[no-any-return]


def compare(history: History, theirs: list[list[Any]], ours: list[list[Any]]) -> None:
    assert len(theirs) > 4
    for (what, wanted), (said, found) in zip(theirs, ours, strict=True):
        assert said == what
        if found != wanted:
            assert ACCEPTED.get((history.__name__, what)) == (wanted, found), (what, wanted, found)


@pytest.fixture(scope="module")
def shoal() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def age_at_once(broker: Broker) -> Callable[[Stage, str, int], None]:
    """The epoch of an id, as if it had been asked for that often."""

    def age(at: Stage, name: str, epoch: int) -> None:
        one = Transactional(at.raw, name)
        assert patiently(one.init) is ErrorCode.NONE

        async def change() -> None:
            runtime = broker.live.transactions.runtime_of(name)
            assert not isinstance(runtime, ErrorCode)
            records = runtime.machine._records
            records[name] = records[name]._replace(epoch=epoch - 1)

        asyncio.run_coroutine_threadsafe(change(), broker.live.loop).result(30)

    return age


@EACH
def test_an_id_without_epochs_gets_what_apache_kafka_gives_it(
    shoal: Broker, history: History
) -> None:
    theirs = json.loads(GOLDEN.read_text(encoding="utf-8"))[history.__name__]
    compare(history, theirs, told(history, shoal.port, age_at_once(shoal)))


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_what_is_kept_is_what_apache_kafka_answers() -> None:
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with need(lambda: ApacheKafka(settings=often)) as kafka, Broker() as shoal:
        answers = {history.__name__: told(history, kafka.port) for history in HISTORIES}
        if "SHOAL_WRITE_GOLDEN" in os.environ:
            GOLDEN.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
        assert answers == json.loads(GOLDEN.read_text(encoding="utf-8"))
        for history in HISTORIES:
            compare(history, answers[history.__name__], told(history, shoal.port))
