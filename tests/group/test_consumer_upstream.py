"""Bugs that Apache Kafka's coordinator of consumer groups has had, by their ids.

Those of migration and of commits are in ``test_migration.py`` and ``test_consumer_commits.py``.
"""

from __future__ import annotations

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.consumer_journal import (
    ConsumerGroupEpoch,
    ConsumerMemberMetadata,
    CurrentAssignment,
    ReconciliationState,
    TargetEpoch,
)
from shoal.group.coordinator.reconciliation import Goal, reconcile
from tests.group.consumer_shell import Client, ConsumerShell, config, settle, topic_id
from tests.group.test_migration import ClassicClient

T = topic_id("t")


@pytest.fixture
def shell() -> ConsumerShell:
    made = ConsumerShell()
    made.topic("t", 4)
    return made


def test_kafka_19233_epoch_0_of_a_known_member_is_a_rejoin(shell: ConsumerShell) -> None:
    a, b = Client(shell, "a").join("t"), Client(shell, "b").join("t")
    settle(a, b)
    again = Client(shell, "a").join("t")
    assert (again.epoch, again.owned) == (a.epoch, a.owned) == (3, {"t": [0, 1]})
    assert shell.consumer_group().epoch == 3


def test_kafka_19974_no_epoch_is_made_up(shell: ConsumerShell) -> None:
    """Whoever has given up what it had to goes to the target epoch or stays; never one further."""
    a, b = Client(shell, "a").join("t"), Client(shell, "b").join("t")
    seen = set()
    for _ in range(4):
        a.beat()
        b.beat()
        group = shell.consumer_group()
        seen |= {member.current.member_epoch for member in group.members.values()}
    assert seen <= {2, 3}


def test_kafka_19431_a_stale_target_hands_out_nothing_that_is_not_wanted() -> None:
    shell = ConsumerShell(config(assignment_interval_ms=10_000))
    shell.topic("t", 2)
    shell.topic("u", 2)
    a = Client(shell, "a").join("t", "u")
    shell.beat("a", 2, subscribed_topic_names=["u"])
    assert a.beat().error_code == ErrorCode.NONE
    held = shell.member("a").current
    assert set(held.assigned) == {topic_id("u")}
    shell.beat("a", 2, owned={"u": [0, 1]})
    assert set(shell.member("a").current.assigned) == {topic_id("u")}


def test_kafka_19449_what_i_am_giving_up_is_nobody_elses() -> None:
    current = CurrentAssignment(
        "g",
        "a",
        2,
        1,
        ReconciliationState.UNREVOKED_PARTITIONS,
        {T: {0: 2}},
        {T: {1: 2}},
    )
    goal = Goal(4, {T: [0, 1]}, {T}, lambda _topic, number: number not in (0, 1))
    moved = reconcile(current, goal, {T: {0}}, subscription_changed=False)
    assert moved is not None
    assert (moved.state, moved.member_epoch) == (ReconciliationState.STABLE, 4)
    assert moved.assigned == {T: {0: 2, 1: 4}}


def test_kafka_19862_a_journal_may_have_lost_who_let_go(shell: ConsumerShell) -> None:
    """Compaction kept what ``b`` got and dropped the record in which ``a`` gave it up."""
    stable, held = ReconciliationState.STABLE, {T: {0: 2}}
    records = [
        ConsumerMemberMetadata("g", "a", topics=frozenset({"t"})),
        ConsumerMemberMetadata("g", "b", topics=frozenset({"t"})),
        CurrentAssignment("g", "a", 2, 0, stable, held),
        CurrentAssignment("g", "b", 3, 2, stable, {T: {0: 3}}),
        CurrentAssignment("g", "a", 3, 2, stable, {}),
        ConsumerGroupEpoch("g", 3),
        TargetEpoch("g", 3),
    ]
    for order in (records, [*records[3:], *records[:3]]):
        loaded = ConsumerShell(None, order, image=shell.image)
        group = loaded.consumer_group()
        assert group.owners == {T: {0: 3}}
        assert set(group.members) == {"a", "b"}


def test_kafka_19891_an_expression_that_is_dropped_moves_partitions(shell: ConsumerShell) -> None:
    a = Client(shell, "a").join(subscribed_topic_regex="t")
    shell.tick()
    a.beat()
    assert a.owned == {"t": [0, 1, 2, 3]}
    epoch = shell.consumer_group().epoch
    a.beat(subscribed_topic_regex="")
    assert shell.consumer_group().epoch == epoch + 1
    settle(a)
    assert a.owned == {}


def test_kafka_19720_a_classic_member_does_not_inherit_an_expression(shell: ConsumerShell) -> None:
    shell.join("keeps", "t")
    shell.join("a", instance_id="i", subscribed_topic_regex="t")
    shell.tick()
    old = ClassicClient(shell, instance_id="i")
    assert not old.join().error_code
    assert shell.member(old.member_id).metadata.regex == ""
    assert not shell.consumer_group().resolved


def test_kafka_20272_nobody_is_called_before_there_is_a_target() -> None:
    shell = ConsumerShell(config(assignment_interval_ms=5_000))
    shell.topic("t", 4)
    Client(shell, "a").join("t")
    old = ClassicClient(shell)
    assert not old.join().error_code
    assert shell.consumer_group().epoch > shell.consumer_group().target_epoch
    assert old.heartbeat() is ErrorCode.NONE


def test_kafka_20268_who_joins_before_a_target_gets_an_epoch_above_0() -> None:
    shell = ConsumerShell(config(assignment_interval_ms=5_000))
    shell.topic("t", 4)
    assert shell.join("a", subscribed_topic_regex="t").member_epoch == 1


def test_kafka_20601_a_full_group_lets_a_static_member_back_in() -> None:
    shell = ConsumerShell(config(max_size=1))
    shell.topic("t", 1)
    shell.join("a", "t", instance_id="i")
    shell.leave("a", -2, instance_id="i")
    assert shell.join("a2", "t", instance_id="i").error_code == ErrorCode.NONE


def test_kafka_20747_a_name_that_was_given_up_is_free(shell: ConsumerShell) -> None:
    shell.join("a", "t", instance_id="i")
    shell.records.append(ConsumerMemberMetadata("g", "a", instance_id="j"))
    loaded = shell.restarted()
    assert loaded.consumer_group().static_ids == {"j": "a"}


def test_kafka_18916_topics_of_expressions_are_watched(shell: ConsumerShell) -> None:
    a = Client(shell, "a").join(subscribed_topic_regex="t")
    shell.tick()
    a.beat()
    shell.topic("t", 5)
    a.beat()
    assert a.owned == {"t": [0, 1, 2, 3, 4]}


def test_a_state_of_a_newer_broker_ends_in_a_new_start(shell: ConsumerShell) -> None:
    shell.join("a", "t")
    unknown = CurrentAssignment("g", "a", 2, 1, ReconciliationState.UNKNOWN, {T: {0: 2}})
    loaded = ConsumerShell(None, [*shell.records, unknown], image=shell.image)
    assert loaded.beat("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert loaded.beat("a", 2, owned={}).error_code == ErrorCode.NONE
