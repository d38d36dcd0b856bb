"""Loading, serving, unloading: what is answered when, and what a restart remembers."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.coordinator import Coordinator, Phase
from shoal.group.coordinator.decision import EventKind
from shoal.group.coordinator.journal import (
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
)
from shoal.group.coordinator.states import GroupState
from shoal.machine.decision import Caller
from shoal.types import TopicPartition
from shoal.wire.apis.delete_groups import DeleteGroupsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from tests.group.coordinator_shell import (
    SESSION_MS,
    START_MS,
    Shell,
    codes,
    commit,
    delete_offsets,
    fetch,
    fetched,
    heartbeat,
    join,
    leave,
    sync,
    txn_commit,
)

TP = TopicPartition("orders", 0)
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

OLD_FETCH = OffsetFetchRequest(
    group_id="g", topics=[OffsetFetchRequest.Topic(name="orders", partition_indexes=[0])]
)


def ask(coordinator: Coordinator, request: Any, version: int | None = None) -> Any:
    decision = coordinator.handle(
        request,
        Caller(type(request).MAX_VERSION if version is None else version, "c", "/h", "t"),
        START_MS,
    )
    (reply,) = decision.replies
    assert reply.ticket == "t"
    assert not decision.journal
    return reply.response


def error_of(response: Any) -> ErrorCode:
    """Wherever the error stands."""
    for field in ("groups", "results", "topics"):
        inner = getattr(response, field, ())
        if inner:
            return error_of(inner[0])
    partitions = getattr(response, "partitions", ())
    return error_of(partitions[0]) if partitions else ErrorCode.of(response.error_code)


REQUESTS: list[tuple[Any, int | None]] = [
    (join(), None),
    (sync("m", 1), None),
    (leave("m"), None),
    (commit({TP: 1}), None),
    (txn_commit({TP: 1}), None),
    (fetch(TP), None),
    (OLD_FETCH, 7),
    (OLD_FETCH, 1),
    (OffsetFetchRequest(group_id="g", topics=None), 1),
    (delete_offsets(TP), None),
    (ListGroupsRequest(), None),
    (DescribeGroupsRequest(groups=["g"]), None),
    (DeleteGroupsRequest(groups_names=["g"]), None),
]


@pytest.mark.parametrize(("request_", "version"), REQUESTS)
def test_while_it_loads_everybody_has_to_wait(request_: Any, version: int | None) -> None:
    response = ask(Coordinator(new_id=str), request_, version)
    if request_ == OffsetFetchRequest(group_id="g", topics=None):
        assert not response.topics  # Version 1 has no place for an error without partitions.
    else:
        assert error_of(response) == LOADING


def test_while_it_loads_heartbeats_are_taken_on_trust() -> None:
    response = ask(Coordinator(new_id=str), heartbeat("m", 1))
    assert response.error_code == ErrorCode.NONE


@pytest.mark.parametrize("error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_once_unloaded_everybody_is_sent_away(error: ErrorCode) -> None:
    coordinator = Coordinator(new_id=str)
    coordinator.load([], START_MS)
    coordinator.unload(START_MS, error)
    assert coordinator.phase is Phase.UNLOADED
    assert error_of(ask(coordinator, heartbeat("m", 1))) == error
    assert error_of(ask(coordinator, join("m"))) == error
    assert coordinator.next_deadline() is None


def test_who_is_parked_when_it_unloads_is_answered() -> None:
    shell = Shell()
    shell.send(join(group_id="third", instance_id="a", session_ms=60_000))
    shell.send(join(group_id="third", instance_id="b", session_ms=60_000))
    members = shell.stable_group(2)
    joining = shell.send(join(members[0]))
    syncing = shell.send(sync(_follower(shell, "third"), 1, group_id="third"))
    pending = shell.member_id(group_id="fourth")
    assert pending
    groups = list(shell.coordinator.groups)
    shell.obey(shell.coordinator.unload(shell.now_ms))
    assert shell.replies[joining].error_code == ErrorCode.NOT_COORDINATOR
    assert shell.replies[joining].member_id == members[0]
    assert shell.replies[syncing].error_code == ErrorCode.NOT_COORDINATOR
    assert {group.state_name for group in groups} == {"Dead"}
    assert not shell.coordinator.groups


def _follower(shell: Shell, group_id: str) -> str:
    group = shell.group(group_id)
    return next(member_id for member_id in group.members if member_id != group.leader_id)


# --- What a restart remembers --------------------------------------------------------------------


def test_a_stable_group_survives_a_restart() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.ask(commit({TP: 5}, member_id=leader, generation=1))
    again = shell.restarted()
    assert again.coordinator.durable() == shell.coordinator.durable()
    assert again.state() is GroupState.STABLE
    assert again.ask(heartbeat(follower, 1)).error_code == ErrorCode.NONE
    assert again.ask(sync(follower, 1)).assignment == follower.encode()
    assert fetched(again, TP) == [5]
    assert again.group().leader_id == leader


def test_after_a_restart_members_have_a_whole_session_to_show_up() -> None:
    shell = Shell()
    shell.stable_group(1)
    again = shell.restarted()
    again.advance(SESSION_MS - 1)
    assert again.state() is GroupState.STABLE
    again.advance(1)
    assert again.state() is GroupState.EMPTY


def test_a_restart_before_the_assignment_is_stored_keeps_the_generation_and_rebalances() -> None:
    shell = Shell()
    ids = [shell.join_new()[0] for _ in range(2)]
    shell.settle()
    again = shell.restarted()
    assert again.state() is GroupState.PREPARING_REBALANCE
    assert again.group().generation == 1
    assert again.causes(EventKind.REBALANCE_STARTED) == [
        "the coordinator restarted before the assignment was stored"
    ]
    leader, follower = ids
    # The leader of generation 1 may be about to send what it has computed.
    late = again.ask(sync(leader, 1, ids))
    assert late.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    tickets = [again.send(join(member_id)) for member_id in ids]
    assert [again.replies[ticket].generation_id for ticket in tickets] == [2, 2]
    record = shell.group().record
    assert record is not None
    assert again.replies[tickets[0]].leader == record.members[0].member_id
    stale = again.ask(sync(leader, 1, ids))
    assert stale.error_code == ErrorCode.ILLEGAL_GENERATION
    assert follower in again.group().members


def test_members_on_their_way_in_are_forgotten_by_a_restart() -> None:
    shell = Shell()
    member_id, _ = shell.join_new()
    again = shell.restarted()
    assert again.state() is GroupState.EMPTY
    assert again.ask(join(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_loaded_member_is_known_to_speak_the_chosen_protocol_only() -> None:
    shell = Shell()
    _, follower = shell.stable_group(2, names=("range", "roundrobin"))
    again = shell.restarted()
    refused = again.ask(join(names=("roundrobin",)))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    again.send(join(follower, names=("range", "roundrobin")))
    assert again.state() is GroupState.PREPARING_REBALANCE, "as in Kafka, that is a change"


def test_a_group_that_is_larger_than_now_allowed_rebalances() -> None:
    shell = Shell()
    members = shell.stable_group(3)
    again = shell.restarted(GroupConfig(group_max_size=2))
    assert again.state() is GroupState.PREPARING_REBALANCE
    assert again.causes(EventKind.REBALANCE_STARTED) == ["3 members are more than the 2 allowed"]
    tickets = [again.send(join(member_id)) for member_id in members]
    errors = [again.replies[ticket].error_code for ticket in tickets]
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_any_prefix_of_a_journal_loads() -> None:
    shell = Shell()
    leader, follower = shell.stable_group(2)
    shell.ask(commit({TP: 5}, member_id=leader, generation=1))
    shell.send(join(leader))
    shell.send(join(follower))
    shell.send(sync(leader, 2, [leader, follower]))
    shell.ask(txn_commit({TP: 7}))
    shell.obey(shell.coordinator.end_transaction(7, 0, commit=True, now_ms=shell.now_ms))
    shell.ask(leave(leader, follower))
    shell.ask(DeleteGroupsRequest(groups_names=["g"]))
    generation = 0
    for end in range(len(shell.records) + 1):
        again = Shell(records=shell.records[:end])
        group = again.coordinator.group("g")
        if group is not None:
            assert again.group().generation >= generation
            generation = again.group().generation


# --- Journals of others --------------------------------------------------------------------------


def offset_record(offset: int, group_id: str = "g") -> OffsetRecord:
    return OffsetRecord(group_id, "orders", 0, offset, None, "", START_MS)


def test_an_offset_may_come_before_its_group() -> None:
    group = GroupRecord("g", "consumer", 3, None, None, START_MS)
    shell = Shell(records=[offset_record(5), group])
    assert shell.group().generation == 3
    assert fetched(shell, TP) == [5]


def test_tombstones_of_unknown_things_are_nothing() -> None:
    """KAFKA-17306."""
    shell = Shell(records=[GroupTombstone("g"), OffsetTombstone("g", "orders", 0)])
    assert not shell.coordinator.groups


def test_the_latest_record_counts() -> None:
    member = MemberRecord("m", None, "c", "/h", 60_000, 10_000, b"", b"")
    first = GroupRecord("g", "consumer", 3, "range", "m", START_MS, (member,))
    second = GroupRecord("g", "consumer", 9, None, None, START_MS)
    assert Shell(records=[first, second]).state() is GroupState.EMPTY
    assert Shell(records=[second, first]).state() is GroupState.STABLE


def test_loading_twice_is_loading_once() -> None:
    shell = Shell()
    members = shell.stable_group(2)
    shell.ask(commit({TP: 5}, member_id=members[0], generation=1))
    twice = Shell(records=[*shell.records, *shell.records])
    assert twice.group().durable() == shell.group().durable()
    assert fetched(twice, TP) == [5]


# --- Other groups --------------------------------------------------------------------------------


class StrangeGroup:
    """A group of a type whose rules are elsewhere."""

    group_id = "strange"
    type = None
    state_name = "Assigning"
    is_buried = False

    def durable(self) -> None:
        return None

    def bury(self) -> None:
        self.is_buried = True


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (join(group_id="strange"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (sync("m", 1, group_id="strange"), ErrorCode.UNKNOWN_MEMBER_ID),
        (heartbeat("m", 1, group_id="strange"), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_groups_of_another_type_are_left_alone(request_: Any, error: ErrorCode) -> None:
    shell = Shell()
    strange: Any = StrangeGroup()  # a kind of group that does not exist
    shell.coordinator._shard.groups["strange"] = strange
    assert shell.ask(request_).error_code == error
    shell.coordinator._shard.replay(GroupTombstone("strange"), 0, live=True)
    assert list(shell.coordinator.groups) == [strange]
    assert not strange.is_buried


def test_ids_come_from_the_caller() -> None:
    ids = count(7)
    coordinator = Coordinator(new_id=lambda: f"n{next(ids)}", partition=3)
    coordinator.load([], START_MS)
    assert coordinator.partition == 3
    decision = coordinator.handle(join(), Caller(9, "me", "/h", 1), START_MS)
    assert decision.replies[0].response.member_id == "me-n7"
    assert codes(Shell().ask(commit({TP: 1}))) == [ErrorCode.NONE]
