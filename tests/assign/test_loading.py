"""Assignors by name, class, object and function; and what a broken one must not do to a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from shoal.assign import (
    Assignment,
    ClusterMetadata,
    GroupSubscription,
    RebalanceProtocol,
    Subscription,
    common_protocol,
    load,
    validate,
)
from shoal.assign.loading import FunctionAssignor
from shoal.errors import InvalidAssignmentError
from shoal.types import ConsumerGroupMetadata, TopicPartition

METADATA = ClusterMetadata({"t": 2, "u": 1})
GROUP = {"a": Subscription(("t",)), "b": Subscription(("t", "u"))}


def everything_to_the_first(
    metadata: ClusterMetadata, subscriptions: GroupSubscription
) -> dict[str, list[TopicPartition]]:
    first = min(subscriptions)
    return {
        first: [
            TopicPartition(topic, partition)
            for topic in subscriptions[first].topics
            for partition in range(metadata.partition_counts.get(topic, 0))
        ]
    }


class Cooperative:
    """Gives what it is told to give, in the cooperative protocol."""

    name = "told"
    version = 1
    supported_protocols = (RebalanceProtocol.COOPERATIVE,)

    def __init__(self, result: Mapping[str, Sequence[tuple[str, int]]] | None = None) -> None:
        self.result = result or {}

    def subscription_user_data(self, topics: object) -> bytes | None:
        return None

    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> Mapping[str, Assignment]:
        return {
            member_id: Assignment([TopicPartition(*pair) for pair in pairs])
            for member_id, pairs in self.result.items()
        }

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        pass


def refused(result: Mapping[str, Sequence[tuple[str, int]]], group: GroupSubscription) -> str:
    assignor = Cooperative(result)
    with pytest.raises(InvalidAssignmentError) as error:
        validate(assignor, assignor.assign(METADATA, group), METADATA, group)
    assert error.value.assignor == "told"
    assert "'told'" in str(error.value)
    return error.value.reason


def test_a_class_an_object_and_a_function_all_load() -> None:
    told = Cooperative()
    told.name = "other"
    names = [a.name for a in load([Cooperative, told, everything_to_the_first])]
    assert names == ["told", "other", "everything_to_the_first"]


def test_a_function_runs_as_an_eager_assignor() -> None:
    (assignor,) = load([everything_to_the_first])
    result = validate(assignor, assignor.assign(METADATA, GROUP), METADATA, GROUP)
    assert list(result["a"].partitions) == [("t", 0), ("t", 1)]
    assert list(result["b"].partitions) == []
    assert assignor.supported_protocols == (RebalanceProtocol.EAGER,)
    assert assignor.subscription_user_data(["t"]) is None


def test_a_function_that_returns_no_mapping_is_refused_by_name() -> None:
    def nothing(metadata: ClusterMetadata, subscriptions: GroupSubscription) -> None: ...

    assignor = FunctionAssignor(nothing)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidAssignmentError, match=r"'nothing'.*NoneType"):
        assignor.assign(METADATA, GROUP)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'rnage'.*cooperative-sticky.*range.*roundrobin.*sticky"):
        load(["rnage"])


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two assignors are called 'told'"):
        load([Cooperative, Cooperative()])


def test_no_assignor_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        load([])


@pytest.mark.parametrize("wrong", [42, int, None])
def test_what_is_no_assignor_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match="is no assignor"):
        load([wrong])  # type: ignore[list-item]  # wrong on purpose


def test_the_common_protocol_is_the_highest_all_support() -> None:
    cooperative, eager = Cooperative(), FunctionAssignor(everything_to_the_first)
    assert common_protocol([cooperative]) is RebalanceProtocol.COOPERATIVE
    assert common_protocol([eager]) is RebalanceProtocol.EAGER
    with pytest.raises(ValueError, match="told, everything_to_the_first support no common"):
        common_protocol([cooperative, eager])


def test_an_unknown_member_is_refused() -> None:
    assert "no member 'c'" in refused({"c": []}, GROUP)


def test_a_partition_given_twice_is_refused() -> None:
    assert "t-0 went to both 'a' and 'b'" in refused({"a": [("t", 0)], "b": [("t", 0)]}, GROUP)
    assert "t-1 went to both 'a' and 'a'" in refused({"a": [("t", 1), ("t", 1)]}, GROUP)


def test_a_topic_nobody_asked_for_is_refused() -> None:
    assert "does not subscribe to 'u'" in refused({"a": [("u", 0)]}, GROUP)


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    assert "does not exist" in refused({"a": [("t", partition)]}, GROUP)


def test_a_cooperative_assignor_must_not_hand_over_in_one_round() -> None:
    owner = Subscription(("t",), owned_partitions=(TopicPartition("t", 0),))
    group = {"a": owner, "b": Subscription(("t",))}
    assert "t-0 was given to 'b'" in refused({"b": [("t", 0)]}, group)
    waiting = Cooperative({"b": [("t", 1)]})
    result = validate(waiting, waiting.assign(METADATA, group), METADATA, group)
    assert list(result["b"].partitions) == [("t", 1)]
