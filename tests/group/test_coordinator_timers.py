"""Time: sessions, deadlines, pauses of the coordinator itself, clocks that jump."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.coordinator import Coordinator
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.states import GroupState
from shoal.types import TopicPartition
from tests.group.coordinator_shell import (
    REBALANCE_MS,
    SESSION_MS,
    Shell,
    commit,
    fetched,
    heartbeat,
    join,
    sync,
)

TP = TopicPartition("orders", 0)
DAY_MS = 86_400_000

# --- Sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", ["heartbeat", "commit"])
def test_a_member_that_shows_life_stays(keep: str) -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    for offset in range(10):
        shell.advance(SESSION_MS - 1)
        if keep == "heartbeat":
            shell.ask(heartbeat(member_id, 1))
        else:
            shell.ask(commit({TP: offset}, member_id=member_id, generation=1))
    assert shell.state() is GroupState.STABLE


def test_a_commit_keeps_the_session_while_the_group_rebalances() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.send(join(leader))
    shell.advance(SESSION_MS - 1)
    shell.ask(commit({TP: 5}, member_id=follower, generation=1))
    shell.advance(SESSION_MS - 1)
    assert follower in shell.group().members


def test_a_refused_commit_does_not_keep_the_session() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.advance(SESSION_MS - 1)
    shell.ask(heartbeat(leader, 1))
    shell.ask(commit({TP: 5}, member_id=follower, generation=0))
    shell.advance(1)
    assert follower not in shell.group().members


def test_heartbeats_count_before_the_sync() -> None:
    """KAFKA-10134."""
    shell = Shell()
    leader, _ = shell.join_new()
    follower, _ = shell.join_new()
    shell.settle()
    for _ in range(4):
        shell.advance(SESSION_MS - 1)
        assert shell.ask(heartbeat(leader, 1)).error_code == ErrorCode.NONE
        assert shell.ask(heartbeat(follower, 1)).error_code == ErrorCode.NONE
    assert shell.state() is GroupState.COMPLETING_REBALANCE


def test_whose_join_is_parked_need_not_send_heartbeats() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2, rebalance_ms=30_000)
    ticket = shell.send(join(leader, rebalance_ms=30_000))
    for _ in range(3):
        shell.advance(SESSION_MS - 1)
        shell.ask(heartbeat(follower, 1))
    assert ticket not in shell.replies
    shell.send(join(follower))
    assert shell.replies[ticket].error_code == ErrorCode.NONE
    shell.advance(SESSION_MS - 1)
    assert leader in shell.group().members, "its session began with the answer"


def test_whose_sync_is_parked_need_not_send_heartbeats() -> None:
    shell = Shell()
    leader, _ = shell.join_new()
    follower, _ = shell.join_new()
    shell.settle()
    ticket = shell.send(sync(follower, 1))
    for _ in range(3):
        shell.advance(SESSION_MS - 1)
        shell.ask(heartbeat(leader, 1))
    shell.ask(sync(leader, 1, [follower]))
    assert shell.replies[ticket].assignment == follower.encode()
    shell.advance(SESSION_MS - 1)
    assert follower in shell.group().members


def test_a_member_whose_join_was_answered_has_its_session_and_no_more() -> None:
    shell = Shell()
    leader, follower = (shell.join_new()[0] for _ in range(2))
    shell.settle()
    shell.advance(SESSION_MS - 1)
    shell.ask(heartbeat(leader, 1))
    assert follower in shell.group().members
    shell.advance(1)
    assert list(shell.group().members) == [leader]


def test_a_member_whose_sync_was_answered_has_its_session_and_no_more() -> None:
    shell = Shell()
    leader, follower = (shell.join_new()[0] for _ in range(2))
    shell.settle()
    shell.send(sync(follower, 1))
    for _ in range(2):
        shell.advance(SESSION_MS - 1)
        shell.ask(heartbeat(leader, 1))
    shell.ask(sync(leader, 1, [leader, follower]))
    shell.advance(SESSION_MS - 1)
    shell.ask(heartbeat(leader, 1))
    assert follower in shell.group().members
    shell.advance(1)
    assert follower not in shell.group().members


def test_a_new_member_may_wait_longer_than_its_session_but_not_for_ever() -> None:
    """KAFKA-9752: it cannot heartbeat, and may long be gone."""
    config = GroupConfig(group_new_member_join_timeout_ms=50_000)
    shell = Shell(config)
    leader, follower = shell.stable_group(2)
    new_id, ticket = shell.join_new()
    shell.send(join(leader))
    while ticket not in shell.replies:
        shell.ask(heartbeat(follower, 1))
        shell.advance(SESSION_MS - 1)
    assert shell.replies[ticket].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.replies[ticket].member_id == ""
    assert new_id not in shell.group().members
    assert shell.causes(EventKind.MEMBER_EXPIRED)[-1] == (
        f"new member {new_id} waited too long for the group"
    )


def test_a_silent_member_goes_within_its_session_and_one_tick() -> None:
    shell = Shell()
    shell.stable_group(1, session_ms=6_000)
    start_ms = shell.now_ms
    while shell.state() is GroupState.STABLE:
        deadline = shell.coordinator.next_deadline()
        assert deadline is not None
        shell.now_ms = max(shell.now_ms, deadline)
        shell.tick()
    assert shell.now_ms - start_ms == 6_000


# --- Deadlines -----------------------------------------------------------------------------------


def test_a_coordinator_without_members_sleeps_until_offsets_may_expire() -> None:
    shell = Shell()
    assert shell.coordinator.next_deadline() == shell.now_ms + 600_000


def test_while_sessions_run_a_call_is_due_every_pulse() -> None:
    shell = Shell(GroupConfig(coordinator_pulse_interval_ms=700))
    shell.stable_group(1)
    shell.tick()
    assert shell.coordinator.next_deadline() == shell.now_ms + 700


def test_a_deadline_that_is_nearer_comes_first() -> None:
    shell = Shell()
    shell.stable_group(1)
    shell.advance(SESSION_MS - 300)
    shell.tick()
    assert shell.coordinator.next_deadline() == shell.now_ms + 300


def test_a_coordinator_that_does_not_serve_has_nothing_to_do() -> None:
    coordinator = Coordinator(new_id=str)
    assert coordinator.next_deadline() is None
    assert not coordinator.tick(5).journal


# --- Pauses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_call", ["tick", "heartbeat"])
def test_nobody_expires_because_the_coordinator_was_paused(first_call: str) -> None:
    shell = Shell()
    members = shell.stable_group(2)
    shell.advance(4_000)
    for member_id in members:
        shell.ask(heartbeat(member_id, 1))
    shell.now_ms += 60_000  # The process is stopped; heartbeats wait in the sockets.
    if first_call == "tick":
        shell.tick()
    for member_id in members:
        assert shell.ask(heartbeat(member_id, 1)).error_code == ErrorCode.NONE
    shell.tick()
    assert shell.state() is GroupState.STABLE
    (pause,) = [event for event in shell.events if event.kind is EventKind.PAUSED]
    assert pause.duration_ms == 59_000, "all but the pulse in which nobody had to call"


def test_who_was_about_to_expire_is_heard_first_after_a_pause() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.advance(SESSION_MS - 1)
    shell.tick()
    shell.now_ms += 60_000
    shell.tick()
    assert shell.state() is GroupState.STABLE
    assert shell.ask(heartbeat(member_id, 1)).error_code == ErrorCode.NONE


def test_a_coordinator_that_is_always_late_expires_members_all_the_same() -> None:
    shell = Shell()
    shell.stable_group(1)
    start_ms = shell.now_ms
    while shell.state() is GroupState.STABLE:
        shell.now_ms += 5_000
        shell.obey(shell.coordinator.tick(shell.now_ms))
        assert shell.now_ms - start_ms <= 6 * SESSION_MS


def test_after_a_pause_silence_counts_again() -> None:
    shell = Shell()
    shell.stable_group(1)
    shell.advance(4_000)
    shell.tick()
    shell.now_ms += 60_000
    shell.tick()
    shell.advance(SESSION_MS - 4_000 - 1_000 - 1)
    assert shell.state() is GroupState.STABLE
    shell.advance(1)
    assert shell.state() is GroupState.EMPTY


def test_a_rebalance_is_given_its_time_back_too() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.send(join(leader))
    shell.now_ms += 2 * REBALANCE_MS
    shell.tick()
    assert shell.state() is GroupState.PREPARING_REBALANCE
    shell.send(join(follower))
    assert len(shell.group().members) == 2


def test_a_small_delay_is_no_pause() -> None:
    shell = Shell()
    shell.stable_group(1)
    shell.tick()
    shell.now_ms += 2_000
    shell.tick()
    assert not shell.causes(EventKind.PAUSED)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000, -8 * DAY_MS, 8 * DAY_MS])
def test_a_clock_that_jumps_expires_nobody(jump_ms: int) -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.now_ms += jump_ms
    shell.tick()
    assert shell.ask(heartbeat(member_id, 1)).error_code == ErrorCode.NONE
    shell.advance(SESSION_MS - 1)
    assert shell.state() is GroupState.STABLE
    shell.advance(1)
    assert shell.state() is GroupState.EMPTY, "and a silent one still goes"


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_jumps_does_not_keep_the_silent(jump_ms: int) -> None:
    shell = Shell()
    shell.stable_group(1)
    shell.now_ms += jump_ms
    shell.tick()
    shell.advance(SESSION_MS)
    assert shell.state() is GroupState.EMPTY


@pytest.mark.parametrize("jump_ms", [-30 * DAY_MS, 30 * DAY_MS])
def test_a_clock_that_jumps_expires_no_offsets(jump_ms: int) -> None:
    shell = Shell()
    shell.ask(commit({TP: 5}))
    shell.now_ms += jump_ms
    shell.tick()
    shell.ask(commit({TopicPartition("orders", 1): 6}))
    shell.advance(6 * DAY_MS)
    assert fetched(shell, TP, TopicPartition("orders", 1)) == [5, 6]


# --- Settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"group_min_session_timeout_ms": 0},
        {"group_min_session_timeout_ms": 10, "group_max_session_timeout_ms": 9},
        {"group_initial_rebalance_delay_ms": -1},
        {"group_max_size": 0},
        {"offsets_retention_minutes": 0},
        {"coordinator_pulse_interval_ms": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        GroupConfig(**bad)
