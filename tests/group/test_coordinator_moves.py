"""Every row of the transition table: state, event, next state and what is answered."""

from __future__ import annotations

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.journal import GroupRecord
from shoal.group.coordinator.states import GroupState
from shoal.types import TopicPartition
from shoal.wire.apis.delete_groups import DeleteGroupsRequest
from shoal.wire.consumer_protocol import ConsumerProtocolSubscription
from tests.group.coordinator_shell import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Shell,
    commit,
    fetched,
    heartbeat,
    join,
    leave,
    sync,
)

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
TP = TopicPartition("orders", 0)
OTHER = ConsumerProtocolSubscription(("other",)).encode()


def completing(shell: Shell, size: int = 2) -> list[str]:
    """Members of a group whose join is complete; the leader comes first."""
    ids = [shell.join_new()[0] for _ in range(size)]
    shell.settle()
    assert shell.state() is COMPLETING
    return ids


# --- From nothing and from Empty -----------------------------------------------------------------


def test_the_first_join_makes_a_group() -> None:
    shell = Shell()
    shell.member_id()
    assert shell.state() is EMPTY
    (record,) = shell.records
    assert record == GroupRecord("g", None, 0, None, None, shell.now_ms)


def test_a_commit_without_a_generation_makes_a_simple_group() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    assert shell.state() is EMPTY
    assert shell.group().protocol_type is None
    assert shell.group().durable() is None, "an offset is all there is of it"


def test_a_simple_group_may_get_members() -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.stable_group(1)
    assert shell.group().generation == 1
    assert fetched(shell, TP) == [5]


def test_a_join_moves_an_empty_group() -> None:
    shell = Shell()
    shell.join_new()
    assert shell.state() is PREPARING
    shell.advance(DELAY_MS)
    assert shell.state() is COMPLETING


def test_a_group_may_come_back_with_another_protocol_type() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.ask(leave(member_id))
    shell.join_new(protocol_type="connect")
    shell.settle()
    assert shell.group().protocol_type == "connect"


def test_deleting_ends_a_group() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.ask(leave(member_id))
    group = shell.group()
    shell.ask(DeleteGroupsRequest(groups_names=["g"]))
    assert shell.coordinator.group("g") is None
    assert group.state is GroupState.DEAD


# --- PreparingRebalance --------------------------------------------------------------------------


def test_the_join_completes_when_all_have_come() -> None:
    shell = Shell()
    members = shell.stable_group(3)
    tickets = [shell.send(join(member_id)) for member_id in members]
    assert [shell.replies[ticket].generation_id for ticket in tickets] == [2, 2, 2]
    assert shell.state() is COMPLETING


def test_a_new_member_is_waited_for_like_the_others() -> None:
    shell = Shell()
    (leader,) = shell.stable_group(1)
    _, new = shell.join_new()
    assert shell.state() is PREPARING
    ticket = shell.send(join(leader))
    assert shell.replies[new].generation_id == shell.replies[ticket].generation_id == 2


def test_a_leave_lets_the_others_go_on() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    ticket = shell.send(join(leader))
    assert ticket not in shell.replies
    shell.ask(leave(follower))
    assert shell.replies[ticket].generation_id == 2


def test_an_expiry_lets_the_others_go_on() -> None:
    shell = Shell()
    leader, _ = shell.stable_group(2)
    ticket = shell.send(join(leader))
    shell.advance(SESSION_MS)
    assert shell.replies[ticket].generation_id == 2


def test_the_expiry_of_a_pending_id_lets_the_others_go_on() -> None:
    shell = Shell()
    (leader,) = shell.stable_group(1)
    shell.member_id()
    ticket = shell.send(join(leader))
    assert ticket not in shell.replies
    shell.advance(SESSION_MS)
    assert shell.replies[ticket].generation_id == 2


def test_an_expiry_ends_even_the_first_rebalance_early() -> None:
    shell = Shell()
    shell.member_id(session_ms=6_000)
    shell.advance(5_000)
    _, ticket = shell.join_new()
    shell.advance(999)
    assert ticket not in shell.replies
    shell.advance(1)
    assert shell.replies[ticket].generation_id == 1


def test_when_the_last_one_leaves_the_group_is_empty() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.ask(leave(leader, follower))
    assert shell.state() is EMPTY
    record = shell.group().record
    assert record is not None
    assert record == GroupRecord("g", "consumer", 2, None, None, shell.now_ms)


