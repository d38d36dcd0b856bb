"""What the simulator found in groups of the new protocol, each as the smallest test that shows it.

``tests/simulation/seeds.py`` has the seeds.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.config import MigrationPolicy
from shoal.group.coordinator.consumer_group import ConsumerGroupState
from shoal.group.member.consumer_states import ConsumerMemberState
from shoal.group.member.member_interface import Assigned, Revoked
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from shoal.wire.consumer_protocol import ConsumerProtocolAssignment
from tests.group import consumer_driver
from tests.group.consumer_driver import INTERVAL_MS, ConsumerDriver
from tests.group.consumer_shell import Client, ConsumerShell, config, settle
from tests.group.test_migration import ClassicClient, classic_group, partitions, settle_all

DAY_MS = 24 * 60 * 60 * 1_000


def test_a_clock_that_was_set_back_does_not_keep_a_group_from_its_next_target() -> None:
    shell = ConsumerShell(config(assignment_interval_ms=1_000))
    shell.topic("t", 4)
    shell.now_ms += DAY_MS
    a = Client(shell, "a").join("t")
    shell.now_ms -= DAY_MS
    b = Client(shell, "b").join("t")
    settle(a, b)
    assert (len(a.owned["t"]), len(b.owned["t"])) == (2, 2)


def test_a_clock_that_was_set_back_does_not_keep_an_expression_from_new_topics() -> None:
    shell = ConsumerShell()
    shell.topic("t1", 1)
    shell.now_ms += DAY_MS
    a = Client(shell, "a").join(subscribed_topic_regex="t.*")
    shell.advance(2_000)
    settle(a)
    assert set(a.owned) == {"t1"}
    shell.now_ms -= DAY_MS
    shell.topic("t2", 1)
    a.beat()
    shell.advance(2_000)
    settle(a)
    assert set(a.owned) == {"t1", "t2"}


def test_a_target_taken_back_while_callbacks_run_is_reached_after_them() -> None:
    driver = ConsumerDriver(hold_callbacks=True)
    driver.joining()
    both, one = consumer_driver.partitions("t", 0, 1), consumer_driver.partitions("t", 0)
    driver.answer(2, both)
    driver.poll()
    driver.done()
    driver.answer(2)
    driver.after(INTERVAL_MS)
    driver.answer(2, one)
    driver.poll()
    assert isinstance(driver.steps[-1], Revoked)
    driver.after(INTERVAL_MS)
    driver.answer(3, both)
    driver.done()  # of the revocation
    driver.done()  # of the assignment that follows it
    driver.answer(3)
    assert driver.member.state is ConsumerMemberState.RECONCILING
    driver.poll()
    driver.done()
    assert driver.steps[-1:] == [Assigned(consumer_driver.partitions("t", 1), both)]
    assert driver.member.owned == both


def test_what_a_running_callback_gives_to_the_user_is_claimed_when_everything_is_told() -> None:
    """A new coordinator that heard of nothing would give it to somebody else at once."""
    driver = ConsumerDriver(hold_callbacks=True)
    driver.joining()
    driver.answer(2, consumer_driver.partitions("t", 0, 1))
    driver.poll()
    assert isinstance(driver.steps[-1], Assigned)
    driver.after(INTERVAL_MS)
    driver.take()
    driver.perform(driver.member.connection_lost(driver.now))
    driver.find()
    full = driver.await_heartbeat()
    assert full.subscribed_topic_names == ["t"]
    assert consumer_driver.told(full) == [(consumer_driver.topic_id("t"), [0, 1])]


def test_nothing_more_is_owned_before_the_coordinator_has_answered_what_is() -> None:
    """Told of less, it would take the new partitions for given up, and give them away."""
    first, both = consumer_driver.partitions("t", 0), consumer_driver.partitions("t", 0, 1)
    driver = ConsumerDriver()
    driver.stable(*first)
    driver.await_heartbeat()
    driver.answer(3, both)
    driver.await_heartbeat()
    driver.take()
    driver.perform(driver.member.connection_lost(driver.now))
    driver.find()
    full = driver.await_heartbeat()
    assert consumer_driver.told(full) == [(consumer_driver.topic_id("t"), [0])]
    driver.poll()
    assert not driver.member.wants_poll
    assert driver.member.owned == first
    driver.answer(3)
    assert driver.member.wants_poll
    driver.poll()
    assert driver.member.owned == both


def test_what_is_to_come_is_claimed_while_something_else_is_given_up() -> None:
    driver = ConsumerDriver(hold_callbacks=True)
    driver.joining()
    driver.answer(2, consumer_driver.partitions("t", 0))
    driver.poll()
    driver.done()
    driver.answer(2)
    driver.await_heartbeat()
    driver.answer(2, consumer_driver.partitions("t", 1))
    driver.poll()
    assert isinstance(driver.steps[-1], Revoked)
    driver.await_heartbeat()
    driver.take()
    driver.perform(driver.member.connection_lost(driver.now))
    driver.find()
    full = driver.await_heartbeat()
    assert consumer_driver.told(full) == [(consumer_driver.topic_id("t"), [0, 1])]


@pytest.fixture
def shell() -> ConsumerShell:
    made = ConsumerShell(replace(config(), group_initial_rebalance_delay_ms=0))
    made.topic("t", 4)
    return made


def test_a_group_that_never_had_a_generation_is_converted_to_an_epoch_members_can_have() -> None:
    shell = ConsumerShell(config())  # whose first rebalance waits for others
    shell.topic("t", 4)
    classic = ClassicClient(shell)
    classic.member_id = shell.replies[classic.send_join()].member_id
    classic.send_join()
    answer = shell.join("c", subscribed_topic_regex="t.*")
    assert answer.error_code == ErrorCode.NONE
    assert answer.member_epoch > 0, "0 would be a join, for ever"


def test_partitions_a_classic_leader_had_not_heard_of_are_assigned_after_the_conversion(
    shell: ConsumerShell,
) -> None:
    static = ClassicClient(shell, instance_id="i")
    ticket = static.send_join()
    shell.settle()
    joined = shell.replies[ticket]
    everything = ConsumerProtocolAssignment(partitions(0, 1, 2, 3)).encode(1)
    row = SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=everything)
    shell.ask(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id="i",
            assignments=[row],
        )
    )
    shell.topic("t", 5)
    # In its place, with the same subscription: that alone is no reason for a new target.
    c = Client(shell, "c", instance_id="i").join("t")
    settle(c)
    assert c.owned == {"t": [0, 1, 2, 3, 4]}


def test_partitions_that_a_topic_made_again_does_not_have_are_not_taken_over(
    shell: ConsumerShell,
) -> None:
    members = [each.member_id for each in classic_group(shell)]
    shell.drop_topic("t")
    shell.topic("t", 2)
    shell.join("c", "t")
    target = shell.consumer_group().target_of
    given = [numbers for each in (*members, "c") for numbers in target(each).values()]
    assert sorted(number for numbers in given for number in numbers) == [0, 1]


def test_what_a_member_leaves_to_classic_ones_alone_is_theirs_though_nothing_may_convert() -> None:
    settings = config(migration_policy=MigrationPolicy.UPGRADE)
    shell = ConsumerShell(replace(settings, group_initial_rebalance_delay_ms=0))
    shell.topic("t", 4)
    c = Client(shell, "c").join("t")
    first, second = ClassicClient(shell), ClassicClient(shell)
    first.join()
    second.join()
    settle_all(c, first, second)
    shell.leave("c")
    settle_all(first, second)
    assert sorted([*first.owned, *second.owned]) == partitions(0, 1, 2, 3)
    leaving = LeaveGroupRequest.MemberIdentity(member_id=second.member_id)
    shell.ask(LeaveGroupRequest(group_id="g", members=[leaving]), version=4)
    settle_all(first)
    assert first.owned == partitions(0, 1, 2, 3)
    shell.topic("t", 5)
    settle_all(first)
    assert first.owned == partitions(0, 1, 2, 3, 4), "nor does a new one stay nobody's"
    assert shell.consumer_group().state is ConsumerGroupState.STABLE
