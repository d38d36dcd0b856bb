"""The life of a member: callbacks in Kafka's order, for both protocols, and the five triggers."""

from __future__ import annotations

import pytest

from shoal.assign.model import Assignment, RebalanceProtocol
from shoal.errors import ErrorCode, InvalidAssignmentError, RebalanceListenerError
from shoal.group import leadership
from shoal.group.membership import (
    Assigned,
    CommitPositions,
    CommitVerdict,
    Failed,
    FindCoordinator,
    Lost,
    MemberConfig,
    MemberState,
    RefreshMetadata,
    Revoked,
)
from shoal.types import ConsumerGroupMetadata
from shoal.wire import consumer_protocol
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from tests.group.member_driver import (
    HEARTBEAT_MS,
    POLL_MS,
    Driver,
    assignment,
    partitions,
)

COOPERATIVE = "cooperative-sticky"


def cooperative(**settings: object) -> Driver:
    return Driver(COOPERATIVE, **settings)


def rebalance(driver: Driver) -> None:
    """Another member joined: the coordinator wants us to join again."""
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.poll()


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
    subscription = consumer_protocol.Subscription.decode(request.protocols[0].metadata)
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
    claimed = consumer_protocol.Subscription.decode(request.protocols[0].metadata)
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
    claimed = consumer_protocol.Subscription.decode(request.protocols[0].metadata)
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
    assert driver.take_steps() == [CommitPositions(hold=True)]
    assert driver.member.holds_records
    driver.poll()
    assert driver.take_steps() == [], "it waits for the answer"
    driver.member.positions_committed(CommitVerdict.DONE, driver.now)
    assert driver.member.wants_poll
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0))]
    assert not driver.member.holds_records


def test_cooperative_commits_too_but_goes_on_reading() -> None:
    driver = cooperative(auto_commit=True)
    driver.stable(*partitions("t", 0), protocol_name=COOPERATIVE)
    rebalance(driver)
    assert driver.take_steps() == [CommitPositions(hold=False)]
    assert not driver.member.holds_records


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
    assert driver.steps == [CommitPositions(hold=True)] * 2
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
    assert driver.take_steps() == [CommitPositions(hold=True)]
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
    assert not driver.member.holds_records
    rebalance(driver)
    assert driver.member.holds_records
    driver.commit_done(CommitVerdict.RETRY)
    assert driver.member.holds_records
    driver.after(200)
    driver.poll()
    driver.commit_done()
    assert driver.member.holds_records
    driver.poll()
    assert not driver.member.holds_records


def test_who_is_thrown_out_during_the_commit_loses_instead_of_revoking() -> None:
    driver = Driver(auto_commit=True)
    driver.stable(*partitions("t", 0))
    rebalance(driver)
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert not driver.member.holds_records
    driver.poll()
    driver.member.positions_committed(CommitVerdict.DONE, driver.now)
    assert driver.take_steps() == [CommitPositions(hold=True), Lost(partitions("t", 0))]


def test_nothing_is_committed_by_who_owns_nothing_or_is_out() -> None:
    driver = Driver(auto_commit=True)
    driver.stable()
    rebalance(driver)
    assert driver.take_steps() == [Revoked(())]


# --- callbacks that fail -------------------------------------------------------------------------


