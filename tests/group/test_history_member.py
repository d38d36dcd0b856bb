"""Bugs that Apache Kafka's consumer had in its part of the group protocol, each as a test.

The number in a name is that of the issue in Kafka's tracker. More of them stand beside what they
are about, in test_member_session.py and test_member_rebalance.py: 5611, 6362, 6593, 7961, 7962,
9140, 9823, 10134, 14024, 14196, 14201, 20985.

Of the bugs that were looked at, these cannot be made here:

* 10692, 13134: locks held while another group's requests are answered. There are no locks.
* 16147, 19233, 19449: partition epochs of the protocol of KIP-848, which is not here yet.
* 5730, 7540, 7703, 8429, 10123, 10337, 14208: not the group but positions, closing and the order
  of commit callbacks. They are in tests/client/test_history.py and test_history_positions.py.
* 18659: what ApiVersions lists. It is in tests/broker/test_protocol.py.
"""

from __future__ import annotations

import pytest

from shoal.errors import ErrorCode
from shoal.group.member.member_interface import (
    Assigned,
    CommitPositions,
    CommitVerdict,
    FindCoordinator,
    Lost,
    MemberState,
    Revoked,
)
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from tests.group.coordinator_shell import Shell
from tests.group.member_driver import HEARTBEAT_MS, POLL_MS, Driver, partitions


def test_8104_who_is_thrown_out_between_join_and_sync_joins_again() -> None:
    """The heartbeat thread reset the generation, and the join never came to an end."""
    driver = Driver()
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.join(1)
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.poll()
    again = driver.take(JoinGroupRequest).request
    assert isinstance(again, JoinGroupRequest)
    assert again.member_id == ""
    late = driver.take(SyncGroupRequest)
    driver.answer(late, assignment=b"")
    assert driver.member.owned == ()


def test_12983_who_is_thrown_out_while_it_joins_loses_before_it_joins_again() -> None:
    """The flag that a join needs to be prepared was not set again after a failed one."""
    driver = Driver("cooperative-sticky")
    driver.stable(*partitions("t", 0), protocol_name="cooperative-sticky")
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.poll()
    driver.refuse(JoinGroupRequest, ErrorCode.UNKNOWN_MEMBER_ID)
    driver.after(1_000)
    driver.poll()
    assert driver.take_steps() == [Lost(partitions("t", 0))]
    assert driver.take(JoinGroupRequest)


def test_13214_a_lost_connection_costs_neither_the_id_nor_the_generation() -> None:
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.perform(driver.member.connection_lost(driver.now))
    driver.sent.clear()
    driver.after(1_000)
    driver.find()
    driver.poll()
    beat = driver.heartbeat()
    assert (beat.member_id, beat.generation_id) == ("m", 1)
    assert driver.member.owned == partitions("t", 0)
    assert not driver.take_steps()


@pytest.mark.parametrize("verdict", [CommitVerdict.RETRY, None], ids=["refused", "unanswered"])
def test_13310_a_commit_that_never_succeeds_holds_a_rebalance_up_only_so_long(
    verdict: CommitVerdict | None,
) -> None:
    """The topic was deleted, the commit was retried, and poll did not return."""
    driver = Driver(auto_commit=True)
    driver.stable(*partitions("t", 0))
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.poll()
    began = driver.now
    while not any(isinstance(step, Revoked) for step in driver.steps):
        assert driver.now - began <= POLL_MS, "still committing"
        if verdict is not None and isinstance(driver.steps[-1], CommitPositions):
            driver.commit_done(verdict)
        driver.after(500)
        for send in [one for one in driver.sent if isinstance(one.request, HeartbeatRequest)]:
            driver.sent.remove(send)
            driver.answer(send, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        driver.poll()
    assert driver.take(JoinGroupRequest)


def test_5212_heartbeats_do_not_wait_for_the_user() -> None:
    """ListOffsets in a poll starved them."""
    driver = Driver()
    driver.stable(*partitions("t", 0))
    for _ in range(5):
        before = driver.now
        driver.heartbeat()
        assert driver.now - before <= HEARTBEAT_MS


def test_10793_a_lookup_that_failed_is_followed_by_another() -> None:
    """The future of the failed one was never cleared, and nobody looked again."""
    driver = Driver()
    driver.subscribe("t")
    for _ in range(20):
        driver.take_order(FindCoordinator)
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        driver.perform(driver.member.coordinator_not_found(code, driver.now))
        driver.after(2_000)
        driver.poll()
    driver.find()
    driver.poll()
    assert driver.take(JoinGroupRequest)


def test_13563_who_only_commits_finds_a_lost_coordinator_again() -> None:
    """Without a subscription the future was never cleared either."""
    driver = Driver()
    for _ in range(3):
        driver.perform(driver.member.need_coordinator(driver.now))
        driver.find()
        driver.perform(driver.member.connection_lost(driver.now))
        driver.after(2_000)


def test_13917_a_coordinator_that_is_away_is_not_looked_up_in_a_tight_loop() -> None:
    driver = Driver()
    driver.subscribe("t")
    lookups = 0
    for _ in range(10_000):
        while any(isinstance(order, FindCoordinator) for order in driver.orders):
            lookups += 1
            driver.take_order(FindCoordinator)
            driver.perform(
                driver.member.coordinator_not_found(ErrorCode.NETWORK_EXCEPTION, driver.now)
            )
        driver.poll()
        driver.after(1)
    assert 5 <= lookups <= 30, "ten seconds, each pause longer than the last, up to one second"


def test_7194_an_assignment_is_read_again_from_the_start_after_a_wakeup() -> None:
    driver = Driver(hold_callbacks=True)
    driver.subscribe("t")
    driver.find()
    driver.poll()
    driver.join(1)
    driver.sync(*partitions("t", 0, 1))
    driver.poll()
    for _ in range(3):
        driver.member.callback_interrupted()
        driver.poll()
    driver.perform(driver.member.callback_done(driver.now))
    owned = partitions("t", 0, 1)
    assert driver.take_steps() == [Assigned(owned, owned)] * 4
    assert driver.member.owned == owned


def test_7831_nothing_but_a_call_of_the_user_changes_what_is_owned_or_wanted() -> None:
    """The background thread changed the subscription while the user's walked through it."""
    driver = Driver()
    driver.stable(*partitions("t", 0))
    driver.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.give_metadata(["t"], t=9)
    driver.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    driver.perform(driver.member.connection_lost(driver.now))
    driver.after(5_000)
    assert driver.member.owned == partitions("t", 0)
    assert driver.member.topics == {"t"}
    assert not driver.take_steps()
    assert driver.member.state is MemberState.UNJOINED


def test_16118_a_coordinator_that_was_never_loaded_can_be_unloaded() -> None:
    """The partition was deleted before it was loaded, and unloading it failed."""
    shell = Shell()
    shell.stable_group(1)
    loaded = shell.restarted()
    for _ in range(2):
        decision = loaded.coordinator.unload(loaded.now_ms, ErrorCode.NOT_COORDINATOR)
        assert not decision.journal
