"""The life of a member: callbacks in Kafka's order, for both protocols, and the five triggers."""

from __future__ import annotations

import pytest

from shoal.assign.model import RebalanceProtocol
from shoal.errors import ErrorCode
from shoal.group.member.member_interface import (
    Assigned,
    CommitPositions,
    CommitVerdict,
    FindCoordinator,
    Lost,
    MemberState,
    RefreshMetadata,
    Revoked,
)
from shoal.types import ConsumerGroupMetadata
from shoal.wire import consumer_protocol
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest
from tests.group.member_driver import (
    HEARTBEAT_MS,
    POLL_MS,
    Driver,
    partitions,
)
from tests.group.member_states import COOPERATIVE, cooperative, rebalance

# --- joining for the first time ------------------------------------------------------------------


def test_nothing_is_joined_before_the_user_polls() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.find()
    assert not driver.sent
    assert driver.member.wants_poll
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_a_first_join_has_no_revoked_callback_and_one_assigned_callback() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.rejoin(*partitions("t", 1, 0), generation_id=1)
    everything = partitions("t", 0, 1)
    assert driver.take_steps() == [Assigned(everything, everything)]
    assert driver.member.owned == everything
    assert driver.member.state is MemberState.STABLE


def test_subscribing_asks_for_metadata_and_a_coordinator_at_once() -> None:
    driver = Driver()
    driver.subscribe("t", "u")
    assert driver.orders == [RefreshMetadata(frozenset({"t", "u"})), FindCoordinator()]


def test_an_empty_subscription_is_refused() -> None:
    with pytest.raises(ValueError, match="unsubscribe"):
        Driver().subscribe()


def test_a_member_id_is_taken_from_the_first_answer_without_a_second_preparation() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.refuse(JoinGroupRequest, ErrorCode.MEMBER_ID_REQUIRED, member_id="id-1")
    request = driver.take(JoinGroupRequest).request
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == "id-1"
    assert not driver.steps


def test_the_join_request_says_what_kafka_wants_to_know() -> None:
    driver = Driver("range", "sticky", group_instance_id="i1", client_rack="r1")
    driver.subscribe("t")
    driver.find()
    driver.poll()
    request = driver.take(JoinGroupRequest).request
    assert isinstance(request, JoinGroupRequest)
    assert (request.group_id, request.member_id) == ("g", "")
    assert request.group_instance_id == "i1"
    assert request.protocol_type == "consumer"
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (10_000, POLL_MS)
    assert [each.name for each in request.protocols] == ["range", "sticky"]
    assert request.reason == "first join"
    subscription = consumer_protocol.ConsumerProtocolSubscription.decode(
        request.protocols[0].metadata
    )
    assert subscription.topics == ("t",)
    assert subscription.rack_id == "r1"
    assert subscription.generation_id is None
    request.encode(9)


def test_every_message_can_be_written_in_its_newest_version() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.after(HEARTBEAT_MS)
    driver.perform(driver.member.close(driver.now))
    kinds = {type(send.request): send.request for send in driver.sent}
    assert set(kinds) == {HeartbeatRequest, LeaveGroupRequest}
    kinds[HeartbeatRequest].encode(4)
    kinds[LeaveGroupRequest].encode(5)


# --- EAGER ---------------------------------------------------------------------------------------


def test_eager_revokes_everything_before_it_joins_again() -> None:
    driver = Driver()
    owned = partitions("t", 0, 1)
    driver.stable(*owned)
    rebalance(driver)
    assert driver.take_steps() == [Revoked(owned)]
    assert driver.member.owned == ()
    driver.rejoin(*partitions("t", 1), generation_id=2)
    assert driver.take_steps() == [Assigned(partitions("t", 1), partitions("t", 1))]


def test_eager_calls_back_with_empty_sets_on_later_rebalances() -> None:
    driver = Driver()
    driver.stable()
    rebalance(driver)
    driver.rejoin(generation_id=2)
    assert driver.take_steps() == [Revoked(()), Assigned((), ())]


def test_the_old_generation_may_commit_until_the_revoked_callback_is_over() -> None:
    driver = Driver(hold_callbacks=True)
    driver.hold_callbacks = False
    driver.stable(*partitions("t", 0))
    driver.hold_callbacks = True
    rebalance(driver)
    assert isinstance(driver.steps[-1], Revoked)
    assert driver.member.commit_as() == ConsumerGroupMetadata("g", 1, "m", None)
    driver.perform(driver.member.callback_done(driver.now))
    assert driver.member.commit_as() is CommitVerdict.REBALANCING


# --- COOPERATIVE ---------------------------------------------------------------------------------


