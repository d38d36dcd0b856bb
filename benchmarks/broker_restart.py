"""How long a restart takes: with 1,000 partitions, with a million commits in the journal of groups,
with 100,000 transactional ids in the journal of transactions.

Goals: 3 s with the partitions, 10 s with the commits, 3 s with the ids. The commits are of two
kinds: ten groups that committed all day, and a thousand groups that each wrote every commit once,
one in a batch. Each of the ids has committed its last transaction, in a batch of its own.

    python -m benchmarks broker_restart
"""

from __future__ import annotations

import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.broker_setting import create_topic, pipelined, produce_frame, start, stop
from benchmarks.measuring import Report, Row, json_argument
from shoal.broker.catalogue import TRANSACTIONS_TOPIC
from shoal.group.coordinator.journal import OffsetRecord, encode
from shoal.log.config import Durability
from shoal.log.directory import OFFSETS_TOPIC, LogDirectory
from shoal.log.partition import Origin
from shoal.machine.internal_topic import partition_for
from shoal.records.batch import encode_batch
from shoal.transaction import journal as transaction_journal
from shoal.transaction.states import TransactionState
from shoal.types import TopicPartition

ROUNDS = 3
PARTITIONS = 1_000
COMMITS = 1_000_000
IDS = 100_000
JOURNAL_PARTITIONS = 50


def partitions() -> tuple[float, float, float]:
    """Seconds to be ready after a clean stop, to stop, and to be ready after a kill."""
    with tempfile.TemporaryDirectory() as directory:
        process, address, _ = start(directory, "--durability", "os")
        create_topic(address, "wide", PARTITIONS)
        frames = [produce_frame("wide", n, 1000, acks=1) for n in range(PARTITIONS)]
        pipelined(address, frames, PARTITIONS)
        stopped = stop(process)
        process, address, clean = start(directory, "--durability", "os")
        pipelined(address, frames, PARTITIONS)
        stop(process, signal.SIGKILL)
        process, _, killed = start(directory, "--durability", "os")
        stop(process)
    return clean, stopped, killed


def _new_journal(directory: str, topic: str, now_ms: int) -> LogDirectory:
    Path(directory).mkdir(exist_ok=True)
    logs = LogDirectory.open(directory, now_ms=now_ms, durability=Durability.OS)
    for number in range(JOURNAL_PARTITIONS):
        logs.create(TopicPartition(topic, number), now_ms=now_ms)
    return logs


def write_commits(directory: str, groups: int, *, in_a_batch: int) -> None:
    """A journal as a broker writes it; through the protocol it would take the whole benchmark."""
    now_ms = time.time_ns() // 1_000_000
    logs = _new_journal(directory, OFFSETS_TOPIC, now_ms)
    for turn in range(COMMITS // 1000):
        group = f"group-{turn % groups}"
        place = TopicPartition(OFFSETS_TOPIC, partition_for(group, JOURNAL_PARTITIONS))
        records = [
            (*encode(OffsetRecord(group, "orders", n, turn, None, "", now_ms)), (), now_ms)
            for n in range(1000)
        ]
        for first in range(0, 1000, in_a_batch):
            batch = bytearray(encode_batch(records[first : first + in_a_batch]))
            logs.partitions[place].append(batch, now_ms=now_ms, origin=Origin.BROKER)
    logs.close()


def commits(groups: int, in_a_batch: int) -> float:
    """Seconds to be ready; the median of several starts with the same journal."""
    with tempfile.TemporaryDirectory() as directory:
        write_commits(directory, groups, in_a_batch=in_a_batch)
        return statistics.median(_ready(directory) for _ in range(ROUNDS))


def write_transactional_ids(directory: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    logs = _new_journal(directory, TRANSACTIONS_TOPIC, now_ms)
    for number in range(IDS):
        name = f"payments-{number}"
        record = transaction_journal.TransactionRecord(
            transactional_id=name,
            producer_id=number,
            epoch=1,
            timeout_ms=60_000,
            update_ms=now_ms,
            state=TransactionState.COMPLETE_COMMIT,
            start_ms=now_ms,
        )
        place = TopicPartition(TRANSACTIONS_TOPIC, partition_for(name, JOURNAL_PARTITIONS))
        batch = bytearray(encode_batch([(*transaction_journal.encode(record), (), now_ms)]))
        logs.partitions[place].append(batch, now_ms=now_ms, origin=Origin.BROKER)
    logs.close()


def transactional_ids() -> float:
    """Seconds to be ready, as with commits."""
    with tempfile.TemporaryDirectory() as directory:
        write_transactional_ids(directory)
        return statistics.median(_ready(directory) for _ in range(ROUNDS))


def _ready(directory: str) -> float:
    process, _, seconds = start(directory, "--durability", "os")
    stop(process)
    return seconds


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("broker_restart")

    def add(what: str, seconds: float, goal: str = "") -> None:
        report.add(Row(what, "s", seconds, goal=goal, higher_is_better=False))

    clean, stopped, killed = (
        statistics.median(column)
        for column in zip(*(partitions() for _ in range(ROUNDS)), strict=True)
    )
    add("start with 1,000 partitions after a clean stop", clean, "<= 3")
    add("start with 1,000 partitions after kill -9", killed, "<= 3")
    add("stop with 1,000 partitions", stopped)
    cases: list[tuple[str, Callable[[], float]]] = [
        ("10 groups, 1,000 in a batch", lambda: commits(10, 1000)),
        ("1,000 groups, one in a batch", lambda: commits(1000, 1)),
    ]
    for name, measured in cases:
        add(f"start with 1,000,000 commits, {name}", measured(), "<= 10")
    add("start with 100,000 transactional ids", transactional_ids(), "< 3")
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main()
