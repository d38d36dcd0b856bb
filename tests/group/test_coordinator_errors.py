"""The error matrix: every request in every state of a group, and by everybody it can come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.states import GroupState
from shoal.types import TopicPartition
from shoal.wire.apis.delete_groups import DeleteGroupsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from tests.group.coordinator_shell import (
    Shell,
    codes,
    commit,
    delete_offsets,
    fetch,
    heartbeat,
    join,
    leave,
    sync,
    txn_commit,
)

TP = TopicPartition("orders", 0)
PARKED = "parked"
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@dataclass
class Scene:
    """A group in some state, and one of its members: a static one called ``a``."""

    shell: Shell
    member_id: str
    generation: int

    @property
    def instance_id(self) -> str:
        return "a"


def missing(protocol_type: str) -> Scene:
    return Scene(Shell(), "m", 1)


def empty(protocol_type: str) -> Scene:
    scene = stable(protocol_type)
    scene.shell.ask(leave((scene.member_id, "a"), ("", "b")))
    assert scene.shell.state() is GroupState.EMPTY
    return scene


def preparing(protocol_type: str) -> Scene:
    scene = stable(protocol_type)
    scene.shell.send(join(instance_id="c", protocol_type=protocol_type))
    assert scene.shell.state() is GroupState.PREPARING_REBALANCE
    return scene


def completing(protocol_type: str) -> Scene:
    """The member is a follower, so that its SyncGroup does not complete the rebalance."""
    shell = Shell()
    shell.send(join(instance_id="b", protocol_type=protocol_type))
    ticket = shell.send(join(instance_id="a", protocol_type=protocol_type))
    shell.settle()
    assert shell.state() is GroupState.COMPLETING_REBALANCE
    return Scene(shell, shell.replies[ticket].member_id, 1)


def stable(protocol_type: str) -> Scene:
    scene = completing(protocol_type)
    leader = scene.shell.group().leader_id
    assert leader is not None
    scene.shell.ask(sync(leader, 1, [leader, scene.member_id], instance_id="b"))
    assert scene.shell.state() is GroupState.STABLE
    return scene


SCENES: dict[str, Callable[[str], Scene]] = {
    "missing": missing,
    "empty": empty,
    "preparing": preparing,
    "completing": completing,
    "stable": stable,
}


def send(scene: Scene, request: Any, version: int | None = None) -> Any:
    ticket = scene.shell.send(request, version=version)
    return scene.shell.replies.get(ticket, PARKED)


def top(response: Any) -> Any:
    return response if response == PARKED else ErrorCode.of(response.error_code)


def check(scene: Scene, expected: Any, actual: Any) -> None:
    assert actual == expected, f"{scene.shell.coordinator.groups}"


# --- By state: a member with the right id and generation -----------------------------------------

BY_STATE = {
    #                missing     empty     preparing    completing   stable
    "sync":         (UNKNOWN,    UNKNOWN,  REBALANCING, PARKED,      NONE),
    "heartbeat":    (UNKNOWN,    UNKNOWN,  REBALANCING, NONE,        NONE),
    "leave":        (UNKNOWN,    UNKNOWN,  NONE,        NONE,        NONE),
    "commit":       (NOT_FOUND,  UNKNOWN,  NONE,        REBALANCING, NONE),
    "old commit":   (ILLEGAL,    UNKNOWN,  NONE,        REBALANCING, NONE),
    "simple":       (NONE,       NONE,     UNKNOWN,     UNKNOWN,     UNKNOWN),
    "simple by id": (NONE,       NONE,     ILLEGAL,     ILLEGAL,     ILLEGAL),
    "txn":          (ILLEGAL,    UNKNOWN,  NONE,        NONE,        NONE),
    "txn simple":   (NONE,       NONE,     NONE,        NONE,        NONE),
    "delete group": (NOT_FOUND,  NONE,     NON_EMPTY,   NON_EMPTY,   NON_EMPTY),
    "delete offset":(NOT_FOUND,  NONE,     SUBSCRIBED,  SUBSCRIBED,  SUBSCRIBED),
}  # fmt: skip


def act(scene: Scene, row: str) -> Any:
    member_id, generation = scene.member_id, scene.generation
    member: dict[str, Any] = {"member_id": member_id, "generation": generation}
    match row:
        case "sync":
            return top(send(scene, sync(member_id, generation, instance_id="a")))
        case "heartbeat":
            return top(send(scene, heartbeat(member_id, generation, instance_id="a")))
        case "leave":
            (answer,) = send(scene, leave((member_id, "a"))).members
            return ErrorCode.of(answer.error_code)
        case "commit":
            return codes(send(scene, commit({TP: 5}, instance_id="a", **member)))[0]
        case "old commit":
            return codes(send(scene, commit({TP: 5}, instance_id="a", **member), 8))[0]
        case "simple":
            return codes(send(scene, commit({TP: 5})))[0]
        case "simple by id":
            return codes(send(scene, commit({TP: 5}, member_id=member_id)))[0]
        case "txn":
            return codes(send(scene, txn_commit({TP: 5}, instance_id="a", **member)))[0]
        case "txn simple":
            return codes(send(scene, txn_commit({TP: 5})))[0]
        case "delete group":
            (result,) = send(scene, DeleteGroupsRequest(groups_names=["g"])).results
            return ErrorCode.of(result.error_code)
        case _:
            response = send(scene, delete_offsets(TP))
            return top(response) or codes(response)[0]


@pytest.mark.parametrize("row", BY_STATE)
@pytest.mark.parametrize("column", SCENES)
def test_what_a_member_is_told_in_each_state(row: str, column: str) -> None:
    scene = SCENES[column]("consumer")
    expected = BY_STATE[row][list(SCENES).index(column)]
    check(scene, expected, act(scene, row))


@pytest.mark.parametrize("column", ["preparing", "completing", "stable"])
def test_a_group_of_another_kind_keeps_all_its_offsets_while_it_has_members(column: str) -> None:
    scene = SCENES[column]("connect")
    response = send(scene, delete_offsets(TP))
    assert response.error_code == NON_EMPTY
    assert not response.topics


def test_a_group_of_another_kind_may_lose_offsets_when_it_is_empty() -> None:
    scene = empty("connect")
    assert codes(send(scene, delete_offsets(TP))) == [NONE]


# --- By who asks: validateMember and the generation ----------------------------------------------

WHO = {
    #                     member id   instance id  generation   error
    "unknown member":    ("ghost",    None,        1,           UNKNOWN),
    "no member id":      ("",         None,        1,           UNKNOWN),
    "unknown instance":  ("member",   "nobody",    1,           UNKNOWN),
    "other's instance":  ("member",   "b",         1,           FENCED),
    "fenced":            ("ghost",    "a",         1,           FENCED),
    "old generation":    ("member",   "a",         0,           ILLEGAL),
    "future generation": ("member",   "a",         2,           ILLEGAL),
}  # fmt: skip


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("what", ["sync", "heartbeat", "commit", "txn"])
@pytest.mark.parametrize("column", ["preparing", "completing", "stable"])
def test_who_is_not_the_member_of_this_generation_is_told_so(
    who: str, what: str, column: str
) -> None:
    scene = SCENES[column]("consumer")
    member_id, instance_id, generation, expected = WHO[who]
    if member_id == "member":
        member_id = scene.member_id
    requests = {
        "sync": sync(member_id, generation, instance_id=instance_id),
        "heartbeat": heartbeat(member_id, generation, instance_id=instance_id),
        "commit": commit(
            {TP: 1}, member_id=member_id, generation=generation, instance_id=instance_id
        ),
        "txn": txn_commit(
            {TP: 1}, member_id=member_id, generation=generation, instance_id=instance_id
        ),
    }
    response = send(scene, requests[what])
    actual = codes(response)[0] if what in ("commit", "txn") else top(response)
    check(scene, expected, actual)


@pytest.mark.parametrize("who", [name for name, row in WHO.items() if row[3] is not ILLEGAL])
def test_leaving_checks_who_but_not_the_generation(who: str) -> None:
    scene = stable("consumer")
    member_id, instance_id, _, expected = WHO[who]
    if member_id == "member":
        member_id = scene.member_id
    (answer,) = send(scene, leave((member_id, instance_id))).members
    assert answer.error_code == expected
    assert scene.shell.state() is GroupState.STABLE


@pytest.mark.parametrize("who", [name for name, row in WHO.items() if row[3] is not ILLEGAL])
def test_joining_checks_who(who: str) -> None:
    scene = stable("consumer")
    member_id, instance_id, _, expected = WHO[who]
    if not member_id:
        return  # A new member.
    if member_id == "member":
        member_id = scene.member_id
    response = send(scene, join(member_id, instance_id=instance_id))
    assert response.error_code == expected
    assert response.member_id == member_id


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"protocol_type": "consumer", "protocol_name": "range"}, NONE),
        ({}, NONE),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_since_version_5_a_sync_names_the_protocol(
    fields: dict[str, str], expected: ErrorCode
) -> None:
    scene = stable("consumer")
    request = sync(scene.member_id, 1, instance_id="a", **fields)
    assert top(send(scene, request)) == expected


# --- Fetching never fails for a group ------------------------------------------------------------


@pytest.mark.parametrize("column", SCENES)
def test_offsets_may_be_fetched_in_every_state(column: str) -> None:
    scene = SCENES[column]("consumer")
    (group,) = send(scene, fetch(TP)).groups
    assert group.error_code == NONE
    (partition,) = group.topics[0].partitions
    assert (partition.committed_offset, partition.committed_leader_epoch) == (-1, -1)
    assert (partition.metadata, partition.error_code) == ("", NONE)


@pytest.mark.parametrize(
    ("column", "state"),
    [
        ("missing", "Dead"),
        ("empty", "Empty"),
        ("preparing", "PreparingRebalance"),
        ("completing", "CompletingRebalance"),
        ("stable", "Stable"),
    ],
)
def test_a_group_is_described_in_every_state(column: str, state: str) -> None:
    scene = SCENES[column]("consumer")
    (group,) = send(scene, DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (group.error_code, group.group_state) == (NONE, state)
    shown = [each.member_metadata for each in group.members]
    assert all(shown) is (column in ("missing", "empty", "stable"))
    assert group.protocol_data == ("range" if column == "stable" else "")


def test_since_version_6_a_group_that_is_not_there_is_an_error() -> None:
    (group,) = Shell().ask(DescribeGroupsRequest(groups=["g"]), version=6).groups
    assert group.error_code == NOT_FOUND
    assert group.error_message == "Group g not found."


# --- Ids that cannot be --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [sync("m", 1, group_id=""), heartbeat("m", 1, group_id=""), leave("m", group_id="")],
)
def test_an_empty_group_id_is_refused(request_: Any) -> None:
    assert Shell().ask(request_).error_code == ErrorCode.INVALID_GROUP_ID


def test_an_empty_group_id_is_refused_for_offsets_except_in_plain_commits_and_fetches() -> None:
    shell = Shell()
    refused = shell.ask(delete_offsets(TP, group_id=""))
    assert refused.error_code == ErrorCode.INVALID_GROUP_ID
    assert codes(shell.ask(txn_commit({TP: 1}, group_id=""))) == [ErrorCode.INVALID_GROUP_ID]
    assert codes(shell.ask(commit({TP: 1}, group_id=""))) == [NONE]
    (group,) = shell.ask(fetch(TP, group_id="")).groups
    assert group.topics[0].partitions[0].committed_offset == 1


@pytest.mark.parametrize("make", [commit, txn_commit])
def test_a_group_id_that_no_record_can_hold_is_refused(make: Callable[..., Any]) -> None:
    request = make({TP: 1}, group_id="g" * 40_000)
    assert codes(Shell().ask(request)) == [ErrorCode.INVALID_GROUP_ID]
