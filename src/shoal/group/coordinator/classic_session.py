"""SyncGroup, Heartbeat and LeaveGroup of a classic group."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.errors import ErrorCode
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.classic_rebalance import (
    complete_join_if_ready,
    forget,
    prepare_rebalance,
    reset_session,
    sync_timer,
    tell,
)
from shoal.group.coordinator.decision import Draft, EventKind
from shoal.group.coordinator.states import GroupState
from shoal.machine.decision import Caller
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from shoal.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

BATCHED_SINCE = 3
"""Of LeaveGroup: several members at once, each with its own error (KIP-345)."""

# --- SyncGroup ---------------------------------------------------------------------------------


def sync(draft: Draft, group: ClassicGroup, request: SyncGroupRequest, caller: Caller) -> None:
    error = _sync_error(group, request)
    if error is not ErrorCode.NONE:
        draft.reply(caller.ticket, SyncGroupResponse(error_code=error))
        return
    member = group.members[request.member_id]
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        draft.cancel(sync_timer(group))
    if group.state is GroupState.STABLE:
        draft.reply(caller.ticket, _synced(group, group.assignment(member.member_id)))
        return
    superseded = group.take_sync(member)
    if superseded is not None:
        response = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        draft.reply(superseded, response)
    member.syncing = caller.ticket
    if member.member_id == group.leader_id:
        _store_assignment(draft, group, request)


def _sync_error(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    error = group.member_error(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(
        request.protocol_name, group.protocol
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(asked: str | None, known: str | None) -> bool:
    """Before v5 a request does not name the protocol."""
    return asked is not None and known is not None and asked != known


def _store_assignment(draft: Draft, group: ClassicGroup, request: SyncGroupRequest) -> None:
    """Who is left out by the leader gets an empty assignment; who is unknown is ignored."""
    assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
    draft.write(
        group.next_record(
            generation=group.generation,
            leader=group.leader_id,
            now_ms=draft.now_ms,
            protocol=group.protocol,
            assignments=assignments,
        )
    )
    for member in group.members.values():
        ticket = group.take_sync(member)
        if ticket is not None:
            draft.reply(ticket, _synced(group, assignments.get(member.member_id, b"")))
            # Its session was not watched while the request was parked.
            reset_session(draft, group, member)
    began = group.last_rebalance
    tell(
        draft,
        group,
        EventKind.STABLE,
        began.cause if began else "",
        duration_ms=draft.now_ms - began.started_ms if began else None,
    )


def _synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )


# --- Heartbeat ---------------------------------------------------------------------------------


def heartbeat(draft: Draft, group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
    """Also between JoinGroup and SyncGroup a heartbeat keeps the session (KAFKA-10134)."""
    error = group.member_error(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    reset_session(draft, group, group.members[request.member_id])
    if group.rebalance is not None:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


# --- LeaveGroup --------------------------------------------------------------------------------


def leaving(request: LeaveGroupRequest, version: int) -> Sequence[LeaveGroupRequest.MemberIdentity]:
    """Who leaves. Before v3 it was one, without an instance id."""
    if version >= BATCHED_SINCE:
        return request.members
    return [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]


def left(
    leaving: Sequence[LeaveGroupRequest.MemberIdentity], errors: Sequence[ErrorCode], version: int
) -> LeaveGroupResponse:
    if version < BATCHED_SINCE:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=error,
            )
            for each, error in zip(leaving, errors, strict=True)
        ]
    )


def leave(
    draft: Draft, group: ClassicGroup, leaving: Sequence[LeaveGroupRequest.MemberIdentity]
) -> list[ErrorCode]:
    """Remove some members at once, then rebalance once."""
    size = len(group.members)
    errors = [_leave(draft, group, each) for each in leaving]
    if group.rebalance is not None:
        complete_join_if_ready(draft, group)
    elif len(group.members) < size:
        gone = [
            each.member_id or each.group_instance_id or ""
            for each, error in zip(leaving, errors, strict=True)
            if error is ErrorCode.NONE
        ]
        prepare_rebalance(draft, group, f"{', '.join(gone)} left")
    return errors


def _leave(
    draft: Draft, group: ClassicGroup, leaving: LeaveGroupRequest.MemberIdentity
) -> ErrorCode:
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if not member_id:
        # An administrator removes a static member by the name it knows.
        member_id = group.static_ids.get(instance_id or "", "")
    elif member_id in group.pending_ids:
        forget(draft, group, member_id)
        return ErrorCode.NONE
    error = group.member_error(member_id, instance_id)
    if error is ErrorCode.NONE:
        forget(draft, group, member_id)
        cause = f"member {member_id} left"
        if leaving.reason:
            cause = f"{cause}: {leaving.reason}"
        tell(draft, group, EventKind.MEMBER_LEFT, cause, member_id=member_id)
    return error
