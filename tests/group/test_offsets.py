"""Committed offsets: commit, fetch, delete, transactions, expiry."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator import coordinator as coordinator_module
from shoal.group.coordinator.cluster_image import ImageTopic
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.journal import (
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
)
from shoal.group.coordinator.states import GroupState
from shoal.types import TopicPartition
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.consumer_protocol import ConsumerProtocolSubscription
from tests.group.coordinator_shell import (
    START_MS,
    Shell,
    codes,
    commit,
    delete_offsets,
    fetch,
    fetched,
    heartbeat,
    join,
    leave,
    txn_commit,
)

TP = TopicPartition("orders", 0)
TP1 = TopicPartition("orders", 1)
OTHER = TopicPartition("other", 0)
DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
CHECK_MS = 600_000


def end(shell: Shell, *, commit: bool, producer_id: int = 7) -> None:
    decision = shell.coordinator.end_transaction(producer_id, 0, commit=commit, now_ms=shell.now_ms)
    shell.obey(decision)


# --- Commit and fetch ----------------------------------------------------------------------------


def test_what_is_committed_is_fetched() -> None:
    shell = Shell()
    assert codes(shell.ask(commit({TP: 5}, metadata="note", leader_epoch=3))) == [ErrorCode.NONE]
    (group,) = shell.ask(fetch(TP, TP1)).groups
    first, second = (topic.partitions[0] for topic in group.topics)
    assert (first.committed_offset, first.committed_leader_epoch, first.metadata) == (5, 3, "note")
    assert (second.committed_offset, second.committed_leader_epoch) == (-1, -1)
    assert second.metadata == ""


def test_metadata_of_none_comes_back_empty_and_bytes_come_back_as_they_were() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}, metadata=None))
    shell.ask(commit({TP1: 6}, metadata="note\0"))
    (group,) = shell.ask(fetch(TP, TP1)).groups
    assert [topic.partitions[0].metadata for topic in group.topics] == ["", "note\0"]


def test_the_last_commit_counts_even_if_it_goes_back() -> None:
    shell = Shell()
    for offset in (5, 9, 3):
        shell.ask(commit({TP: offset}))
    assert fetched(shell, TP) == [3]


def test_everything_a_group_has_can_be_asked_for() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5, TP1: 6, OTHER: 7}))
    shell.ask(commit({TP: 99}, group_id="another"))
    (group,) = shell.ask(fetch(everything=True)).groups
    assert {
        (topic.name, each.partition_index): each.committed_offset
        for topic in group.topics
        for each in topic.partitions
    } == {("orders", 0): 5, ("orders", 1): 6, ("other", 0): 7}


@pytest.mark.parametrize("version", [1, 2, 5, 7])
def test_before_version_8_one_group_is_asked_for(version: int) -> None:
    shell = Shell()
    shell.ask(commit({TP: 5, OTHER: 7}, leader_epoch=2, metadata="m"))
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequest.Topic(name="orders", partition_indexes=[0, 1])]
    )
    response = shell.ask(request, version=version)
    (topic,) = response.topics
    assert [each.committed_offset for each in topic.partitions] == [5, -1]
    assert [each.committed_leader_epoch for each in topic.partitions] == [2, -1]
    everything = shell.ask(OffsetFetchRequest(group_id="g", topics=None), version=version)
    assert [each.name for each in everything.topics] == ["orders", "other"]
    assert response.error_code == ErrorCode.NONE


def test_several_groups_are_fetched_at_once() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}, group_id="a"))
    request = fetch(TP, group_id="a")
    request.groups = [*request.groups, *fetch(TP, group_id="b").groups]
    response = shell.ask(request)
    assert [
        (group.group_id, group.topics[0].partitions[0].committed_offset)
        for group in response.groups
    ] == [("a", 5), ("b", -1)]


def test_topic_ids_are_handed_back() -> None:
    shell = Shell()
    request = commit({TP: 5})
    request.topics[0].topic_id = b"0123456789abcdef"
    assert shell.ask(request).topics[0].topic_id == b"0123456789abcdef"
    asked = fetch(TP)
    asked.groups[0].topics[0].topic_id = b"0123456789abcdef"  # type: ignore[index]  # topics are asked for
    assert shell.ask(asked).groups[0].topics[0].topic_id == b"0123456789abcdef"


def test_a_commit_is_of_the_topic_that_had_the_name() -> None:
    shell = Shell()
    shell.image.put(ImageTopic("orders", b"a" * 16, 1))
    shell.ask(commit({TP: 5, OTHER: 6}))
    assert [one.topic_id for one in shell.records if isinstance(one, OffsetRecord)] == [
        b"a" * 16,
        None,
    ]


def test_who_asks_by_the_id_of_another_topic_of_that_name_is_told_of_no_position() -> None:
    shell = Shell()
    shell.image.put(ImageTopic("orders", b"a" * 16, 1))
    shell.ask(commit({TP: 5, OTHER: 6}))

    def position(tp: TopicPartition, topic_id: bytes) -> int:
        request = fetch(tp)
        assert request.groups[0].topics is not None
        request.groups[0].topics[0].topic_id = topic_id
        (group,) = shell.restarted().ask(request).groups
        found: int = group.topics[0].partitions[0].committed_offset
        return found

    assert position(TP, b"a" * 16) == 5
    assert position(TP, b"b" * 16) == -1
    assert position(TP, bytes(16)) == 5, "by name, or by a client that does not know"
    assert position(OTHER, b"b" * 16) == 6, "nobody knew when it was committed"


def test_a_commit_of_nothing_is_answered_and_makes_no_group() -> None:
    shell = Shell()
    assert shell.ask(commit({})).topics == []
    assert not shell.coordinator.groups


@pytest.mark.parametrize("make", [commit, txn_commit])
@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("x" * 4_096, ErrorCode.NONE),
        ("x" * 4_097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("é" * 4_096, ErrorCode.NONE),
        ("𝄞" * 2_048, ErrorCode.NONE),
        ("𝄞" * 2_049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_the_length_of_metadata_is_counted_as_java_counts(
    make: Any, metadata: str, error: ErrorCode
) -> None:
    shell = Shell()
    assert codes(shell.ask(make({TP: 5}, metadata=metadata))) == [error]


def test_metadata_that_no_record_can_hold_is_too_large_whatever_the_setting() -> None:
    shell = Shell(GroupConfig(offset_metadata_max_bytes=10**9))
    response = shell.ask(commit({TP: 5}, metadata="x" * 40_000))
    assert codes(response) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_one_partition_too_large_does_not_stop_the_others() -> None:
    shell = Shell()
    request = commit({TP: 5, TP1: 6})
    request.topics[0].partitions[0].committed_metadata = "x" * 5_000
    assert codes(shell.ask(request)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert fetched(shell, TP, TP1) == [-1, 6]


# --- Delete --------------------------------------------------------------------------------------


def test_deleted_offsets_are_gone_the_others_stay() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5, TP1: 6}))
    before = len(shell.records)
    assert codes(shell.ask(delete_offsets(TP, OTHER))) == [ErrorCode.NONE, ErrorCode.NONE]
    assert shell.records[before:] == [OffsetTombstone("g", *TP)], "only for what was there"
    assert fetched(shell, TP, TP1) == [-1, 6]


def test_offsets_of_topics_that_are_read_are_kept() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.ask(commit({TP: 5, OTHER: 6}, member_id=member_id, generation=1))
    response = shell.ask(delete_offsets(TP, OTHER))
    assert codes(response) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert fetched(shell, TP, OTHER) == [5, -1]


def test_if_it_cannot_be_told_what_a_consumer_reads_everything_is_kept() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1, metadata=b"\x00")
    shell.ask(commit({TP: 5}, member_id=member_id, generation=1))
    assert codes(shell.ask(delete_offsets(TP))) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


# --- Transactions --------------------------------------------------------------------------------


def test_staged_offsets_count_when_the_transaction_commits() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.ask(txn_commit({TP: 6}))
    assert fetched(shell, TP) == [5]
    end(shell, commit=True)
    assert fetched(shell, TP) == [6]
    assert shell.restarted().coordinator.durable() == shell.coordinator.durable()


def test_staged_offsets_are_forgotten_when_it_aborts() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.ask(txn_commit({TP: 6}))
    end(shell, commit=False)
    assert fetched(shell, TP) == [5]
    end(shell, commit=True)
    assert fetched(shell, TP) == [5], "there is nothing left to commit"


def test_producers_do_not_see_each_others_offsets() -> None:
    shell = Shell()
    shell.ask(txn_commit({TP: 6}, producer_id=1))
    shell.ask(txn_commit({TP1: 7}, producer_id=2))
    end(shell, commit=True, producer_id=2)
    assert fetched(shell, TP, TP1) == [-1, 7]
    end(shell, commit=True, producer_id=1)
    assert fetched(shell, TP, TP1) == [6, 7]


def test_who_asks_for_stable_offsets_is_told_to_wait() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5, TP1: 5}))
    shell.ask(txn_commit({TP: 6}))
    (group,) = shell.ask(fetch(TP, TP1, stable=True)).groups
    first, second = (topic.partitions[0] for topic in group.topics)
    assert (first.error_code, first.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert (second.error_code, second.committed_offset) == (ErrorCode.NONE, 5)
    (group,) = shell.ask(fetch(everything=True, stable=True)).groups
    (topic,) = group.topics
    assert [each.error_code for each in topic.partitions] == [
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NONE,
    ]
    old = OffsetFetchRequest(group_id="g", topics=None, require_stable=True)
    assert codes(shell.ask(old, version=7)) == [
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NONE,
    ]


def test_the_newest_record_wins_not_the_newest_marker() -> None:
    """KAFKA-15784: compaction would keep the plain commit, which was written later."""
    shell = Shell()
    shell.ask(txn_commit({TP: 6, TP1: 6}))
    shell.ask(commit({TP: 9}))
    end(shell, commit=True)
    assert fetched(shell, TP, TP1) == [9, 6]


def test_a_tombstone_removes_staged_offsets_too() -> None:
    shell = Shell()
    shell.ask(txn_commit({TP: 6, TP1: 7}))
    assert codes(shell.ask(delete_offsets(TP))) == [ErrorCode.NONE]
    end(shell, commit=True)
    assert fetched(shell, TP, TP1) == [-1, 7]


def test_a_transactional_commit_makes_a_simple_group() -> None:
    shell = Shell()
    shell.ask(txn_commit({TP: 6}))
    assert shell.state() is GroupState.EMPTY


def test_the_end_of_an_unknown_transaction_is_nothing() -> None:
    shell = Shell()
    end(shell, commit=True, producer_id=99)
    assert shell.coordinator.offsets.durable() == ({}, {}, {})


# --- Topics that are deleted ---------------------------------------------------------------------


def test_offsets_go_with_their_topic() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5, TP1: 6, OTHER: 7}))
    shell.ask(commit({TP: 5}, group_id="another"))
    shell.ask(txn_commit({TopicPartition("orders", 2): 8}, group_id="third"))
    shell.obey(shell.coordinator.topics_deleted({"orders"}, shell.now_ms))
    end(shell, commit=True)
    assert fetched(shell, TP, TP1, OTHER) == [-1, -1, 7]
    assert fetched(shell, TP, group_id="another") == [-1]
    assert fetched(shell, TopicPartition("orders", 2), group_id="third") == [-1]


def test_deleting_a_topic_that_nobody_read_writes_nothing() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    before = len(shell.records)
    shell.obey(shell.coordinator.topics_deleted({"unknown"}, shell.now_ms))
    assert len(shell.records) == before


# --- Expiry --------------------------------------------------------------------------------------


def test_offsets_of_a_simple_group_expire_by_their_commit() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.advance(DAY_MS)
    shell.ask(commit({TP1: 6}))
    shell.advance(WEEK_MS - DAY_MS)
    assert fetched(shell, TP, TP1) == [-1, 6]
    shell.advance(DAY_MS)
    assert shell.coordinator.group("g") is None
    assert shell.records[-1] == GroupTombstone("g")
    assert shell.causes(EventKind.OFFSETS_EXPIRED) == ["1 offsets are older than the retention"] * 2


def test_offsets_of_a_group_live_until_a_retention_after_it_became_empty() -> None:
    """KIP-211."""
    shell = Shell(short_retention())
    (member_id,) = shell.stable_group(1)
    shell.ask(commit({TP: 5}, member_id=member_id, generation=1))
    _live(shell, member_id, 80_000)
    assert fetched(shell, TP) == [5]
    shell.ask(leave(member_id))
    shell.advance(59_999)
    assert fetched(shell, TP) == [5]
    shell.advance(1_000)
    assert fetched(shell, TP) == [-1]
    assert shell.coordinator.group("g") is None


def _live(shell: Shell, member_id: str, duration_ms: int) -> None:
    """Time passes in great strides; the member is heard before it would expire."""
    session_ms = shell.group().members[member_id].session_timeout_ms
    end_ms = shell.now_ms + duration_ms
    while shell.now_ms < end_ms:
        shell.advance(session_ms - 1)
        generation = shell.group().generation
        assert shell.ask(heartbeat(member_id, generation)).error_code == ErrorCode.NONE


def short_retention() -> GroupConfig:
    """Short retention, so that a test need not live through a week of heartbeats."""
    return GroupConfig(
        offsets_retention_minutes=1,
        offsets_retention_check_interval_ms=1_000,
        coordinator_pulse_interval_ms=5_000,
    )


def test_a_stable_consumer_group_loses_offsets_of_topics_it_no_longer_reads() -> None:
    shell = Shell(short_retention())
    (member_id,) = shell.stable_group(1)
    shell.ask(commit({TP: 5, OTHER: 6}, member_id=member_id, generation=1))
    _live(shell, member_id, 50_000)
    assert fetched(shell, TP, OTHER) == [5, 6]
    _live(shell, member_id, 20_000)
    assert fetched(shell, TP, OTHER) == [5, -1]
    assert shell.state() is GroupState.STABLE


@pytest.mark.parametrize(
    "fields", [{"protocol_type": "connect"}, {"metadata": b"\x00"}], ids=["other", "unreadable"]
)
def test_where_it_cannot_be_told_what_is_read_nothing_expires(fields: dict[str, Any]) -> None:
    shell = Shell(short_retention())
    (member_id,) = shell.stable_group(1, **fields)
    shell.ask(commit({OTHER: 6}, member_id=member_id, generation=1))
    _live(shell, member_id, 120_000)
    assert fetched(shell, OTHER) == [6]


@pytest.mark.parametrize("state", ["preparing", "completing"])
def test_while_a_group_rebalances_nothing_expires(state: str) -> None:
    """KAFKA-13636."""
    shell = Shell(short_retention())
    leader, follower = shell.stable_group(2, rebalance_ms=300_000)
    shell.ask(commit({OTHER: 6}, member_id=leader, generation=1))
    ticket = shell.send(join(leader, rebalance_ms=300_000))
    generation = 1
    if state == "completing":
        shell.send(join(follower, rebalance_ms=300_000))
        generation = shell.replies[ticket].generation_id
    end_ms = shell.now_ms + 120_000
    while shell.now_ms < end_ms:
        shell.advance(9_000)
        for member_id in (leader, follower):
            shell.ask(heartbeat(member_id, generation))
    assert shell.state().value.lower().startswith(state)
    assert fetched(shell, OTHER) == [6]


def test_a_group_without_a_time_in_its_record_expires_by_commits() -> None:
    group = GroupRecord("g", "consumer", 3, None, None, None)
    old = OffsetRecord("g", "orders", 0, 5, None, "", START_MS - WEEK_MS)
    young = OffsetRecord("g", "orders", 1, 6, None, "", START_MS)
    shell = Shell(records=[group, old, young])
    shell.advance(CHECK_MS)
    assert fetched(shell, TP, TP1) == [-1, 6]


def test_an_expiry_of_its_own_overrides_the_retention() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}, retention_ms=DAY_MS), version=4)
    shell.ask(commit({TP1: 6}, retention_ms=20 * DAY_MS), version=2)
    shell.ask(commit({OTHER: 7}, retention_ms=DAY_MS), version=5)  # Too new: ignored.
    shell.advance(DAY_MS + CHECK_MS)
    assert fetched(shell, TP, TP1, OTHER) == [-1, 6, 7]
    shell.advance(WEEK_MS)
    assert fetched(shell, TP, TP1, OTHER) == [-1, 6, -1]


def test_an_expiry_beyond_all_times_is_no_problem() -> None:
    shell = Shell()
    assert codes(shell.ask(commit({TP: 5}, retention_ms=2**63 - 1), version=4)) == [0]


def test_an_open_transaction_keeps_offset_and_group() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5, TP1: 6}))
    shell.ask(txn_commit({TP: 7}))
    shell.advance(WEEK_MS + CHECK_MS)
    assert fetched(shell, TP, TP1) == [5, -1]
    end(shell, commit=True)
    assert fetched(shell, TP) == [7]
    shell.advance(WEEK_MS)
    assert shell.coordinator.group("g") is None


def test_a_group_with_nothing_but_an_open_transaction_stays() -> None:
    shell = Shell()
    shell.ask(txn_commit({TP: 7}))
    shell.advance(WEEK_MS + CHECK_MS)
    assert shell.state() is GroupState.EMPTY
    end(shell, commit=True)
    assert fetched(shell, TP) == [7]


def test_a_group_that_never_had_an_offset_goes_with_the_next_check() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.ask(leave(member_id))
    shell.advance(CHECK_MS)
    assert shell.coordinator.group("g") is None


def test_a_group_with_somebody_on_the_way_stays() -> None:
    shell = Shell(GroupConfig(offsets_retention_check_interval_ms=1_000))
    member_id = shell.member_id()
    shell.advance(5_000)
    shell.send(join(member_id))
    assert shell.state() is GroupState.PREPARING_REBALANCE


def test_so_many_offsets_expire_in_several_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "EXPIRY_RECORDS_MAX", 3)
    shell = Shell()
    for number in range(10):
        shell.ask(commit({TP: 5}, group_id=f"g{number}"))
    shell.advance(WEEK_MS - CHECK_MS)
    sizes = []
    shell.now_ms += CHECK_MS
    while shell.coordinator.groups:
        decision = shell.coordinator.tick(shell.now_ms)
        sizes.append(len(decision.journal))
        shell.obey(decision)
    assert sizes == [4, 4, 4, 4, 4], "two records a group, and at least three in a decision"


def test_the_subscription_of_every_member_counts() -> None:
    members = tuple(
        MemberRecord(
            topic,
            None,
            "c",
            "/h",
            60_000,
            10_000,
            ConsumerProtocolSubscription((topic,)).encode(),
            b"",
        )
        for topic in ("orders", "other")
    )
    record = GroupRecord("g", "consumer", 3, "range", "orders", START_MS, members)
    group = Shell(records=[record]).group()
    assert [group.is_subscribed(topic) for topic in ("orders", "other", "third")] == [
        True,
        True,
        False,
    ]


def test_a_request_object_is_not_changed_by_handling_it() -> None:
    request = commit({TP: 5})
    shell = Shell()
    shell.ask(request)
    assert request == commit({TP: 5})
    assert isinstance(request, OffsetCommitRequest)
