"""ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.journal import GroupTombstone, OffsetTombstone
from shoal.types import TopicPartition
from shoal.wire.apis.delete_groups import DeleteGroupsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from tests.group.coordinator_shell import (
    SESSION_MS,
    TOPIC_METADATA,
    Shell,
    commit,
    fetched,
    join,
    leave,
    txn_commit,
)

TP = TopicPartition("orders", 0)


def three_groups() -> Shell:
    shell = Shell()
    shell.ask(commit({TP: 5}, group_id="simple"))
    shell.stable_group(1, group_id="connectors", protocol_type="connect")
    shell.stable_group(2)
    return shell


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ([], [], ["connectors", "g", "simple"]),
        (["Stable"], [], ["connectors", "g"]),
        (["stable", "EMPTY"], ["Classic"], ["connectors", "g", "simple"]),
        (["Empty"], [], ["simple"]),
        ([], ["consumer"], []),
        (["nonsense"], [], []),
    ],
)
def test_groups_are_listed_by_state_and_type(
    states: list[str], types: list[str], expected: list[str]
) -> None:
    response = three_groups().ask(ListGroupsRequest(states_filter=states, types_filter=types))
    assert sorted(each.group_id for each in response.groups) == expected


def test_a_listed_group_says_what_it_is() -> None:
    response = three_groups().ask(ListGroupsRequest())
    listed = {
        each.group_id: (each.protocol_type, each.group_state, each.group_type)
        for each in response.groups
    }
    assert listed == {
        "simple": ("", "Empty", "classic"),
        "connectors": ("connect", "Stable", "classic"),
        "g": ("consumer", "Stable", "classic"),
    }


def test_a_stable_group_is_described_with_everything() -> None:
    shell = Shell()
    ticket = shell.send(join(instance_id="a"))
    shell.settle()
    (member_id,) = shell.sync_all([shell.replies[ticket]])
    (group,) = shell.ask(DescribeGroupsRequest(groups=["g"])).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert member.member_id == member_id
    assert member.group_instance_id == "a"
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
    assert member.member_metadata == TOPIC_METADATA
    assert member.member_assignment == member_id.encode()


def test_deleting_removes_the_group_with_all_its_offsets() -> None:
    shell = Shell()
    other = TopicPartition("orders", 1)
    shell.ask(commit({TP: 5}))
    shell.ask(txn_commit({TP: 6, other: 7}))
    before = len(shell.records)
    response = shell.ask(DeleteGroupsRequest(groups_names=["g", "g", "unknown"]))
    assert [(each.group_id, each.error_code) for each in response.results] == [
        ("g", ErrorCode.NONE),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert shell.records[before:] == [
        OffsetTombstone("g", *TP),
        OffsetTombstone("g", *other),
        GroupTombstone("g"),
    ]
    # The open transaction cannot bring them back.
    shell.obey(shell.coordinator.end_transaction(7, 0, commit=True, now_ms=shell.now_ms))
    assert fetched(shell, TP, other) == [-1, -1]
    assert not shell.coordinator.groups
    assert shell.causes(EventKind.GROUP_REMOVED) == ["an administrator"]
    assert shell.restarted().coordinator.durable() == shell.coordinator.durable()


def test_deleting_a_group_with_ids_on_their_way_leaves_no_timer_behind() -> None:
    shell = Shell()
    member_id = shell.member_id()
    shell.ask(DeleteGroupsRequest(groups_names=["g"]))
    assert shell.ask(join(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    shell.member_id()
    shell.advance(SESSION_MS)
    assert not shell.group().pending_ids


def test_a_deleted_group_may_begin_again() -> None:
    shell = Shell()
    (member_id,) = shell.stable_group(1)
    shell.ask(leave(member_id))
    shell.ask(DeleteGroupsRequest(groups_names=["g"]))
    shell.stable_group(1)
    assert shell.group().generation == 1
