"""Static members of a consumer group: a place that is kept while its owner is away."""

from __future__ import annotations

import pytest

from shoal.errors import ErrorCode
from tests.group.consumer_shell import Client, ConsumerShell, assigned, settle, topic_id


@pytest.fixture
def shell() -> ConsumerShell:
    made = ConsumerShell()
    made.topic("t", 4)
    return made


def pair(shell: ConsumerShell) -> tuple[Client, Client]:
    """A static member ``a`` with the name ``i``, and a dynamic one."""
    a = Client(shell, "a", instance_id="i").join("t")
    b = Client(shell, "b").join("t")
    settle(a, b)
    return a, b


def test_who_comes_back_in_time_finds_its_partitions(shell: ConsumerShell) -> None:
    a, b = pair(shell)
    epoch = shell.consumer_group().epoch
    left = shell.leave("a", -2, instance_id="i")
    assert (left.error_code, left.member_epoch) == (0, -2)
    assert b.beat().assignment is None
    assert shell.member("a").current.member_epoch == -2
    back = Client(shell, "a2", instance_id="i").join("t")
    assert (back.owned, back.epoch) == (a.owned, epoch)
    assert shell.consumer_group().epoch == epoch
    assert set(shell.consumer_group().members) == {"a2", "b"}
    assert shell.restarted().coordinator.durable() == shell.coordinator.durable()


def test_commits_of_who_comes_back_count_from_the_beginning(shell: ConsumerShell) -> None:
    pair(shell)
    shell.leave("a", -2, instance_id="i")
    epochs = shell.member("a").current.assigned[topic_id("t")]
    assert set(epochs.values()) == {0}


def test_who_stays_away_is_out_when_the_session_ends(shell: ConsumerShell) -> None:
    """The session is neither reset nor stopped by leaving."""
    _, b = pair(shell)
    shell.advance(30_000)
    b.beat()
    shell.leave("a", -2, instance_id="i")
    shell.advance(15_000)
    assert set(shell.consumer_group().members) == {"b"}
    b.beat()
    assert b.owned == {"t": [0, 1, 2, 3]}


def test_a_name_that_is_in_use_is_not_given_away(shell: ConsumerShell) -> None:
    pair(shell)
    for member_id in ("a2", "a"):
        response = shell.join(member_id, "t", instance_id="i")
        assert response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID


@pytest.mark.parametrize("epoch", [3, -1, -2])
def test_names_are_checked(shell: ConsumerShell, epoch: int) -> None:
    pair(shell)
    unknown = shell.beat("a", epoch, instance_id="other")
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    fenced = shell.beat("b", epoch, instance_id="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_heartbeat_may_leave_out_the_name(shell: ConsumerShell) -> None:
    """librdkafka and franz-go send it only when they join."""
    pair(shell)
    assert shell.beat("a", 3).error_code == ErrorCode.NONE
    assert shell.member("a").metadata.instance_id == "i"


def test_a_static_member_may_leave_for_good(shell: ConsumerShell) -> None:
    pair(shell)
    assert shell.leave("a", -1, instance_id="i").error_code == ErrorCode.NONE
    assert set(shell.consumer_group().members) == {"b"}
    assert shell.join("a3", "t", instance_id="i").error_code == ErrorCode.NONE


def test_who_is_away_counts_as_a_member(shell: ConsumerShell) -> None:
    _, b = pair(shell)
    shell.leave("a", -2, instance_id="i")
    c = Client(shell, "c").join("t")
    settle(b, c)
    target = shell.consumer_group().targets
    assert sum(map(len, target["a"].values())) > 0
    assert b.owned != {"t": [0, 1, 2, 3]}


def test_who_was_giving_something_up_when_it_left_may_come_back(shell: ConsumerShell) -> None:
    shell.join("a", "t", instance_id="i")
    b = Client(shell, "b").join("t")
    shell.beat("a", 2)  # It is told to give up two.
    shell.leave("a", -2, instance_id="i")
    assert not shell.member("a").current.pending_revocation
    back = Client(shell, "a2", instance_id="i").join("t")
    settle(back, b)
    assert sorted([*back.owned["t"], *b.owned["t"]]) == [0, 1, 2, 3]


def test_the_place_of_a_member_with_another_subscription(shell: ConsumerShell) -> None:
    shell.topic("u", 1)
    pair(shell)
    shell.leave("a", -2, instance_id="i")
    response = shell.join("a2", "u", instance_id="i")
    assert assigned(response) == {"u": [0]}
