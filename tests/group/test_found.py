"""What the simulator found, each as the smallest test that shows it."""

from __future__ import annotations

from shoal.errors import ErrorCode
from shoal.group.coordinator.states import GroupState
from shoal.group.member.member_interface import Assigned, Lost, Revoked
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from tests.group.coordinator_shell import REBALANCE_MS, Shell, heartbeat, join, protocols, sync
from tests.group.member_driver import Driver, partitions


def test_a_sync_timer_whose_last_member_came_back_under_another_id_fires_for_nobody() -> None:
    shell = Shell()
    tickets = [shell.send(join(instance_id=name)) for name in ("a", "b")]
    shell.settle()
    first, second = (shell.replies[ticket] for ticket in tickets)
    leader = first if first.leader == first.member_id else second
    name = "b" if leader is first else "a"
    leader_name = "a" if leader is first else "b"
    members = [first.member_id, second.member_id]
    shell.send(sync(leader.member_id, 1, members, instance_id=leader_name))
    assert shell.state() is GroupState.STABLE
    back = shell.ask(join(instance_id=name))
    assert back.error_code == ErrorCode.NONE
    for _ in range(2 * REBALANCE_MS // 5_000):
        shell.advance(5_000)
        for member_id, instance_id in ((leader.member_id, leader_name), (back.member_id, name)):
            shell.ask(heartbeat(member_id, 1, instance_id=instance_id))
    assert shell.state() is GroupState.STABLE
    assert len(shell.group().members) == 2


def test_a_loaded_member_speaks_what_its_last_generation_voted_for() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1, names=("range", "sticky"))
    request = join(member_id, names=("range", "sticky"))
    request.protocols = [*protocols("sticky", metadata=b"\x00\x00new"), *protocols("range")]
    response = shell.ask(request)
    assert response.protocol_name == "sticky"
    shell.send(sync(member_id, 2, [member_id]))
    loaded = shell.restarted()
    (member,) = loaded.group().members.values()
    assert member.protocols == (("sticky", b"\x00\x00new"),)
    newcomer = loaded.ask(join(names=("sticky",)))
    assert newcomer.error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_wakeup_while_partitions_are_lost_does_not_keep_them() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.hold_callbacks = True
    driver.poll()
    driver.member.callback_interrupted()
    driver.after(10)
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("t", 0))] * 2
    assert not driver.sent, "the callback has not run yet"
    driver.perform(driver.member.callback_done(driver.now))
    assert driver.member.owned == ()
    assert driver.take(JoinGroupRequest)


def test_an_interrupted_revocation_becomes_a_loss_for_who_is_thrown_out() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.hold_callbacks = True
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.poll()
    driver.member.callback_interrupted()
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0)), Lost(partitions("t", 0))]


def test_an_interrupted_giving_up_becomes_a_loss_of_everything() -> None:
    driver = Driver("cooperative-sticky")
    driver.stable(*partitions("t", 0, 1), protocol_name="cooperative-sticky")
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.poll()
    driver.hold_callbacks = True
    driver.rejoin(*partitions("t", 1), generation_id=2, protocol_name="cooperative-sticky")
    driver.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    driver.member.callback_interrupted()
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0)), Lost(partitions("t", 0, 1))]


def test_an_assignment_adopted_before_a_wakeup_is_adopted_after_it() -> None:
    driver = Driver(hold_callbacks=True)
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.join(1)
    driver.sync(*partitions("t", 0))
    driver.poll()
    driver.member.callback_interrupted()
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.poll()
    owned = partitions("t", 0)
    assert driver.take_steps() == [Assigned(owned, owned)] * 2
    assert not [send for send in driver.sent if isinstance(send.request, SyncGroupRequest)]


def test_subscribing_after_an_interrupted_unsubscribe_outlives_the_leave() -> None:
    driver = Driver(hold_callbacks=True)
    driver.stable(*partitions("t", 0))
    driver.take_steps()
    driver.perform(driver.member.unsubscribe(driver.now))
    driver.member.callback_interrupted()
    driver.subscribe("t")
    driver.poll()
    assert driver.take_steps() == [Revoked(partitions("t", 0))] * 2
    driver.perform(driver.member.callback_done(driver.now))
    assert driver.member.is_subscribed
    assert driver.member.owned == ()
    driver.poll()
    assert driver.take(JoinGroupRequest)
