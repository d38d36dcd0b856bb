"""Static members: replacement, fencing, skipped assignments (KIP-345, KIP-814)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.states import GroupState
from shoal.types import TopicPartition
from shoal.wire.apis.join_group import JoinGroupResponse
from shoal.wire.consumer_protocol import ConsumerProtocolSubscription
from tests.group.coordinator_shell import (
    REBALANCE_MS,
    SESSION_MS,
    Shell,
    codes,
    commit,
    heartbeat,
    join,
    leave,
    sync,
)


def static_group(shell: Shell, *names: str, **fields: Any) -> dict[str, str]:
    """A Stable group of static members: instance id → member id. The first one leads."""
    tickets = {name: shell.send(join(instance_id=name, **fields)) for name in names}
    shell.settle()
    responses = [shell.replies[ticket] for ticket in tickets.values()]
    shell.sync_all(responses)
    return {name: response.member_id for name, response in zip(tickets, responses, strict=True)}


def test_a_restart_in_a_stable_group_causes_no_rebalance() -> None:
    shell = Shell()
    old = static_group(shell, "a", "b")
    rebalances = len(shell.causes(EventKind.REBALANCE_STARTED))
    response = shell.ask(join(instance_id="b"))
    assert response.error_code == ErrorCode.NONE
    assert response.generation_id == 1
    assert response.member_id not in old.values()
    assert response.leader == old["a"]
    assert not response.members
    assert not response.skip_assignment
    assert shell.state() is GroupState.STABLE
    assert len(shell.causes(EventKind.REBALANCE_STARTED)) == rebalances
    inherited = shell.ask(sync(response.member_id, 1, instance_id="b"))
    assert inherited.assignment == old["b"].encode(), "what the old one was given"


def test_the_new_id_is_journaled() -> None:
    """KAFKA-10284."""
    shell = Shell()
    static_group(shell, "a", "b")
    response = shell.ask(join(instance_id="b"))
    restarted = shell.restarted()
    assert restarted.group().static_ids == shell.group().static_ids
    beat = restarted.ask(heartbeat(response.member_id, 1, instance_id="b"))
    assert beat.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "make",
    [
        lambda old: heartbeat(old, 1, instance_id="b"),
        lambda old: sync(old, 1, instance_id="b"),
        lambda old: join(old, instance_id="b"),
    ],
)
def test_the_old_id_is_fenced(make: Callable[[str], Any]) -> None:
    shell = Shell()
    old = static_group(shell, "a", "b")["b"]
    shell.ask(join(instance_id="b"))
    assert shell.ask(make(old)).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_the_old_id_may_neither_commit_nor_leave() -> None:
    shell = Shell()
    old = static_group(shell, "a", "b")["b"]
    shell.ask(join(instance_id="b"))
    position = {TopicPartition("orders", 0): 5}
    request = commit(position, member_id=old, generation=1, instance_id="b")
    assert codes(shell.ask(request)) == [ErrorCode.FENCED_INSTANCE_ID]
    (answer,) = shell.ask(leave((old, "b"))).members
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_leader_that_restarts_is_told_to_leave_the_assignment_alone() -> None:
    """KIP-814: it learns who is there, to watch their topics, but must not assign."""
    shell = Shell()
    static_group(shell, "a", "b")
    response = shell.ask(join(instance_id="a"), version=9)
    assert response.skip_assignment
    assert response.leader == response.member_id
    assert {each.group_instance_id for each in response.members} == {"a", "b"}
    assert shell.group().leader_id == response.member_id


def test_an_older_client_is_kept_from_assigning_by_the_old_leaders_id() -> None:
    shell = Shell()
    old = static_group(shell, "a", "b")["a"]
    response = shell.ask(join(instance_id="a"), version=8)
    assert not response.skip_assignment
    assert response.leader == old
    assert not response.members
    assert shell.group().leader_id == response.member_id, "for the next time"


def test_the_member_list_of_a_returning_leader_is_in_java_order() -> None:
    shell = Shell()
    static_group(shell, *(f"i{number}" for number in range(9)))
    response = shell.ask(join(instance_id="i0"))
    assert [each.member_id for each in response.members] == [
        each.member_id for each in shell.group().members.in_java_order()
    ]


def test_a_changed_subscription_alone_causes_no_rebalance() -> None:
    """KAFKA-12759, as Kafka does it."""
    shell = Shell()
    static_group(shell, "a", "b")
    changed = ConsumerProtocolSubscription(("other",)).encode()
    response = shell.ask(join(instance_id="b", metadata=changed))
    assert response.generation_id == 1
    assert shell.state() is GroupState.STABLE
    assert shell.group().is_subscribed("other")


def test_a_restart_that_changes_the_vote_causes_a_rebalance() -> None:
    shell = Shell()
    names = ("range", "roundrobin")
    static_group(shell, "a", "b", names=names)
    ticket = shell.send(join(instance_id="b", names=("roundrobin",)))
    assert shell.state() is GroupState.PREPARING_REBALANCE
    assert ticket not in shell.replies


def test_a_restart_may_change_the_timeouts() -> None:
    """KAFKA-14009."""
    shell = Shell()
    static_group(shell, "a")
    response = shell.ask(join(instance_id="a", session_ms=20_000, rebalance_ms=30_000))
    member = shell.group().members[response.member_id]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 30_000)
    shell.advance(19_999)
    assert shell.state() is GroupState.STABLE
    record = shell.group().record
    assert record is not None
    assert record.members[0].session_timeout_ms == 20_000


def test_the_old_sessions_end_means_nothing_to_the_new_id() -> None:
    shell = Shell()
    static_group(shell, "a")
    shell.advance(SESSION_MS - 1)
    response = shell.ask(join(instance_id="a"))
    shell.advance(SESSION_MS - 1)
    assert shell.state() is GroupState.STABLE
    assert shell.ask(heartbeat(response.member_id, 1)).error_code == ErrorCode.NONE


def test_a_static_member_that_stays_away_expires() -> None:
    shell = Shell()
    static_group(shell, "a")
    shell.advance(SESSION_MS)
    assert shell.state() is GroupState.EMPTY


def test_a_restart_before_the_sync_causes_a_rebalance() -> None:
    """KAFKA-9801: the leader is assigning to an id that is gone."""
    shell = Shell()
    tickets = {name: shell.send(join(instance_id=name)) for name in ("a", "b")}
    shell.settle()
    follower = shell.replies[tickets["b"]].member_id
    parked = shell.send(sync(follower, 1, instance_id="b"))
    new = shell.send(join(instance_id="b"))
    assert shell.replies[parked].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert shell.state() is GroupState.PREPARING_REBALANCE
    leader = shell.replies[tickets["a"]].member_id
    ticket = shell.send(join(leader, instance_id="a"))
    assert shell.replies[new].generation_id == shell.replies[ticket].generation_id == 2


def test_a_restart_while_others_join_parks_in_the_place_of_the_old_id() -> None:
    shell = Shell()
    first = shell.send(join(instance_id="a"))
    second = shell.send(join(instance_id="a"))
    fenced = shell.replies[first]
    assert isinstance(fenced, JoinGroupResponse)
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert fenced.member_id == "a-id1"
    shell.settle()
    assert shell.replies[second].leader == shell.replies[second].member_id == "a-id2"
    assert len(shell.group().members) == 1


def test_a_restart_may_be_the_last_one_a_rebalance_waits_for() -> None:
    shell = Shell()
    old = static_group(shell, "a", "b")
    ticket = shell.send(join(old["a"], instance_id="a"))
    assert ticket not in shell.replies
    shell.send(join(instance_id="b"))
    assert shell.replies[ticket].generation_id == 2


def test_static_members_that_are_away_keep_their_place_in_a_rebalance() -> None:
    shell = Shell()
    old = static_group(shell, "a", "b", rebalance_ms=7_000, session_ms=60_000)
    ticket = shell.send(join(old["a"], instance_id="a", rebalance_ms=7_000, session_ms=60_000))
    shell.advance(7_000)
    response = shell.replies[ticket]
    assert {each.group_instance_id for each in response.members} == {"a", "b"}
    shell.ask(sync(old["a"], 2, old.values(), instance_id="a"))
    assert shell.state() is GroupState.STABLE
    # It must show up before the time for SyncGroup is over.
    shell.advance(7_000)
    assert shell.state() is GroupState.PREPARING_REBALANCE
    assert set(shell.group().static_ids) == {"a"}


def test_an_instance_id_is_free_again_when_its_member_is_removed() -> None:
    shell = Shell()
    static_group(shell, "a", "b", rebalance_ms=REBALANCE_MS)
    shell.ask(leave(("", "b")))
    assert set(shell.group().static_ids) == {"a"}
    shell.send(join(instance_id="b"))
    assert set(shell.group().static_ids) == {"a", "b"}


def test_a_replacement_keeps_client_and_host() -> None:
    shell = Shell()
    static_group(shell, "a")
    ticket = shell.send(join(instance_id="a"), client_id="another")
    member = shell.group().members[shell.replies[ticket].member_id]
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