def test_cooperative_keeps_what_it_owns_while_it_joins() -> None:
    driver = cooperative()
    owned = partitions("t", 0, 1)
    driver.stable(*owned, protocol_name=COOPERATIVE)
    rebalance(driver)
    assert driver.take_steps() == []
    assert driver.member.owned == owned
    request = driver.join(2, protocol_name=COOPERATIVE)
    claimed = consumer_protocol.ConsumerProtocolSubscription.decode(request.protocols[0].metadata)
    assert claimed.owned_partitions == owned
    assert claimed.generation_id == 1


def test_cooperative_gives_up_first_then_takes_then_joins_again() -> None:
    driver = cooperative()
    driver.stable(*partitions("t", 0, 1), protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.rejoin(*partitions("t", 1, 2), generation_id=2, protocol_name=COOPERATIVE)
    assert driver.take_steps() == [
        Revoked(partitions("t", 0)),
        Assigned(partitions("t", 2), partitions("t", 1, 2)),
    ]
    assert driver.member.wants_poll
    driver.poll()
    request = driver.take(JoinGroupRequest).request
    assert isinstance(request, JoinGroupRequest)
    assert request.reason == "need to revoke partitions and re-join"


def test_cooperative_is_told_of_every_rebalance_even_if_nothing_changed() -> None:
    driver = cooperative()
    owned = partitions("t", 0)
    driver.stable(*owned, protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.rejoin(*owned, generation_id=2, protocol_name=COOPERATIVE)
    assert driver.take_steps() == [Assigned((), owned)]
    assert not driver.member.wants_poll


def test_cooperative_revokes_unsubscribed_topics_before_it_joins() -> None:
    driver = cooperative(counts={"t": 2, "u": 2})
    driver.subscribe("t", "u")
    driver.stable(*partitions("t", 0), *partitions("u", 0), protocol_name=COOPERATIVE)
    driver.subscribe("t")
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("u", 0))]
    assert driver.member.owned == partitions("t", 0)
    assert driver.take(JoinGroupRequest)


def test_the_commit_in_a_cooperative_revocation_is_of_the_new_generation() -> None:
    driver = cooperative()
    driver.stable(*partitions("t", 0, 1), protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.hold_callbacks = True
    driver.rejoin(*partitions("t", 1), generation_id=2, protocol_name=COOPERATIVE)
    assert driver.steps == [Revoked(partitions("t", 0))]
    assert driver.member.owned == partitions("t", 0, 1)
    assert driver.member.commit_as() == ConsumerGroupMetadata("g", 2, "m", None)


def test_one_assignor_without_cooperation_makes_the_member_eager() -> None:
    assert Driver("range", COOPERATIVE).member.protocol is RebalanceProtocol.EAGER
    assert cooperative().member.protocol is RebalanceProtocol.COOPERATIVE


# --- lost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("assignor", ["range", COOPERATIVE])
def test_who_is_thrown_out_loses_everything_at_the_next_poll(
    code: ErrorCode, assignor: str
) -> None:
    driver = Driver(assignor)
    owned = partitions("t", 0, 1)
    driver.stable(*owned, protocol_name=assignor)
    driver.heartbeat(code)
    assert driver.member.state is MemberState.UNJOINED
    assert driver.take_steps() == []
    assert driver.member.owned == owned, "the callback runs in the user's poll"
    driver.poll()
    assert driver.take_steps() == [Lost(owned)]
    request = driver.take(JoinGroupRequest).request
    assert isinstance(request, JoinGroupRequest)
    keeps_id = code is ErrorCode.ILLEGAL_GENERATION
    assert request.member_id == ("m" if keeps_id else "")
    claimed = consumer_protocol.ConsumerProtocolSubscription.decode(request.protocols[0].metadata)
    assert claimed.owned_partitions == ()
    assert claimed.generation_id is None


def test_nothing_is_lost_by_who_owns_nothing() -> None:
    driver = Driver()
    driver.stable()
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.poll()
    assert driver.take_steps() == []
    assert driver.take(JoinGroupRequest)


def test_lost_partitions_do_not_wait_for_a_coordinator() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.perform(driver.member.connection_lost(driver.now))
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("t", 0))]
    assert not driver.sent
    driver.find()
    assert driver.take(JoinGroupRequest)


def test_a_revocation_waits_for_a_coordinator() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.perform(driver.member.connection_lost(driver.now))
    driver.poll()
    assert driver.take_steps() == []
    driver.find()
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0))]


