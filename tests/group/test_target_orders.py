"""Targets that are ordered of a user's assignor, as the coordinator sees it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.cluster_image import GroupOverrides
from shoal.group.coordinator.config import OutsideAssignor
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.target_orders import TargetAnswer, TargetFault, TargetOrder
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from tests.group.consumer_shell import Client, ConsumerShell, config, settle, topic_id

DESK: Any = "desk"


class OrderShell(ConsumerShell):
    """The test plays the assignor."""

    def order(self) -> TargetOrder:
        order = self.replies.pop(DESK)
        assert isinstance(order, TargetOrder)
        return order

    @property
    def is_ordered(self) -> bool:
        return DESK in self.replies

    def answer(self, order: TargetOrder, **target: list[int]) -> None:
        rows: TargetAnswer = {one: {topic_id("t"): given} for one, given in target.items()}
        self.obey(self.coordinator.target_answered(order, rows, self.now_ms))

    def fault(self, order: TargetOrder, reason: str = "no idea") -> None:
        self.obey(self.coordinator.target_answered(order, TargetFault(reason), self.now_ms))


def ordering(**consumer: object) -> OrderShell:
    shell = OrderShell(
        config(**{"assignors": (OutsideAssignor("mine"),), **consumer}), assignors=DESK
    )
    shell.topic("t", 4)
    return shell


def test_a_target_is_ordered_for_an_epoch_and_taken_when_it_comes() -> None:
    shell = ordering()
    a = Client(shell, "a", rack_id="r").join("t")
    assert (a.epoch, a.owned) == (1, {})
    order = shell.order()
    assert (order.group_id, order.epoch, order.assignor) == ("g", 2, "mine")
    assert order.members["a"].rack_id == "r"
    assert list(order.members["a"].member.topics) == [topic_id("t")]
    a.beat()
    assert not shell.is_ordered, "one order at a time"
    shell.answer(order, a=[0, 1, 2, 3])
    a.beat()
    assert (a.epoch, a.owned) == (2, {"t": [0, 1, 2, 3]})
    assert shell.causes(EventKind.TARGET_COMPUTED) == ["mine assigned 4 partitions to 1 member"]
    assert shell.restarted().coordinator.durable() == shell.coordinator.durable()


def test_a_target_of_an_epoch_that_is_over_is_not_taken() -> None:
    shell = ordering()
    a = Client(shell, "a").join("t")
    old = shell.order()
    b = Client(shell, "b").join("t")
    shell.answer(old, a=[0, 1, 2, 3])
    assert shell.consumer_group().target_epoch == 1
    a.beat()
    new = shell.order()
    assert (new.epoch, set(new.members)) == (3, {"a", "b"})
    shell.topic("t", 6)
    a.beat()
    shell.answer(new, a=[0, 1], b=[2, 3])
    assert shell.consumer_group().target_epoch == 1
    a.beat()
    shell.answer(shell.order(), a=[0, 1, 4], b=[2, 3, 5])
    settle(a, b)
    assert (a.owned, b.owned) == ({"t": [0, 1, 4]}, {"t": [2, 3, 5]})


def test_a_static_member_that_comes_back_under_another_id_has_its_target_ordered_anew() -> None:
    shell = ordering()
    shell.join("a", "t", instance_id="i")
    old = shell.order()
    shell.leave("a", -2, instance_id="i")
    shell.join("a2", "t", instance_id="i")
    shell.answer(old, a=[0, 1, 2, 3])
    assert shell.consumer_group().target_epoch == 1
    shell.beat("a2", 1, instance_id="i")
    assert set(shell.order().members) == {"a2"}


def test_an_order_that_fails_leaves_the_last_target_and_is_told_to_all() -> None:
    shell = ordering()
    a = Client(shell, "a").join("t")
    shell.answer(shell.order(), a=[0, 1, 2, 3])
    a.beat()
    b = Client(shell, "b").join("t")
    shell.fault(shell.order(), "it gave no target within 5 s and was killed")
    fault = "mine: it gave no target within 5 s and was killed"
    answer = a.beat()
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, fault)
    assert a.owned == {"t": [0, 1, 2, 3]}
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    (group,) = shell.ask(request).groups
    assert (group.error_code, group.error_message) == (ErrorCode.NONE, fault)
    assert (group.group_state, group.assignor_name) == ("Assigning", "mine")
    assert shell.causes(EventKind.ASSIGNOR_FAILED) == [f"{fault}; the last target stays"]
    shell.answer(shell.order(), a=[0, 1], b=[2, 3])
    settle(a, b)
    assert b.owned == {"t": [2, 3]}
    assert a.beat().error_message is None


def test_what_fails_again_and_again_is_tried_less_and_less_often() -> None:
    shell = ordering(assignment_interval_ms=1_000)
    shell.join("a", "t")
    tried = []
    for _ in range(200):
        if shell.is_ordered:
            tried.append(shell.now_ms)
            shell.fault(shell.order())
        shell.advance(500)
        shell.beat("a", 1)
    waits = [after - before for before, after in pairwise(tried)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000]
    shell.join("b", "t")
    assert shell.is_ordered, "another epoch is another chance"


def test_an_order_whose_records_are_not_written_was_never_given() -> None:
    shell = ordering()
    shell.fail_appends_with = ErrorCode.NOT_ENOUGH_REPLICAS
    shell.join("a", "t")
    assert not shell.is_ordered
    shell.fail_appends_with = None
    shell.join("a", "t")
    assert shell.order().epoch == 2


def test_an_answer_to_nobodys_order_means_nothing() -> None:
    shell = ordering()
    shell.join("a", "t")
    order = shell.order()
    shell.answer(order, a=[0, 1, 2, 3])
    written = len(shell.records)
    shell.answer(order, a=[])
    assert len(shell.records) == written


@pytest.mark.parametrize("vote", [None, "uniform"])
def test_what_is_set_on_a_group_counts_more_than_votes(vote: str | None) -> None:
    from shoal.assign.server import UniformAssignor

    shell = ordering(assignors=(UniformAssignor(), OutsideAssignor("mine")))
    a = Client(shell, "a", client_id="left").join("t", server_assignor=vote)
    assert a.epoch == 2
    shell.image.overrides["g"] = GroupOverrides(assignor="mine", weights=(("left", 0.5),))
    shell.coordinator.settings_changed("g")
    a.beat()
    order = shell.order()
    assert (order.assignor, order.epoch, order.members["a"].weight) == ("mine", 3, 0.5)
    shell.answer(order, a=[0, 1, 2, 3])
    a.beat()
    epoch = shell.consumer_group().epoch
    shell.coordinator.settings_changed("g")
    a.beat()
    assert shell.consumer_group().epoch == epoch, "the same settings change nothing"
