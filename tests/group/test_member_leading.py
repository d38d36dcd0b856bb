"""The leader's duty, and the five triggers of a rebalance."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ErrorCode, InvalidAssignmentError
from shoal.group.member import leadership
from shoal.group.member.member_interface import (
    MemberConfig,
    MemberState,
    RefreshMetadata,
    Revoked,
)
from shoal.wire import consumer_protocol
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.sync_group import SyncGroupRequest
from tests.group.member_driver import (
    Driver,
    partitions,
)

# --- leading -------------------------------------------------------------------------------------


def members(*each: tuple[str, tuple[str, ...]]) -> list[JoinGroupResponse.Member]:
    return [
        JoinGroupResponse.Member(
            member_id=member_id,
            metadata=consumer_protocol.ConsumerProtocolSubscription(topics).encode(),
        )
        for member_id, topics in each
    ]


def lead(driver: Driver, generation_id: int = 1, **fields: Any) -> None:
    group = members(("m", ("t",)), ("n", ("t",)))
    driver.join(generation_id, leader="m", **{"members": group, **fields})


def plan(request: SyncGroupRequest) -> dict[str, list[tuple[str, int]]]:
    return {
        each.member_id: [
            (tp[0], tp[1])
            for tp in consumer_protocol.ConsumerProtocolAssignment.decode(
                each.assignment
            ).partitions
        ]
        for each in request.assignments
    }


def leader(*assignors: Any, **settings: Any) -> Driver:
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
    from shoal.group.member.member_interface import ClusterTopics

    driver = leader(client_rack=client_rack)
    one: dict[str, list[list[str | None]]] = {"t": [["r1"], ["r2"], [None], ["r1"]]}
    two: dict[str, list[list[str | None]]] = {"t": [["r1"], ["r2"], [None], ["r2"]]}

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
    subscription = consumer_protocol.ConsumerProtocolSubscription.decode(
        request.protocols[0].metadata
    )
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