def test_who_is_thrown_out_during_a_revocation_loses_the_rest() -> None:
    driver = cooperative(counts={"t": 2, "u": 2})
    driver.subscribe("t", "u")
    driver.stable(*partitions("t", 0), *partitions("u", 0), protocol_name=COOPERATIVE)
    driver.subscribe("t")
    driver.hold_callbacks = True
    driver.poll()
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.hold_callbacks = False
    driver.perform(driver.member.callback_done(driver.now))
    assert driver.take_steps() == [Revoked(partitions("u", 0)), Lost(partitions("t", 0))]
    assert driver.take(JoinGroupRequest)


def test_who_is_thrown_out_before_it_adopts_an_assignment_never_adopts_it() -> None:
    driver = cooperative()
    driver.stable(*partitions("t", 0), protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.join(2, protocol_name=COOPERATIVE)
    driver.sync(*partitions("t", 0, 1))
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("t", 0))]


def test_who_is_thrown_out_while_it_adopts_finishes_that_and_then_loses_it() -> None:
    driver = cooperative(hold_callbacks=False)
    driver.stable(*partitions("t", 0), protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.hold_callbacks = True
    driver.rejoin(*partitions("t", 1), generation_id=2, protocol_name=COOPERATIVE)
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.hold_callbacks = False
    driver.perform(driver.member.callback_done(driver.now))
    driver.poll()
    assert driver.take_steps() == [
        Revoked(partitions("t", 0)),
        Assigned(partitions("t", 1), partitions("t", 1)),
        Lost(partitions("t", 1)),
    ]


# --- commit before the rejoin --------------------------------------------------------------------


def test_positions_are_committed_before_anything_is_revoked() -> None:
    driver = Driver(auto_commit=True)
    driver.stable(*partitions("t", 0))
    rebalance(driver)
    assert driver.take_steps() == [CommitPositions(partitions("t", 0))]
    assert driver.member.held == partitions("t", 0)
    driver.poll()
    assert driver.take_steps() == [], "it waits for the answer"
    driver.member.positions_committed(CommitVerdict.DONE, driver.now)
    assert driver.member.wants_poll
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0))]
    assert driver.member.held == ()


def test_cooperative_commits_too_but_goes_on_reading() -> None:
    driver = cooperative(auto_commit=True)
    driver.stable(*partitions("t", 0), protocol_name=COOPERATIVE)
    rebalance(driver)
    assert driver.take_steps() == [CommitPositions(())]
    assert driver.member.held == ()


def test_what_a_cooperative_member_gives_up_is_committed_once_more_and_held_meanwhile() -> None:
    driver = cooperative(auto_commit=True)
    driver.stable(*partitions("t", 0, 1), protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.commit_done()
    driver.poll()
    driver.take_steps()
    driver.rejoin(*partitions("t", 0, 2), generation_id=2, protocol_name=COOPERATIVE)
    assert driver.take_steps() == [CommitPositions(partitions("t", 1))]
    assert driver.member.held == partitions("t", 1)
    assert driver.member.owned == partitions("t", 0, 1)
    assert isinstance(driver.member.commit_as(), ConsumerGroupMetadata)
    driver.poll()
    assert driver.take_steps() == [], "it waits for the answer"
    driver.member.positions_committed(CommitVerdict.DONE, driver.now)
    assert driver.member.wants_poll
    driver.poll()
    assert driver.take_steps() == [
        Revoked(partitions("t", 1)),
        Assigned(partitions("t", 2), partitions("t", 0, 2)),
    ]
    assert driver.member.held == ()
    driver.poll()
    assert driver.take_steps() == [CommitPositions(())], "and joins again"


@pytest.mark.parametrize("verdict", [CommitVerdict.RETRY, CommitVerdict.REFUSED])
def test_what_cannot_be_committed_is_given_up_all_the_same(verdict: CommitVerdict) -> None:
    driver = cooperative(auto_commit=True)
    driver.stable(*partitions("t", 0, 1), protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.commit_done()
    driver.poll()
    driver.rejoin(*partitions("t", 0), generation_id=2, protocol_name=COOPERATIVE)
    driver.take_steps()
    began = driver.now
    while not any(isinstance(step, Revoked) for step in driver.steps):
        assert driver.now - began <= POLL_MS, "no longer than the rebalance timeout"
        driver.member.positions_committed(verdict, driver.now)
        driver.live(200)
    assert driver.now - began < 1_000 or verdict is CommitVerdict.RETRY


def test_who_is_thrown_out_while_it_commits_what_it_gives_up_loses_everything() -> None:
    driver = cooperative(auto_commit=True)
    driver.stable(*partitions("t", 0, 1), protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.commit_done()
    driver.poll()
    driver.rejoin(*partitions("t", 0), generation_id=2, protocol_name=COOPERATIVE)
    driver.take_steps()
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert driver.member.held == ()
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("t", 0, 1))]


def test_who_subscribes_anew_while_it_commits_what_it_gives_up_adopts_nothing_of_the_old() -> None:
    driver = cooperative(auto_commit=True, counts={"t": 3, "u": 1})
    driver.stable(*partitions("t", 0, 1), protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.commit_done()
    driver.poll()
    driver.rejoin(*partitions("t", 0), generation_id=2, protocol_name=COOPERATIVE)
    driver.take_steps()
    driver.subscribe("u")
    driver.member.positions_committed(CommitVerdict.DONE, driver.now)
    driver.poll()
    assert driver.take_steps() == [CommitPositions(partitions("t", 0, 1))]
    driver.member.positions_committed(CommitVerdict.DONE, driver.now)
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0, 1))]


