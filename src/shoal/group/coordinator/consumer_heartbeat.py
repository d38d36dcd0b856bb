"""ConsumerGroupHeartbeat: a member joins, stays in or leaves a consumer group (KIP-848).

The checks come in Kafka's order, since clients tell apart what they are refused for. What the
request changes is in ``member_update.py``; who leaves, in ``consumer_fencing.py``.

How often members are to come is told in every answer, and clients obey each one. Unless somebody
configured it, it follows the group: often while partitions are on their way, because every move
takes a heartbeat of the one who gives and one of the one who takes; seldom in large groups at rest.
"""

from __future__ import annotations

from typing import Final

from shoal.errors import ErrorCode
from shoal.group.coordinator import consumer_fencing, migration
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.consumer_group import ConsumerGroup
from shoal.group.coordinator.consumer_group_member import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    ConsumerGroupMember,
    new_member,
)
from shoal.group.coordinator.consumer_journal import (
    ConsumerMemberMetadata,
    ConsumerRecord,
    PartitionEpochs,
    TargetAssignment,
    member_tombstones,
)
from shoal.group.coordinator.consumer_timers import arm_session
from shoal.group.coordinator.decision import Draft, EventKind, GroupEvent
from shoal.group.coordinator.group_interface import Group
from shoal.group.coordinator.group_shard import GroupShard
from shoal.group.coordinator.journal import KindRecord, fits
from shoal.group.coordinator.member_update import GroupRefusal, Update, update
from shoal.group.coordinator.reconciliation import Owned, owned_of
from shoal.machine.decision import Caller
from shoal.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

JOINS: Final = 0
"""A member epoch: the member joins, or joins again after it lost track."""

OWN_ID_SINCE: Final = 1
"""Of ConsumerGroupHeartbeat: clients make their member ids themselves (KIP-1082)."""

MOVING_INTERVAL_MS: Final = 500
"""While partitions are on their way. librdkafka looks at its group no more often."""
RESTING_INTERVAL_MIN_MS: Final = 1_000
RESTING_INTERVAL_MAX_MS: Final = 5_000
"""Kafka's own interval."""
MOVING_PER_MEMBER_MS: Final = 1
RESTING_PER_MEMBER_MS: Final = 50
"""A thousand heartbeats a second while partitions move and twenty at rest, not more."""


def heartbeat(
    shard: GroupShard, draft: Draft, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> None:
    refusal = _request_fault(draft, request, caller.version)
    if refusal is None and request.member_epoch in (LEAVES, LEAVES_FOR_A_WHILE):
        group = shard.groups.get(request.group_id)
        refusal = _not_found(group, request.group_id, "Group")
        if isinstance(group, ConsumerGroup):
            refusal = consumer_fencing.leave(draft, group, request, caller)
    elif refusal is None:
        refusal = _stay(shard, draft, request, caller)
    if refusal is not None:
        draft.reply(
            caller.ticket,
            ConsumerGroupHeartbeatResponse(error_code=refusal.error, error_message=refusal.message),
        )


# --- What is wrong with a request, whatever the group is ---------------------------------------


def _request_fault(
    draft: Draft, request: ConsumerGroupHeartbeatRequest, version: int
) -> GroupRefusal | None:
    message = _invalid(request, version)
    if message is not None:
        return GroupRefusal(ErrorCode.INVALID_REQUEST, message)
    assignor = request.server_assignor
    if assignor is not None and draft.config.consumer.assignor(assignor) is None:
        known = ", ".join(each.name for each in draft.config.consumer.assignors)
        return GroupRefusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {known}.",
        )
    return None


def _invalid(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    epoch = request.member_epoch
    needs_id = version >= OWN_ID_SINCE or epoch > 0 or epoch == LEAVES
    if needs_id and not request.member_id.strip():
        return "MemberId can't be empty."
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if epoch == JOINS:
        return _invalid_join(request)
    if epoch == LEAVES_FOR_A_WHILE and request.instance_id is None:
        return "InstanceId can't be null."
    if epoch < LEAVES_FOR_A_WHILE:
        return "MemberEpoch is invalid."
    return _too_long(request)


def _invalid_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )
    return _too_long(request)


def _too_long(request: ConsumerGroupHeartbeatRequest) -> str | None:
    """Keys of the journal hold no longer texts; Kafka trips over them later."""
    texts = (
        ("GroupId", request.group_id),
        ("MemberId", request.member_id),
        ("SubscribedTopicRegex", request.subscribed_topic_regex or ""),
    )
    return next((f"{name} is too long." for name, text in texts if not fits(text)), None)


# --- Joining and staying -----------------------------------------------------------------------


