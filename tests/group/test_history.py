"""Bugs that Apache Kafka had in its group coordinator, each as a test that would have found it.

The number in a name is that of the issue in Kafka's tracker. What happens in the client is in
test_history_member.py, which also says what cannot go wrong here; assignors are in tests/assign.
"""

from __future__ import annotations

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.journal import (
    GroupRecord,
    GroupTombstone,
    JournalRecord,
    OffsetRecord,
    OffsetTombstone,
)
from shoal.group.coordinator.states import GroupState
from shoal.types import TopicPartition
from shoal.wire.apis.delete_groups import DeleteGroupsRequest
from shoal.wire.consumer_protocol import ConsumerProtocolSubscription
from tests.group.coordinator_shell import (
    REBALANCE_MS,
    SESSION_MS,
    START_MS,
    Shell,
    codes,
    commit,
    delete_offsets,
    fetched,
    heartbeat,
    join,
    leave,
    sync,
    txn_commit,
)

TP = TopicPartition("orders", 0)
DAY_MS = 86_400_000


def static_pair(shell: Shell) -> list[str]:
    """A Stable group of two static members, ``a`` who leads and ``b``."""
    tickets = [shell.send(join(instance_id=name)) for name in ("a", "b")]
    shell.settle()
    return shell.sync_all([shell.replies[ticket] for ticket in tickets])


# --- Members that come and go --------------------------------------------------------------------


def test_7824_clients_that_give_up_and_try_again_leave_no_members_behind() -> None:
    """KAFKA-7610, KIP-394: every timed-out JoinGroup had added one more member."""
    shell = Shell()
    for _ in range(50):
        shell.ask(join())
    assert not shell.group().members
    assert shell.state() is GroupState.EMPTY
    shell.advance(SESSION_MS)
    assert not shell.group().pending_ids


