"""Group commit: who is called back, when, and after how many syncs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.errors import ErrorCode
from shoal.log.config import Durability
from shoal.log.directory import LogDirectory
from shoal.log.durability import Syncer
from shoal.log.partition import PartitionLog
from shoal.testing.disk import DiskFault, FailingDisk
from shoal.types import TopicPartition
from tests.log.batches import NOW_MS, batch


class Turns:
    """A loop driven by hand: what is posted waits for the next turn."""

    def __init__(self, durability: Durability = Durability.GROUP, *, partitions: int = 2) -> None:
        self.disk = FailingDisk()
        self.directory = LogDirectory.open(
            self.disk, now_ms=NOW_MS, durability=durability, reserve_bytes=0
        )
        self.logs = [
            self.directory.create(TopicPartition("t", number), now_ms=NOW_MS)
            for number in range(partitions)
        ]
        self.posted: list[Callable[[], None]] = []
        self.syncer = Syncer(durability, post=self.posted.append, workers=0)
        self.answers: list[tuple[int, ErrorCode]] = []

    def send(self, log: PartitionLog) -> int:
        result = log.append(batch(b"x"), now_ms=NOW_MS)
        number = result.last_offset
        self.syncer.register(
            log, result.end_offset, lambda error: self.answers.append((number, error))
        )
        return number

    def turn(self) -> None:
        posted, self.posted[:] = list(self.posted), []
        for function in posted:
            function()


def test_everybody_who_waits_shares_one_sync() -> None:
    turns = Turns(partitions=1)
    for _ in range(50):
        turns.send(turns.logs[0])
    assert turns.answers == []
    syncs = turns.disk.count("sync")
    turns.turn()
    assert [number for number, _ in turns.answers] == list(range(50))
    assert {error for _, error in turns.answers} == {ErrorCode.NONE}
    assert turns.syncer.rounds == 1
    assert turns.disk.count("sync") - syncs <= 3, "the log, and the small files of a new one"


def test_nobody_is_answered_before_the_sync() -> None:
    turns = Turns()
    turns.send(turns.logs[0])
    assert turns.logs[0].high_watermark == 0
    turns.turn()
    assert turns.logs[0].high_watermark == 1
    assert turns.logs[1].high_watermark == 0
    assert turns.answers == [(0, ErrorCode.NONE)]


def test_who_comes_while_a_round_runs_joins_the_next() -> None:
    turns = Turns(partitions=1)
    log = turns.logs[0]
    sent = log.append(batch(b"x"), now_ms=NOW_MS)

    def send_again(_: ErrorCode) -> None:
        turns.send(log)

    turns.syncer.register(log, sent.end_offset, send_again)
    turns.turn()
    assert turns.answers == []
    turns.turn()
    assert turns.answers == [(1, ErrorCode.NONE)]
    assert turns.syncer.rounds == 2


def test_what_is_stored_already_is_answered_at_once() -> None:
    turns = Turns(partitions=1)
    turns.send(turns.logs[0])
    turns.turn()
    turns.syncer.register(turns.logs[0], 1, lambda error: turns.answers.append((99, error)))
    assert turns.answers[-1] == (99, ErrorCode.NONE)


def test_L8_a_failed_sync_is_told_to_everyone_and_only_that_log_is_fenced() -> None:
    turns = Turns()
    for log in turns.logs:
        turns.send(log)
    turns.turn()
    turns.answers.clear()
    turns.disk.fault = DiskFault("sync", turns.disk.count("sync") + 1)
    for log in turns.logs:
        turns.send(log)
    turns.turn()
    assert [error for _, error in turns.answers] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
    ]
    assert turns.logs[0].fenced is not None
    assert turns.logs[1].fenced is None
    turns.syncer.register(turns.logs[0], 2, lambda error: turns.answers.append((99, error)))
    assert turns.answers[-1] == (99, ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.parametrize("durability", [Durability.OS, Durability.INTERVAL])
def test_without_a_wait_the_answer_comes_at_once(durability: Durability) -> None:
    turns = Turns(durability, partitions=1)
    turns.send(turns.logs[0])
    assert turns.answers == [(0, ErrorCode.NONE)]
    assert turns.posted == []


def test_interval_syncs_what_was_appended_since() -> None:
    turns = Turns(Durability.INTERVAL)
    turns.send(turns.logs[1])
    assert turns.logs[1].synced_offset == 0
    turns.syncer.sync_dirty()
    turns.turn()
    assert turns.logs[1].synced_offset == 1
    rounds = turns.syncer.rounds
    turns.syncer.sync_dirty()
    turns.turn()
    assert turns.syncer.rounds == rounds, "nothing was dirty"


def test_each_syncs_for_every_append() -> None:
    turns = Turns(Durability.EACH, partitions=1)
    for _ in range(5):
        before = turns.disk.count("sync")
        turns.send(turns.logs[0])
        assert turns.disk.count("sync") > before
    assert [number for number, _ in turns.answers] == list(range(5))


def test_waiters_of_a_deleted_partition_are_told() -> None:
    turns = Turns(partitions=1)
    turns.send(turns.logs[0])
    turns.syncer.forget(turns.logs[0])
    assert turns.answers == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    turns.turn()


def test_closing_answers_everybody() -> None:
    turns = Turns(Durability.GROUP)
    for log in turns.logs:
        turns.send(log)
    turns.syncer.close()
    assert len(turns.answers) == 2
    assert {error for _, error in turns.answers} == {ErrorCode.NONE}
    turns.turn()
    turns.send(turns.logs[0])
    assert turns.answers[-1][1] is ErrorCode.KAFKA_STORAGE_ERROR


def test_real_threads_and_a_real_disk(tmp_path: Path) -> None:
    async def produce() -> tuple[int, int, set[str]]:
        loop = asyncio.get_running_loop()
        directory = LogDirectory.open(str(tmp_path), now_ms=NOW_MS, reserve_bytes=0)
        logs = [directory.create(TopicPartition("t", n), now_ms=NOW_MS) for n in range(12)]
        syncer = Syncer(Durability.GROUP, post=loop.call_soon_threadsafe)
        threads = set()

        async def producer(log: PartitionLog) -> None:
            for _ in range(20):
                done = loop.create_future()
                result = log.append(batch(b"x"), now_ms=NOW_MS)

                def stored(error: ErrorCode, done: asyncio.Future[ErrorCode] = done) -> None:
                    threads.add(threading.current_thread().name)
                    done.set_result(error)

                syncer.register(log, result.end_offset, stored)
                assert await done is ErrorCode.NONE
                assert log.high_watermark >= result.end_offset

        await asyncio.gather(*[producer(log) for log in logs for _ in range(3)])
        rounds = syncer.rounds
        syncer.close()
        directory.close()
        return sum(log.end_offset for log in logs), rounds, threads

    stored, rounds, threads = asyncio.run(produce())
    assert stored == 12 * 3 * 20
    assert rounds < stored / 10, "syncs are shared"
    assert threads == {"MainThread"}, "logs and callers live on one thread"


def test_of_two_syncs_under_way_neither_vouches_for_the_other() -> None:
    turns = Turns(partitions=1)
    log = turns.logs[0]
    log.append(batch(b"x"), now_ms=NOW_MS)
    first, second = log.begin_sync(), log.begin_sync()
    assert first is not None
    assert second is not None
    # The second one ends before the first has done anything.
    log.finish_sync(second, second.run())
    assert log.high_watermark == 1
    survived = LogDirectory.open(turns.disk.crash(), now_ms=NOW_MS, reserve_bytes=0)
    assert survived.partitions[log.topic_partition].end_offset == 1
    log.finish_sync(first, first.run())
    assert not log.unsynced


def test_L8_of_two_syncs_under_way_none_succeeds_after_the_other_failed() -> None:
    turns = Turns(partitions=1)
    log = turns.logs[0]
    log.append(batch(b"x"), now_ms=NOW_MS)
    first, second = log.begin_sync(), log.begin_sync()
    assert first is not None
    assert second is not None
    turns.disk.fault = DiskFault("sync", turns.disk.count("sync") + 1)
    failure = first.run()
    assert failure is not None
    result = second.run()
    assert result is not None, "the kernel tells an error only once"
    log.finish_sync(second, result)
    log.finish_sync(first, failure)
    assert (log.high_watermark, log.fenced is not None) == (0, True)


def test_L8_a_sync_that_fails_while_it_closes_is_not_forgotten() -> None:
    turns = Turns(partitions=1)
    log = turns.logs[0]
    turns.syncer = Syncer(Durability.GROUP, post=turns.posted.append, workers=1)
    turns.disk.fault = DiskFault("sync", turns.disk.count("sync") + 1)
    turns.send(log)
    turns.turn()  # the round starts; nobody takes its result any more
    turns.syncer.close()
    assert turns.answers == [(0, ErrorCode.KAFKA_STORAGE_ERROR)]
    turns.directory.close()
    assert not LogDirectory.open(turns.disk, now_ms=NOW_MS, reserve_bytes=0).clean_start