def test_an_error_in_a_callback_surfaces_after_the_remaining_steps() -> None:
    driver = cooperative()
    driver.stable(*partitions("t", 0), protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.callback_error = fault = ZeroDivisionError("mine")
    driver.rejoin(*partitions("t", 1), generation_id=2, protocol_name=COOPERATIVE)
    *steps, last = driver.take_steps()
    assert steps == [
        Revoked(partitions("t", 0)),
        Assigned(partitions("t", 1), partitions("t", 1)),
    ]
    assert isinstance(last, Failed)
    assert isinstance(last.error, RebalanceListenerError)
    assert last.error.__cause__ is fault
    assert driver.member.owned == partitions("t", 1)


def test_the_first_of_several_errors_is_the_one_that_is_told() -> None:
    driver = cooperative(hold_callbacks=False)
    driver.stable(*partitions("t", 0), protocol_name=COOPERATIVE)
    rebalance(driver)
    driver.hold_callbacks = True
    driver.rejoin(*partitions("t", 1), generation_id=2, protocol_name=COOPERATIVE)
    first = KeyError("first")
    driver.perform(driver.member.callback_done(driver.now, first))
    driver.perform(driver.member.callback_done(driver.now, KeyError("second")))
    (failure,) = driver.failures()
    assert failure.__cause__ is first


def test_an_error_before_the_join_does_not_stop_the_join() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.callback_error = ZeroDivisionError()
    rebalance(driver)
    assert [type(step) for step in driver.take_steps()] == [Revoked, Failed]
    assert driver.take(JoinGroupRequest)


@pytest.mark.parametrize("times", [1, 3])
def test_KAFKA_5611_an_interrupted_callback_is_run_again_with_the_same_set(times: int) -> None:
    driver = Driver(hold_callbacks=True)
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.rejoin(*partitions("t", 0, 1), generation_id=1)
    for _ in range(times):
        driver.member.callback_interrupted()
        assert driver.member.wants_poll
        driver.poll()
    everything = partitions("t", 0, 1)
    assert driver.take_steps() == [Assigned(everything, everything)] * (times + 1)
    driver.perform(driver.member.callback_done(driver.now))
    assert not driver.member.wants_poll


def test_polling_inside_a_callback_changes_nothing() -> None:
    driver = Driver(hold_callbacks=True)
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.rejoin(*partitions("t", 0), generation_id=1)
    driver.poll()
    assert len(driver.steps) == 1
    assert not driver.member.wants_poll


def test_an_assignor_that_fails_to_hear_is_reported_like_a_listener() -> None:
    class Deaf(leadership_assignor()):  # type: ignore[misc]
        def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
            raise LookupError("deaf")

    driver = Driver(Deaf())
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.rejoin(*partitions("t", 0), generation_id=1, protocol_name="range")
    assert driver.member.owned == partitions("t", 0)
    (failure,) = driver.failures()
    assert isinstance(failure.__cause__, LookupError)


def leadership_assignor() -> type:
    from shoal.assign.range import RangeAssignor

    return RangeAssignor


# --- assignments that do not fit -----------------------------------------------------------------


def test_KAFKA_7961_an_assignment_for_topics_no_longer_wanted_is_dropped_without_a_callback() -> (
    None
):
    driver = Driver(counts={"t": 2, "u": 2})
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.join(1)
    driver.subscribe("u")
    driver.sync(*partitions("t", 0))
    driver.poll()
    assert driver.member.owned == ()
    # Prepared anew, with an (empty) revocation as in every eager rebalance, and joined again.
    assert driver.take_steps() == [Revoked(())]
    request = driver.take(JoinGroupRequest).request
    assert isinstance(request, JoinGroupRequest)
    assert request.reason == "received assignment does not match the current subscription"


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x07"])
def test_an_assignment_that_cannot_be_read_is_raised_and_joined_for_again(data: bytes) -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.join(1)
    driver.answer(driver.take(SyncGroupRequest), assignment=data)
    driver.poll()
    (failure,) = driver.failures()
    assert isinstance(failure, InvalidAssignmentError)
    assert f"{len(data)} bytes" in str(failure)
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_a_partition_listed_twice_is_owned_once() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.join(1)
    driver.answer(driver.take(SyncGroupRequest), assignment=assignment(*partitions("t", 1, 0, 1)))
    driver.poll()
    assert driver.member.owned == partitions("t", 0, 1)


# --- leading -------------------------------------------------------------------------------------


def members(*each: tuple[str, tuple[str, ...]]) -> list[JoinGroupResponse.Member]:
    return [
        JoinGroupResponse.Member(
            member_id=member_id,
            metadata=consumer_protocol.Subscription(topics).encode(),
        )
        for member_id, topics in each
    ]


def lead(driver: Driver, generation_id: int = 1, **fields: object) -> None:
    group = members(("m", ("t",)), ("n", ("t",)))
    driver.join(generation_id, leader="m", **{"members": group, **fields})


def plan(request: SyncGroupRequest) -> dict[str, list[tuple[str, int]]]:
    return {
        each.member_id: [
            tuple(tp) for tp in consumer_protocol.Assignment.decode(each.assignment).partitions
        ]
        for each in request.assignments
    }


def leader(*assignors: object, **settings: object) -> Driver:
    driver = Driver(*assignors, **settings)
    driver.subscribe("t")
    driver.find()
    driver.give_metadata({"t"})
    driver.poll()
    return driver


def test_the_leader_assigns_for_everybody() -> None:
    driver = leader()
    lead(driver)
    assert driver.member.is_leader
    request = driver.sync(*partitions("t", 0, 1))
    assert plan(request) == {"m": [("t", 0), ("t", 1)], "n": [("t", 2), ("t", 3)]}
    assert (request.protocol_type, request.protocol_name) == ("consumer", "range")


def test_a_follower_assigns_for_nobody() -> None:
    driver = leader()
    driver.join(1)
    assert not driver.member.is_leader
    assert driver.sync().assignments == []


def test_the_leader_fetches_metadata_of_topics_only_others_want() -> None:
    driver = leader()
    group = members(("m", ("t",)), ("n", ("u",)))
    driver.orders.clear()
    driver.join(1, leader="m", members=group)
    assert driver.orders == [RefreshMetadata(frozenset({"t", "u"}))]
    assert not driver.sent
    driver.give_metadata({"t"})
    assert not driver.sent, "that was not what it waits for"
    driver.give_metadata({"u"}, u=2)
    assert plan(driver.sync()) == {
        "m": [("t", 0), ("t", 1), ("t", 2), ("t", 3)],
        "n": [("u", 0), ("u", 1)],
    }


def test_KAFKA_7962_a_topic_that_does_not_exist_is_left_out() -> None:
    driver = leader()
    driver.join(1, leader="m", members=members(("m", ("t",)), ("n", ("gone",))))
    driver.give_metadata({"t", "gone"})
    assert plan(driver.sync())["n"] == []


def test_a_leader_that_lost_its_coordinator_before_it_could_assign_joins_again() -> None:
    driver = leader()
    driver.join(1, leader="m", members=members(("m", ("t",)), ("n", ("u",))))
    driver.perform(driver.member.connection_lost(driver.now))
    driver.give_metadata({"u"}, u=2)
    assert not driver.sent
    driver.find()
    driver.after(1_000)
    assert driver.take(JoinGroupRequest)


def test_KIP_814_a_returning_static_leader_skips_the_assignment_but_watches_the_topics() -> None:
    driver = leader(group_instance_id="i")
    lead(driver, skip_assignment=True)
    assert driver.sync(*partitions("t", 0)).assignments == []
    driver.poll()
    assert not driver.member.wants_poll
    driver.give_metadata({"t"}, t=5)
    assert driver.member.wants_poll


def test_one_member_with_unreadable_metadata_gets_nothing_and_stops_nobody() -> None:
    driver = leader()
    group = members(("m", ("t",)))
    group.append(JoinGroupResponse.Member(member_id="odd", metadata=b"\x00"))
    driver.join(1, leader="m", members=group)
    assigned = plan(driver.sync())
    assert assigned["odd"] == []
    assert len(assigned["m"]) == 4


def test_an_assignor_that_raises_is_told_to_the_user_and_tried_again_at_the_poll_after() -> None:
    def broken(metadata: object, subscriptions: object) -> dict[str, list[object]]:
        raise ZeroDivisionError("no")

    driver = leader(broken)
    lead(driver, protocol_name="broken")
    assert not driver.sent
    assert driver.member.state is MemberState.COMPLETING, "heartbeats go on"
    driver.poll()
    (failure,) = driver.failures()
    assert isinstance(failure, InvalidAssignmentError)
    assert isinstance(failure.__cause__, ZeroDivisionError)
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_a_custom_assignor_s_nonsense_is_refused() -> None:
    def greedy(metadata: object, subscriptions: object) -> dict[str, list[tuple[str, int]]]:
        return {"m": [("t", 0)], "n": [("t", 0)]}

    driver = leader(greedy)
    lead(driver, protocol_name="greedy")
    driver.poll()
    (failure,) = driver.failures()
    assert isinstance(failure, InvalidAssignmentError)


# --- the five triggers ---------------------------------------------------------------------------


def test_trigger_1_the_leader_sees_partitions_added() -> None:
    driver = leader()
    lead(driver)
    driver.sync(*partitions("t", 0, 1))
    driver.poll()
    driver.give_metadata({"t"})
    assert not driver.member.wants_poll
    driver.give_metadata({"t"}, t=6)
    assert driver.member.wants_poll
    driver.take_steps()
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0, 1))]
    assert driver.take(JoinGroupRequest)


