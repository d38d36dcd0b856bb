"""Callbacks that fail, and assignments that do not fit."""

from __future__ import annotations

import pytest

from shoal.assign.model import Assignment
from shoal.errors import InvalidAssignmentError, RebalanceListenerError
from shoal.group.member.member_interface import (
    Assigned,
    Failed,
    Revoked,
)
from shoal.types import ConsumerGroupMetadata
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from tests.group.member_driver import (
    Driver,
    assignment,
    partitions,
)
from tests.group.member_states import COOPERATIVE, cooperative, rebalance

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
    class Deaf(leadership_assignor()):  # type: ignore[misc]  # a class made by a function
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
