"""A member and its coordinator: heartbeats, errors, timeouts, leaving, committing."""

from __future__ import annotations

import pytest

from shoal.errors import ErrorCode
from shoal.group.member.member_interface import (
    CommitVerdict,
    Disconnect,
    FindCoordinator,
    Lost,
    MemberState,
    Revoked,
)
from shoal.types import ConsumerGroupMetadata
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest
from tests.group.member_driver import (
    HEARTBEAT_MS,
    POLL_MS,
    SESSION_MS,
    Driver,
    partitions,
)
from tests.group.member_states import (
    REBALANCING,
    join_request,
    joining,
    stable,
    syncing,
)

# --- heartbeats ----------------------------------------------------------------------------------


def test_heartbeats_begin_with_the_answer_to_join_group() -> None:
    driver = joining()
    driver.after(HEARTBEAT_MS)
    assert not [send for send in driver.sent if isinstance(send.request, HeartbeatRequest)]
    driver.join(4)
    request = driver.heartbeat()
    assert (request.generation_id, request.member_id) == (4, "m")
    assert driver.now == 2 * HEARTBEAT_MS


def test_heartbeats_stop_while_a_join_is_on_its_way() -> None:
    driver = stable()
    driver.heartbeat(REBALANCING)
    driver.poll()
    assert driver.member.state is MemberState.PREPARING
    driver.after(2 * HEARTBEAT_MS)
    assert [type(send.request) for send in driver.sent] == [JoinGroupRequest]


def test_KAFKA_6593_heartbeats_go_on_while_a_callback_runs() -> None:
    driver = stable()
    driver.hold_callbacks = True
    driver.heartbeat(REBALANCING)
    driver.poll()
    for _ in range(5):
        driver.heartbeat(REBALANCING)
    assert driver.steps == [Revoked(partitions("t", 0, 1))]


def test_KAFKA_10134_a_heartbeat_during_a_rebalance_is_no_second_rejoin() -> None:
    driver = syncing()
    driver.heartbeat(REBALANCING)
    assert driver.member.state is MemberState.COMPLETING
    driver.sync(*partitions("t", 0))
    driver.poll()
    assert not driver.member.wants_poll


def test_a_session_without_answers_makes_the_coordinator_doubtful() -> None:
    driver = stable()
    driver.after(SESSION_MS)
    assert driver.orders == [Disconnect(), FindCoordinator()]
    assert driver.member.state is MemberState.STABLE, "it may still be in the group"
    driver.find()
    driver.heartbeat()
    assert driver.member.state is MemberState.STABLE
    driver.poll()
    assert driver.take_steps() == []


def test_an_answered_heartbeat_renews_the_session() -> None:
    driver = stable()
    driver.live(5 * SESSION_MS)
    assert driver.orders == []


def test_a_failed_heartbeat_is_repeated_soon() -> None:
    driver = stable()
    driver.heartbeat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    before = driver.now
    driver.heartbeat()
    assert driver.now - before <= 120
    driver.heartbeat(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert driver.member.state is MemberState.STABLE


def test_KAFKA_9823_an_answer_of_an_older_generation_is_ignored() -> None:
    driver = stable()
    driver.after(HEARTBEAT_MS)
    late = driver.take(HeartbeatRequest)
    driver.heartbeat(REBALANCING)
    driver.poll()
    driver.rejoin(*partitions("t", 0), generation_id=2)
    for code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, REBALANCING):
        driver.answer(late, error_code=code)
        assert driver.member.state is MemberState.STABLE
        assert not driver.member.wants_poll


def test_a_stale_answer_still_shows_that_the_coordinator_lives() -> None:
    driver = stable()
    driver.after(HEARTBEAT_MS)
    late = driver.take(HeartbeatRequest)
    driver.member.enforce_rebalance("test")
    driver.poll()
    driver.join(2)
    driver.answer(late, error_code=ErrorCode.ILLEGAL_GENERATION)
    assert driver.member.state is MemberState.COMPLETING
    assert driver.member.generation.generation_id == 2


# --- max.poll.interval.ms ------------------------------------------------------------------------


def test_who_does_not_poll_leaves_the_group_and_loses_everything() -> None:
    driver = stable(session_timeout_ms=2 * POLL_MS, request_timeout_ms=2 * POLL_MS)
    driver.after(POLL_MS)
    request = driver.take(LeaveGroupRequest).request
    assert isinstance(request, LeaveGroupRequest)
    assert [each.member_id for each in request.members] == ["m"]
    assert driver.member.state is MemberState.UNJOINED
    assert driver.member.commit_as() is CommitVerdict.REFUSED
    assert driver.take_steps() == [], "the user is not here to be called back"
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("t", 0, 1))]
    assert join_request(driver).member_id == ""


def test_who_polls_stays() -> None:
    driver = stable()
    driver.live(3 * POLL_MS)
    assert driver.member.state is MemberState.STABLE


def test_a_user_who_is_gone_is_not_joined_for_again() -> None:
    driver = joining(request_timeout_ms=POLL_MS)
    driver.take(JoinGroupRequest)
    driver.after(POLL_MS + 5_100)
    assert driver.orders == [Disconnect(), FindCoordinator()]
    driver.find()
    driver.after(10_000)
    assert not driver.sent
    assert driver.member.wants_poll
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_an_assignment_nobody_adopts_is_given_back_after_the_poll_interval() -> None:
    driver = syncing(session_timeout_ms=2 * POLL_MS, request_timeout_ms=2 * POLL_MS)
    driver.sync(*partitions("t", 0))
    driver.after(POLL_MS)
    assert driver.take(LeaveGroupRequest)
    driver.poll()
    assert driver.take_steps() == []
    assert driver.member.owned == ()


