"""JoinGroup of a classic group: the checks in Kafka's order, and who comes in how.

no member id, no instance id   a new dynamic member; since v4 it must come back with an id
no member id, instance id      a new static member, or a known one that restarted
member id                      a pending id that is now used, or a member that rejoins
"""

from __future__ import annotations

from shoal.errors import ErrorCode, counted
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.classic_group_member import (
    ClassicGroupMember,
    NamedProtocol,
    member_record,
    replaced,
    vote,
)
from shoal.group.coordinator.classic_rebalance import (
    complete_join_if_ready,
    forget,
    joined,
    member_list,
    prepare_rebalance,
    rebalance_or_complete,
    reset_session,
    session_timer,
    tell,
)
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.decision import Draft, EventKind
from shoal.group.coordinator.java_hash import java_order
from shoal.group.coordinator.journal import GroupRecord, fits
from shoal.group.coordinator.states import GroupState
from shoal.machine.decision import Caller
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.sync_group import SyncGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4
"""KIP-394: before this version a member was added with its first request, and every retry of a
client that had lost patience left another dead member behind (KAFKA-7824)."""

SKIP_ASSIGNMENT_SINCE = 9
"""KIP-814: a leader that restarted is told to leave the assignment as it is (KAFKA-13435)."""

PENDING_IDS_MAX = 10_000
"""Ids of one group given out and not used yet; the oldest makes room. Not in Kafka: a client that
keeps asking could fill the memory."""

PREFIX_LENGTH_MAX = 255
"""Of a client id or instance id in a member id. Kafka takes all of it, however long."""


def request_error(request: JoinGroupRequest, config: GroupConfig) -> ErrorCode:
    """What is wrong with the request whatever the group is."""
    if not request.group_id or not fits(request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if not fits(request.group_instance_id or "") or not fits(request.protocol_type):
        return ErrorCode.INVALID_REQUEST
    if not all(fits(each.name) for each in request.protocols):
        return ErrorCode.INVALID_REQUEST
    lowest, highest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not lowest <= request.session_timeout_ms <= highest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def join(draft: Draft, group: ClassicGroup, request: JoinGroupRequest, caller: Caller) -> None:
    member_id = request.member_id
    if not _has_room(draft.config, group, request):
        _turn_away(draft, group, member_id, caller)
        return
    error = _error(group, request)
    if error is not ErrorCode.NONE:
        draft.reply(caller.ticket, JoinGroupResponse(error_code=error, member_id=member_id))
    elif member_id in group.pending_ids:
        _add(draft, group, member_id, request, caller)
    elif member_id:
        _rejoin(draft, group, group.members[member_id], request, caller)
    elif request.group_instance_id is not None:
        _join_static(draft, group, request.group_instance_id, request, caller)
    elif caller.version >= MEMBER_ID_REQUIRED_SINCE:
        _give_id(draft, group, request, caller)
    else:
        _add(draft, group, new_member_id(draft, caller.client_id), request, caller)


def _error(group: ClassicGroup, request: JoinGroupRequest) -> ErrorCode:
    if not group.supports(request.protocol_type, [each.name for each in request.protocols]):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not request.member_id:
        return ErrorCode.NONE
    if request.member_id in group.pending_ids:
        # Ids are given out to dynamic members only; Kafka fails here in the same way.
        static = request.group_instance_id is not None
        return ErrorCode.UNKNOWN_SERVER_ERROR if static else ErrorCode.NONE
    return group.member_error(request.member_id, request.group_instance_id)


# --- group.max.size ----------------------------------------------------------------------------


def _has_room(config: GroupConfig, group: ClassicGroup, request: JoinGroupRequest) -> bool:
    """While members rejoin, those who wait are counted, so that the last ones to come are turned
    away when the limit was lowered (KAFKA-7641, KAFKA-9885). A static member that restarts takes
    its own place; Kafka refuses it in a full group."""
    known = group.members.get(request.member_id or _occupant(group, request))
    state = group.state
    if state is GroupState.EMPTY:
        return True
    if state is GroupState.PREPARING_REBALANCE:
        awaits = known is not None and known.joining is not None
        return awaits or group.awaiting_join < config.group_max_size
    return known is not None or len(group.members) < config.group_max_size


def _occupant(group: ClassicGroup, request: JoinGroupRequest) -> str:
    return group.static_ids.get(request.group_instance_id or "", "")


def _turn_away(draft: Draft, group: ClassicGroup, member_id: str, caller: Caller) -> None:
    forget(draft, group, member_id)
    draft.reply(caller.ticket, JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
    cause = f"the group has {counted(draft.config.group_max_size, 'member')} already"
    tell(draft, group, EventKind.MEMBER_REFUSED, cause, member_id=member_id or None)
    if group.rebalance is not None:
        complete_join_if_ready(draft, group)


# --- New members -------------------------------------------------------------------------------


def new_member_id(draft: Draft, prefix: str) -> str:
    """Starts with a name people know; the rest makes it unique."""
    return f"{prefix[:PREFIX_LENGTH_MAX] or 'unknown'}-{draft.new_id()}"


def _give_id(draft: Draft, group: ClassicGroup, request: JoinGroupRequest, caller: Caller) -> None:
    if len(group.pending_ids) >= PENDING_IDS_MAX:
        forget(draft, group, next(iter(group.pending_ids)))
    member_id = new_member_id(draft, caller.client_id)
    group.pending_ids[member_id] = None
    draft.arm(session_timer(group, member_id), request.session_timeout_ms)
    draft.reply(
        caller.ticket,
        JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id),
    )


def _add(
    draft: Draft, group: ClassicGroup, member_id: str, request: JoinGroupRequest, caller: Caller
) -> None:
    member = ClassicGroupMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=_protocols(request),
        joining=caller.ticket,
        is_new=True,
    )
    if group.rebalance is not None and group.rebalance.initial:
        group.rebalance.new_member_added = True
    group.add(member, request.protocol_type)
    # It cannot heartbeat before it is answered, and a client that gave up cannot be told from
    # one that waits; so its patience has an end, and if it lives it tries again (KAFKA-9752).
    timeout_ms = draft.config.group_new_member_join_timeout_ms
    draft.arm(session_timer(group, member_id), timeout_ms)
    cause = _because(f"member {member_id} joined", request)
    tell(draft, group, EventKind.MEMBER_JOINED, cause, member_id=member_id)
    rebalance_or_complete(draft, group, cause)