def test_7909_a_rebalance_waits_for_ids_that_were_given_out_but_not_for_ever() -> None:
    shell = Shell()
    (leader,) = shell.stable_group(1)
    pending = shell.member_id()
    ticket = shell.send(join(leader))
    shell.advance(SESSION_MS - 1)
    assert ticket not in shell.replies
    shell.advance(1)
    assert shell.replies[ticket].generation_id == 2
    assert shell.ask(join(pending)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_9752_a_new_member_that_timed_out_does_not_hold_up_the_rebalance() -> None:
    shell = Shell(GroupConfig(group_new_member_join_timeout_ms=20_000))
    leader, follower = shell.stable_group(2)
    gone, ticket = shell.join_new()  # Its client gives up; the group does not know.
    for _ in range(4):
        shell.ask(heartbeat(follower, 1))
        shell.ask(heartbeat(leader, 1))
        shell.advance(6_000)
    assert shell.replies[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    tickets = [shell.send(join(member_id)) for member_id in (leader, follower)]
    assert [shell.replies[each].error_code for each in tickets] == [0, 0]
    assert gone not in shell.group().members


def test_12890_a_member_that_never_syncs_does_not_hold_the_group() -> None:
    shell = Shell()
    (leader, _), (lazy, _) = shell.join_new(), shell.join_new()
    shell.settle()
    shell.send(sync(leader, 1, [leader, lazy]))
    start_ms = shell.now_ms
    while lazy in shell.group().members:
        for member_id in (leader, lazy):
            shell.ask(heartbeat(member_id, 1))
        shell.advance(3_000)
        assert shell.now_ms - start_ms <= REBALANCE_MS + 3_000
    assert shell.state() is GroupState.PREPARING_REBALANCE


def test_10134_heartbeats_between_join_and_sync_are_no_errors() -> None:
    shell = Shell()
    member_id, _ = shell.join_new()
    shell.settle()
    assert shell.state() is GroupState.COMPLETING_REBALANCE
    assert shell.ask(heartbeat(member_id, 1)).error_code == ErrorCode.NONE


# --- group.max.size ------------------------------------------------------------------------------


def test_7641_a_group_does_not_grow_past_its_size() -> None:
    shell = Shell(GroupConfig(group_max_size=3))
    ids = [shell.member_id() for _ in range(10)]
    for member_id in ids:
        shell.send(join(member_id))
    shell.settle()
    assert list(shell.group().members) == ids[:3]


def test_9885_the_last_ones_to_rejoin_a_group_that_is_too_large_have_to_go() -> None:
    shell = Shell()
    members = shell.stable_group(4)
    again = shell.restarted(GroupConfig(group_max_size=2))
    tickets = [again.send(join(member_id)) for member_id in reversed(members)]
    errors = [again.replies[ticket].error_code for ticket in tickets]
    assert errors == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert again.state() is GroupState.COMPLETING_REBALANCE
    assert len(again.group().members) == 2


def test_9844_members_that_wait_already_are_not_refused_by_the_limit() -> None:
    shell = Shell(GroupConfig(group_max_size=2))
    leader, follower = shell.stable_group(2)
    shell.send(join(leader))
    shell.send(join(leader))
    response = shell.ask(join(follower))
    assert response.error_code == ErrorCode.NONE
    assert set(shell.group().members) == {leader, follower}


# --- Static members ------------------------------------------------------------------------------


def test_9801_a_static_member_that_restarts_before_the_sync_is_not_left_without_partitions() -> (
    None
):
    shell = Shell()
    tickets = [shell.send(join(instance_id=name)) for name in ("a", "b")]
    shell.settle()
    leader, old = (shell.replies[ticket].member_id for ticket in tickets)
    new = shell.send(join(instance_id="b"))
    late = shell.ask(sync(leader, 1, [leader, old], instance_id="a"))
    assert late.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    ticket = shell.send(join(leader, instance_id="a"))
    known = {each.member_id for each in shell.replies[ticket].members}
    assert known == {leader, shell.replies[new].member_id}


def test_10284_the_new_id_of_a_static_member_survives_a_failover() -> None:
    shell = Shell()
    _, old = static_pair(shell)
    new = shell.ask(join(instance_id="b")).member_id
    again = shell.restarted()
    assert again.ask(heartbeat(new, 1, instance_id="b")).error_code == ErrorCode.NONE
    fenced = again.ask(heartbeat(old, 1, instance_id="b"))
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_14009_a_static_member_may_come_back_with_another_session_timeout() -> None:
    shell = Shell()
    static_pair(shell)
    new = shell.ask(join(instance_id="b", session_ms=30_000)).member_id
    assert shell.group().members[new].session_timeout_ms == 30_000
    assert shell.restarted().group().members[new].session_timeout_ms == 30_000


def test_13435_a_leader_that_comes_back_does_not_assign_but_still_watches() -> None:
    shell = Shell()
    static_pair(shell)
    response = shell.ask(join(instance_id="a"))
    assert response.skip_assignment
    assert len(response.members) == 2
    # SyncGroup with the empty plan of a leader that skipped changes nothing.
    synced = shell.ask(sync(response.member_id, 1, instance_id="a"))
    assert synced.assignment != b""
    assert shell.state() is GroupState.STABLE


def test_12759_a_static_member_that_reads_something_else_does_not_rebalance_yet() -> None:
    """Open in Kafka too; when it changes there, this test should."""
    shell = Shell()
    static_pair(shell)
    response = shell.ask(
        join(instance_id="b", metadata=ConsumerProtocolSubscription(("other",)).encode())
    )
    assert response.generation_id == 1
    assert shell.state() is GroupState.STABLE


def test_14201_a_commit_with_an_instance_but_no_member_id_is_fenced() -> None:
    shell = Shell()
    static_pair(shell)
    request = commit({TP: 5}, generation=1, instance_id="a")
    assert codes(shell.ask(request)) == [ErrorCode.FENCED_INSTANCE_ID]


# --- Expiry --------------------------------------------------------------------------------------


def test_10401_the_time_a_group_became_empty_is_written_down() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.ask(commit({TP: 5}, member_id=member_id, generation=1))
    shell.advance(5_000)
    shell.ask(leave(member_id))
    emptied_ms = shell.now_ms
    shell.advance(6 * DAY_MS)
    again = shell.restarted()
    record = again.group().record
    assert record is not None
    assert record.state_timestamp_ms == emptied_ms
    again.advance(DAY_MS - 600_000)
    assert fetched(again, TP) == [5]
    again.advance(1_200_000)
    assert fetched(again, TP) == [-1]


def test_13636_offsets_do_not_expire_while_the_group_rebalances() -> None:
    config = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    shell = Shell(config)
    (leader,) = shell.stable_group(1)
    other = TopicPartition("other", 0)
    shell.ask(commit({other: 5}, member_id=leader, generation=1))
    shell.join_new()
    for _ in range(20):
        shell.advance(4_000)
        shell.send(heartbeat(leader, 1))
        assert shell.state() is not GroupState.STABLE
    assert fetched(shell, other) == [5]


def test_4682_offsets_of_a_group_that_is_alive_do_not_expire() -> None:
    """KIP-211."""
    config = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    shell = Shell(config)
    (member_id,) = shell.stable_group(1)
    shell.ask(commit({TP: 5}, member_id=member_id, generation=1))
    for _ in range(20):
        shell.advance(6_000)
        shell.ask(heartbeat(member_id, 1))
    assert fetched(shell, TP) == [5]


def test_8069_an_expiry_of_minus_one_means_none() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}, retention_ms=-1), version=2)
    again = shell.restarted()
    again.advance(DAY_MS)
    assert fetched(again, TP) == [5]