def test_KAFKA_20985_a_static_member_that_stalled_is_not_fenced_by_its_own_past() -> None:
    patience = 2 * POLL_MS
    driver = stable(group_instance_id="i", session_timeout_ms=patience, request_timeout_ms=patience)
    driver.live(POLL_MS // 2)
    driver.after(HEARTBEAT_MS)
    late = driver.take(HeartbeatRequest)
    driver.after(POLL_MS)
    assert not [send for send in driver.sent if isinstance(send.request, LeaveGroupRequest)]
    driver.poll()
    driver.rejoin(*partitions("t", 0), generation_id=1, member_id="m2")
    driver.take_steps()
    driver.answer(late, error_code=ErrorCode.FENCED_INSTANCE_ID)
    verdict, _ = driver.member.commit_answered(
        ErrorCode.FENCED_INSTANCE_ID, ConsumerGroupMetadata("g", 1, "m", "i"), driver.now
    )
    assert verdict is CommitVerdict.REFUSED
    driver.poll()
    assert driver.failures() == []
    assert driver.member.state is MemberState.STABLE


# --- coordinator lost ----------------------------------------------------------------------------


def test_a_lost_connection_does_not_cost_the_membership() -> None:
    driver = stable()
    driver.perform(driver.member.connection_lost(driver.now))
    assert driver.orders == [FindCoordinator()]
    driver.find()
    driver.heartbeat()
    assert driver.member.state is MemberState.STABLE
    driver.poll()
    assert driver.take_steps() == []


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_a_lost_answer_is_asked_for_again_with_the_same_member_id(phase: str) -> None:
    driver = stable()
    driver.heartbeat(REBALANCING)
    driver.poll()
    if phase == "sync":
        driver.join(2)
    driver.sent.clear()
    driver.perform(driver.member.connection_lost(driver.now))
    driver.find()
    driver.after(1_000)
    assert join_request(driver).member_id == "m"
    assert driver.take_steps() == [Revoked(partitions("t", 0, 1))], "revoked only once"


def test_an_answer_on_a_lost_connection_reaches_nobody() -> None:
    driver = joining()
    late = driver.take(JoinGroupRequest)
    driver.perform(driver.member.connection_lost(driver.now))
    driver.after(1_000)
    driver.find()
    driver.answer(late, generation_id=7, member_id="x", leader="x", protocol_name="range")
    assert driver.member.state is MemberState.PREPARING
    assert driver.member.generation.generation_id == -1


def test_losing_a_coordinator_that_is_not_known_is_no_news() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.orders.clear()
    driver.perform(driver.member.connection_lost(driver.now))
    assert driver.orders == []


@pytest.mark.parametrize("phase", ["join", "sync", "heartbeat"])
def test_C8_a_request_without_an_answer_never_holds_the_member_for_ever(phase: str) -> None:
    driver = stable(request_timeout_ms=5_000, session_timeout_ms=POLL_MS)
    patience = 5_000
    if phase == "heartbeat":
        driver.after(HEARTBEAT_MS)
        driver.take(HeartbeatRequest)
        patience = 5_000
    else:
        driver.heartbeat(REBALANCING)
        driver.poll()
        patience = POLL_MS + 5_000
        if phase == "sync":
            driver.join(2)
            patience = 5_000
    driver.orders.clear()
    driver.after(patience - 1)
    assert driver.orders == []
    driver.after(1)
    assert driver.orders == [Disconnect(), FindCoordinator()]


def test_a_lookup_that_fails_is_repeated_with_growing_waits() -> None:
    driver = Driver()
    driver.subscribe("t")
    waits = []
    for _ in range(6):
        driver.take_order(FindCoordinator)
        driver.perform(
            driver.member.coordinator_not_found(ErrorCode.COORDINATOR_NOT_AVAILABLE, driver.now)
        )
        started = driver.now
        while not any(isinstance(order, FindCoordinator) for order in driver.orders):
            deadline = driver.member.next_deadline()
            assert deadline is not None
            driver.after(deadline - driver.now)
        waits.append(driver.now - started)
    assert waits == [100, 200, 400, 800, 1_000, 1_000]


def test_KAFKA_6362_a_coordinator_that_hangs_up_at_once_is_not_hammered() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.poll()
    lookups = 0
    for _ in range(100):
        if any(isinstance(order, FindCoordinator) for order in driver.orders):
            lookups += 1
            driver.find()
            driver.perform(driver.member.connection_lost(driver.now))
        driver.after(100)
    assert driver.now == 10_000
    assert lookups <= 14


def test_no_lookup_is_made_while_one_is_on_its_way() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.poll()
    driver.perform(driver.member.need_coordinator(driver.now))
    driver.after(10_000)
    assert [order for order in driver.orders if isinstance(order, FindCoordinator)] == [
        FindCoordinator()
    ]


def test_who_assigns_by_hand_can_ask_for_the_coordinator_too() -> None:
    driver = Driver()
    driver.perform(driver.member.need_coordinator(driver.now))
    assert driver.orders == [FindCoordinator()]
    driver.find()
    assert driver.member.knows_coordinator
    assert driver.member.next_deadline() is None


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID])
def test_a_lookup_that_is_forbidden_is_told_to_the_user(code: ErrorCode) -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.perform(driver.member.coordinator_not_found(code, driver.now))
    driver.poll()
    (failure,) = driver.failures()
    assert failure.code is code  # type: ignore[attr-defined]  # a broker's error