# --- Members that rejoin -----------------------------------------------------------------------


def _rejoin(
    draft: Draft,
    group: ClassicGroup,
    member: ClassicGroupMember,
    request: JoinGroupRequest,
    caller: Caller,
) -> None:
    member_id = member.member_id
    changed = _protocols(request) != member.protocols
    leads = group.leader_id == member_id
    state = group.state
    if state is GroupState.PREPARING_REBALANCE:
        cause = f"member {member_id} rejoined"
    elif changed:
        cause = f"member {member_id} changed its subscription"
    elif leads and state is GroupState.STABLE:
        # Only the leader watches topics, so it alone may ask for a rebalance without a change.
        cause = f"leader {member_id} asked for a rebalance"
    else:
        # The answer to its first join was lost, or it asks for what it has.
        assert group.record is not None
        draft.reply(caller.ticket, joined(group, member, group.record))
        return
    _park(draft, group, member, request, caller)
    rebalance_or_complete(draft, group, _because(cause, request))


def _park(
    draft: Draft,
    group: ClassicGroup,
    member: ClassicGroupMember,
    request: JoinGroupRequest,
    caller: Caller,
) -> None:
    group.update(
        member,
        _protocols(request),
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
    )
    superseded = group.take_join(member)
    if superseded is not None:
        # The client asked again, most likely over a new connection. Nobody may wait for ever.
        draft.reply(superseded, JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    group.park_join(member, caller.ticket)


# --- Static members ----------------------------------------------------------------------------


def _join_static(
    draft: Draft, group: ClassicGroup, instance_id: str, request: JoinGroupRequest, caller: Caller
) -> None:
    new_id = new_member_id(draft, instance_id)
    old_id = group.static_ids.get(instance_id)
    if old_id is None:
        _add(draft, group, new_id, request, caller)
        return
    old = group.members[old_id]
    new = replaced(old, new_id, _protocols(request))
    new.rebalance_timeout_ms = _rebalance_timeout_ms(request)
    new.session_timeout_ms = request.session_timeout_ms
    others = [each.protocols for each in group.members.in_java_order() if each is not old]
    state = group.state
    if state is GroupState.STABLE and vote([*others, new.protocols]) == group.protocol:
        _take_place(draft, group, old, new, caller)
        return
    _fence(draft, group, old, new)
    group.park_join(new, caller.ticket)
    cause = _because(f"static member {instance_id} restarted as {new_id}", request)
    if state is GroupState.PREPARING_REBALANCE:
        complete_join_if_ready(draft, group)
    else:
        # CompletingRebalance: the leader may be assigning to the old id (KAFKA-9801).
        # Stable: another protocol would win the vote now.
        prepare_rebalance(draft, group, cause)


def _fence(
    draft: Draft, group: ClassicGroup, old: ClassicGroupMember, new: ClassicGroupMember
) -> None:
    """Whoever still waits under the old id is another process: it must stop."""
    join_ticket, sync_ticket = group.take_join(old), group.take_sync(old)
    if join_ticket is not None:
        response = JoinGroupResponse(
            error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id
        )
        draft.reply(join_ticket, response)
    if sync_ticket is not None:
        draft.reply(sync_ticket, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    draft.cancel(session_timer(group, old.member_id))
    group.swap(old.member_id, new)
    reset_session(draft, group, new)
    tell(
        draft,
        group,
        EventKind.MEMBER_REPLACED,
        f"{new.member_id} takes the place of {old.member_id}",
        member_id=new.member_id,
    )


def _take_place(
    draft: Draft,
    group: ClassicGroup,
    old: ClassicGroupMember,
    new: ClassicGroupMember,
    caller: Caller,
) -> None:
    """A restart without a rebalance (KIP-345): the new id inherits the assignment.

    The id is journaled, or a restarted coordinator would know the old one only (KAFKA-10284).
    A changed subscription does not count here (KAFKA-12759): only the vote does.
    """
    assert group.record is not None
    record = group.record
    old_leader = record.leader
    leads = old_leader == old.member_id
    record = _renamed(record, old, new)
    group.staged = new
    draft.cancel(session_timer(group, old.member_id))
    reset_session(draft, group, new)
    draft.write(record)
    if caller.version >= SKIP_ASSIGNMENT_SINCE:
        leader, members = record.leader, member_list(record) if leads else []
    else:
        # An old client that saw itself as leader would assign; the old id keeps it quiet.
        leader, members = old_leader, []
    draft.reply(
        caller.ticket,
        JoinGroupResponse(
            generation_id=record.generation,
            protocol_type=record.protocol_type,
            protocol_name=record.protocol,
            leader=leader or "",
            skip_assignment=leads and caller.version >= SKIP_ASSIGNMENT_SINCE,
            member_id=new.member_id,
            members=members,
        ),
    )
    cause = f"{new.member_id} takes the place of {old.member_id}"
    tell(draft, group, EventKind.MEMBER_REPLACED, cause, member_id=new.member_id)


def _renamed(record: GroupRecord, old: ClassicGroupMember, new: ClassicGroupMember) -> GroupRecord:
    """The record with one member under its new id; everything else, time included, as it was."""
    assert record.protocol is not None
    kept = {each.member_id: each for each in record.members}
    assignment = kept.pop(old.member_id).assignment
    kept[new.member_id] = member_record(new, record.protocol, assignment)
    return GroupRecord(
        group_id=record.group_id,
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol,
        leader=new.member_id if record.leader == old.member_id else record.leader,
        state_timestamp_ms=record.state_timestamp_ms,
        members=tuple(kept[member_id] for member_id in java_order(kept)),
    )


# --- From the request --------------------------------------------------------------------------


def _protocols(request: JoinGroupRequest) -> tuple[NamedProtocol, ...]:
    return tuple((each.name, bytes(each.metadata)) for each in request.protocols)


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 does not know it."""
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _because(cause: str, request: JoinGroupRequest) -> str:
    return f"{cause}: {request.reason}" if request.reason else cause