def test_if_nobody_rejoins_in_time_the_group_is_empty() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2, rebalance_ms=7_000)
    shell.member_id()
    shell.ask(leave(leader))
    assert shell.state() is PREPARING
    shell.advance(7_000)
    assert shell.state() is EMPTY
    assert follower not in shell.group().members


def test_static_members_that_do_not_rejoin_are_waited_for_until_their_sessions_end() -> None:
    shell = Shell()
    tickets = [
        shell.send(join(instance_id=name, rebalance_ms=7_000, session_ms=30_000))
        for name in ("a", "b")
    ]
    shell.settle()
    shell.sync_all([shell.replies[ticket] for ticket in tickets])
    shell.ask(leave(("", "a")))
    shell.advance(7_000)
    assert shell.state() is PREPARING, "the timer runs again"
    shell.advance(7_000)
    assert shell.state() is PREPARING
    shell.advance(30_000)
    assert shell.state() is EMPTY


# --- CompletingRebalance -------------------------------------------------------------------------


def test_the_leaders_sync_makes_the_group_stable_and_answers_everybody() -> None:
    shell = Shell()
    leader, follower = completing(shell)
    parked = shell.send(sync(follower, 1))
    assert parked not in shell.replies
    response = shell.ask(sync(leader, 1, [leader, follower]))
    assert shell.state() is STABLE
    assert response.assignment == leader.encode()
    assert shell.replies[parked].assignment == follower.encode()
    assert shell.replies[parked].protocol_name == "range"
    assert shell.replies[parked].protocol_type == "consumer"
    assert shell.group().record is not None
    assert shell.group().record.leader == leader  # type: ignore[union-attr]  # checked just above


def test_a_follower_that_syncs_later_gets_its_assignment() -> None:
    shell = Shell()
    leader, follower = completing(shell)
    shell.ask(sync(leader, 1, [leader, follower]))
    assert shell.ask(sync(follower, 1)).assignment == follower.encode()


def test_who_is_left_out_by_the_leader_gets_an_empty_assignment() -> None:
    shell = Shell()
    leader, follower = completing(shell)
    shell.ask(sync(leader, 1, [leader, "a stranger"]))
    response = shell.ask(sync(follower, 1))
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, b"")
    assert "a stranger" not in shell.group().members


def test_what_a_follower_assigns_is_ignored() -> None:
    shell = Shell()
    leader, follower = completing(shell)
    parked = shell.send(sync(follower, 1, [leader, follower]))
    assert parked not in shell.replies
    shell.ask(sync(leader, 1))
    assert shell.replies[parked].assignment == b""


def test_a_second_sync_of_the_same_member_takes_the_place_of_the_first() -> None:
    shell = Shell()
    leader, follower = completing(shell)
    first = shell.send(sync(follower, 1))
    second = shell.send(sync(follower, 1))
    assert shell.replies[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    shell.ask(sync(leader, 1, [follower]))
    assert shell.replies[second].assignment == follower.encode()


@pytest.mark.parametrize("event", ["new member", "changed", "leave", "expiry", "static"])
def test_what_happens_before_the_sync_starts_another_rebalance(event: str) -> None:
    shell = Shell()
    tickets = [shell.send(join(instance_id=name)) for name in ("a", "b", "c")]
    shell.settle()
    leader, follower, third = (shell.replies[ticket].member_id for ticket in tickets)
    parked = shell.send(sync(follower, 1, instance_id="b"))
    if event == "new member":
        shell.join_new()
    elif event == "changed":
        shell.send(join(third, instance_id="c", metadata=OTHER))
    elif event == "leave":
        shell.ask(leave((third, "c")))
    elif event == "expiry":
        shell.ask(heartbeat(leader, 1))
        shell.advance(SESSION_MS)
    else:
        shell.send(join(instance_id="c"))
    assert shell.state() is PREPARING
    assert shell.replies[parked].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.replies[parked].assignment == b""
    assert not shell.group().pending_sync


def test_a_member_that_is_removed_while_it_syncs_is_answered() -> None:
    shell = Shell()
    _, follower = completing(shell)
    parked = shell.send(sync(follower, 1))
    shell.ask(leave(follower))
    assert shell.replies[parked].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_sync_in_time_is_removed() -> None:
    """KAFKA-12890."""
    shell = Shell()
    ids = [shell.join_new(rebalance_ms=8_000)[0] for _ in range(3)]
    shell.settle()
    leader, second, third = ids
    parked = [shell.send(sync(member_id, 1)) for member_id in (second, third)]
    start_ms = shell.now_ms
    while shell.state() is COMPLETING:
        assert shell.now_ms - start_ms <= 8_000
        shell.ask(heartbeat(leader, 1))
        shell.advance(1_000)
    assert shell.state() is PREPARING
    assert leader not in shell.group().members
    assert [shell.replies[ticket].error_code for ticket in parked] == [
        ErrorCode.REBALANCE_IN_PROGRESS
    ] * 2
    assert shell.causes(EventKind.REBALANCE_STARTED)[-1] == f"no SyncGroup in time from {leader}"


def test_a_follower_that_does_not_sync_is_removed_from_a_stable_group() -> None:
    shell = Shell()
    ids = [shell.join_new(rebalance_ms=8_000)[0] for _ in range(2)]
    shell.settle()
    leader, follower = ids
    shell.ask(sync(leader, 1, ids))
    for _ in range(8):
        shell.ask(heartbeat(leader, 1))
        shell.ask(heartbeat(follower, 1))
        shell.advance(1_000)
    assert shell.state() is PREPARING
    assert list(shell.group().members) == [leader]


# --- Stable --------------------------------------------------------------------------------------


def test_once_everybody_has_synced_nobody_is_expected_to() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2, rebalance_ms=5_000)
    for _ in range(20):
        shell.advance(1_000)
        assert shell.ask(heartbeat(leader, 1)).error_code == ErrorCode.NONE
        assert shell.ask(heartbeat(follower, 1)).error_code == ErrorCode.NONE
    assert shell.state() is STABLE


