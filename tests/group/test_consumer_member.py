"""A member of the new protocol (KIP-848), call by call: what it sends, and what its user sees."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import BrokerError, ErrorCode, RebalanceListenerError
from shoal.group.member.consumer_states import MOVES, OUT, ConsumerMemberState
from shoal.group.member.member_interface import (
    Assigned,
    CommitPositions,
    CommitVerdict,
    Disconnect,
    FindCoordinator,
    GroupMember,
    Lost,
    RefreshMetadata,
    ResolveTopics,
    Revoked,
)
from shoal.types import ConsumerGroupMetadata
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.group.consumer_driver import (
    INTERVAL_MS,
    POLL_MS,
    ConsumerDriver,
    assignment,
    partitions,
    told,
    topic_id,
)

S = ConsumerMemberState
T = topic_id("t")


def stable(*numbers: int, **settings: Any) -> ConsumerDriver:
    driver = ConsumerDriver(**settings)
    driver.stable(*partitions("t", *(numbers or (0, 1))))
    return driver


# --- the table ---------------------------------------------------------------------------------


def test_the_table_has_every_state_and_no_way_out_of_the_group_but_by_leaving_or_being_told() -> (
    None
):
    assert MOVES.keys() == set(S)
    for state in set(S) - OUT - {S.LEAVING, S.PREPARE_LEAVING}:
        assert {S.LEAVING, S.FENCED, S.STALE, S.FATAL} <= MOVES[state]
    assert MOVES[S.FATAL] == {S.UNSUBSCRIBED}, "only the user gets out of it"


def test_it_is_a_group_member() -> None:
    member: GroupMember = ConsumerDriver().member
    assert member.owned == ()


# --- joining -----------------------------------------------------------------------------------


def test_the_first_heartbeat_says_everything_with_epoch_0() -> None:
    driver = ConsumerDriver(
        client_rack="r", group_instance_id="i", group_remote_assignor="range", topics=("t", "u")
    )
    driver.joining("u", "t")
    request = driver.await_heartbeat()
    assert request.member_id == "m"
    assert request.member_epoch == 0
    assert request.instance_id == "i"
    assert request.rack_id == "r"
    assert request.rebalance_timeout_ms == POLL_MS
    assert request.subscribed_topic_names == ["t", "u"]
    assert request.subscribed_topic_regex is None
    assert request.server_assignor == "range"
    assert request.topic_partitions == []
    assert driver.member.state is S.JOINING


def test_nothing_is_sent_before_the_user_polls() -> None:
    driver = ConsumerDriver()
    driver.subscribe("t")
    driver.find()
    driver.give_metadata(["t"])
    driver.after(1_000)
    assert driver.sent == []
    assert driver.member.wants_poll


def test_what_is_assigned_is_taken_over_in_a_poll_and_then_told_at_once() -> None:
    driver = ConsumerDriver()
    driver.joining()
    driver.answer(2, partitions("t", 1, 0))
    assert driver.member.state is S.RECONCILING
    assert driver.steps == []
    assert driver.member.wants_poll
    driver.poll()
    assert driver.take_steps() == [Assigned(partitions("t", 0, 1), partitions("t", 0, 1))]
    request = driver.await_heartbeat()
    assert driver.now == 0, "at once"
    assert request.member_epoch == 2
    assert told(request) == [(T, [0, 1])]
    assert request.subscribed_topic_names is None
    assert request.rebalance_timeout_ms == -1
    assert (driver.member.state, driver.member.owned) == (S.STABLE, partitions("t", 0, 1))
    assert driver.member.group_metadata == ConsumerGroupMetadata("g", 2, "m", None)


def test_who_gets_nothing_hears_of_that_once() -> None:
    driver = ConsumerDriver()
    driver.joining()
    driver.answer(1, ())
    driver.poll()
    assert driver.take_steps() == [Assigned((), ())]
    driver.answer(1)
    driver.poll()
    assert driver.steps == []
    assert driver.member.state is S.STABLE


def test_doubles_and_negative_partitions_in_an_assignment_are_left_out() -> None:
    driver = ConsumerDriver()
    driver.joining()
    driver.answer(2, partitions("t", 2, 2, -1, 0))
    driver.poll()
    assert driver.member.owned == partitions("t", 0, 2)


# --- heartbeats --------------------------------------------------------------------------------


def test_the_interval_is_that_of_the_last_answer_and_a_calm_heartbeat_says_nothing() -> None:
    driver = stable()
    driver.after(INTERVAL_MS - 1)
    assert driver.sent == []
    driver.after(1)
    request = driver.answer(2, interval_ms=700)
    assert (request.member_epoch, told(request)) == (2, None)
    assert request.subscribed_topic_names is None
    driver.after(700)
    assert driver.sent


def test_an_interval_of_0_is_not_obeyed() -> None:
    driver = stable()
    driver.after(INTERVAL_MS)
    driver.answer(2, interval_ms=0)
    driver.after(INTERVAL_MS - 1)
    assert driver.sent == []


def test_one_heartbeat_at_a_time_and_what_was_to_be_said_at_once_follows_the_answer() -> None:
    driver = ConsumerDriver(topics=("t", "u"))
    driver.stable(*partitions("t", 0))
    driver.after(INTERVAL_MS)
    assert len(driver.sent) == 1
    driver.subscribe("t", "u")
    assert len(driver.sent) == 1
    driver.answer(2)
    assert driver.await_heartbeat().subscribed_topic_names == ["t", "u"]
    assert driver.now == INTERVAL_MS


def test_after_a_lost_answer_everything_is_said_again_with_the_real_epoch() -> None:
    driver = stable(0, 1, group_remote_assignor="uniform")
    driver.after(INTERVAL_MS)
    driver.take()
    driver.perform(driver.member.connection_lost(driver.now))
    driver.find()
    request = driver.await_heartbeat()
    assert request.member_epoch == 2
    assert told(request) == [(T, [0, 1])]
    assert request.subscribed_topic_names == ["t"]
    assert request.server_assignor == "uniform"
    assert request.rebalance_timeout_ms == POLL_MS


def test_an_answer_to_a_heartbeat_of_before_the_connection_broke_changes_nothing() -> None:
    driver = stable()
    driver.after(INTERVAL_MS)
    late = driver.take()
    driver.perform(driver.member.connection_lost(driver.now))
    driver.sent.append(late)
    driver.answer(9, ())
    assert driver.member.member_epoch == 2
    assert driver.member.state is S.STABLE


def test_a_coordinator_that_does_not_answer_is_doubted_after_the_request_timeout() -> None:
    driver = stable(request_timeout_ms=3_000)
    driver.after(INTERVAL_MS)
    driver.take()
    driver.after(3_000)
    assert driver.orders == [Disconnect(), FindCoordinator()]


def test_failing_heartbeats_are_told_once_and_their_end_too() -> None:
    driver = stable()
    driver.after(INTERVAL_MS)
    while driver.now < 4 * INTERVAL_MS:
        driver.await_heartbeat()
        driver.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    (warning,) = driver.warnings()
    assert "no heartbeat succeeded for 15000 ms (COORDINATOR_LOAD_IN_PROGRESS)" in warning
    driver.await_heartbeat()
    driver.answer(2)
    assert driver.warnings()[1:] == ["group 'g': heartbeats succeed again"]


def test_an_answer_with_epoch_0_or_less_is_not_gone_on_with() -> None:
    driver = stable()
    driver.after(INTERVAL_MS)
    driver.answer(-1)
    assert driver.await_heartbeat().member_epoch == 2


# --- reconciling -------------------------------------------------------------------------------


def test_partitions_move_commit_first_then_revoked_then_assigned_then_the_heartbeat() -> None:
    driver = stable(0, 1, auto_commit=True)
    driver.after(INTERVAL_MS)
    driver.answer(2, partitions("t", 1, 2))
    assert driver.member.state is S.RECONCILING
    driver.poll()
    assert driver.take_steps() == [CommitPositions(partitions("t", 0))]
    assert driver.member.held == partitions("t", 0)
    driver.poll()
    assert driver.steps == [], "the commit is not answered yet"
    assert driver.sent == []
    driver.member.positions_committed(CommitVerdict.DONE, driver.now)
    assert driver.member.wants_poll
    driver.poll()
    assert driver.take_steps() == [
        Revoked(partitions("t", 0)),
        Assigned(partitions("t", 2), partitions("t", 1, 2)),
    ]
    assert driver.member.held == ()
    assert told(driver.await_heartbeat()) == [(T, [1, 2])]


def test_the_commit_before_a_revocation_is_tried_again_while_it_may_pass() -> None:
    driver = stable(0, 1, auto_commit=True)
    driver.after(INTERVAL_MS)
    driver.answer(2, partitions("t", 1))
    driver.poll()
    driver.commit_done(CommitVerdict.RETRY)
    driver.after(200)
    driver.poll()
    assert len([step for step in driver.steps if isinstance(step, CommitPositions)]) == 2


def test_partitions_that_only_come_need_no_commit() -> None:
    driver = stable(0, auto_commit=True)
    driver.after(INTERVAL_MS)
    driver.answer(3, partitions("t", 0, 1))
    driver.poll()
    assert driver.take_steps() == [Assigned(partitions("t", 1), partitions("t", 0, 1))]


def test_each_reconciliation_is_acknowledged_even_if_the_set_is_the_same_again() -> None:
    driver = ConsumerDriver(hold_callbacks=True)
    driver.joining()
    driver.answer(2, partitions("t", 0))
    driver.poll()
    driver.done()
    assert told(driver.answer(2)) == [(T, [0])]
    driver.after(INTERVAL_MS)
    driver.answer(2, ())
    driver.poll()  # revoked, assigned
    driver.after(INTERVAL_MS)
    assert told(driver.answer(2)) is None, "no word before the callback has run"
    driver.done()
    driver.done()
    assert told(driver.answer(2)) == []


def test_a_newer_target_waits_until_the_reconciliation_under_way_is_told() -> None:
    driver = ConsumerDriver(hold_callbacks=True)
    driver.joining()
    driver.answer(2, partitions("t", 0))
    driver.poll()
    assert driver.sent == [], "the callback has not run"
    driver.after(INTERVAL_MS)
    driver.answer(3, partitions("t", 0, 1))
    assert driver.member.state is S.RECONCILING
    driver.poll()
    assert driver.steps == [Assigned(partitions("t", 0), partitions("t", 0))]
    driver.done()
    assert told(driver.answer(3)) == [(T, [0])]
    assert driver.member.state is S.RECONCILING
    driver.poll()
    assert driver.steps[1:] == [Assigned(partitions("t", 1), partitions("t", 0, 1))]


def test_what_is_taken_back_before_anything_was_done_is_no_change() -> None:
    driver = stable(0, 1)
    driver.after(INTERVAL_MS)
    driver.answer(2, partitions("t", 0))
    driver.after(INTERVAL_MS)
    driver.answer(3, partitions("t", 0, 1))
    assert driver.member.state is S.STABLE
    driver.poll()
    assert driver.steps == []


def test_a_listener_that_raises_is_told_and_stops_nothing() -> None:
    driver = stable(0, 1)
    driver.after(INTERVAL_MS)
    driver.answer(2, partitions("t", 1))
    driver.callback_error = RuntimeError("mine")
    driver.poll()
    assert driver.member.owned == partitions("t", 1)
    (failure,) = driver.failures()
    assert isinstance(failure, RebalanceListenerError)
    assert told(driver.await_heartbeat()) == [(T, [1])]


def test_an_interrupted_callback_is_run_again_and_nothing_is_told_before() -> None:
    driver = stable(0, 1, hold_callbacks=False)
    driver.hold_callbacks = True
    driver.after(INTERVAL_MS)
    driver.answer(2, partitions("t", 1))
    driver.poll()
    driver.member.callback_interrupted()
    assert driver.member.wants_poll
    driver.poll()
    assert driver.steps == [Revoked(partitions("t", 0))] * 2
    assert driver.sent == []


# --- names of topics ---------------------------------------------------------------------------


def test_an_id_without_a_name_is_asked_for_and_the_rest_goes_on() -> None:
    driver = ConsumerDriver()
    driver.joining("t", "u")
    driver.answer(2, [*partitions("t", 0), *partitions("u", 3)])
    assert driver.orders == [ResolveTopics(frozenset({topic_id("u")}))]
    driver.poll()
    assert driver.take_steps() == [Assigned(partitions("t", 0), partitions("t", 0))]
    assert told(driver.answer(2)) == [(T, [0])]
    assert driver.member.state is S.RECONCILING
    driver.poll()
    assert driver.take_steps() == []
    assert not driver.member.wants_poll
    driver.orders.clear()
    driver.after(150)
    assert driver.orders == [ResolveTopics(frozenset({topic_id("u")}))], "asked again"
    driver.give_metadata(["u"], u=topic_id("u"))
    assert driver.member.wants_poll
    driver.poll()
    both = (*partitions("t", 0), *partitions("u", 3))
    assert driver.take_steps() == [Assigned(partitions("u", 3), both)]
    driver.answer(2)
    assert driver.member.state is S.STABLE
    driver.orders.clear()
    driver.after(2_000)
    assert driver.orders == []


def test_a_member_with_no_name_at_all_yet_is_not_told_that_it_has_nothing() -> None:
    driver = ConsumerDriver(topics=())
    driver.joining()
    driver.answer(2, partitions("t", 0))
    driver.poll()
    assert driver.steps == []
    driver.give_metadata(["t"], t=T)
    driver.poll()
    assert driver.steps == [Assigned(partitions("t", 0), partitions("t", 0))]


def test_a_topic_made_anew_is_given_up_and_taken_over_though_its_name_is_the_same() -> None:
    driver = stable(0, 1)
    anew = topic_id("t", 1)
    driver.after(INTERVAL_MS)
    driver.answer(3, partitions("t", 0, 1), ids={"t": anew})
    driver.give_metadata(["t"], t=anew)
    driver.poll()
    both = partitions("t", 0, 1)
    assert driver.take_steps() == [Revoked(both), Assigned(both, both)]
    assert told(driver.await_heartbeat()) == [(anew, [0, 1])]


def test_topics_that_are_assigned_are_watched_whoever_named_them() -> None:
    driver = ConsumerDriver(topics=("orders",))
    driver.perform(driver.member.subscribe_regex("o.*", 0))
    driver.find()
    driver.poll()
    assert driver.member.wanted_topics == frozenset()
    assert driver.await_heartbeat().subscribed_topic_regex == "o.*"
    driver.answer(2, partitions("orders", 0))
    driver.give_metadata(["orders"])
    driver.poll()
    assert driver.member.wanted_topics == {"orders"}
    assert driver.member.topics == {"orders"}


# --- subscriptions -----------------------------------------------------------------------------


def test_a_changed_subscription_is_told_at_once_and_only_that() -> None:
    driver = ConsumerDriver(topics=("t", "u"))
    driver.stable(*partitions("t", 0))
    driver.subscribe("u")
    request = driver.await_heartbeat()
    assert driver.now == 0
    assert request.subscribed_topic_names == ["u"]
    assert request.rebalance_timeout_ms == -1
    assert told(request) is None


def test_a_pattern_of_the_brokers_is_taken_back_with_an_empty_one() -> None:
    driver = ConsumerDriver()
    driver.perform(driver.member.subscribe_regex("t|u", 0))
    driver.find()
    driver.poll()
    first = driver.answer(2, ())
    assert (first.subscribed_topic_regex, first.subscribed_topic_names) == ("t|u", [])
    driver.poll()
    driver.answer(2)
    driver.subscribe("t")
    request = driver.await_heartbeat()
    assert (request.subscribed_topic_regex, request.subscribed_topic_names) == ("", ["t"])


def test_a_pattern_of_ours_is_matched_here_before_the_join_and_whenever_topics_come() -> None:
    driver = ConsumerDriver(topics=("orders-eu", "other"))
    driver.subscribe_pattern("orders-.*")
    driver.find()
    driver.poll()
    assert driver.sent == []
    assert driver.take_order(RefreshMetadata) == RefreshMetadata(None)
    driver.give_metadata()
    assert driver.await_heartbeat().subscribed_topic_names == ["orders-eu"]
    driver.answer(2, ())
    driver.poll()
    driver.answer(2)
    driver.give_metadata(None, **{"orders-us": topic_id("orders-us")})
    assert driver.await_heartbeat().subscribed_topic_names == ["orders-eu", "orders-us"]
    assert driver.now == 0, "at once"


def test_partitions_of_a_topic_unsubscribed_from_meanwhile_are_not_taken_over() -> None:
    driver = ConsumerDriver(topics=("t", "u"))
    driver.stable(*partitions("t", 0))
    driver.after(INTERVAL_MS)
    driver.take()
    driver.subscribe("u")
    driver.perform(driver.member.connection_lost(driver.now))
    driver.find()
    driver.await_heartbeat()
    driver.answer(3, [*partitions("t", 0, 1)])
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0)), Assigned((), ())]


def test_nothing_to_subscribe_to_is_a_mistake() -> None:
    driver = ConsumerDriver()
    with pytest.raises(ValueError, match="at least one topic"):
        driver.subscribe()
    with pytest.raises(ValueError, match="not empty"):
        driver.member.subscribe_regex("", 0)


def test_enforcing_a_rebalance_is_answered_with_a_warning() -> None:
    driver = stable()
    driver.perform(driver.member.enforce_rebalance(""))
    assert "does nothing" in driver.warnings()[0]


# --- being thrown out --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND],
    ids=lambda code: code.name,
)
def test_who_is_thrown_out_loses_everything_and_joins_again_as_the_same_member(
    code: ErrorCode,
) -> None:
    driver = stable(0, 1)
    driver.after(INTERVAL_MS)
    driver.refuse(code)
    assert driver.member.state is S.FENCED
    assert driver.member.commit_as() is CommitVerdict.REFUSED
    assert driver.sent == [], "first the user hears of it"
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("t", 0, 1))]
    request = driver.await_heartbeat()
    assert driver.now == INTERVAL_MS, "at once"
    assert (request.member_epoch, request.member_id) == (0, "m")
    assert request.topic_partitions == []
    assert driver.member.owned == ()
    driver.answer(5, partitions("t", 1))
    driver.poll()
    assert driver.take_steps() == [Assigned(partitions("t", 1), partitions("t", 1))]


def test_who_had_nothing_joins_again_without_a_poll() -> None:
    driver = ConsumerDriver()
    driver.joining()
    driver.answer(2, ())
    driver.poll()
    driver.answer(2)
    driver.after(INTERVAL_MS)
    driver.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    assert driver.await_heartbeat().member_epoch == 0
    assert driver.now == INTERVAL_MS


def test_a_coordinator_that_fences_who_joins_is_not_asked_as_fast_as_it_answers() -> None:
    driver = ConsumerDriver()
    driver.joining()
    driver.refuse(ErrorCode.FENCED_MEMBER_EPOCH)  # before Kafka 4.2, of a join whose answer is lost
    assert driver.sent == []
    assert driver.await_heartbeat().member_epoch == 0
    assert driver.now > 0


def test_who_is_thrown_out_while_a_callback_runs_loses_what_it_did_not_give_up() -> None:
    driver = ConsumerDriver()
    driver.stable(*partitions("t", 0, 1, 2))
    driver.hold_callbacks = True
    driver.after(INTERVAL_MS)
    driver.answer(2, partitions("t", 1, 2))
    driver.poll()
    driver.after(INTERVAL_MS)
    driver.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.done()
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0)), Lost(partitions("t", 1, 2))]
    driver.done()
    assert driver.await_heartbeat().member_epoch == 0


def test_who_is_thrown_out_while_positions_are_committed_waits_for_no_answer() -> None:
    driver = stable(0, 1, auto_commit=True)
    driver.after(INTERVAL_MS)
    driver.answer(2, partitions("t", 1))
    driver.poll()
    driver.after(INTERVAL_MS)
    driver.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.poll()
    assert driver.steps[-1] == Lost(partitions("t", 0, 1))


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_who_does_not_poll_leaves_and_the_next_poll_loses_everything_and_joins(
    instance_id: str | None, epoch: int
) -> None:
    driver = stable(0, 1, group_instance_id=instance_id)
    while driver.now < POLL_MS:
        driver.await_heartbeat()
        last = driver.answer(2)
    assert (last.member_epoch, last.instance_id) == (epoch, instance_id)
    assert driver.member.state is S.STALE
    assert "no poll for 60000 ms (max_poll_interval_ms)" in driver.warnings()[0]
    driver.after(POLL_MS)
    assert driver.sent == []
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("t", 0, 1))]
    assert driver.await_heartbeat().member_epoch == 0


# --- leaving -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_revokes_and_then_says_good_bye(instance_id: str | None, epoch: int) -> None:
    driver = stable(0, 1, group_instance_id=instance_id)
    driver.hold_callbacks = True
    driver.perform(driver.member.unsubscribe(driver.now))
    assert driver.steps == [Revoked(partitions("t", 0, 1))]
    assert driver.member.state is S.PREPARE_LEAVING
    driver.after(INTERVAL_MS)
    assert driver.answer(2).member_epoch == 2, "heartbeats go on"
    driver.done()
    request = driver.take_heartbeat()
    assert (request.member_epoch, request.instance_id) == (epoch, instance_id)
    assert (driver.member.state, driver.member.owned) == (S.UNSUBSCRIBED, ())
    assert not driver.member.is_subscribed


def test_closing_is_over_when_the_good_bye_is_answered_whatever_the_answer() -> None:
    driver = stable(0)
    driver.perform(driver.member.close(driver.now))
    assert not driver.member.has_left
    driver.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    assert driver.member.has_left
    assert driver.member.state is S.UNSUBSCRIBED


def test_who_leaves_while_joining_says_good_bye_to_a_coordinator_that_may_know_it() -> None:
    driver = ConsumerDriver()
    driver.joining()
    driver.take()
    driver.perform(driver.member.close(driver.now))
    assert driver.take_heartbeat().member_epoch == -1


def test_who_never_joined_leaves_without_a_word() -> None:
    driver = ConsumerDriver()
    driver.subscribe("t")
    driver.find()
    driver.perform(driver.member.close(driver.now))
    assert driver.sent == []
    assert driver.member.has_left


def test_who_is_thrown_out_while_leaving_says_nothing() -> None:
    driver = stable(0)
    driver.hold_callbacks = True
    driver.after(INTERVAL_MS)
    driver.perform(driver.member.unsubscribe(driver.now))
    driver.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.done()
    assert driver.sent == []
    assert driver.member.state is S.UNSUBSCRIBED


def test_who_was_thrown_out_and_leaves_loses_and_revokes_nothing() -> None:
    driver = stable(0)
    driver.after(INTERVAL_MS)
    driver.refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.perform(driver.member.close(driver.now))
    assert driver.take_steps() == [Lost(partitions("t", 0))]
    assert driver.sent == []


def test_a_late_answer_after_the_good_bye_does_not_bring_the_member_back() -> None:
    driver = stable(0)  # KAFKA-19335
    driver.after(INTERVAL_MS)
    late = driver.take()
    driver.perform(driver.member.unsubscribe(driver.now))
    driver.sent.insert(0, late)
    driver.answer(3, partitions("t", 0))
    assert driver.member.state is S.UNSUBSCRIBED
    assert driver.member.member_epoch == 0


def test_who_subscribes_again_joins_after_the_good_bye_was_answered() -> None:
    driver = stable(0)
    driver.perform(driver.member.unsubscribe(driver.now))
    driver.subscribe("t")
    driver.poll()
    (send,) = driver.sent
    assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
    assert send.request.member_epoch == -1
    driver.answer(-1)
    assert driver.await_heartbeat().member_epoch == 0


def test_a_callback_that_subscribes_anew_is_a_member_again_after_it_left() -> None:
    driver = stable(0)
    driver.hold_callbacks = True
    driver.perform(driver.member.unsubscribe(driver.now))
    driver.subscribe("t")
    driver.done()
    assert driver.member.is_subscribed
    driver.answer(-1)
    driver.poll()
    assert driver.await_heartbeat().member_epoch == 0


# --- refusals, code by code --------------------------------------------------------------------

TOLD_AND_TRIED_AGAIN = (
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.INVALID_GROUP_ID,
)
FOR_GOOD = (
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_REGULAR_EXPRESSION,
    ErrorCode.UNSUPPORTED_ASSIGNOR,
    ErrorCode.UNSUPPORTED_VERSION,
)


@pytest.mark.parametrize("code", TOLD_AND_TRIED_AGAIN, ids=lambda code: code.name)
def test_a_refusal_that_may_pass_is_told_at_the_next_poll_and_the_join_goes_on(
    code: ErrorCode,
) -> None:
    driver = ConsumerDriver()
    driver.joining()
    driver.refuse(code, "said the broker")
    assert driver.sent == []
    assert driver.member.wants_poll
    driver.poll()
    (failure,) = driver.failures()
    assert isinstance(failure, BrokerError)
    assert failure.code is code
    assert "said the broker" in str(failure)
    driver.steps.clear()
    driver.poll()
    assert driver.steps == [], "once for each answer"
    assert driver.await_heartbeat().member_epoch == 0
    assert driver.now > 0
    driver.answer(2, partitions("t", 0))
    driver.poll()
    assert driver.steps == [Assigned(partitions("t", 0), partitions("t", 0))]


@pytest.mark.parametrize(
    "code",
    [code for code in TOLD_AND_TRIED_AGAIN if code is not ErrorCode.GROUP_ID_NOT_FOUND],
    ids=lambda code: code.name,
)
def test_a_member_that_is_refused_for_now_keeps_its_partitions(code: ErrorCode) -> None:
    driver = stable(0, 1)
    driver.after(INTERVAL_MS)
    driver.refuse(code)
    driver.poll()
    assert len(driver.failures()) == 1
    assert driver.member.owned == partitions("t", 0, 1)
    request = driver.await_heartbeat()
    assert (request.member_epoch, told(request)) == (2, [(T, [0, 1])])


@pytest.mark.parametrize("code", FOR_GOOD, ids=lambda code: code.name)
def test_a_refusal_for_good_is_told_at_every_poll_until_the_user_subscribes_anew(
    code: ErrorCode,
) -> None:
    driver = stable(0, 1)
    driver.after(INTERVAL_MS)
    driver.refuse(code)
    assert driver.member.state is S.FATAL
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("t", 0, 1))]
    for _ in range(2):
        driver.poll()
        (failure,) = driver.failures()
        assert isinstance(failure, BrokerError)
        assert failure.code is code
        driver.steps.clear()
    driver.after(POLL_MS)
    assert driver.sent == []
    assert driver.member.commit_as() is CommitVerdict.REFUSED
    driver.subscribe("t")
    driver.poll()
    assert driver.steps == []
    assert driver.await_heartbeat().member_epoch == 0


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE], ids=lambda c: c.name
)
def test_another_coordinator_is_looked_up_and_told_everything(code: ErrorCode) -> None:
    driver = stable(0)
    driver.after(INTERVAL_MS)
    driver.refuse(code)
    assert driver.orders == [Disconnect(), FindCoordinator()]
    driver.find()
    request = driver.await_heartbeat()
    assert driver.now - INTERVAL_MS <= 200
    assert (request.member_epoch, told(request)) == (2, [(T, [0])])


def test_a_broker_without_the_protocol_is_told_with_what_to_do() -> None:
    driver = ConsumerDriver()
    driver.subscribe("t")
    driver.poll()
    driver.perform(driver.member.coordinator_not_found(ErrorCode.UNSUPPORTED_VERSION, 0))
    driver.poll()
    (failure,) = driver.failures()
    assert 'use "auto" or "classic"' in str(failure)


def test_a_lookup_that_is_not_allowed_is_told() -> None:
    driver = ConsumerDriver()
    driver.subscribe("t")
    driver.poll()
    driver.perform(driver.member.coordinator_not_found(ErrorCode.GROUP_AUTHORIZATION_FAILED, 0))
    driver.poll()
    assert len(driver.failures()) == 1


# --- commits -----------------------------------------------------------------------------------


def test_commits_name_the_newest_epoch() -> None:
    driver = stable(0)
    assert driver.member.commit_as() == ConsumerGroupMetadata("g", 2, "m", None)
    driver.after(INTERVAL_MS)
    driver.answer(7)
    assert driver.member.commit_as() == ConsumerGroupMetadata("g", 7, "m", None)


def test_who_is_about_to_join_cannot_commit_yet() -> None:
    driver = ConsumerDriver()
    driver.joining()
    assert driver.member.commit_as() is CommitVerdict.REBALANCING


def test_a_commit_by_a_stale_epoch_hurries_the_next_heartbeat() -> None:
    driver = stable(0)
    sent_as = ConsumerGroupMetadata("g", 2, "m", None)
    verdict, orders = driver.member.commit_answered(
        ErrorCode.STALE_MEMBER_EPOCH, sent_as, driver.now
    )
    driver.perform(orders)
    assert verdict is CommitVerdict.STALE
    assert driver.await_heartbeat().member_epoch == 2
    assert driver.now == 0


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, CommitVerdict.DONE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, CommitVerdict.RETRY),
        (ErrorCode.NOT_COORDINATOR, CommitVerdict.RETRY),
        (ErrorCode.STALE_MEMBER_EPOCH, CommitVerdict.STALE),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitVerdict.REFUSED),
        (ErrorCode.FENCED_MEMBER_EPOCH, CommitVerdict.REFUSED),
        (ErrorCode.GROUP_ID_NOT_FOUND, CommitVerdict.REFUSED),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, CommitVerdict.ERROR),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, CommitVerdict.ERROR),
    ],
    ids=lambda value: value.name,
)
def test_what_an_answer_to_a_commit_means(code: ErrorCode, verdict: CommitVerdict) -> None:
    driver = stable(0)
    found, _ = driver.member.commit_answered(code, ConsumerGroupMetadata("g", 2, "m"), 0)
    assert found is verdict
    assert driver.member.owned == partitions("t", 0), "a heartbeat decides who we are"


def test_a_hurry_does_not_cut_the_wait_after_a_failure_short() -> None:
    driver = stable(0)
    driver.after(INTERVAL_MS)
    driver.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for _ in range(3):
        _, orders = driver.member.commit_answered(
            ErrorCode.STALE_MEMBER_EPOCH, ConsumerGroupMetadata("g", 2, "m"), driver.now
        )
        driver.perform(orders)
    assert driver.sent == []
    driver.await_heartbeat()
    assert driver.now > INTERVAL_MS


def test_a_target_is_read_from_the_wire_as_it_is_written() -> None:
    assert assignment(partitions("t", 1)).topic_partitions[0].topic_id == T
