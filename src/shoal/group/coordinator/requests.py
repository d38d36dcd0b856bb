"""Which rule answers which request.

Rule: look up the group, check that the request can be about it at all, pass it on. What the
answer is, is decided in the modules this one calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shoal.errors import ErrorCode
from shoal.group.coordinator import (
    admin,
    classic_join,
    classic_members,
    classic_session,
    consumer_heartbeat,
    offset_fetch,
    offset_requests,
)
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.consumer_group import ConsumerGroup
from shoal.group.coordinator.decision import Draft
from shoal.group.coordinator.group_shard import GroupShard
from shoal.group.coordinator.journal import GroupRecord, fits
from shoal.group.coordinator.refusals import refusal
from shoal.machine.decision import Caller
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from shoal.wire.apis.delete_groups import DeleteGroupsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from shoal.wire.apis.txn_offset_commit import TxnOffsetCommitRequest


def answer(shard: GroupShard, draft: Draft, request: Any, caller: Caller) -> None:
    """Draft the decision about one request."""
    _HANDLERS[type(request)](shard, draft, request, caller)


def _join(shard: GroupShard, draft: Draft, request: JoinGroupRequest, caller: Caller) -> None:
    error = classic_join.request_error(request, draft.config)
    group = shard.groups.get(request.group_id)
    makes_group = group is None or (isinstance(group, ConsumerGroup) and not group.members)
    if error is ErrorCode.NONE and makes_group and request.member_id:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    elif error is ErrorCode.NONE and not isinstance(group, ClassicGroup | ConsumerGroup | None):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is not ErrorCode.NONE:
        response = JoinGroupResponse(error_code=error, member_id=request.member_id)
        draft.reply(caller.ticket, response)
    elif isinstance(group, ClassicGroup):
        classic_join.join(draft, group, request, caller)
    elif isinstance(group, ConsumerGroup) and not makes_group:
        classic_members.join(draft, group, request, caller)
    else:
        _found(shard, draft, request, caller)


def _found(shard: GroupShard, draft: Draft, request: JoinGroupRequest, caller: Caller) -> None:
    """The first to join makes the group; a request that is refused does not.

    A consumer group without members makes room for it; its offsets stay.
    """
    before = shard.groups.get(request.group_id)
    group = ClassicGroup(request.group_id)
    classic_join.join(draft, group, request, caller)
    if group.members or group.pending_ids:
        if before is not None:
            draft.write_all(before.tombstones())
        shard.forming = group
        draft.write(GroupRecord(group.group_id, None, 0, None, None, draft.now_ms))


def _sync(shard: GroupShard, draft: Draft, request: SyncGroupRequest, caller: Caller) -> None:
    group = shard.groups.get(request.group_id) if request.group_id else None
    if isinstance(group, ClassicGroup):
        classic_session.sync(draft, group, request, caller)
    elif isinstance(group, ConsumerGroup):
        classic_members.sync(draft, group, request, caller)
    else:
        error = _missing(request.group_id)
        draft.reply(caller.ticket, SyncGroupResponse(error_code=error))


def _heartbeat(shard: GroupShard, draft: Draft, request: HeartbeatRequest, caller: Caller) -> None:
    group = shard.groups.get(request.group_id) if request.group_id else None
    if isinstance(group, ClassicGroup):
        error = classic_session.heartbeat(draft, group, request)
    elif isinstance(group, ConsumerGroup):
        error = classic_members.heartbeat(draft, group, request)
    else:
        error = _missing(request.group_id)
    draft.reply(caller.ticket, HeartbeatResponse(error_code=error))


def _leave(shard: GroupShard, draft: Draft, request: LeaveGroupRequest, caller: Caller) -> None:
    if not request.group_id:
        draft.reply(caller.ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    leaving = classic_session.leaving(request, caller.version)
    group = shard.groups.get(request.group_id)
    if isinstance(group, ClassicGroup):
        errors = classic_session.leave(draft, group, leaving)
    elif isinstance(group, ConsumerGroup):
        errors = classic_members.leave(draft, group, leaving)
    else:
        errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
    draft.reply(caller.ticket, classic_session.left(leaving, errors, caller.version))


def _commit(shard: GroupShard, draft: Draft, request: OffsetCommitRequest, caller: Caller) -> None:
    """The empty id is a group here, for the sake of old clients that commit without a name."""
    if fits(request.group_id):
        offset_requests.commit(draft, shard.groups.get(request.group_id), request, caller)
    else:
        response = refusal(request, ErrorCode.INVALID_GROUP_ID, caller.version)
        draft.reply(caller.ticket, response)


def _txn_commit(
    shard: GroupShard, draft: Draft, request: TxnOffsetCommitRequest, caller: Caller
) -> None:
    if request.group_id and fits(request.group_id):
        group = shard.groups.get(request.group_id)
        offset_requests.commit_in_transaction(draft, group, request, caller)
    else:
        response = refusal(request, ErrorCode.INVALID_GROUP_ID, caller.version)
        draft.reply(caller.ticket, response)


def _fetch(shard: GroupShard, draft: Draft, request: OffsetFetchRequest, caller: Caller) -> None:
    response = offset_fetch.fetch(shard.offsets, shard.groups, request, caller.version)
    draft.reply(caller.ticket, response)


def _delete_offsets(
    shard: GroupShard, draft: Draft, request: OffsetDeleteRequest, caller: Caller
) -> None:
    if not request.group_id:
        draft.reply(caller.ticket, OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    group = shard.groups.get(request.group_id)
    offset_requests.delete(draft, shard.offsets, group, request, caller)


def _list(shard: GroupShard, draft: Draft, request: ListGroupsRequest, caller: Caller) -> None:
    draft.reply(caller.ticket, admin.list_groups(shard.groups.values(), request))


def _describe(
    shard: GroupShard, draft: Draft, request: DescribeGroupsRequest, caller: Caller
) -> None:
    response = admin.describe_groups(shard.groups, request, caller.version)
    draft.reply(caller.ticket, response)


def _describe_consumer(
    shard: GroupShard, draft: Draft, request: ConsumerGroupDescribeRequest, caller: Caller
) -> None:
    draft.reply(caller.ticket, admin.describe_consumer_groups(draft, shard.groups, request))


def _delete(shard: GroupShard, draft: Draft, request: DeleteGroupsRequest, caller: Caller) -> None:
    response = admin.delete_groups(draft, shard.offsets, shard.groups, request)
    draft.reply(caller.ticket, response)


def _missing(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID


_HANDLERS: Final[dict[type, Callable[[GroupShard, Draft, Any, Caller], None]]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: _sync,
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave,
    OffsetCommitRequest: _commit,
    TxnOffsetCommitRequest: _txn_commit,
    OffsetFetchRequest: _fetch,
    OffsetDeleteRequest: _delete_offsets,
    ListGroupsRequest: _list,
    DescribeGroupsRequest: _describe,
    ConsumerGroupDescribeRequest: _describe_consumer,
    ConsumerGroupHeartbeatRequest: consumer_heartbeat.heartbeat,
    DeleteGroupsRequest: _delete,
}