# --- Loading and unloading -----------------------------------------------------------------------


def test_5600_offsets_written_after_a_tombstone_are_there_after_a_restart() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.ask(delete_offsets(TP))
    shell.ask(commit({TP: 6}))
    assert fetched(shell.restarted(), TP) == [6]


def test_4704_what_was_deleted_does_not_come_back() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.ask(DeleteGroupsRequest(groups_names=["g"]))
    again = shell.restarted()
    assert not again.coordinator.groups
    again.ask(commit({TopicPartition("orders", 1): 1}))
    assert fetched(again, TP) == [-1]


def test_17306_a_lone_tombstone_is_nothing() -> None:
    shell = Shell(records=[OffsetTombstone("g", "orders", 0), GroupTombstone("g")])
    assert not shell.coordinator.groups
    assert shell.ask(join()).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_19862_a_compacted_journal_may_lack_what_came_before() -> None:
    kept: list[JournalRecord] = [
        OffsetRecord("g", "orders", 0, 5, None, "", START_MS),
        GroupRecord("g", "consumer", 7, None, None, START_MS),
        OffsetTombstone("h", "orders", 0),
    ]
    shell = Shell(records=kept)
    assert shell.group().generation == 7
    assert fetched(shell, TP) == [5]
    (member_id,) = shell.stable_group(1)
    assert shell.ask(heartbeat(member_id, 8)).error_code == ErrorCode.NONE


def test_10614_once_unloaded_nothing_is_served_from_what_is_left() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.obey(shell.coordinator.unload(shell.now_ms))
    for request in (heartbeat(member_id, 1), join(member_id), sync(member_id, 1)):
        assert shell.ask(request).error_code == ErrorCode.NOT_COORDINATOR
    assert codes(shell.ask(commit({TP: 5}))) == [ErrorCode.NOT_COORDINATOR]
    assert not shell.coordinator.tick(shell.now_ms + DAY_MS).journal


# --- Transactions --------------------------------------------------------------------------------