def test_a_cooperative_member_holds_what_it_no_longer_wants_before_it_joins() -> None:
    driver = cooperative(auto_commit=True, counts={"t": 2, "u": 1})
    driver.stable(*partitions("t", 0), *partitions("u", 0), protocol_name=COOPERATIVE)
    driver.subscribe("t")
    driver.poll()
    assert driver.take_steps() == [CommitPositions(partitions("u", 0))]
    assert driver.member.held == partitions("u", 0)


def test_a_commit_that_may_be_retried_is_asked_for_again_in_a_later_poll() -> None:
    driver = Driver(auto_commit=True)
    driver.stable(*partitions("t", 0))
    rebalance(driver)
    driver.commit_done(CommitVerdict.RETRY)
    driver.poll()
    assert len(driver.steps) == 1, "not before the backoff is over"
    driver.after(100)
    assert driver.member.wants_poll
    driver.poll()
    assert driver.steps == [CommitPositions(partitions("t", 0))] * 2
    driver.commit_done(CommitVerdict.REFUSED)
    driver.poll()
    assert driver.steps[-1] == Revoked(partitions("t", 0))


@pytest.mark.parametrize("verdict", [CommitVerdict.REBALANCING, CommitVerdict.ERROR])
def test_a_commit_that_failed_for_good_does_not_stop_the_rejoin(verdict: CommitVerdict) -> None:
    driver = Driver(auto_commit=True)
    driver.stable(*partitions("t", 0))
    rebalance(driver)
    driver.commit_done(verdict)
    driver.poll()
    assert driver.steps[-1] == Revoked(partitions("t", 0))


def test_KAFKA_14024_a_commit_without_an_answer_is_given_up_at_the_rebalance_timeout() -> None:
    driver = Driver(auto_commit=True)
    driver.stable(*partitions("t", 0))
    rebalance(driver)
    driver.live(POLL_MS - 500, ErrorCode.REBALANCE_IN_PROGRESS)
    assert driver.take_steps() == [CommitPositions(partitions("t", 0))]
    driver.live(500)
    assert driver.take_steps() == [Revoked(partitions("t", 0))]
    driver.member.positions_committed(CommitVerdict.RETRY, driver.now)
    assert driver.take(JoinGroupRequest)


def test_a_retry_of_the_commit_does_not_outlast_the_rebalance_timeout() -> None:
    driver = Driver(auto_commit=True)
    driver.stable(*partitions("t", 0))
    rebalance(driver)
    driver.live(POLL_MS - 10, ErrorCode.REBALANCE_IN_PROGRESS)
    driver.commit_done(CommitVerdict.RETRY)
    driver.take_steps()
    driver.after(10)
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0))]


def test_KAFKA_14196_nothing_may_be_returned_while_the_revocation_commit_is_on_its_way() -> None:
    driver = Driver(auto_commit=True)
    driver.stable(*partitions("t", 0))
    assert driver.member.held == ()
    rebalance(driver)
    assert driver.member.held == partitions("t", 0)
    driver.commit_done(CommitVerdict.RETRY)
    assert driver.member.held == partitions("t", 0)
    driver.after(200)
    driver.poll()
    driver.commit_done()
    assert driver.member.held == partitions("t", 0)
    driver.poll()
    assert driver.member.held == ()


def test_who_is_thrown_out_during_the_commit_loses_instead_of_revoking() -> None:
    driver = Driver(auto_commit=True)
    driver.stable(*partitions("t", 0))
    rebalance(driver)
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert driver.member.held == ()
    driver.poll()
    driver.member.positions_committed(CommitVerdict.DONE, driver.now)
    assert driver.take_steps() == [CommitPositions(partitions("t", 0)), Lost(partitions("t", 0))]


def test_nothing_is_committed_by_who_owns_nothing_or_is_out() -> None:
    driver = Driver(auto_commit=True)
    driver.stable()
    rebalance(driver)
    assert driver.take_steps() == [Revoked(())]