def test_a_silent_member_of_a_stable_group_expires() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.advance(SESSION_MS - 1)
    shell.ask(heartbeat(leader, 1))
    assert shell.state() is STABLE
    shell.advance(1)
    assert shell.state() is PREPARING
    assert list(shell.group().members) == [leader]
    assert shell.causes(EventKind.MEMBER_EXPIRED) == [
        f"member {follower} sent no heartbeat for {SESSION_MS} ms"
    ]


def test_several_members_that_leave_together_cause_one_rebalance() -> None:
    shell = Shell()
    leader, *others = shell.stable_group(4)
    before = len(shell.causes(EventKind.REBALANCE_STARTED))
    response = shell.ask(leave(*others[:2], "ghost", reason="closing"))
    assert [each.error_code for each in response.members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    started = shell.causes(EventKind.REBALANCE_STARTED)[before:]
    assert started == [f"{others[0]}, {others[1]} left"]
    assert shell.causes(EventKind.MEMBER_LEFT) == [
        f"member {member_id} left: closing" for member_id in others[:2]
    ]
    assert shell.group().leader_id == leader


def test_a_leave_of_nobody_known_changes_nothing() -> None:
    shell = Shell()
    shell.stable_group(1)
    shell.ask(leave("ghost"))
    assert shell.state() is STABLE


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_the_error_of_a_leave_is_on_top(version: int) -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    assert shell.ask(leave("ghost"), version=version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.ask(leave(follower), version=version).error_code == ErrorCode.NONE
    assert list(shell.group().members) == [leader]
    missing = shell.ask(leave("m", group_id="other"), version=version)
    assert missing.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    shell = Shell()
    ticket = shell.send(join(instance_id="a"))
    shell.settle()
    shell.sync_all([shell.replies[ticket]])
    response = shell.ask(leave(("", "a"), ("", "b"), ""))
    assert [each.error_code for each in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert shell.state() is EMPTY


# --- What is told --------------------------------------------------------------------------------


def test_a_rebalance_is_told_with_its_cause_and_its_duration() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.events.clear()
    shell.send(join(leader, reason="topics changed"))
    shell.advance(2_000)
    shell.send(join(follower))
    shell.advance(500)
    shell.send(sync(leader, 2, [leader, follower]))
    told = {
        event.kind: (event.generation, event.duration_ms, event.member_count)
        for event in shell.events
    }
    assert told == {
        EventKind.REBALANCE_STARTED: (1, None, 2),
        EventKind.GENERATION_STARTED: (2, 2_000, 2),
        EventKind.STABLE: (2, 2_500, 2),
    }
    causes = {event.cause for event in shell.events}
    assert causes == {f"leader {leader} asked for a rebalance: topics changed"}


def test_joining_takes_the_rebalance_timeout_at_most() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    start_ms = shell.now_ms
    ticket = shell.send(join(leader))
    while ticket not in shell.replies:
        shell.advance(1_000)
        shell.send(heartbeat(follower, 1))
        assert shell.now_ms - start_ms <= REBALANCE_MS
