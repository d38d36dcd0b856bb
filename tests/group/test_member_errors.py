"""Every error code a member can be answered with has a reaction."""

from __future__ import annotations

import pytest

from shoal.errors import ErrorCode, FencedInstanceIdError
from shoal.group.member import reactions
from shoal.group.member.member_interface import (
    Disconnect,
    FindCoordinator,
    Lost,
    MemberState,
)
from shoal.group.member.reactions import MemberReaction, reaction
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
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
    syncing,
)

# --- every error code has a reaction (C7) --------------------------------------------------------


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_every_code_has_a_reaction_to_every_request(code: ErrorCode) -> None:
    for table in (
        reactions.JOIN_GROUP,
        reactions.SYNC_GROUP,
        reactions.HEARTBEAT,
        reactions.OFFSET_COMMIT,
        reactions.FIND_COORDINATOR,
        reactions.CONSUMER_GROUP_HEARTBEAT,
        reactions.CONSUMER_OFFSET_COMMIT,
    ):
        assert isinstance(reaction(table, code), MemberReaction)


REJOINS_AT_ONCE = {ErrorCode.REBALANCE_IN_PROGRESS}
RETRIES = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION}
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
    assert failure.code is code  # type: ignore[attr-defined]  # a broker's error
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
    assert failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[attr-defined]  # a broker's error


@pytest.mark.parametrize("answer", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
def test_an_assignment_for_another_protocol_is_refused(answer: dict[str, str]) -> None:
    driver = syncing()
    driver.answer(driver.take(SyncGroupRequest), **answer)
    driver.poll()
    (failure,) = driver.failures()
    assert failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[attr-defined]  # a broker's error


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
