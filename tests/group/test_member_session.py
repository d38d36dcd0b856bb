"""A member and its coordinator: heartbeats, errors, timeouts, leaving, committing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ErrorCode, FencedInstanceIdError
from shoal.group import reactions
from shoal.group.membership import (
    Assigned,
    CommitVerdict,
    Disconnect,
    Failed,
    FindCoordinator,
    Lost,
    MemberState,
    RefreshMetadata,
    Revoked,
)
from shoal.group.pacing import Backoff
from shoal.group.reactions import Reaction, reaction
from shoal.types import ConsumerGroupMetadata
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from tests.group.member_driver import (
    HEARTBEAT_MS,
    POLL_MS,
    SESSION_MS,
    Driver,
    partitions,
)

COOPERATIVE = "cooperative-sticky"
REQUEST_MS = 30_000
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS


def stable(**settings: object) -> Driver:
    driver = Driver(**settings)
    driver.stable(*partitions("t", 0, 1))
    return driver


def joining(**settings: object) -> Driver:
    driver = Driver(**settings)
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.orders.clear()
    return driver


def syncing(**settings: object) -> Driver:
    driver = joining(**settings)
    driver.join(1)
    return driver


def join_request(driver: Driver) -> JoinGroupRequest:
    request = driver.take(JoinGroupRequest).request
    assert isinstance(request, JoinGroupRequest)
    return request


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
    assert failure.code is code  # type: ignore[attr-defined]


# --- every error code has a reaction (C7) --------------------------------------------------------


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_every_code_has_a_reaction_to_every_request(code: ErrorCode) -> None:
    for table in (
        reactions.JOIN_GROUP,
        reactions.SYNC_GROUP,
        reactions.HEARTBEAT,
        reactions.OFFSET_COMMIT,
        reactions.FIND_COORDINATOR,
    ):
        assert isinstance(reaction(table, code), Reaction)


REJOINS_AT_ONCE = {ErrorCode.REBALANCE_IN_PROGRESS}
RETRIES = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION}
REDISCOVERS = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
RAISES_IN_JOIN = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


@pytest.mark.parametrize("request_kind", [JoinGroupRequest, SyncGroupRequest])
@pytest.mark.parametrize("code", sorted(REJOINS_AT_ONCE | RETRIES | REDISCOVERS))
def test_a_rebalance_that_failed_for_now_starts_again_with_a_join(
    request_kind: type, code: ErrorCode
) -> None:
    driver = joining() if request_kind is JoinGroupRequest else syncing()
    driver.refuse(request_kind, code)
    if code in REDISCOVERS:
        assert not driver.sent
        assert driver.orders == [Disconnect(), FindCoordinator()]
        driver.find()
    if code not in REJOINS_AT_ONCE:
        assert not driver.sent
        driver.after(120)
    request = join_request(driver)
    assert request.member_id == ("" if request_kind is JoinGroupRequest else "m")
    assert driver.steps == [], "prepared already"
    assert request.reason == f"rebalance failed due to {code.name}"


@pytest.mark.parametrize("code", sorted(RAISES_IN_JOIN))
def test_a_join_that_cannot_succeed_is_raised_and_tried_again_by_the_poll_after(
    code: ErrorCode,
) -> None:
    driver = joining()
    driver.refuse(JoinGroupRequest, code)
    assert driver.member.wants_poll
    driver.poll()
    (failure,) = driver.failures()
    assert failure.code is code  # type: ignore[attr-defined]
    assert not driver.sent
    driver.poll()
    assert driver.take(JoinGroupRequest)


@pytest.mark.parametrize("kind", ["type", "name"])
def test_an_answer_for_another_protocol_is_refused(kind: str) -> None:
    driver = joining()
    protocol = {"type": ("connect", "range"), "name": ("consumer", "unheard-of")}[kind]
    driver.answer(
        driver.take(JoinGroupRequest),
        member_id="m",
        leader="m",
        generation_id=1,
        protocol_type=protocol[0],
        protocol_name=protocol[1],
    )
    driver.poll()
    (failure,) = driver.failures()
    assert failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[attr-defined]


@pytest.mark.parametrize("answer", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
def test_an_assignment_for_another_protocol_is_refused(answer: dict[str, str]) -> None:
    driver = syncing()
    driver.answer(driver.take(SyncGroupRequest), **answer)
    driver.poll()
    (failure,) = driver.failures()
    assert failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("request_kind", "code", "member_id"),
    [
        (JoinGroupRequest, ErrorCode.UNKNOWN_MEMBER_ID, ""),
        (SyncGroupRequest, ErrorCode.UNKNOWN_MEMBER_ID, ""),
        (SyncGroupRequest, ErrorCode.ILLEGAL_GENERATION, "m"),
    ],
)
def test_a_member_that_is_unknown_starts_over(
    request_kind: type, code: ErrorCode, member_id: str
) -> None:
    driver = Driver(COOPERATIVE)
    owned = partitions("t", 0)
    driver.stable(*owned, protocol_name=COOPERATIVE)
    driver.heartbeat(REBALANCING)
    driver.poll()
    if request_kind is SyncGroupRequest:
        driver.join(2, protocol_name=COOPERATIVE)
    driver.refuse(request_kind, code)
    assert driver.member.state is MemberState.UNJOINED
    driver.poll()
    assert driver.take_steps() == [Lost(owned)]
    assert join_request(driver).member_id == member_id


def test_KAFKA_13891_a_sync_that_meets_a_new_rebalance_keeps_generation_and_partitions() -> None:
    driver = Driver(COOPERATIVE)
    owned = partitions("t", 0)
    driver.stable(*owned, protocol_name=COOPERATIVE)
    driver.heartbeat(REBALANCING)
    driver.poll()
    driver.join(2, protocol_name=COOPERATIVE)
    driver.refuse(SyncGroupRequest, REBALANCING)
    assert driver.member.generation.generation_id == 2
    assert driver.member.owned == owned
    assert join_request(driver).member_id == "m"


@pytest.mark.parametrize("request_kind", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest])
def test_a_fenced_static_member_stops_for_good(request_kind: type) -> None:
    driver = Driver(group_instance_id="i")
    driver.stable(*partitions("t", 0))
    if request_kind is HeartbeatRequest:
        driver.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    else:
        driver.heartbeat(REBALANCING)
        driver.poll()
        if request_kind is SyncGroupRequest:
            driver.join(2)
        driver.refuse(request_kind, ErrorCode.FENCED_INSTANCE_ID)
    driver.take_steps()
    for _ in range(3):
        driver.poll()
        driver.after(100)
    assert [type(failure) for failure in driver.failures()] == [FencedInstanceIdError] * 3
    assert not driver.sent, "joining again would fence the one who took over"
    driver.take_steps()
    driver.perform(driver.member.close(driver.now))
    lost = [Lost(partitions("t", 0))] if request_kind is HeartbeatRequest else []
    assert driver.take_steps() == lost
    assert driver.member.has_left


def test_a_fenced_member_may_subscribe_anew() -> None:
    driver = Driver(group_instance_id="i")
    driver.stable(*partitions("t", 0))
    driver.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    driver.perform(driver.member.unsubscribe(driver.now))
    driver.subscribe("t")
    driver.poll()
    assert join_request(driver).member_id == ""


def test_a_heartbeat_that_is_forbidden_is_told_to_the_user() -> None:
    driver = stable()
    driver.heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    driver.poll()
    assert len(driver.failures()) == 1


@pytest.mark.parametrize("code", sorted(REDISCOVERS))
def test_a_heartbeat_can_find_out_that_the_coordinator_moved(code: ErrorCode) -> None:
    driver = stable()
    driver.heartbeat(code)
    assert driver.orders == [Disconnect(), FindCoordinator()]
    assert driver.member.state is MemberState.STABLE


# --- leaving -------------------------------------------------------------------------------------


def test_closing_revokes_and_leaves() -> None:
    driver = stable()
    driver.perform(driver.member.close(driver.now))
    assert driver.take_steps() == [Revoked(partitions("t", 0, 1))]
    send = driver.take(LeaveGroupRequest)
    assert isinstance(send.request, LeaveGroupRequest)
    assert send.request.members[0].reason == "the consumer is being closed"
    assert not driver.member.has_left
    driver.answer(send)
    assert driver.member.has_left
    driver.poll()
    driver.after(100_000)
    assert not driver.sent
    assert driver.orders == []


def test_leaving_comes_after_the_callback() -> None:
    driver = stable()
    driver.hold_callbacks = True
    driver.perform(driver.member.close(driver.now))
    assert not driver.sent
    assert not driver.member.has_left
    assert isinstance(driver.member.commit_as(), ConsumerGroupMetadata), "the callback may commit"
    driver.perform(driver.member.callback_done(driver.now))
    assert driver.take(LeaveGroupRequest)


def test_who_is_closed_without_an_answer_has_left_when_the_connection_goes() -> None:
    driver = stable()
    driver.perform(driver.member.close(driver.now))
    driver.perform(driver.member.connection_lost(driver.now))
    assert driver.member.has_left
    assert driver.orders == [], "nobody needs a coordinator any more"


def test_closing_in_the_middle_of_a_rebalance_loses() -> None:
    driver = Driver(COOPERATIVE)
    driver.stable(*partitions("t", 0), protocol_name=COOPERATIVE)
    driver.heartbeat(REBALANCING)
    driver.poll()
    driver.perform(driver.member.close(driver.now))
    assert driver.take_steps() == [Lost(partitions("t", 0))]
    assert driver.take(LeaveGroupRequest)


def test_closing_after_being_thrown_out_loses_and_says_nothing() -> None:
    driver = stable()
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.perform(driver.member.close(driver.now))
    assert driver.take_steps() == [Lost(partitions("t", 0, 1))]
    assert not driver.sent
    assert driver.member.has_left


def test_closing_without_a_coordinator_does_not_wait_for_one() -> None:
    driver = stable()
    driver.perform(driver.member.connection_lost(driver.now))
    driver.perform(driver.member.close(driver.now))
    assert driver.member.has_left


def test_a_static_member_does_not_leave() -> None:
    driver = stable(group_instance_id="i")
    driver.perform(driver.member.close(driver.now))
    assert driver.take_steps() == [Revoked(partitions("t", 0, 1))]
    assert not driver.sent


def test_who_never_joined_has_nothing_to_leave() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.find()
    driver.perform(driver.member.close(driver.now))
    assert driver.member.has_left
    assert driver.take_steps() == []


def test_unsubscribing_leaves_and_subscribing_again_joins_as_a_new_member() -> None:
    driver = stable()
    driver.perform(driver.member.unsubscribe(driver.now))
    assert driver.take_steps() == [Revoked(partitions("t", 0, 1))]
    assert driver.take(LeaveGroupRequest)
    assert not driver.member.is_subscribed
    driver.poll()
    assert not driver.sent
    assert not driver.member.wants_poll
    driver.subscribe("t")
    driver.poll()
    assert join_request(driver).member_id == ""
    driver.rejoin(*partitions("t", 0), generation_id=5, member_id="m9") if driver.sent else None


def test_KAFKA_9140_a_join_answered_after_unsubscribing_changes_nothing() -> None:
    driver = joining()
    late = driver.take(JoinGroupRequest)
    driver.perform(driver.member.unsubscribe(driver.now))
    driver.answer(late, generation_id=3, member_id="m", leader="m", protocol_name="range")
    assert driver.member.state is MemberState.UNJOINED
    assert not driver.sent


def test_a_callback_that_unsubscribes_voids_the_step_it_runs_for() -> None:
    driver = stable()
    driver.hold_callbacks = True
    driver.heartbeat(REBALANCING)
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0, 1))]
    driver.perform(driver.member.unsubscribe(driver.now))
    assert driver.take_steps() == [Revoked(partitions("t", 0, 1))]
    driver.perform(driver.member.callback_done(driver.now))
    assert driver.take(LeaveGroupRequest)
    driver.perform(driver.member.callback_done(driver.now))
    assert not driver.sent


# --- commits -------------------------------------------------------------------------------------


def test_who_assigns_by_hand_commits_without_an_identity() -> None:
    # KAFKA-14201: not even the instance id, which is configured.
    driver = Driver(group_instance_id="i")
    assert driver.member.commit_as() == ConsumerGroupMetadata("g")


def test_whom_to_commit_as_follows_the_state() -> None:
    driver = joining(group_instance_id="i")
    assert driver.member.commit_as() is CommitVerdict.REBALANCING
    driver.join(3)
    assert driver.member.commit_as() is CommitVerdict.REBALANCING
    driver.sync()
    assert driver.member.commit_as() == ConsumerGroupMetadata("g", 3, "m", "i")
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert driver.member.commit_as() is CommitVerdict.REFUSED


CURRENT = ConsumerGroupMetadata("g", 1, "m", None)
COMMIT_VERDICTS = {
    ErrorCode.NONE: CommitVerdict.DONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CommitVerdict.RETRY,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CommitVerdict.RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: CommitVerdict.RETRY,
    ErrorCode.NOT_COORDINATOR: CommitVerdict.RETRY,
    ErrorCode.REQUEST_TIMED_OUT: CommitVerdict.RETRY,
    ErrorCode.REBALANCE_IN_PROGRESS: CommitVerdict.REBALANCING,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitVerdict.REFUSED,
    ErrorCode.ILLEGAL_GENERATION: CommitVerdict.REFUSED,
    ErrorCode.FENCED_INSTANCE_ID: CommitVerdict.ERROR,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: CommitVerdict.ERROR,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: CommitVerdict.ERROR,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: CommitVerdict.ERROR,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: CommitVerdict.ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR: CommitVerdict.ERROR,
}


@pytest.mark.parametrize(("code", "expected"), COMMIT_VERDICTS.items())
def test_what_an_answer_to_a_commit_means(code: ErrorCode, expected: CommitVerdict) -> None:
    driver = stable()
    verdict, outputs = driver.member.commit_answered(code, CURRENT, driver.now)
    assert verdict is expected
    rediscovers = REDISCOVERS | {ErrorCode.REQUEST_TIMED_OUT}
    assert outputs == ([Disconnect(), FindCoordinator()] if code in rediscovers else [])
    thrown_out = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
    is_out = driver.member.state is MemberState.UNJOINED
    assert is_out == (code in thrown_out)
    if code is ErrorCode.ILLEGAL_GENERATION:
        assert driver.member.generation.member_id == "m"
    if code is ErrorCode.REBALANCE_IN_PROGRESS:
        assert driver.member.wants_poll
    if code is ErrorCode.FENCED_INSTANCE_ID:
        driver.poll()
        assert isinstance(driver.failures()[0], FencedInstanceIdError)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ],
)
def test_a_late_answer_to_a_commit_does_not_throw_a_member_out_of_its_new_generation(
    code: ErrorCode,
) -> None:
    driver = stable()
    driver.heartbeat(REBALANCING)
    driver.poll()
    verdict, _ = driver.member.commit_answered(
        code, ConsumerGroupMetadata("g", 0, "m", None), driver.now
    )
    assert verdict is CommitVerdict.REBALANCING
    driver.rejoin(*partitions("t", 0), generation_id=2)
    verdict, _ = driver.member.commit_answered(code, CURRENT, driver.now)
    assert verdict is CommitVerdict.REFUSED
    assert driver.member.state is MemberState.STABLE
    assert not driver.member.wants_poll


def test_a_refused_commit_without_membership_resets_nothing() -> None:
    driver = Driver()
    verdict, outputs = driver.member.commit_answered(
        ErrorCode.UNKNOWN_MEMBER_ID, ConsumerGroupMetadata("g"), 0
    )
    assert verdict is CommitVerdict.REFUSED
    assert outputs == []


def test_the_group_metadata_is_that_of_the_last_adopted_assignment() -> None:
    driver = stable()
    assert driver.member.group_metadata == ConsumerGroupMetadata("g", 1, "m", None)
    driver.heartbeat(REBALANCING)
    driver.poll()
    driver.join(2)
    assert driver.member.group_metadata.generation_id == 1
    driver.sync()
    driver.poll()
    assert driver.member.group_metadata.generation_id == 2


# --- patterns ------------------------------------------------------------------------------------


def test_a_pattern_is_matched_against_all_topics_before_joining() -> None:
    driver = Driver(counts={"logs-a": 2, "logs-b": 1, "mylogs-c": 1, "__logs": 1})
    driver.subscribe_pattern(r"(__)?logs.*")
    driver.find()
    driver.poll()
    assert not driver.sent
    assert driver.take_order(RefreshMetadata) == RefreshMetadata(None)
    driver.give_metadata(["logs-a"])
    assert not driver.member.wants_poll, "not an answer for all topics"
    driver.give_metadata(internal=["__logs"])
    assert driver.member.topics == {"logs-a", "logs-b"}
    assert driver.member.wanted_topics is None
    driver.poll()
    driver.rejoin(*partitions("logs-a", 0), generation_id=1)
    assert driver.member.owned == partitions("logs-a", 0)


def test_internal_topics_match_only_if_that_is_wanted() -> None:
    driver = Driver(counts={"__t": 1, "t": 1}, exclude_internal_topics=False)
    driver.subscribe_pattern(".*t")
    driver.give_metadata(internal=["__t"])
    assert driver.member.topics == {"__t", "t"}


def test_a_new_topic_that_matches_is_a_reason_to_rejoin() -> None:
    driver = Driver(counts={"a1": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.rejoin(*partitions("a1", 0), generation_id=1)
    driver.give_metadata(b1=1)
    assert not driver.member.wants_poll
    driver.give_metadata(a2=1)
    assert driver.member.wants_poll
    driver.orders.clear()
    driver.poll()
    assert driver.orders == [RefreshMetadata(None)]
    driver.give_metadata()
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_a_leader_with_a_pattern_joins_even_if_its_reason_is_gone_when_metadata_comes() -> None:
    # Found by the simulator (seed 532): prepared, but never joined.
    driver = Driver(counts={"a1": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.join(1, leader="m", members=[])
    driver.sync(*partitions("a1", 0))
    driver.poll()
    driver.give_metadata(a1=2)
    driver.poll()
    driver.give_metadata(a1=1)
    driver.poll()
    assert driver.take_steps()[-1] == Revoked(partitions("a1", 0))
    assert join_request(driver).reason == "cached metadata has changed"


def test_topics_the_leader_knew_first_become_part_of_the_subscription() -> None:
    driver = Driver(counts={"a1": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.rejoin(*partitions("a1", 0), *partitions("a2", 0), generation_id=1)
    assert driver.member.topics == {"a1", "a2"}
    assert not driver.member.wants_poll
    assert driver.take_steps()[-1] == Assigned(driver.member.owned, driver.member.owned)


def test_an_assignment_that_does_not_match_the_pattern_is_dropped() -> None:
    driver = Driver(counts={"a1": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.rejoin(*partitions("b", 0), generation_id=1)
    assert driver.member.owned == ()
    assert driver.take_steps() == []


def test_a_list_after_a_pattern_wins_and_does_not_wait_for_metadata() -> None:
    driver = Driver()
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.subscribe("t")
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_lost_partitions_do_not_wait_for_the_metadata_of_a_pattern() -> None:
    driver = Driver(counts={"a1": 1})
    driver.subscribe_pattern("a.*")
    driver.find()
    driver.poll()
    driver.give_metadata()
    driver.poll()
    driver.rejoin(*partitions("a1", 0), generation_id=1)
    driver.take_steps()
    driver.heartbeat(REBALANCING)
    driver.orders.clear()
    driver.poll()
    assert driver.orders == [RefreshMetadata(None)]
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("a1", 0))]
    assert not driver.sent, "metadata comes before the join all the same"
    driver.give_metadata()
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_known_topics_need_no_second_metadata_request() -> None:
    driver = Driver(counts={"t": 2, "u": 2})
    driver.give_metadata()
    driver.subscribe("t")
    assert driver.orders == [FindCoordinator()]
    driver.give_metadata({"t"})
    driver.subscribe("u")
    assert len(driver.orders) == 1
    driver.subscribe("v")
    assert driver.orders[-1] == RefreshMetadata(frozenset({"v"}))


# --- pacing --------------------------------------------------------------------------------------


@given(
    first=st.integers(1, 1_000),
    longest=st.integers(1, 10_000),
    chances=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)
def test_a_backoff_doubles_is_spread_by_a_fifth_and_never_exceeds_its_limit(
    first: int, longest: int, chances: list[float]
) -> None:
    given_chances = iter(chances)
    backoff = Backoff(first, longest, lambda: next(given_chances))
    for attempt, chance in enumerate(chances):
        expected = min(first * 2**attempt, longest)
        wait = backoff.next_ms()
        assert wait == min(longest, int(expected * (0.8 + 0.4 * chance)))
    backoff.reset()
    again = Backoff(first, longest, lambda: 0.0)
    backoff._chance = lambda: 0.0  # the same source again, to compare
    assert backoff.next_ms() == again.next_ms()


def test_a_backoff_grows_for_ever_without_overflowing() -> None:
    backoff = Backoff(100, 1_000, lambda: 0.999)
    assert max(backoff.next_ms() for _ in range(10_000)) == 1_000


def test_no_deadline_means_that_nothing_can_happen() -> None:
    driver = Driver()
    assert driver.member.next_deadline() is None
    driver.perform(driver.member.tick(1_000_000))
    assert not driver.sent
    assert driver.orders == []


def test_a_failure_is_the_last_output() -> None:
    driver = stable()
    driver.heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    outputs = driver.member.poll(driver.now)
    assert isinstance(outputs[-1], Failed)