def _stay(
    shard: GroupShard, draft: Draft, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> GroupRefusal | None:
    records: list[KindRecord] = []
    before = shard.groups.get(request.group_id)
    group = _group(draft, before, request, records)
    if isinstance(group, GroupRefusal):
        return group
    changes: list[ConsumerRecord] = []
    old = _full(draft, group, request) or _member(draft, group, request, changes)
    if isinstance(old, GroupRefusal):
        return old
    told = _told(old, request, caller)
    new = old if told is old.metadata else old._replace(metadata=told)
    owned = _owned(request)
    updated = update(draft, group, old, new, owned, changes)
    if isinstance(updated, GroupRefusal):
        return updated
    if isinstance(before, ClassicGroup) and before.members:
        migration.leave_classic(draft, before)
    draft.write_all(records)
    draft.write_all(changes)
    if request.member_epoch == JOINS and old.member_id not in group.members:
        _tell_join(draft, group, updated)
    arm_session(draft, group.group_id, new.member_id)
    draft.reply(caller.ticket, _answer(draft, group, old, updated, request))
    return None


def _group(
    draft: Draft,
    group: Group | None,
    request: ConsumerGroupHeartbeatRequest,
    records: list[KindRecord],
) -> ConsumerGroup | GroupRefusal:
    """The group as the request finds it, or as it makes it; then ``records`` say how."""
    if isinstance(group, ConsumerGroup):
        return group
    joins = request.member_epoch == JOINS
    refusal = _not_found(group, request.group_id)
    if refusal is not None and not (joins and isinstance(group, ClassicGroup | None)):
        return refusal
    made = ConsumerGroup(request.group_id)
    if group is None:
        return made
    assert isinstance(group, ClassicGroup)
    records += group.tombstones()
    if group.is_removable:
        return made
    refusal = migration.upgrade_refusal(draft, group)
    if refusal is not None:
        return refusal
    upgrade = migration.upgraded(draft, group)
    if isinstance(upgrade, GroupRefusal):
        return upgrade
    records += upgrade
    for record in upgrade:
        made.replay(record, live=False)
    return made


def _not_found(
    group: Group | None, group_id: str, what: str = "Consumer group"
) -> GroupRefusal | None:
    """Kafka has one word for it when somebody leaves, and another when somebody stays."""
    if group is None:
        return GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id} not found.")
    if isinstance(group, ConsumerGroup):
        return None
    return GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def _full(
    draft: Draft, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
) -> GroupRefusal | None:
    """Who is in, or comes back to a place of its own (KAFKA-20601), does not need room."""
    if request.instance_id in group.static_ids or request.member_id in group.members:
        return None
    return full_refusal(draft, group)


def full_refusal(draft: Draft, group: ConsumerGroup) -> GroupRefusal | None:
    limit = draft.config.consumer.max_size
    if len(group.members) < limit:
        return None
    return GroupRefusal(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The consumer group has reached its maximum capacity of {limit} members.",
    )


def _member(
    draft: Draft,
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    changes: list[ConsumerRecord],
) -> ConsumerGroupMember | GroupRefusal:
    """The member as it was before this request; a new one if it joins."""
    member_id = request.member_id or draft.new_id()
    epoch, instance_id = request.member_epoch, request.instance_id
    if instance_id is None:
        known = group.members.get(member_id)
        if known is None:
            if epoch == JOINS:
                return new_member(group.group_id, member_id)
            return consumer_fencing.unknown_member(group, member_id)
        return _epoch_fault(known, epoch, _owned(request)) or known
    if epoch != JOINS:
        found = consumer_fencing.static_member(group, member_id, instance_id)
        if isinstance(found, GroupRefusal):
            return found
        return _epoch_fault(found, epoch, _owned(request)) or found
    holder = group.static_member(instance_id)
    if holder is None:
        return group.members.get(member_id) or new_member(group.group_id, member_id)
    if not holder.is_away and not holder.is_classic:
        return GroupRefusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {holder.member_id} member.",
        )
    return take_place(draft, group, holder, member_id, changes)


def _epoch_fault(
    member: ConsumerGroupMember, epoch: int, owned: Owned | None
) -> GroupRefusal | None:
    """Kafka accepts epoch 0 of somebody it knows since KAFKA-19233: an answer was lost. The same
    if the member has its last epoch and no more than it was given."""
    current = member.current
    if epoch in (JOINS, current.member_epoch):
        return None
    if (
        epoch < current.member_epoch
        and epoch == current.previous_member_epoch
        and _is_subset(owned, current.assigned)
    ):
        return None
    which = "greater" if epoch > current.member_epoch else "smaller"
    return GroupRefusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({current.member_epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )


def _is_subset(owned: Owned | None, assigned: PartitionEpochs) -> bool:
    if owned is None:
        return False
    return all(
        assigned.get(topic_id, {}).keys() >= set(numbers) for topic_id, numbers in owned.items()
    )


def take_place(
    draft: Draft,
    group: ConsumerGroup,
    holder: ConsumerGroupMember,
    member_id: str,
    changes: list[ConsumerRecord],
) -> ConsumerGroupMember:
    """A static member comes back, mostly under another id: it takes over what it had."""
    group_id = group.group_id
    member = ConsumerGroupMember(
        holder.metadata._replace(member_id=member_id),
        holder.current._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0),
    )
    changes += member_tombstones(group_id, holder.member_id)
    changes += (
        member.metadata,
        TargetAssignment(group_id, member_id, group.target_of(holder.member_id)),
        member.current,
    )
    cause = f"{member_id} takes the place of {holder.member_id}"
    draft.tell(
        GroupEvent(
            EventKind.MEMBER_REPLACED,
            group_id,
            group.epoch,
            cause,
            member_id=member_id,
            member_count=len(group.members),
        )
    )
    return member


