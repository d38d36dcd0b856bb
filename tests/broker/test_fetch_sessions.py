"""KIP-227: what is remembered, what is repeated, and what is refused."""

from __future__ import annotations

from shoal.broker.fetch_sessions import PARTITION_BYTES, FetchContext, FetchPartition, Sessions
from shoal.broker.memory import MemoryBudget
from shoal.errors import ErrorCode

OWNER = object()


def wanted(*partitions: int) -> list[FetchPartition]:
    return [FetchPartition("t", number, 0, 100) for number in partitions]


def opened(
    sessions: Sessions, session_id: int, epoch: int, parts=(), forgotten=(), now_ms=0, owner=OWNER
):
    return sessions.open(
        session_id=session_id,
        session_epoch=epoch,
        wanted=list(parts),
        forgotten=forgotten,
        uses_topic_ids=False,
        now_ms=now_ms,
        owner=owner,
        is_known=lambda name: name != "unknown",
    )


def seen(context: FetchContext, partition: FetchPartition, **changes) -> bool:
    result = {
        "error": ErrorCode.NONE,
        "has_records": False,
        "high_watermark": 10,
        "last_stable_offset": 10,
        "log_start_offset": 0,
    } | changes
    return context.worth_sending(partition, **result)


def test_a_fetch_without_a_session_gets_everything_and_is_forgotten():
    sessions = Sessions(10, MemoryBudget(1 << 20))
    context = opened(sessions, 0, -1, wanted(0, 1))
    assert context.session_id == 0
    assert not context.is_incremental
    assert len(sessions) == 0


def test_an_incremental_fetch_names_only_changes_and_reads_everything():
    sessions = Sessions(10, MemoryBudget(1 << 20))
    first = opened(sessions, 0, 0, wanted(0, 1))
    assert first.session_id != 0
    later = opened(sessions, first.session_id, 1, [FetchPartition("t", 1, 7, 100)])
    assert later.is_incremental
    assert [(p.partition, p.fetch_offset) for p in later.partitions] == [(0, 0), (1, 7)]
    last = opened(sessions, first.session_id, 2, (), [("t", 0)])
    assert [p.partition for p in last.partitions] == [1]