def test_trigger_1_a_follower_does_not_care() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.give_metadata({"t"}, t=6)
    assert not driver.member.wants_poll


def test_trigger_1_the_leader_sees_a_topic_deleted() -> None:
    driver = leader()
    lead(driver)
    driver.sync(*partitions("t", 0, 1))
    driver.poll()
    del driver.counts["t"]
    driver.give_metadata({"t"})
    assert driver.member.wants_poll


def test_trigger_1_a_change_while_the_assignment_is_on_its_way_is_not_forgotten() -> None:
    driver = leader()
    lead(driver)
    driver.give_metadata({"t"}, t=6)
    driver.sync(*partitions("t", 0, 1))
    driver.poll()
    assert driver.member.wants_poll
    driver.poll()
    assert driver.take(JoinGroupRequest)


@pytest.mark.parametrize("client_rack", [None, "r1"])
def test_trigger_1_racks_count_for_who_has_one(client_rack: str | None) -> None:
    from shoal.group.membership import ClusterTopics

    driver = leader(client_rack=client_rack)
    one = {"t": [["r1"], ["r2"], [None], ["r1"]]}
    two = {"t": [["r1"], ["r2"], [None], ["r2"]]}

    def give(racks: dict[str, list[list[str | None]]]) -> None:
        answer = ClusterTopics({"t": 4}, racks, asked=frozenset({"t"}))
        driver.perform(driver.member.update_metadata(answer, driver.now))

    give(one)
    lead(driver)
    driver.sync(*partitions("t", 0, 1))
    driver.poll()
    give(two)
    assert driver.member.wants_poll is (client_rack is not None)


