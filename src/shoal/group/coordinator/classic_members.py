"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup there.

Such a group has no leader and nobody waits for anybody: a JoinGroup is a heartbeat of the new
protocol in other words, answered at once with the member's epoch as the generation. A Heartbeat
tells the member to join again when there is something for it to do. A cooperative member that must
give something up joins, syncs with less, and is told to join again; an eager one comes with nothing
in its hands in the first place. The coordinator need not know which it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.errors import ErrorCode, InvalidMessageError
from shoal.group.coordinator import consumer_fencing, migration
from shoal.group.coordinator.classic_group_member import CONSUMER_PROTOCOL_TYPE
from shoal.group.coordinator.classic_join import MEMBER_ID_REQUIRED_SINCE, new_member_id
from shoal.group.coordinator.config import MigrationPolicy
from shoal.group.coordinator.consumer_group import ConsumerGroup
from shoal.group.coordinator.consumer_group_member import ConsumerGroupMember, new_member
from shoal.group.coordinator.consumer_heartbeat import full_refusal, take_place
from shoal.group.coordinator.consumer_journal import (
    ClassicProtocols,
    ConsumerRecord,
    ReconciliationState,
)
from shoal.group.coordinator.consumer_timers import JOIN, SESSION, SYNC
from shoal.group.coordinator.decision import Draft, EventKind
from shoal.group.coordinator.journal import fits
from shoal.group.coordinator.member_update import (
    GroupRefusal,
    RegexChange,
    note_member,
    note_regex,
    step,
    update,
    update_epoch,
)
from shoal.group.coordinator.migration import assignment_bytes, by_topic_id
from shoal.group.coordinator.target_assignment import last_target
from shoal.machine.decision import Caller
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from shoal.wire.consumer_protocol import ConsumerProtocolSubscription

# --- JoinGroup ---------------------------------------------------------------------------------


def join(draft: Draft, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller) -> None:
    """Into a group that has members; the request's own faults were looked for already."""
    error = _join(draft, group, request, caller)
    if error is not ErrorCode.NONE:
        response = JoinGroupResponse(error_code=error, member_id=request.member_id)
        draft.reply(caller.ticket, response)


def _join(
    draft: Draft, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller
) -> ErrorCode:
    if draft.config.consumer.migration_policy is MigrationPolicy.DISABLED:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not fits(request.member_id):
        return ErrorCode.UNKNOWN_MEMBER_ID  # Any id may join here, as in Kafka, if it can be kept.
    instance_id = request.group_instance_id
    is_known = request.member_id in group.members or instance_id in group.static_ids
    if not is_known and full_refusal(draft, group) is not None:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    names = {each.name for each in request.protocols}
    if not group.supports_classic(request.protocol_type, names):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    try:
        subscription = ConsumerProtocolSubscription.decode(request.protocols[0].metadata)
    except InvalidMessageError:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member_id = request.member_id or new_member_id(draft, caller.client_id)
    is_new = not request.member_id
    if is_new and instance_id is None and caller.version >= MEMBER_ID_REQUIRED_SINCE:
        draft.reply(
            caller.ticket,
            JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id),
        )
        return ErrorCode.NONE
    changes: list[ConsumerRecord] = []
    old = _joining_member(draft, group, member_id, instance_id, changes, is_new=is_new)
    if isinstance(old, GroupRefusal):
        return old.error
    new = _told(old, request, subscription, caller)
    moved = _update(draft, group, old, new, subscription, changes)
    if isinstance(moved, GroupRefusal):
        return moved.error
    _answer_join(draft, moved, request, caller)
    return ErrorCode.NONE


def _joining_member(
    draft: Draft,
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    changes: list[ConsumerRecord],
    *,
    is_new: bool,
) -> ConsumerGroupMember | GroupRefusal:
    if instance_id is None:
        return group.members.get(member_id) or new_member(group.group_id, member_id)
    if not is_new:
        return consumer_fencing.static_member(group, member_id, instance_id)
    holder = group.static_member(instance_id)
    if holder is None:
        return new_member(group.group_id, member_id)
    return take_place(draft, group, holder, member_id, changes)


