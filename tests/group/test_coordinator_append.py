"""What happens when the journal cannot be written: nobody is promised anything, nothing sticks."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator import coordinator as coordinator_module
from shoal.group.coordinator.classic_rebalance import EMPTY_RETRY_MS
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.refusals import refuse, response_error
from shoal.group.coordinator.states import GroupState
from shoal.machine.decision import Caller
from shoal.types import TopicPartition
from shoal.wire.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.heartbeat import HeartbeatResponse
from shoal.wire.apis.join_group import JoinGroupResponse
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from tests.group.coordinator_shell import (
    Shell,
    codes,
    commit,
    delete_offsets,
    fetch,
    fetched,
    heartbeat,
    join,
    leave,
    sync,
    txn_commit,
)

TP = TopicPartition("orders", 0)
FULL = ErrorCode.KAFKA_STORAGE_ERROR
TOLD = ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_what_a_client_is_told(error: ErrorCode, told: ErrorCode) -> None:
    assert response_error(error) is told
    shell = Shell()
    shell.fail_appends_with = error
    assert codes(shell.ask(commit({TP: 5}))) == [told]


# --- Groups that begin ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 9])
def test_a_group_that_cannot_be_journaled_does_not_exist(version: int) -> None:
    shell = Shell()
    shell.fail_appends_with = FULL
    response = shell.ask(join(), version=version)
    assert response.error_code == TOLD
    assert not shell.coordinator.groups
    assert shell.coordinator.next_deadline() == shell.now_ms + 600_000, "no timer is left"
    shell.fail_appends_with = None
    shell.stable_group(1)
    assert shell.group().generation == 1


# --- A generation that cannot start --------------------------------------------------------------


def test_who_joined_is_told_and_may_try_again_at_once() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.fail_appends_with = FULL
    tickets = [shell.send(join(member_id)) for member_id in (leader, follower)]
    assert [shell.replies[ticket].error_code for ticket in tickets] == [TOLD, TOLD]
    assert shell.state() is GroupState.PREPARING_REBALANCE
    assert shell.group().generation == 1
    assert not shell.group().pending_sync
    shell.fail_appends_with = None
    tickets = [shell.send(join(member_id)) for member_id in (leader, follower)]
    assert [shell.replies[ticket].generation_id for ticket in tickets] == [2, 2]


def test_a_first_generation_that_failed_is_not_delayed_again() -> None:
    shell = Shell()
    member_id, ticket = shell.join_new()
    shell.fail_appends_with = FULL
    shell.until_answered(ticket)
    assert shell.replies[ticket].error_code == TOLD
    shell.fail_appends_with = None
    assert shell.ask(join(member_id)).generation_id == 1


def test_members_that_do_not_come_back_after_a_failure_expire() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.fail_appends_with = FULL
    for member_id in (leader, follower):
        shell.send(join(member_id))
    shell.fail_appends_with = None
    ticket = shell.send(join(leader))
    shell.advance(10_000)
    assert [each.member_id for each in shell.replies[ticket].members] == [leader]


def test_a_group_that_cannot_be_journaled_as_empty_tries_again() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.fail_appends_with = FULL
    assert shell.ask(leave(member_id)).error_code == TOLD
    assert shell.state() is GroupState.PREPARING_REBALANCE
    records = len(shell.records)
    shell.advance(5 * EMPTY_RETRY_MS)
    assert len(shell.records) == records
    assert len(shell.causes(EventKind.APPEND_FAILED)) == 6, "once, and once a second"
    shell.fail_appends_with = None
    shell.advance(EMPTY_RETRY_MS)
    assert shell.state() is GroupState.EMPTY
    assert shell.restarted().state() is GroupState.EMPTY


def test_a_member_that_joins_a_group_which_could_not_become_empty_is_welcome() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.fail_appends_with = FULL
    shell.ask(leave(member_id))
    shell.fail_appends_with = None
    _, ticket = shell.join_new()
    assert shell.replies[ticket].generation_id == 2


# --- An assignment that cannot be stored ---------------------------------------------------------


def test_an_assignment_that_is_not_stored_is_given_to_nobody() -> None:
    shell = Shell()
    leader, follower = (shell.join_new()[0] for _ in range(2))
    shell.settle()
    parked = shell.send(sync(follower, 1))
    shell.fail_appends_with = FULL
    response = shell.ask(sync(leader, 1, [leader, follower]))
    for each in (response, shell.replies[parked]):
        assert (each.error_code, each.assignment) == (TOLD, b"")
    assert shell.state() is GroupState.PREPARING_REBALANCE
    assert shell.causes(EventKind.REBALANCE_STARTED)[-1] == (
        "the journal could not be written: KAFKA_STORAGE_ERROR"
    )
    assert not shell.causes(EventKind.STABLE)
    assert shell.group().assignment(leader) == b""


# --- A static member's new id --------------------------------------------------------------------


def test_a_new_id_that_is_not_stored_leaves_the_old_one_in_place() -> None:
    shell = Shell()
    ticket = shell.send(join(instance_id="a"))
    shell.settle()
    (old,) = shell.sync_all([shell.replies[ticket]])
    before = shell.group().durable()
    shell.fail_appends_with = FULL
    response = shell.ask(join(instance_id="a", session_ms=20_000))
    assert (response.error_code, response.member_id) == (TOLD, "")
    shell.fail_appends_with = None
    assert shell.group().durable() == before
    assert shell.state() is GroupState.STABLE
    assert not shell.causes(EventKind.MEMBER_REPLACED)
    shell.advance(9_999)
    assert shell.ask(heartbeat(old, 1, instance_id="a")).error_code == ErrorCode.NONE
    again = shell.ask(join(instance_id="a"))
    assert again.error_code == ErrorCode.NONE
    assert list(shell.group().members) == [again.member_id]


def test_the_old_id_that_goes_on_still_has_to_show_life() -> None:
    shell = Shell()
    ticket = shell.send(join(instance_id="a"))
    shell.settle()
    shell.sync_all([shell.replies[ticket]])
    shell.fail_appends_with = FULL
    shell.ask(join(instance_id="a"))
    shell.fail_appends_with = None
    shell.advance(10_000)
    assert shell.state() is GroupState.EMPTY


# --- Offsets -------------------------------------------------------------------------------------


def test_an_offset_that_is_not_stored_is_not_committed() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.fail_appends_with = FULL
    assert codes(shell.ask(commit({TP: 6}))) == [TOLD]
    assert codes(shell.ask(txn_commit({TP: 7}))) == [TOLD]
    assert codes(shell.ask(delete_offsets(TP))) == []
    assert fetched(shell, TP) == [5]


def test_a_partition_that_was_refused_keeps_its_own_error() -> None:
    shell = Shell()
    request = commit({TP: 5, TopicPartition("orders", 1): 6})
    request.topics[1].partitions[0].committed_metadata = "x" * 5_000
    shell.fail_appends_with = FULL
    assert codes(shell.ask(request)) == [TOLD, ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_a_group_that_could_not_be_deleted_stays() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.fail_appends_with = FULL
    response = shell.ask(DeleteGroupsRequest(groups_names=["g", "unknown"]))
    assert [each.error_code for each in response.results] == [
        TOLD,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert fetched(shell, TP) == [5]


def test_offsets_that_could_not_be_expired_wait_for_the_next_time() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.fail_appends_with = FULL
    shell.advance(8 * 86_400_000)
    assert fetched(shell, TP) == [5]
    shell.fail_appends_with = None
    shell.advance(600_000)
    assert fetched(shell, TP) == [-1]


def test_an_expiry_that_fails_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "EXPIRY_RECORDS_MAX", 1)
    shell = Shell()
    for group_id in ("a", "b", "c"):
        shell.ask(commit({TP: 5}, group_id=group_id))
    shell.fail_appends_with = FULL
    shell.advance(7 * 86_400_000)
    assert shell.coordinator.next_deadline() == shell.now_ms + 600_000


# --- Replies that are not durable after all ------------------------------------------------------


def test_a_reply_that_says_no_stays_as_it_is() -> None:
    fenced = JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id="m")
    assert refuse(fenced, TOLD) is fenced


def test_an_id_that_was_given_out_is_taken_back() -> None:
    given = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m")
    assert refuse(given, TOLD) == JoinGroupResponse(error_code=TOLD)


def test_every_kind_of_reply_can_be_refused() -> None:
    shell = Shell()
    shell.stable_group(1)
    shell.ask(commit({TP: 5}, group_id="simple"))
    assert refuse(HeartbeatResponse(), TOLD) == HeartbeatResponse(error_code=TOLD)
    assert refuse(shell.ask(ListGroupsRequest()), TOLD).groups == ()
    (described,) = refuse(shell.ask(DescribeGroupsRequest(groups=["g"])), TOLD).groups
    assert (described.group_id, described.error_code, described.members) == ("g", TOLD, ())
    (group,) = refuse(shell.ask(fetch(TP, group_id="simple")), TOLD).groups
    assert (group.group_id, group.error_code, group.topics) == ("simple", TOLD, ())
    request = OffsetFetchRequest(
        group_id="simple",
        topics=[OffsetFetchRequest.Topic(name="orders", partition_indexes=[0])],
    )
    old = refuse(shell.ask(request, version=1), TOLD)
    assert old.topics[0].partitions[0].committed_offset == -1
    assert codes(old) == [TOLD]
    deleted: Any = DeleteGroupsResponse(
        results=[DeleteGroupsResponse.DeletableGroupResult(group_id="g")]
    )
    assert refuse(deleted, TOLD).results[0].error_code == TOLD


# --- The contract with the shell -----------------------------------------------------------------


def test_a_decision_must_be_settled_before_the_next_call() -> None:
    shell = Shell()
    decision = shell.coordinator.handle(commit({TP: 5}), Caller(9, "c", "/h", 1), shell.now_ms)
    assert decision.journal
    with pytest.raises(AssertionError, match="before the next call"):
        shell.coordinator.handle(commit({TP: 6}), Caller(9, "c", "/h", 2), shell.now_ms)


def test_only_what_was_decided_is_replayed() -> None:
    shell = Shell()
    request = commit({TP: 5, TopicPartition("orders", 1): 6})
    decision = shell.coordinator.handle(request, Caller(9, "c", "/h", 1), shell.now_ms)
    with pytest.raises(AssertionError, match="in order"):
        shell.coordinator.replay(decision.journal[1], 0)
