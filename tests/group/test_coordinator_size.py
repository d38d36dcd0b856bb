"""``group.max.size``: who gets in when a group is full."""

from __future__ import annotations

from shoal.errors import ErrorCode
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.states import GroupState
from tests.group.coordinator_shell import REBALANCE_MS, Shell, join, stable_static

# --- group.max.size ------------------------------------------------------------------------------


def test_a_full_group_refuses_new_members_but_not_its_own() -> None:
    shell = Shell(GroupConfig(group_max_size=2))
    leader, follower = shell.stable_group(2)
    assert shell.ask(join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shell.ask(join(follower)).error_code == ErrorCode.NONE
    shell.send(join(leader))
    assert shell.ask(join("ghost")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_of_a_full_group_is_forgotten() -> None:
    shell = Shell(GroupConfig(group_max_size=1))
    pending = shell.member_id()
    shell.stable_group(1)
    response = shell.ask(join(pending))
    assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert response.member_id == ""
    assert not shell.group().pending_ids
    assert shell.causes(EventKind.MEMBER_REFUSED) == ["the group has 1 member already"]


def test_while_members_rejoin_only_so_many_may_wait() -> None:
    shell = Shell(GroupConfig(group_max_size=2))
    waiting = shell.stable_group(2)
    tickets = [shell.send(join(member_id)) for member_id in waiting[:1]]
    assert shell.state() is GroupState.PREPARING_REBALANCE
    late = shell.member_id()
    shell.send(join(late))
    # Two wait now. The old member that comes last is the one that has to go.
    response = shell.ask(join(waiting[1]))
    assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert waiting[1] not in shell.group().members
    assert shell.replies[tickets[0]].generation_id == 2, "nobody else is waited for"
    assert len(shell.group().members) == 2


def test_a_member_that_waits_already_may_ask_again_in_a_full_group() -> None:
    shell = Shell(GroupConfig(group_max_size=1))
    member_id, _ = shell.join_new()
    second = shell.send(join(member_id))
    shell.settle()
    assert shell.replies[second].error_code == ErrorCode.NONE


def test_an_empty_group_lets_everybody_in() -> None:
    shell = Shell(GroupConfig(group_max_size=1))
    ids = [shell.member_id() for _ in range(3)]
    shell.send(join(ids[0]))
    assert shell.ask(join(ids[1])).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_that_restarts_takes_its_own_place_in_a_full_group() -> None:
    shell = Shell(GroupConfig(group_max_size=1))
    stable_static(shell, "a")
    assert shell.ask(join(instance_id="a")).error_code == ErrorCode.NONE
    assert shell.ask(join(instance_id="b")).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_rebalances_wait_for_ids_that_were_given_out() -> None:
    """KAFKA-7909."""
    shell = Shell()
    (leader,) = shell.stable_group(1, rebalance_ms=REBALANCE_MS)
    pending = shell.member_id()
    ticket = shell.send(join(leader))
    assert ticket not in shell.replies
    shell.send(join(pending))
    assert shell.replies[ticket].generation_id == 2
    assert len(shell.replies[ticket].members) == 2