def test_15784_a_plain_commit_made_after_a_staged_one_is_kept() -> None:
    shell = Shell()
    shell.ask(txn_commit({TP: 5}))
    shell.ask(commit({TP: 9}))
    shell.obey(shell.coordinator.end_transaction(7, 0, commit=True, now_ms=shell.now_ms))
    assert fetched(shell, TP) == [9]
    assert fetched(shell.restarted(), TP) == [9]


def test_14505_a_staged_offset_is_invisible_until_its_marker_also_after_a_restart() -> None:
    shell = Shell()
    shell.ask(commit({TP: 1}))
    shell.ask(txn_commit({TP: 5}))
    again = shell.restarted()
    assert fetched(again, TP) == [1]
    again.obey(again.coordinator.end_transaction(7, 0, commit=True, now_ms=again.now_ms))
    assert fetched(again, TP) == [5]


def test_16371_a_commit_that_is_refused_for_its_metadata_leaves_nothing_pending() -> None:
    shell = Shell()
    too_large = txn_commit({TP: 5}, metadata="x" * 5_000)
    assert codes(shell.ask(too_large)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert not shell.coordinator.offsets.has_open_transaction("g")
    assert codes(shell.ask(commit({TP: 6}))) == [ErrorCode.NONE]
    assert fetched(shell, TP) == [6]


def test_an_offset_does_not_expire_under_an_open_transaction() -> None:
    """Found in another implementation in 2026: the marker brought back what had expired."""
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.ask(txn_commit({TP: 6}))
    shell.advance(8 * DAY_MS)
    assert fetched(shell, TP) == [5]


# --- One thing at a time -------------------------------------------------------------------------


@pytest.mark.parametrize("expired", [1, 3])
def test_8334_one_decision_is_about_one_group(expired: int) -> None:
    """KAFKA-13134: work of one group was completed while another's lock was held."""
    shell = Shell()
    for number in range(expired):
        shell.send(join(group_id=f"g{number}", instance_id="a"))
    shell.settle()
    for number in range(expired):
        member_id = next(iter(shell.group(f"g{number}").members))
        shell.send(sync(member_id, 1, [member_id], group_id=f"g{number}"))
    shell.tick()
    deadline = shell.now_ms + SESSION_MS
    while shell.now_ms < deadline - 1_000:
        shell.advance(1_000)
    shell.now_ms = deadline
    touched = []
    while (due := shell.coordinator.next_deadline()) is not None and due <= shell.now_ms:
        decision = shell.coordinator.tick(shell.now_ms)
        touched += [{record.group_id for record in decision.journal}]  # type: ignore[union-attr]  # only records of groups here
        shell.obey(decision)
    assert [len(each) for each in touched if each] == [1] * expired


# --- Generations ---------------------------------------------------------------------------------


def test_a_generation_is_never_given_out_twice() -> None:
    """Kafka journals a group when it is assigned, so a coordinator that dies before does not know
    the generation its successor must not repeat; a late SyncGroup of the old leader then counts.
    """
    shell = Shell()
    leader, follower = shell.stable_group(2)
    tickets = [shell.send(join(member_id)) for member_id in (leader, follower)]
    assert [shell.replies[ticket].generation_id for ticket in tickets] == [2, 2]
    again = shell.restarted()  # Before anybody synced.
    tickets = [again.send(join(member_id)) for member_id in (leader, follower)]
    assert [again.replies[ticket].generation_id for ticket in tickets] == [3, 3]
    late = again.ask(sync(leader, 2, [leader, follower]))
    assert late.error_code == ErrorCode.ILLEGAL_GENERATION
    assert again.state() is GroupState.COMPLETING_REBALANCE


def test_a_generation_whose_record_was_lost_was_never_seen_by_anybody() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.fail_appends_with = ErrorCode.KAFKA_STORAGE_ERROR
    tickets = [shell.send(join(member_id)) for member_id in (leader, follower)]
    assert [shell.replies[ticket].generation_id for ticket in tickets] == [-1, -1]
    assert len(shell.causes(EventKind.GENERATION_STARTED)) == 1