def _told(
    old: ConsumerGroupMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    caller: Caller,
) -> ConsumerGroupMember:
    """A classic member has no expression, also in the place of one that had (KAFKA-19720)."""
    timeout_ms = request.rebalance_timeout_ms
    if timeout_ms < 0:
        timeout_ms = request.session_timeout_ms  # Version 0 does not know it.
    metadata = old.metadata._replace(
        instance_id=request.group_instance_id or old.metadata.instance_id,
        rack_id=subscription.rack_id or old.metadata.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=frozenset(subscription.topics),
        regex="",
        rebalance_timeout_ms=timeout_ms,
        classic=ClassicProtocols(
            request.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        ),
    )
    return old._replace(metadata=metadata)


def _update(
    draft: Draft,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    subscription: ConsumerProtocolSubscription,
    changes: list[ConsumerRecord],
) -> ConsumerGroupMember | GroupRefusal:
    owned = by_topic_id(subscription.owned_partitions, draft.image)
    replaced = group.static_member(new.metadata.instance_id)
    if (
        replaced is not None
        and replaced.member_id != new.member_id
        and not replaced.is_classic
        and migration.may_downgrade_with(draft, group)
    ):
        return _downgrade(draft, group, replaced, old, new, owned, changes)
    updated = update(draft, group, old, new, owned, changes, any_regex_change_bumps=True)
    if isinstance(updated, GroupRefusal):
        return updated
    draft.write_all(changes)
    return updated.member


def _downgrade(
    draft: Draft,
    group: ConsumerGroup,
    replaced: ConsumerGroupMember,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    owned: dict[bytes, list[int]],
    changes: list[ConsumerRecord],
) -> ConsumerGroupMember | GroupRefusal:
    """The last member of the new protocol comes back as a classic one.

    Without a rebalance, unless the target is older than the subscriptions (KAFKA-19546, 20273).
    """
    topics_changed = note_member(old, new, changes)
    regex = note_regex(draft, group, old, new, changes)
    if isinstance(regex, GroupRefusal):
        return regex
    changed = topics_changed or regex is not RegexChange.NONE
    epoch = update_epoch(draft, group, old, new, changes, bump=changed)
    rebalances = group.target_epoch < epoch
    moved: ConsumerGroupMember | GroupRefusal = new
    if not rebalances:
        target = last_target(group, new)
        moved = step(draft, group, new, target, owned, changes, subscription_changed=changed)
    if isinstance(moved, GroupRefusal):
        return moved
    migration.downgrade_with(draft, group, replaced, moved, changes, rebalances=rebalances)
    return moved


def _answer_join(
    draft: Draft, member: ConsumerGroupMember, request: JoinGroupRequest, caller: Caller
) -> None:
    metadata = member.metadata
    assert metadata.classic is not None
    group_id, member_id = metadata.group_id, metadata.member_id
    draft.cancel((JOIN, group_id, member_id))
    draft.arm((SESSION, group_id, member_id), request.session_timeout_ms)
    draft.arm((SYNC, group_id, member_id), metadata.rebalance_timeout_ms)
    draft.reply(
        caller.ticket,
        JoinGroupResponse(
            generation_id=member.current.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=metadata.classic.protocols[0][0],
            member_id=member_id,
        ),
    )


# --- SyncGroup and Heartbeat -------------------------------------------------------------------


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerGroupMember | ErrorCode:
    found = consumer_fencing.leaving_member(group, member_id, instance_id)
    if isinstance(found, GroupRefusal):
        return found.error
    if not found.is_classic:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if found.current.member_epoch != generation:
        return ErrorCode.ILLEGAL_GENERATION
    return found


