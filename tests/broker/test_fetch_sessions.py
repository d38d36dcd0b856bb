"""KIP-227: what is remembered, what is repeated, and what is refused."""

from __future__ import annotations

from shoal.broker.fetch_sessions import FetchContext, FetchPartition, Sessions
from shoal.errors import ErrorCode


def wanted(*partitions: int) -> list[FetchPartition]:
    return [FetchPartition("t", number, 0, 100) for number in partitions]


def opened(sessions: Sessions, session_id: int, epoch: int, parts=(), forgotten=(), now_ms=0):
    return sessions.open(
        session_id=session_id,
        session_epoch=epoch,
        wanted=list(parts),
        forgotten=forgotten,
        uses_topic_ids=False,
        now_ms=now_ms,
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
    sessions = Sessions(10)
    context = opened(sessions, 0, -1, wanted(0, 1))
    assert context.session_id == 0
    assert not context.is_incremental
    assert len(sessions) == 0


def test_an_incremental_fetch_names_only_changes_and_reads_everything():
    sessions = Sessions(10)
    first = opened(sessions, 0, 0, wanted(0, 1))
    assert first.session_id != 0
    later = opened(sessions, first.session_id, 1, [FetchPartition("t", 1, 7, 100)])
    assert later.is_incremental
    assert [(p.partition, p.fetch_offset) for p in later.partitions] == [(0, 0), (1, 7)]
    last = opened(sessions, first.session_id, 2, (), [("t", 0)])
    assert [p.partition for p in last.partitions] == [1]


def test_unchanged_partitions_are_left_out_and_errors_are_kept_in():
    sessions = Sessions(10)
    first = opened(sessions, 0, 0, wanted(0))
    (partition,) = first.partitions
    assert seen(first, partition), "a full fetch answers every partition"
    second = opened(sessions, first.session_id, 1)
    assert not seen(second, partition)
    assert seen(second, partition, high_watermark=11)
    assert not seen(second, partition, high_watermark=11)
    assert seen(second, partition, has_records=True, high_watermark=11)
    for _ in range(2):
        assert seen(second, partition, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert seen(second, partition, high_watermark=11), "the end of an error is news"


def test_a_partition_with_data_goes_to_the_end_of_the_line():
    sessions = Sessions(10)
    first = opened(sessions, 0, 0, wanted(0, 1, 2))
    second = opened(sessions, first.session_id, 1)
    seen(second, next(iter(second.partitions)), has_records=True)
    third = opened(sessions, first.session_id, 2)
    assert [p.partition for p in third.partitions] == [1, 2, 0]


def test_forged_ids_and_wrong_epochs_are_refused():
    sessions = Sessions(10)
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
    )
    assert error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_closing_a_session_ends_it():
    sessions = Sessions(10)
    first = opened(sessions, 0, 0, wanted(0))
    opened(sessions, first.session_id, -1, wanted(0))
    assert opened(sessions, first.session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_table_gives_no_session_until_one_is_old():
    sessions = Sessions(2)
    ids = [opened(sessions, 0, 0, wanted(0)).session_id for _ in range(2)]
    assert opened(sessions, 0, 0, wanted(0), now_ms=1000).session_id == 0
    opened(sessions, ids[0], 1, now_ms=100_000)
    assert opened(sessions, 0, 0, wanted(0), now_ms=130_000).session_id != 0
    assert opened(sessions, ids[1], 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(opened(sessions, ids[0], 2), FetchContext)
