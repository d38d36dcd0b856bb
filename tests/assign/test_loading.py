"""Assignors by name, class, object and function; and what a broken one must not do to a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shoal.assign import (
    Assignment,
    Assignor,
    ClusterMetadata,
    GroupSubscription,
    RebalanceProtocol,
    Subscription,
    common_protocol,
    load,
    validate,
)
from shoal.assign.loading import FunctionAssignor, left_out
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


def test_the_class_names_of_java_mean_the_built_in_ones() -> None:
    java = "org.apache.kafka.clients.consumer."
    names = ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"]
    loaded = load([java + name for name in names])
    assert [a.name for a in loaded] == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert [type(a).__name__ for a in loaded] == names


@pytest.mark.parametrize("dot", [".", ":"])
@pytest.mark.parametrize(
    ("where", "name"),
    [("Cooperative", "told"), ("everything_to_the_first", "everything_to_the_first")],
)
def test_a_path_finds_a_class_or_a_function(dot: str, where: str, name: str) -> None:
    assert load([f"tests.assign.test_loading{dot}{where}"])[0].name == name


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "com.example.MyAssignor",
            "'com.example.MyAssignor' names nothing: .* module 'com.example'",
        ),
        (
            "org.apache.kafka.clients.consumer.StickyAssigner",
            r"did you mean 'org\.apache\.kafka\.clients\.consumer\.StickyAssignor'\?",
        ),
        ("org.apache.kafka.streams.Mine", "known: cooperative-sticky, range"),
        ("tests.assign.nowhere:Mine", "no Python module 'tests.assign.nowhere'"),
        ("tests.assign.test_loading:Nothing", "'tests.assign.test_loading' has no 'Nothing'"),
        (
            "tests.assign.test_loading:METADATA",
            "METADATA is not an assignor: inherit from shoal.Assignor.* or have name, version",
        ),
        ("tests.assign.test_loading:", "write package.module:Name"),
        (":Mine", "write package.module:Name"),
        ("..", "write package.module:Name"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(path: str, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        load([path])


class Least(Assignor):
    name = "least"

    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> Mapping[str, Assignment]:
        return {member_id: Assignment() for member_id in subscriptions}


def test_who_inherits_gets_what_kafkas_interface_does_by_default() -> None:
    (least,) = load([Least])
    assert (least.name, least.version) == ("least", 0)
    assert tuple(least.supported_protocols) == (RebalanceProtocol.EAGER,)
    assert least.subscription_user_data(["t"]) is None
    least.on_assignment(Assignment(), ConsumerGroupMetadata("g"))


def test_who_inherits_and_does_not_assign_or_has_no_name_is_refused() -> None:
    class Nameless(Assignor):
        pass

    with pytest.raises(TypeError, match=r"Nameless.*assign.*name"):
        load([Nameless])


@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        ("name", lambda _: "n", "Odd.name must be a value, not a method"),
        ("version", lambda _: 1, "Odd.version must be a value"),
        ("supported_protocols", lambda _: [], "Odd.supported_protocols must be a value"),
        ("name", "", "Odd.name must be a string"),
        ("name", 7, "Odd.name must be a string, not 7"),
        ("supported_protocols", (), "Odd.supported_protocols must be RebalanceProtocols"),
        ("supported_protocols", ("EAGER",), "Odd.supported_protocols must be RebalanceProtocols"),
        ("supported_protocols", None, "Odd.supported_protocols must be RebalanceProtocols"),
        ("assign", 7, "Odd.assign must be a method, not 7"),
    ],
)
@pytest.mark.parametrize("inherits", [Least, Cooperative])
def test_a_member_of_the_wrong_kind_is_named(
    inherits: type, member: str, value: object, said: str
) -> None:
    odd = type("Odd", (inherits,), {member: value})
    with pytest.raises(TypeError, match=said):
        load([odd])


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two assignors are called 'told'"):
        load([Cooperative, Cooperative()])


def test_no_assignor_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        load([])


@pytest.mark.parametrize("wrong", [42, int, None])
def test_what_is_no_assignor_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match="is not an assignor"):
        load([wrong])  # type: ignore[list-item]  # wrong on purpose


def test_the_common_protocol_is_the_highest_all_support() -> None:
    cooperative, eager = Cooperative(), FunctionAssignor(everything_to_the_first)
    assert common_protocol([cooperative]) is RebalanceProtocol.COOPERATIVE
    assert common_protocol([eager]) is RebalanceProtocol.EAGER
    with pytest.raises(ValueError, match="told, everything_to_the_first support no common"):
        common_protocol([cooperative, eager])


def test_an_assignment_that_is_none_is_refused() -> None:
    (least,) = load([Least])
    wrong: tuple[Any, ...] = (None, [], {"a": [TopicPartition("t", 0)]})
    for result in wrong:
        with pytest.raises(InvalidAssignmentError, match="'least'"):
            validate(least, result, METADATA, GROUP)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({}, "no partition of 't', 'u' to any member; and nothing, not even an empty list, to 'a'"),
        ({"a": [("t", 0)], "b": []}, "assignor 'told' gave no partition of 'u' to any member"),
        ({"b": [("t", 0), ("t", 1), ("u", 0)]}, "gave nothing, not even an empty list, to 'a'"),
        ({"a": [("t", 0)], "b": [("u", 0)]}, None),
    ],
)
def test_what_an_assignor_forgets_is_told(
    result: Mapping[str, Sequence[tuple[str, int]]], said: str | None
) -> None:
    told = Cooperative(result)
    found = left_out(told, told.assign(METADATA, GROUP), METADATA, GROUP)
    assert (found is None) if said is None else (found is not None and said in found)


def test_what_waits_for_its_owner_is_not_forgotten() -> None:
    group = {
        "a": Subscription(("u",), owned_partitions=(TopicPartition("u", 0),)),
        "b": Subscription(("u",)),
    }
    told = Cooperative({"a": [], "b": []})
    assert left_out(told, told.assign(METADATA, group), METADATA, group) is None


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