def sync(draft: Draft, group: ConsumerGroup, request: SyncGroupRequest, caller: Caller) -> None:
    member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    error = member if isinstance(member, ErrorCode) else _sync_error(draft, group, member, request)
    if isinstance(member, ErrorCode) or error is not ErrorCode.NONE:
        draft.reply(caller.ticket, SyncGroupResponse(error_code=error))
        return
    classic = member.metadata.classic
    assert classic is not None
    draft.cancel((SYNC, group.group_id, member.member_id))
    draft.arm((SESSION, group.group_id, member.member_id), classic.session_timeout_ms)
    held = {topic_id: sorted(epochs) for topic_id, epochs in member.current.assigned.items()}
    draft.reply(
        caller.ticket,
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(held, draft.image, classic.protocols[0][1]),
        ),
    )


def _sync_error(
    draft: Draft, group: ConsumerGroup, member: ConsumerGroupMember, request: SyncGroupRequest
) -> ErrorCode:
    classic = member.metadata.classic
    assert classic is not None
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
        request.protocol_name not in (None, classic.protocols[0][0])
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    current = member.current
    if (
        group.target_epoch > current.member_epoch
        and current.state is not ReconciliationState.UNREVOKED_PARTITIONS
    ):
        _call_to_join(draft, member)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def heartbeat(draft: Draft, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
    member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    if isinstance(member, ErrorCode):
        return member
    classic = member.metadata.classic
    assert classic is not None
    draft.arm((SESSION, group.group_id, member.member_id), classic.session_timeout_ms)
    if not _has_something_to_do(draft, group, member):
        return ErrorCode.NONE
    _call_to_join(draft, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _has_something_to_do(draft: Draft, group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """The target counts, not the group epoch: before there is one, joining gives nothing
    (KAFKA-20272). Unless nobody but classic members is left (a policy may forbid the way back): no
    other request would make one, and in Kafka the partitions of whoever left stay nobody's."""
    if group.classic_count == len(group.members) and _needs_target(draft, group):
        return True
    current = member.current
    match current.state:
        case _ if current.member_epoch < group.target_epoch:
            return True
        case ReconciliationState.UNREVOKED_PARTITIONS:
            return True
        case ReconciliationState.UNRELEASED_PARTITIONS:
            return not _waits_for_others(group, member)
    return False


def _needs_target(draft: Draft, group: ConsumerGroup) -> bool:
    """Somebody has left, or topics are not what they were."""
    if group.epoch > group.target_epoch:
        return True
    if group.metadata_known_for is not None:
        return False
    if draft.image.metadata_hash(group.topic_counts, group.group_id) != group.metadata_hash:
        return True
    group.metadata_known_for = group.epoch
    return False


def _waits_for_others(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    return any(
        number not in member.current.assigned.get(topic_id, ())
        and not group.is_free(topic_id, number)
        for topic_id, numbers in group.target_of(member.member_id).items()
        for number in numbers
    )


def _call_to_join(draft: Draft, member: ConsumerGroupMember) -> None:
    """Its time runs from the first call."""
    metadata = member.metadata
    timer = (JOIN, metadata.group_id, metadata.member_id)
    if draft.timers.deadline(timer) is None:
        draft.arm(timer, metadata.rebalance_timeout_ms)


# --- LeaveGroup --------------------------------------------------------------------------------


def leave(
    draft: Draft, group: ConsumerGroup, leaving: Sequence[LeaveGroupRequest.MemberIdentity]
) -> list[ErrorCode]:
    """Of any member, also of the new protocol: administrators remove members in this way."""
    errors, gone = [], {}
    for each in leaving:
        found: ConsumerGroupMember | GroupRefusal | None
        if each.group_instance_id is not None and not each.member_id:
            found = group.static_member(each.group_instance_id)
        else:
            found = consumer_fencing.leaving_member(group, each.member_id, each.group_instance_id)
        if isinstance(found, ConsumerGroupMember):
            gone[found.member_id] = found
            errors.append(ErrorCode.NONE)
        else:
            errors.append(ErrorCode.UNKNOWN_MEMBER_ID if found is None else found.error)
    cause = f"{', '.join(gone)} left"
    consumer_fencing.fence(draft, group, list(gone.values()), EventKind.MEMBER_LEFT, cause)
    return errors
