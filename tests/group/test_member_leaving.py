"""A member that leaves, and whom it commits as."""

from __future__ import annotations

import pytest

from shoal.errors import ErrorCode, FencedInstanceIdError
from shoal.group.member.member_interface import (
    CommitVerdict,
    Disconnect,
    FindCoordinator,
    Lost,
    MemberState,
    Revoked,
)
from shoal.types import ConsumerGroupMetadata
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest
from tests.group.member_driver import (
    Driver,
    partitions,
)
from tests.group.member_states import (
    COOPERATIVE,
    REBALANCING,
    REDISCOVERS,
    join_request,
    joining,
    stable,
)

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
    assert not driver.take_steps()
    assert driver.take(LeaveGroupRequest)
    driver.perform(driver.member.callback_done(driver.now))
    assert not driver.sent
    assert driver.member.owned == ()


def test_a_callback_for_some_that_unsubscribes_hears_of_the_others_only() -> None:
    driver = Driver(COOPERATIVE)
    driver.stable(*partitions("t", 0, 1), protocol_name=COOPERATIVE)
    driver.hold_callbacks = True
    driver.heartbeat(REBALANCING)
    driver.poll()
    driver.rejoin(*partitions("t", 0), generation_id=2, protocol_name=COOPERATIVE)
    assert driver.take_steps() == [Revoked(partitions("t", 1))]
    driver.perform(driver.member.unsubscribe(driver.now))
    assert driver.take_steps() == [Revoked(partitions("t", 0))]
    driver.perform(driver.member.callback_done(driver.now))
    assert driver.take(LeaveGroupRequest)
    driver.perform(driver.member.callback_done(driver.now))
    assert not driver.sent
    assert driver.member.owned == ()


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