def test_unchanged_partitions_are_left_out_and_errors_are_kept_in():
    sessions = Sessions(10, MemoryBudget(1 << 20))
    first = opened(sessions, 0, 0, wanted(0))
    (partition,) = first.partitions
    assert seen(first, partition), "a full fetch answers every partition"
    second = opened(sessions, first.session_id, 1)
    assert not seen(second, partition)
    assert seen(second, partition, high_watermark=11)
    assert not seen(second, partition, high_watermark=11)
    assert seen(second, partition, has_records=True, high_watermark=11)
    nothing = {"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1}
    for _ in range(2):
        assert seen(second, partition, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        assert seen(second, partition, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **nothing)
    assert seen(second, partition, high_watermark=11), "the end of an error is news"


def test_a_partition_with_data_goes_to_the_end_of_the_line():
    sessions = Sessions(10, MemoryBudget(1 << 20))
    first = opened(sessions, 0, 0, wanted(0, 1, 2))
    second = opened(sessions, first.session_id, 1)
    seen(second, next(iter(second.partitions)), has_records=True)
    third = opened(sessions, first.session_id, 2)
    assert [p.partition for p in third.partitions] == [1, 2, 0]


def test_forged_ids_and_wrong_epochs_are_refused():
    sessions = Sessions(10, MemoryBudget(1 << 20))
    first = opened(sessions, 0, 0, wanted(0))
    assert opened(sessions, first.session_id + 1, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(sessions, first.session_id, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    error = sessions.open(
        session_id=first.session_id,
        session_epoch=1,
        wanted=[],
        forgotten=(),
        uses_topic_ids=True,
        now_ms=0,
        owner=OWNER,
        is_known=lambda _: True,
    )
    assert error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_closing_a_session_ends_it():
    sessions = Sessions(10, MemoryBudget(1 << 20))
    first = opened(sessions, 0, 0, wanted(0))
    opened(sessions, first.session_id, -1, wanted(0))
    assert opened(sessions, first.session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_table_gives_no_session_until_one_is_old():
    sessions = Sessions(2, MemoryBudget(1 << 20))
    ids = [opened(sessions, 0, 0, wanted(0)).session_id for _ in range(2)]
    assert opened(sessions, 0, 0, wanted(0), now_ms=1000).session_id == 0
    opened(sessions, ids[0], 1, now_ms=100_000)
    assert opened(sessions, 0, 0, wanted(0), now_ms=130_000).session_id != 0
    assert opened(sessions, ids[1], 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(opened(sessions, ids[0], 2), FetchContext)


def test_all_sessions_together_remember_no_more_than_their_share_of_memory():
    memory = MemoryBudget(8 * 10 * PARTITION_BYTES)
    sessions = Sessions(10, memory)
    first = opened(sessions, 0, 0, wanted(*range(6)))
    assert memory.sessions == 6 * PARTITION_BYTES
    large = opened(sessions, 0, 0, wanted(*range(5)))
    assert (large.session_id, len(large.partitions)) == (0, 5), "served, but not remembered"
    second = opened(sessions, 0, 0, wanted(*range(4)))
    assert second.session_id != 0
    grown = opened(sessions, second.session_id, 1, wanted(4))
    assert grown is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "the client says everything again"
    assert opened(sessions, 0, 0, wanted(*range(5))).session_id == 0
    opened(sessions, first.session_id, 1, (), [("t", 0)])
    assert opened(sessions, 0, 0, wanted(*range(5))).session_id != 0
    assert memory.sessions == 10 * PARTITION_BYTES


def test_a_session_ends_with_its_connection_and_belongs_to_it():
    memory = MemoryBudget(1 << 20)
    sessions = Sessions(10, memory)
    mine, yours = object(), object()
    first = opened(sessions, 0, 0, wanted(0), owner=mine)
    other = opened(sessions, 0, 0, wanted(0), owner=yours)
    stolen = opened(sessions, first.session_id, 1, (), [("t", 0)], owner=yours)
    assert stolen is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    opened(sessions, first.session_id, -1, owner=yours)
    assert isinstance(opened(sessions, first.session_id, 1, owner=mine), FetchContext)
    sessions.forget(mine)
    sessions.forget(mine)
    assert opened(sessions, first.session_id, 2, owner=mine) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(opened(sessions, other.session_id, 1, owner=yours), FetchContext)
    sessions.forget(yours)
    assert (len(sessions), memory.sessions) == (0, 0)


def test_topics_that_are_not_there_are_answered_and_not_remembered():
    sessions = Sessions(10, MemoryBudget(1 << 20))
    unknown = FetchPartition("unknown", 0, 0, 100)
    first = opened(sessions, 0, 0, [*wanted(0), unknown])
    assert (first.session_id, len(first.partitions)) == (0, 2)
    known = opened(sessions, 0, 0, wanted(0))
    grown = opened(sessions, known.session_id, 1, [unknown])
    assert grown is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0


def test_what_an_incremental_fetch_says_again_replaces_what_was_said():
    sessions = Sessions(10, MemoryBudget(1 << 20))
    first = opened(sessions, 0, 0, wanted(0))
    said = FetchPartition("t", 0, 7, 50, current_leader_epoch=3, log_start_offset=2)
    (found,) = opened(sessions, first.session_id, 1, [said]).partitions
    assert (found.fetch_offset, found.max_bytes) == (7, 50)
    assert (found.current_leader_epoch, found.log_start_offset) == (3, 2)


def test_a_session_in_use_is_not_thrown_out_however_old_it_is():
    sessions = Sessions(1, MemoryBudget(1 << 20))
    first = opened(sessions, 0, 0, wanted(0))
    opened(sessions, first.session_id, 1, now_ms=100_000)
    assert opened(sessions, 0, 0, wanted(0), now_ms=130_000).session_id == 0
    assert opened(sessions, first.session_id, 2, now_ms=130_000).is_incremental


def test_the_epoch_of_a_long_session_begins_anew_at_1():
    sessions = Sessions(1, MemoryBudget(1 << 20))
    first = opened(sessions, 0, 0, wanted(0))
    first.session.epoch = LAST = 2**31 - 1
    assert opened(sessions, first.session_id, LAST).is_incremental
    assert opened(sessions, first.session_id, 1).is_incremental
