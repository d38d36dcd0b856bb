"""JoinGroup: the checks in their order, ids, the initial delay, leader, vote and size."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator import classic_join
from shoal.group.coordinator.classic_group_member import vote
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.states import GroupState
from shoal.machine.decision import Caller
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.consumer_protocol import ConsumerProtocolSubscription
from tests.group.coordinator_shell import (
    DELAY_MS,
    SESSION_MS,
    Shell,
    heartbeat,
    join,
    leave,
    stable_static,
)

# --- The checks, in order ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (join(group_id=""), ErrorCode.INVALID_GROUP_ID),
        (join(group_id="g" * 40_000), ErrorCode.INVALID_GROUP_ID),
        (join(session_ms=5_999), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join(session_ms=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join(instance_id="i" * 40_000), ErrorCode.INVALID_REQUEST),
        (join(protocol_type="p" * 40_000), ErrorCode.INVALID_REQUEST),
        (join(names=("range", "n" * 40_000)), ErrorCode.INVALID_REQUEST),
        (join("m"), ErrorCode.UNKNOWN_MEMBER_ID),
        (join(names=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join(protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_that_is_refused_leaves_no_group_behind(
    request_: JoinGroupRequest, error: ErrorCode
) -> None:
    shell = Shell()
    response = shell.ask(request_)
    assert response.error_code == error
    assert response.member_id == request_.member_id
    assert not shell.coordinator.groups
    assert not shell.records


def test_an_earlier_check_wins_over_a_later_one() -> None:
    shell = Shell(GroupConfig(group_max_size=1))
    (member_id,) = shell.stable_group(1)
    everything_wrong = join("ghost", group_id="", session_ms=1, protocol_type="other")
    assert shell.ask(everything_wrong).error_code == ErrorCode.INVALID_GROUP_ID
    everything_wrong.group_id = "g"
    assert shell.ask(everything_wrong).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    everything_wrong.session_timeout_ms = SESSION_MS
    assert shell.ask(everything_wrong).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    everything_wrong.member_id = member_id
    everything_wrong.group_instance_id = "i"
    assert shell.ask(everything_wrong).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    everything_wrong.protocol_type = "consumer"
    assert shell.ask(everything_wrong).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "fields", [{"protocol_type": "connect"}, {"names": ("sticky",)}, {"names": ()}]
)
def test_a_member_must_speak_what_the_others_speak(fields: dict[str, Any]) -> None:
    shell = Shell()
    shell.stable_group(2, names=("range", "roundrobin"))
    response = shell.ask(join(**fields))
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_protocol_that_only_some_support_is_not_common() -> None:
    shell = Shell()
    shell.join_new(names=("range", "sticky"))
    shell.join_new(names=("range",))
    refused = shell.ask(join(names=("sticky",)))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shell.ask(join(names=("range",))).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_protocol_named_twice_counts_once() -> None:
    shell = Shell()
    shell.join_new(names=("sticky", "sticky", "range"))
    shell.join_new(names=("range",))
    refused = shell.ask(join(names=("sticky",)))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- Ids -----------------------------------------------------------------------------------------


def test_a_new_dynamic_member_is_given_an_id_first() -> None:
    shell = Shell()
    response = shell.ask(join(), version=4)
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id == "c-id1"
    assert shell.state() is GroupState.EMPTY
    assert len(shell.records) == 1, "that the group exists is journaled"


def test_before_version_4_a_member_is_added_at_once() -> None:
    shell = Shell()
    ticket = shell.send(join(), version=3)
    assert shell.state() is GroupState.PREPARING_REBALANCE
    shell.settle()
    response = shell.replies[ticket]
    assert response.error_code == ErrorCode.NONE
    assert response.generation_id == 1
    assert response.leader == response.member_id == "c-id1"


def test_a_static_member_needs_no_second_request() -> None:
    shell = Shell()
    ticket = shell.send(join(instance_id="i"))
    shell.settle()
    assert shell.replies[ticket].member_id == "i-id1"


def test_version_0_has_one_timeout_for_both() -> None:
    shell = Shell()
    shell.send(join(rebalance_ms=-1), version=0)
    (member,) = shell.group().members.values()
    assert member.rebalance_timeout_ms == member.session_timeout_ms == SESSION_MS


def test_a_client_without_a_name_gets_an_id_too() -> None:
    shell = Shell()
    ticket = next(shell.tickets)
    shell.obey(shell.coordinator.handle(join(), Caller(9, "", "/h", ticket), shell.now_ms))
    assert shell.replies[ticket].member_id == "unknown-id1"


def test_a_long_client_name_is_cut_in_the_id() -> None:
    shell = Shell()
    ticket = shell.send(join(), client_id="x" * 32_767)
    assert shell.replies[ticket].member_id == "x" * 255 + "-id1"


def test_a_pending_id_must_not_come_with_an_instance_id() -> None:
    shell = Shell()
    member_id = shell.member_id()
    response = shell.ask(join(member_id, instance_id="i"))
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_pending_id_is_forgotten_after_the_session_timeout() -> None:
    shell = Shell()
    member_id = shell.member_id()
    shell.advance(SESSION_MS)
    assert shell.ask(join(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_ids_that_are_never_used_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_join, "PENDING_IDS_MAX", 3)
    shell = Shell()
    ids = [shell.member_id() for _ in range(5)]
    assert list(shell.group().pending_ids) == ids[2:]
    assert shell.ask(join(ids[0])).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_may_leave() -> None:
    shell = Shell()
    member_id = shell.member_id()
    response = shell.ask(leave(member_id))
    assert [each.error_code for each in response.members] == [ErrorCode.NONE]
    assert not shell.group().pending_ids


def test_a_pending_member_that_leaves_does_not_disturb_a_stable_group() -> None:
    shell = Shell()
    shell.stable_group(1)
    member_id = shell.member_id()
    shell.ask(leave(member_id))
    assert shell.state() is GroupState.STABLE


# --- The initial delay ---------------------------------------------------------------------------


def test_the_first_rebalance_waits_for_others() -> None:
    shell = Shell()
    _, ticket = shell.join_new()
    shell.advance(DELAY_MS - 1)
    assert ticket not in shell.replies
    shell.advance(1)
    assert shell.replies[ticket].generation_id == 1


def test_each_new_member_prolongs_the_delay_until_the_rebalance_timeout() -> None:
    shell = Shell()
    start_ms = shell.now_ms
    _, ticket = shell.join_new(rebalance_ms=10_000)
    while ticket not in shell.replies:
        shell.join_new(rebalance_ms=10_000)
        shell.advance(1_000)
        assert shell.now_ms - start_ms <= 10_000
    # 3 s each while somebody came, and what was left of the 10 s: 3 + 3 + 3 + 1.
    assert shell.now_ms - start_ms == 10_000


def test_a_member_that_comes_late_in_the_delay_prolongs_it_once() -> None:
    shell = Shell()
    _, ticket = shell.join_new()
    shell.advance(DELAY_MS - 1)
    shell.join_new()
    shell.advance(1 + DELAY_MS - 1)
    assert ticket not in shell.replies
    shell.advance(1)
    assert ticket in shell.replies


def test_a_delay_of_zero_completes_with_the_next_tick() -> None:
    shell = Shell(GroupConfig(group_initial_rebalance_delay_ms=0))
    _, ticket = shell.join_new()
    assert ticket not in shell.replies
    shell.tick()
    assert shell.replies[ticket].generation_id == 1


def test_a_leave_does_not_end_the_first_delay_early() -> None:
    shell = Shell()
    _, first = shell.join_new()
    second_id, second = shell.join_new()
    shell.ask(leave(second_id))
    assert shell.replies[second].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert first not in shell.replies
    shell.advance(DELAY_MS * 2)
    assert shell.replies[first].error_code == ErrorCode.NONE


def test_a_group_whose_only_member_leaves_during_the_delay_becomes_empty_again() -> None:
    shell = Shell()
    member_id, _ = shell.join_new()
    shell.ask(leave(member_id))
    assert shell.state() is GroupState.PREPARING_REBALANCE
    shell.advance(DELAY_MS)
    assert shell.state() is GroupState.EMPTY
    assert shell.group().generation == 1


def test_the_delay_applies_again_when_a_group_comes_back() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.ask(leave(member_id))
    assert shell.state() is GroupState.EMPTY
    _, ticket = shell.join_new()
    shell.advance(DELAY_MS - 1)
    assert ticket not in shell.replies


# --- Leader, vote, member list -------------------------------------------------------------------


def test_only_the_leader_is_told_who_is_there() -> None:
    shell = Shell()
    tickets = dict(shell.join_new() for _ in range(3))
    shell.settle()
    for member_id, ticket in tickets.items():
        response = shell.replies[ticket]
        assert response.member_id == member_id
        assert response.leader == "c-id1", "the first one that was added"
        assert response.protocol_type == "consumer"
        assert response.protocol_name == "range"
        told = [each.member_id for each in response.members]
        assert sorted(told) == (sorted(tickets) if member_id == "c-id1" else [])


def test_the_member_list_is_in_the_order_of_a_java_hash_map() -> None:
    shell = Shell()
    ticket = shell.send(join(instance_id="consumer-0"))
    for number in range(1, 14):
        shell.send(join(instance_id=f"consumer-{number}"))
    shell.settle()
    response = shell.replies[ticket]
    ids = [each.member_id for each in response.members]
    assert len(ids) == 14
    assert ids == [each.member_id for each in shell.group().members.in_java_order()]
    assert response.members[0].metadata == ConsumerProtocolSubscription(("orders",)).encode()
    assert {each.group_instance_id for each in response.members} == {
        f"consumer-{number}" for number in range(14)
    }


def test_the_leader_is_followed_by_the_first_in_java_order() -> None:
    shell = Shell()
    leader, *others = shell.stable_group(5)
    shell.ask(leave(leader))
    expected = next(
        each.member_id for each in shell.group().members.in_java_order() if each.member_id in others
    )
    assert shell.group().leader_id == expected


def test_a_leader_that_does_not_rejoin_is_replaced_by_one_that_did() -> None:
    shell = Shell()
    leader = shell.replies[stable_static(shell, "a")].member_id
    _, ticket = shell.join_new()
    shell.advance(SESSION_MS - 1)
    shell.ask(heartbeat(leader, 1, instance_id="a"))
    shell.advance(SESSION_MS - 1)
    shell.ask(heartbeat(leader, 1, instance_id="a"))
    while ticket not in shell.replies:
        shell.advance(SESSION_MS - 1)
        shell.ask(heartbeat(leader, 1, instance_id="a"))
    response = shell.replies[ticket]
    assert response.leader == response.member_id
    assert {each.group_instance_id for each in response.members} == {"a", None}


@pytest.mark.parametrize(
    ("lists", "winner"),
    [
        ([["range"]], "range"),
        # Each votes for its own first choice among those all support.
        ([["sticky", "range"], ["range", "sticky"], ["range", "sticky"]], "range"),
        ([["x", "sticky", "range"], ["sticky", "range"], ["range", "sticky"]], "sticky"),
        # Ties: the order of a HashMap, which for these is sticky, range, roundrobin, cooperative.
        ([["range", "roundrobin"], ["roundrobin", "range"]], "range"),
        ([["roundrobin", "range"], ["range", "roundrobin"]], "range"),
        ([["range", "sticky"], ["sticky", "range"]], "sticky"),
        (
            [["cooperative-sticky", "roundrobin"], ["roundrobin", "cooperative-sticky"]],
            "roundrobin",
        ),
    ],
)
def test_the_vote(lists: list[list[str]], winner: str) -> None:
    assert vote([tuple((name, b"") for name in names) for names in lists]) == winner


def test_the_members_metadata_is_that_of_the_chosen_protocol() -> None:
    shell = Shell()
    request = join(instance_id="a")
    request.protocols = [
        JoinGroupRequest.Protocol(name="sticky", metadata=b"for sticky"),
        JoinGroupRequest.Protocol(name="range", metadata=b"for range"),
    ]
    ticket = shell.send(request)
    shell.send(join(instance_id="b", names=("range",), metadata=b"b"))
    shell.settle()
    response = shell.replies[ticket]
    assert response.protocol_name == "range"
    assert {each.group_instance_id: each.metadata for each in response.members} == {
        "a": b"for range",
        "b": b"b",
    }


# --- Rejoining -----------------------------------------------------------------------------------


def test_a_follower_that_asks_again_in_a_stable_group_is_answered_at_once() -> None:
    shell = Shell()
    _, follower = shell.stable_group(2)
    response = shell.ask(join(follower))
    assert response.error_code == ErrorCode.NONE
    assert response.generation_id == 1
    assert not response.members
    assert shell.state() is GroupState.STABLE


def test_a_leader_that_asks_again_in_a_stable_group_starts_a_rebalance() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.send(join(leader, reason="cached metadata has changed"))
    assert shell.state() is GroupState.PREPARING_REBALANCE
    assert shell.causes(EventKind.REBALANCE_STARTED)[-1] == (
        f"leader {leader} asked for a rebalance: cached metadata has changed"
    )
    shell.send(join(follower))
    assert shell.group().generation == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata": ConsumerProtocolSubscription(("other",)).encode()},
        {"names": ("range", "roundrobin")},
    ],
)
def test_a_changed_subscription_starts_a_rebalance(changed: dict[str, Any]) -> None:
    shell = Shell()
    _, follower = shell.stable_group(2)
    shell.send(join(follower, **changed))
    assert shell.state() is GroupState.PREPARING_REBALANCE
    assert shell.causes(EventKind.REBALANCE_STARTED)[-1] == (
        f"member {follower} changed its subscription"
    )


def test_the_order_of_protocols_counts_as_a_change() -> None:
    shell = Shell()
    _, follower = shell.stable_group(2, names=("range", "roundrobin"))
    shell.send(join(follower, names=("roundrobin", "range")))
    assert shell.state() is GroupState.PREPARING_REBALANCE


def test_a_member_that_lost_its_answer_gets_it_again_before_the_sync() -> None:
    shell = Shell()
    leader, first = shell.join_new()
    follower, _ = shell.join_new()
    shell.settle()
    again = shell.ask(join(leader))
    assert again == shell.replies[first]
    assert len(again.members) == 2
    assert len(shell.ask(join(follower)).members) == 0
    assert shell.state() is GroupState.COMPLETING_REBALANCE


def test_a_single_member_that_rejoins_completes_at_once() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    assert shell.ask(join(member_id)).generation_id == 2


def test_a_second_join_of_the_same_member_takes_the_place_of_the_first() -> None:
    shell = Shell()
    member_id, first = shell.join_new()
    second = shell.send(join(member_id))
    assert shell.replies[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in shell.replies
    assert shell.group().awaiting_join == 1
    shell.settle()
    assert shell.replies[second].error_code == ErrorCode.NONE


def test_a_rejoin_may_change_the_timeouts() -> None:
    shell = Shell()
    leader, _ = shell.stable_group(2)
    shell.send(join(leader, session_ms=20_000, rebalance_ms=30_000))
    member = shell.group().members[leader]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 30_000)


def test_who_does_not_rejoin_in_time_is_out() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2, rebalance_ms=8_000)
    ticket = shell.send(join(leader, rebalance_ms=8_000))
    shell.ask(heartbeat(follower, 1))
    shell.advance(7_999)
    assert ticket not in shell.replies
    shell.advance(1)
    assert [each.member_id for each in shell.replies[ticket].members] == [leader]
    assert shell.ask(heartbeat(follower, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shell.causes(EventKind.MEMBER_EXPIRED) == [f"member {follower} did not rejoin in time"]


def test_the_rebalance_waits_as_long_as_its_slowest_member_allows() -> None:
    shell = Shell()
    shell.join_new(rebalance_ms=5_000)
    shell.join_new(rebalance_ms=70_000)
    assert shell.group().rebalance_timeout_ms == 70_000
