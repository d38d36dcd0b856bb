"""ConsumerGroupHeartbeat: a row per case of what Kafka answers, and how partitions change hands."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.assign.server import UniformAssignor
from shoal.errors import ErrorCode
from shoal.group.coordinator.cluster_image import GroupOverrides
from shoal.group.coordinator.config import ConsumerGroupConfig
from shoal.group.coordinator.consumer_group import ConsumerGroupState
from shoal.group.coordinator.consumer_journal import (
    ConsumerGroupEpoch,
    ConsumerGroupTombstone,
    ConsumerMemberMetadata,
    ConsumerRecordType,
    CurrentAssignment,
    LegacyPartitionMetadata,
    ReconciliationState,
    TargetAssignment,
    TargetEpoch,
)
from shoal.group.coordinator.decision import EventKind
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from shoal.wire.apis.delete_groups import DeleteGroupsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from tests.group.consumer_shell import (
    Client,
    ConsumerShell,
    assigned,
    config,
    settle,
    topic_id,
)


@pytest.fixture
def shell() -> ConsumerShell:
    made = ConsumerShell()
    made.topic("t", 4)
    return made


# --- What is refused -----------------------------------------------------------------------------

JOIN: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ["t"]}


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "message"),
    [
        ("", 0, JOIN, "MemberId can't be empty."),
        ("m", 0, {**JOIN, "group_id": ""}, "GroupId can't be empty."),
        ("m", 0, {**JOIN, "instance_id": ""}, "InstanceId can't be empty."),
        ("m", 0, {**JOIN, "rack_id": ""}, "RackId can't be empty."),
        ("m", 0, {"subscribed_topic_names": []}, "RebalanceTimeoutMs must be provided"),
        ("m", 0, {"rebalance_timeout_ms": 1}, "Either SubscribedTopicNames or"),
        ("m", -2, {}, "InstanceId can't be null."),
        ("m", -3, {}, "MemberEpoch is invalid."),
        ("m" * 40_000, 0, JOIN, "MemberId is too long."),
    ],
)
def test_requests_that_make_no_sense(
    shell: ConsumerShell, member_id: str, epoch: int, fields: dict[str, Any], message: str
) -> None:
    response = shell.beat(member_id, epoch, owned={}, **fields)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message is not None
    assert response.error_message.startswith(message)
    assert (response.member_id, response.member_epoch) == (None, 0)
    assert not shell.records


@pytest.mark.parametrize("owned", [None, {"t": [0]}])
def test_who_joins_owns_nothing(shell: ConsumerShell, owned: Any) -> None:
    response = shell.beat("m", 0, owned=owned, **JOIN)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_version_0_is_given_an_id(shell: ConsumerShell) -> None:
    response = shell.beat("", 0, owned={}, version=0, **JOIN)
    assert (response.error_code, response.member_id) == (0, "id1")
    again = shell.beat("", 2, owned={}, version=0, **JOIN)
    assert again.error_code == ErrorCode.INVALID_REQUEST


def test_an_assignor_nobody_has(shell: ConsumerShell) -> None:
    response = shell.join("m", "t", server_assignor="best")
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert response.error_message == (
        "ServerAssignor best is not supported. Supported assignors: uniform, range."
    )


@pytest.mark.parametrize(("epoch", "what"), [(-1, "Group"), (3, "Consumer group")])
def test_a_group_nobody_knows(shell: ConsumerShell, epoch: int, what: str) -> None:
    response = shell.beat("m", epoch)
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.error_message == f"{what} g not found."


def test_a_member_nobody_knows(shell: ConsumerShell) -> None:
    shell.join("a", "t")
    for epoch in (3, -1):
        assert shell.beat("b", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_only_whom_it_knows() -> None:
    shell = ConsumerShell(config(max_size=1))
    shell.topic("t")
    shell.join("a", "t", instance_id="i")
    refused = shell.join("b", "t")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shell.beat("a", 2, instance_id="i").error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (4, None, ErrorCode.FENCED_MEMBER_EPOCH),  # ahead
        (1, None, ErrorCode.FENCED_MEMBER_EPOCH),  # long past
        (2, None, ErrorCode.FENCED_MEMBER_EPOCH),  # the last one, but what it owns is unknown
        (2, {"t": [0, 1]}, ErrorCode.NONE),  # the last one: the answer was lost
        (2, {"t": [0, 3]}, ErrorCode.FENCED_MEMBER_EPOCH),  # and it owns more than it was given
        (3, None, ErrorCode.NONE),
        (3, {"unknown": [9]}, ErrorCode.NONE),  # harmless at the right epoch
        (0, {}, ErrorCode.NONE),  # KAFKA-19233
    ],
)
def test_epochs(shell: ConsumerShell, epoch: int, owned: Any, error: ErrorCode) -> None:
    """Its member is at epoch 3, was at 2 before, and holds partitions 0 and 1."""
    first, second = Client(shell, "a").join("t"), Client(shell, "b").join("t")
    settle(first, second)
    assert (first.epoch, first.owned) == (3, {"t": [0, 1]})
    # Its last step was the one to epoch 3.
    assert shell.member("a").current.previous_member_epoch == 2
    fields: dict[str, Any] = JOIN if epoch == 0 else {}
    assert shell.beat("a", epoch, owned=owned, **fields).error_code == error


# --- Joining -------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_in_one_batch(shell: ConsumerShell) -> None:
    response = shell.join("a", "t")
    assert (response.member_id, response.member_epoch) == ("a", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert assigned(response) == {"t": [0, 1, 2, 3]}
    member, epoch, target, target_epoch, current = shell.records
    assert member == ConsumerMemberMetadata(
        "g",
        "a",
        client_id="c",
        client_host="/127.0.0.1",
        topics=frozenset({"t"}),
        rebalance_timeout_ms=60_000,
    )
    assert epoch == ConsumerGroupEpoch("g", 2, shell.image.metadata_hash(["t"], "g"))
    assert target == TargetAssignment("g", "a", {topic_id("t"): [0, 1, 2, 3]})
    assert target_epoch == TargetEpoch("g", 2, shell.now_ms)
    partitions = {topic_id("t"): dict.fromkeys(range(4), 2)}
    assert current == CurrentAssignment("g", "a", 2, 0, ReconciliationState.STABLE, partitions)
    assert shell.consumer_group().state is ConsumerGroupState.STABLE


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_a_target_that_stays_is_not_written_again(shell: ConsumerShell, assignor: str) -> None:
    shell.topic("small", 1)
    shell.join("a", "small", server_assignor=assignor)
    written = len(shell.records)
    shell.join("b", "small", server_assignor=assignor)
    targets = [each for each in shell.records[written:] if isinstance(each, TargetAssignment)]
    assert targets == [TargetAssignment("g", "b", {})]


def test_a_keepalive_writes_nothing_and_says_nothing(shell: ConsumerShell) -> None:
    shell.join("a", "t")
    written = len(shell.records)
    assert assigned(shell.beat("a", 2)) is None
    assert len(shell.records) == written


def test_a_full_request_is_answered_with_the_assignment(shell: ConsumerShell) -> None:
    """A client that lost an answer tells everything and wants to know everything."""
    shell.join("a", "t")
    response = shell.beat("a", 2, owned={"t": [0]}, **JOIN)
    assert assigned(response) == {"t": [0, 1, 2, 3]}


def test_a_partition_changes_hands_in_two_heartbeats(shell: ConsumerShell) -> None:
    a = Client(shell, "a").join("t")
    b = Client(shell, "b").join("t")
    assert (b.epoch, b.owned) == (3, {})
    assert shell.consumer_group().state is ConsumerGroupState.RECONCILING
    assert assigned(a.beat()) == {"t": [0, 1]}  # It is to give up 2 and 3,
    assert a.epoch == 2
    assert shell.member("a").current.state is ReconciliationState.UNREVOKED_PARTITIONS
    assert assigned(b.beat()) is None  # so nobody gets them yet.
    assert shell.beat("a", 2).member_epoch == 2  # A keepalive is not an acknowledgement.
    assert a.beat().member_epoch == 3
    b.beat()
    assert b.owned == {"t": [2, 3]}
    assert shell.consumer_group().state is ConsumerGroupState.STABLE


def test_a_member_without_a_subscription_is_a_member(shell: ConsumerShell) -> None:
    """Nothing is computed for it, so it stays at the first epoch (KAFKA-20268)."""
    response = shell.join("a")
    assert (response.member_epoch, assigned(response)) == (1, {})
    assert shell.consumer_group().state is ConsumerGroupState.STABLE


def test_targets_are_computed_once_per_interval() -> None:
    shell = ConsumerShell(config(assignment_interval_ms=1_000))
    shell.topic("t", 2)
    a, b = Client(shell, "a").join("t"), Client(shell, "b").join("t")
    assert (b.epoch, b.owned) == (2, {})
    assert shell.consumer_group().state is ConsumerGroupState.ASSIGNING
    Client(shell, "c").join("t")
    shell.advance(1_000)
    a.beat()
    computed = [each for each in shell.records if isinstance(each, TargetEpoch)]
    assert [each.epoch for each in computed] == [2, 4]
    assert b.owned == {}


# --- Changing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "bumps", "writes"),
    [
        ({}, False, False),
        ({"rack_id": "r"}, False, True),
        ({"rebalance_timeout_ms": 5}, False, True),
        ({"client_host": "/10.0.0.1"}, False, True),
        ({"server_assignor": "range"}, False, True),
        ({"subscribed_topic_names": ["t"]}, False, False),
        ({"subscribed_topic_names": ["t", "u"]}, True, True),
        ({"subscribed_topic_names": []}, True, True),
        ({"subscribed_topic_regex": ""}, False, False),
    ],
)
def test_what_a_member_tells(
    shell: ConsumerShell, fields: dict[str, Any], bumps: bool, writes: bool
) -> None:
    shell.topic("u")
    shell.join("a", "t")
    group = shell.consumer_group()
    shell.beat("a", 2)
    before, written = group.epoch, len(shell.records)
    shell.beat("a", 2, **fields)
    assert group.epoch == before + bumps
    assert (len(shell.records) > written) == writes
    told = {key for key in fields if not key.startswith(("client", "subscribed"))}
    for key in told:
        assert getattr(shell.member("a").metadata, key) == fields[key]


def test_topics_that_change_reach_members_by_their_heartbeats(shell: ConsumerShell) -> None:
    a = Client(shell, "a").join("t", "later")
    written = len(shell.records)
    shell.topic("t", 6)
    assert len(shell.records) == written
    a.beat()
    assert a.owned == {"t": [0, 1, 2, 3, 4, 5]}
    shell.topic("later", 1)
    a.beat()
    assert a.owned == {"t": [0, 1, 2, 3, 4, 5], "later": [0]}
    shell.drop_topic("t")
    a.beat()
    assert a.owned == {"later": [0]}
    shell.topic("other")
    epoch = shell.consumer_group().epoch
    a.beat()
    assert shell.consumer_group().epoch == epoch


def test_the_record_of_older_brokers_is_removed(shell: ConsumerShell) -> None:
    shell.join("a", "t")
    old = ConsumerShell(None, [*shell.records, LegacyPartitionMetadata("g")], image=shell.image)
    old.beat("a", 2)
    assert not any(isinstance(each, ConsumerGroupTombstone) for each in shell.records)
    gone = ConsumerGroupTombstone(ConsumerRecordType.PARTITION_METADATA, "g")
    assert old.records[-1] == gone


def test_most_votes_choose_the_assignor(shell: ConsumerShell) -> None:
    def used() -> str:
        return shell.causes(EventKind.TARGET_COMPUTED)[-1].split()[0]

    shell.join("a", "t")
    assert used() == "uniform"
    shell.join("b", "t", server_assignor="range")
    assert used() == "range"
    shell.join("c", "t", server_assignor="uniform")
    assert used() == "uniform"  # A tie: who asks is the only one to vote for it.
    shell.beat("b", 3, subscribed_topic_names=[])
    assert used() == "range"  # So is this one.
    shell.beat("a", 2, subscribed_topic_names=[])
    assert used() == "uniform"  # Who asks has no vote: the one that is configured first.
    shell.join("d", "t", server_assignor="range")
    assert used() == "range"


# --- Leaving -------------------------------------------------------------------------------------


def test_who_leaves_makes_room_for_the_others(shell: ConsumerShell) -> None:
    a, b = Client(shell, "a").join("t"), Client(shell, "b").join("t")
    settle(a, b)
    written = len(shell.records)
    response = shell.leave("b")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "b", -1)
    assert (response.heartbeat_interval_ms, response.assignment) == (0, None)
    kinds = [getattr(each, "type", type(each)) for each in shell.records[written:]]
    assert kinds == [
        ConsumerRecordType.CURRENT,
        ConsumerRecordType.TARGET,
        ConsumerRecordType.MEMBER,
        ConsumerGroupEpoch,
    ]
    a.beat()
    assert a.owned == {"t": [0, 1, 2, 3]}
    assert shell.leave("b").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_epoch_of_who_leaves_does_not_matter(shell: ConsumerShell) -> None:
    shell.join("a", "t")
    shell.leave("a")
    assert shell.consumer_group().state is ConsumerGroupState.EMPTY


def test_the_silent_are_out_when_their_session_ends(shell: ConsumerShell) -> None:
    shell.join("a", "t")
    shell.advance(30_000)
    shell.beat("a", 2)
    shell.advance(44_999)
    assert "a" in shell.consumer_group().members
    shell.advance(1)
    assert not shell.consumer_group().members
    assert shell.causes(EventKind.MEMBER_EXPIRED) == ["member a sent no heartbeat for 45000 ms"]


def test_who_does_not_give_up_partitions_is_out(shell: ConsumerShell) -> None:
    """The others are not held up by more than its own partitions."""
    a, b = Client(shell, "a", rebalance_timeout_ms=10_000), Client(shell, "b")
    a.shell.join("a", "t", rebalance_timeout_ms=10_000)
    b.join("t")
    shell.beat("a", 2)
    for _ in range(9):
        shell.advance(1_000)
        shell.beat("a", 2)
    assert "a" in shell.consumer_group().members
    shell.advance(1_000)
    assert "a" not in shell.consumer_group().members
    b.beat()
    assert b.owned == {"t": [0, 1, 2, 3]}


def test_a_step_stops_the_clock_of_the_step_before(shell: ConsumerShell) -> None:
    a, b = Client(shell, "a").join("t"), Client(shell, "b").join("t")
    settle(a, b)
    for _ in range(4):
        shell.advance(30_000)
        a.beat()
        b.beat()
    assert set(shell.consumer_group().members) == {"a", "b"}


def test_after_a_restart_everybody_has_a_whole_session(shell: ConsumerShell) -> None:
    shell.join("a", "t")
    shell.advance(44_000)
    again = shell.restarted()
    again.advance(44_999)
    assert "a" in again.consumer_group().members
    again.advance(1)
    assert not again.consumer_group().members


def test_a_restart_remembers_who_must_give_something_up(shell: ConsumerShell) -> None:
    shell.join("a", "t", rebalance_timeout_ms=10_000)
    shell.join("b", "t")
    shell.beat("a", 2)
    again = shell.restarted()
    again.advance(10_000)
    assert set(again.consumer_group().members) == {"b"}


def test_a_restart_compares_topics_again(shell: ConsumerShell) -> None:
    shell.join("a", "t")
    shell.image.put(shell.image.topic("t")._replace(partition_count=5))  # type: ignore[union-attr]
    again = shell.restarted()
    assert assigned(again.beat("a", 2)) == {"t": [0, 1, 2, 3, 4]}


# --- The heartbeat interval ----------------------------------------------------------------------


def test_an_interval_that_was_set_is_obeyed() -> None:
    shell = ConsumerShell(config(heartbeat_interval_ms=7_000))
    shell.topic("t")
    assert shell.join("a", "t").heartbeat_interval_ms == 7_000
    shell.image.overrides["g"] = GroupOverrides(heartbeat_interval_ms=6_000)
    assert shell.beat("a", 2).heartbeat_interval_ms == 6_000
    shell.image.overrides["g"] = GroupOverrides(heartbeat_interval_ms=1)
    assert shell.beat("a", 2).heartbeat_interval_ms == 5_000  # KAFKA-20162


def test_otherwise_it_follows_the_group() -> None:
    shell = ConsumerShell(config(heartbeat_interval_ms=None))
    shell.topic("t", 4)
    a, b = Client(shell, "a"), Client(shell, "b")
    assert a.join("t").beat().heartbeat_interval_ms == 1_000
    assert b.join("t").beat().heartbeat_interval_ms == 500
    assert a.beat().heartbeat_interval_ms == 500
    settle(a, b)
    assert {each.beat().heartbeat_interval_ms for each in (a, b)} == {1_000}
    shell.topic("u")
    other = shell.join("other", "u")
    assert shell.member("other").current.state is ReconciliationState.STABLE
    assert other.heartbeat_interval_ms == 500, "it is where it should be, others are not"
    shell.leave("other")
    many = [Client(shell, f"m{number}").join("t") for number in range(60)]
    assert a.beat().heartbeat_interval_ms == 500
    settle(a, b, *many)
    assert a.beat().heartbeat_interval_ms == 62 * 50


def test_a_session_that_was_set_on_the_group_counts() -> None:
    shell = ConsumerShell()
    shell.topic("t")
    shell.image.overrides["g"] = GroupOverrides(session_timeout_ms=50_000)
    shell.join("a", "t")
    shell.advance(49_999)
    assert shell.consumer_group().members
    shell.advance(1)
    assert not shell.consumer_group().members


# --- An assignor that fails ----------------------------------------------------------------------


class Moody(UniformAssignor):
    """Does what a test wants."""

    name = "moody"
    result: Any = None

    def assign(self, members: Any, counts: Any) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return super().assign(members, counts) if self.result is None else self.result


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (RuntimeError("no idea"), "moody: RuntimeError: no idea"),
        ({"x": {}}, "'x', who is not a member"),
        ({"a": {topic_id("t"): [0]}, "b": {topic_id("t"): [0]}}, "has two owners"),
        ({"a": {topic_id("t"): [0, 1]}, "b": {topic_id("t"): [7]}}, "has no partition 7"),
        ({"a": {topic_id("u"): [0]}}, "does not subscribe to"),
        ({"a": {topic_id("t"): [0, 1]}}, "2 partitions have no owner"),
        ("nonsense", "moody: AttributeError"),
    ],
)
def test_an_assignor_that_fails_changes_nothing(result: Any, fault: str) -> None:
    moody = Moody()
    shell = ConsumerShell(config(assignors=(moody,)))
    shell.topic("t", 4)
    shell.topic("u")
    a = Client(shell, "a").join("t")
    moody.result = result
    b = Client(shell, "b").join("t")
    assert (b.epoch, b.owned) == (2, {})
    for _ in range(3):
        assert a.beat().error_code == ErrorCode.NONE
    assert a.owned == {"t": [0, 1, 2, 3]}
    (told,) = shell.causes(EventKind.ASSIGNOR_FAILED)
    assert fault in told
    assert told.endswith("the last target stays")
    assert shell.consumer_group().assignor_fault is not None
    moody.result = None
    settle(a, b)
    assert (a.owned, b.owned) == ({"t": [0, 1]}, {"t": [2, 3]})
    assert shell.consumer_group().assignor_fault is None


def test_an_assignor_that_fails_is_not_asked_at_every_heartbeat() -> None:
    asked = []
    shell: ConsumerShell

    class Counting(Moody):
        def assign(self, members: Any, counts: Any) -> Any:
            asked.append(shell.now_ms)
            raise RuntimeError

    shell = ConsumerShell(config(assignors=(Counting(),), assignment_interval_ms=1_000))
    shell.topic("t")
    shell.join("a", "t")
    for _ in range(20):
        shell.advance(100)
        shell.beat("a", 1)
    assert len(asked) == 3


# --- Seen from outside ---------------------------------------------------------------------------


def test_it_is_described_with_what_is_being_given_up(shell: ConsumerShell) -> None:
    """KAFKA-20431."""
    shell.join("a", "t", rack_id="r")
    shell.join("b", "t", instance_id="i")
    shell.beat("a", 2)
    request = ConsumerGroupDescribeRequest(
        group_ids=["g", "x"], include_authorized_operations=False
    )
    group, unknown = shell.ask(request).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    assert group.assignor_name == "uniform"
    a, b = group.members
    assert (a.member_id, a.member_epoch, a.rack_id, a.member_type) == ("a", 2, "r", 1)
    (held,) = a.assignment.topic_partitions
    assert (held.topic_name, list(held.partitions)) == ("t", [0, 1, 2, 3])
    (target,) = a.target_assignment.topic_partitions
    assert list(target.partitions) == [0, 1]
    assert (b.instance_id, list(b.assignment.topic_partitions)) == ("i", [])
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_describe_groups_shows_classic_groups_only(shell: ConsumerShell) -> None:
    shell.join("a", "t")
    new = shell.ask(DescribeGroupsRequest(groups=["g"])).groups[0]
    assert (new.group_state, new.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert new.error_message == "Group g is not a classic group."
    old = shell.ask(DescribeGroupsRequest(groups=["g"]), version=5).groups[0]
    assert (old.group_state, old.error_code) == ("Dead", ErrorCode.NONE)


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ([], [], ["g"]),
        (["stable"], [], ["g"]),
        (["Assigning"], [], []),
        ([], ["Consumer"], ["g"]),
        ([], ["classic"], []),
        ([], ["share"], []),
    ],
)
def test_it_is_listed_with_its_type(
    shell: ConsumerShell, states: list[str], types: list[str], found: list[str]
) -> None:
    shell.join("a", "t")
    groups = shell.ask(ListGroupsRequest(states_filter=states, types_filter=types)).groups
    assert [each.group_id for each in groups] == found
    assert all((g.group_type, g.protocol_type) == ("consumer", "consumer") for g in groups)


def test_only_an_empty_group_is_deleted(shell: ConsumerShell) -> None:
    shell.join("a", "t")
    (result,) = shell.ask(DeleteGroupsRequest(groups_names=["g"])).results
    assert result.error_code == ErrorCode.NON_EMPTY_GROUP
    shell.leave("a")
    (result,) = shell.ask(DeleteGroupsRequest(groups_names=["g"])).results
    assert result.error_code == ErrorCode.NONE
    assert not shell.coordinator.groups
    assert not shell.restarted().coordinator.groups


# --- The journal fails ---------------------------------------------------------------------------


def test_what_is_not_written_has_not_happened(shell: ConsumerShell) -> None:
    a = Client(shell, "a").join("t")
    before = shell.coordinator.durable()
    shell.fail_appends_with = ErrorCode.NOT_ENOUGH_REPLICAS
    joined = shell.join("b", "t")
    assert joined.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shell.leave("a").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shell.coordinator.durable() == before
    shell.fail_appends_with = None
    assert a.beat().error_code == ErrorCode.NONE
    shell.advance(45_000)
    assert not shell.consumer_group().members, "the session of who did not leave goes on"


def test_a_group_that_is_not_written_does_not_exist(shell: ConsumerShell) -> None:
    shell.fail_appends_with = ErrorCode.NOT_ENOUGH_REPLICAS
    shell.join("a", "t")
    shell.fail_appends_with = None
    assert not shell.coordinator.groups
    shell.advance(100_000)
    assert shell.join("a", "t").member_epoch == 2


def test_settings_that_make_no_sense() -> None:
    for wrong in (
        {"min_session_timeout_ms": 70_000},
        {"heartbeat_interval_ms": 45_000},
        {"assignors": ()},
    ):
        with pytest.raises(ValueError, match=r"consumer\."):
            ConsumerGroupConfig(**wrong)  # type: ignore[arg-type]