def _told(
    old: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMemberMetadata:
    """What is null stays as it was."""
    known = old.metadata
    if _says_nothing(request, caller, known):
        return known  # As almost every heartbeat: this is worth not making a copy.
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    return known._replace(
        instance_id=_or(request.instance_id, known.instance_id),
        rack_id=_or(request.rack_id, known.rack_id),
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=known.topics if names is None else frozenset(names),
        regex=_or(request.subscribed_topic_regex, known.regex) or "",
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=_or(request.server_assignor, known.server_assignor),
        classic=None,
    )


def _says_nothing(
    request: ConsumerGroupHeartbeatRequest, caller: Caller, known: ConsumerMemberMetadata
) -> bool:
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and request.instance_id in (None, known.instance_id)
        and caller.client_id == known.client_id
        and caller.client_host == known.client_host
        and known.classic is None
    )


def _or(value: str | None, otherwise: str | None) -> str | None:
    return otherwise if value is None else value


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    rows = request.topic_partitions
    if rows is None:
        return None
    return owned_of((bytes(each.topic_id), each.partitions) for each in rows)


def _tell_join(draft: Draft, group: ConsumerGroup, updated: Update) -> None:
    member = updated.member
    draft.tell(
        GroupEvent(
            EventKind.MEMBER_JOINED,
            group.group_id,
            updated.group_epoch,
            f"member {member.member_id} joined",
            member_id=member.member_id,
            member_count=len(group.members) + 1,
        )
    )


# --- The answer --------------------------------------------------------------------------------


def _answer(
    draft: Draft,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    updated: Update,
    request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse:
    """With the assignment if the member has not got it yet, or may have lost it."""
    current = updated.member.current
    is_full = (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )
    tells = request.member_epoch == JOINS or is_full or current.assigned != old.current.assigned
    return ConsumerGroupHeartbeatResponse(
        member_id=updated.member.member_id,
        member_epoch=current.member_epoch,
        # Not an error: clients take it for none, and ours warns.
        error_message=group.assignor_fault,
        heartbeat_interval_ms=_interval_ms(draft, group, old, updated),
        assignment=_assignment(current.assigned) if tells else None,
    )


def _assignment(assigned: PartitionEpochs) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponse.TopicPartitions(
                topic_id=topic_id, partitions=sorted(epochs)
            )
            for topic_id, epochs in assigned.items()
        ]
    )


def _interval_ms(
    draft: Draft, group: ConsumerGroup, old: ConsumerGroupMember, updated: Update
) -> int:
    config = draft.config.consumer
    own = draft.image.overrides_of(group.group_id).heartbeat_interval_ms
    if own is not None:
        # The bounds may have changed since it was set (KAFKA-20162).
        return min(max(own, config.min_heartbeat_interval_ms), config.max_heartbeat_interval_ms)
    if config.heartbeat_interval_ms is not None:
        return config.heartbeat_interval_ms
    size = max(len(group.members), 1)
    if _is_at_rest(group, old, updated):
        resting_ms = max(size * RESTING_PER_MEMBER_MS, RESTING_INTERVAL_MIN_MS)
        return min(resting_ms, RESTING_INTERVAL_MAX_MS)
    return min(max(size * MOVING_PER_MEMBER_MS, MOVING_INTERVAL_MS), RESTING_INTERVAL_MAX_MS)


def _is_at_rest(group: ConsumerGroup, old: ConsumerGroupMember, updated: Update) -> bool:
    """Whether everybody is where the target is, and no other target is to come."""
    epoch = updated.target_epoch
    is_known = group.members.get(old.member_id) is old
    others = len(group.members) - is_known
    others_there = group.stable_at[epoch] - (is_known and old.is_reconciled(epoch))
    unresolved = group.regex_counts.keys() - group.resolved.keys()
    regex = updated.member.metadata.regex
    return (
        updated.group_epoch == epoch
        and updated.member.is_reconciled(epoch)
        and others_there >= others
        and not unresolved
        and (not regex or regex in group.resolved)
    )