def test_triggers_2_to_4_come_with_the_heartbeat() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.heartbeat()
    assert not driver.member.wants_poll
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert driver.member.wants_poll


def test_trigger_5_the_subscription_changes() -> None:
    driver = Driver(counts={"t": 2, "u": 2})
    driver.stable(*partitions("t", 0))
    driver.subscribe("t")
    assert not driver.member.wants_poll, "the same topics are no change"
    driver.subscribe("t", "u")
    assert driver.member.wants_poll
    driver.poll()
    request = driver.join(2)
    subscription = consumer_protocol.Subscription.decode(request.protocols[0].metadata)
    assert subscription.topics == ("t", "u")


def test_a_rebalance_can_be_enforced() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.member.enforce_rebalance("")
    driver.poll()
    request = driver.take(JoinGroupRequest).request
    assert isinstance(request, JoinGroupRequest)
    assert request.reason == "rebalance enforced by user"


def test_a_long_reason_is_cut() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.member.enforce_rebalance("x" * 1_000)
    driver.poll()
    request = driver.take(JoinGroupRequest).request
    assert isinstance(request, JoinGroupRequest)
    assert request.reason == "x" * 255


def test_the_settings_must_make_sense() -> None:
    with pytest.raises(ValueError, match="group_id"):
        MemberConfig("")
    with pytest.raises(ValueError, match="heartbeat_interval_ms"):
        MemberConfig("g", heartbeat_interval_ms=45_000)


def test_leadership_reads_the_instance_id_from_the_coordinator() -> None:
    group = members(("m", ("t",)))
    group[0].group_instance_id = "i"
    assert leadership.read_subscriptions(group)["m"].group_instance_id == "i"
