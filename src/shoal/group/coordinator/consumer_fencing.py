"""How members leave a consumer group: by themselves, by an administrator, or by their silence.

Whoever goes is forgotten in one batch, and the group epoch grows once, so that the others get a
new target at their next heartbeats. If only classic members are left, the group becomes a classic
one instead (``migration.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.group.coordinator import consumer_timers, migration
from shoal.group.coordinator.consumer_group_member import (
    LEAVES_FOR_A_WHILE,
    ConsumerGroupMember,
)
from shoal.group.coordinator.consumer_journal import (
    NO_PARTITIONS,
    ConsumerGroupEpoch,
    ConsumerGroupTombstone,
    ConsumerRecordType,
    ReconciliationState,
    member_tombstones,
)
from shoal.group.coordinator.decision import Draft, EventKind, GroupEvent
from shoal.group.coordinator.member_update import GroupRefusal, tell_bump
from shoal.group.coordinator.regex_resolution import Resolution
from shoal.machine.decision import Caller
from shoal.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from shoal.group.coordinator.consumer_group import ConsumerGroup


# --- Leaving -----------------------------------------------------------------------------------


def leave(
    draft: Draft, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> GroupRefusal | None:
    """A heartbeat with the epoch -1 or -2. The epoch before does not matter."""
    member = leaving_member(group, request.member_id, request.instance_id)
    if isinstance(member, GroupRefusal):
        return member
    if request.member_epoch == LEAVES_FOR_A_WHILE:
        _go_away(draft, member)
    else:
        cause = f"member {member.member_id} left"
        fence(draft, group, [member], EventKind.MEMBER_LEFT, cause)
    draft.reply(
        caller.ticket,
        ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        ),
    )
    return None


def leaving_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerGroupMember | GroupRefusal:
    """Who it is that names itself so."""
    if instance_id is None:
        member = group.members.get(member_id)
        return member if member is not None else unknown_member(group, member_id)
    return static_member(group, member_id, instance_id)


def static_member(
    group: ConsumerGroup, member_id: str, instance_id: str
) -> ConsumerGroupMember | GroupRefusal:
    member = group.static_member(instance_id)
    if member is None:
        return GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        return GroupRefusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def unknown_member(group: ConsumerGroup, member_id: str) -> GroupRefusal:
    return GroupRefusal(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member_id} is not a member of group {group.group_id}.",
    )


def _go_away(draft: Draft, member: ConsumerGroupMember) -> None:
    """It keeps its partitions, and its session goes on. Whoever comes back under another id is to
    have had them from the beginning, as far as commits are concerned."""
    assigned = {
        topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.current.assigned.items()
    }
    draft.write(
        member.current._replace(
            member_epoch=LEAVES_FOR_A_WHILE,
            assigned=assigned,
            pending_revocation=NO_PARTITIONS,
        )
    )
    draft.tell(
        GroupEvent(
            EventKind.MEMBER_LEFT,
            member.metadata.group_id,
            member.current.member_epoch,
            f"static member {member.metadata.instance_id} left for a while",
            member_id=member.member_id,
        )
    )


def fence(
    draft: Draft,
    group: ConsumerGroup,
    members: Sequence[ConsumerGroupMember],
    kind: EventKind,
    cause: str,
) -> None:
    """Forget some members at once."""
    if not members:
        return
    for member in members:
        draft.tell(
            GroupEvent(
                kind,
                group.group_id,
                group.epoch,
                cause,
                member_id=member.member_id,
                member_count=len(group.members),
            )
        )
        consumer_timers.cancel(draft, group.group_id, member.member_id)
    if migration.may_downgrade(draft, group, members):
        migration.downgrade(draft, group, members, cause)
        return
    for member in members:
        draft.write_all(member_tombstones(group.group_id, member.member_id))
    gone = Counter(each.metadata.regex for each in members if each.metadata.regex)
    unused = {regex for regex, count in gone.items() if group.regex_counts[regex] == count}
    draft.write_all(
        ConsumerGroupTombstone(ConsumerRecordType.REGEX, group.group_id, regex) for regex in unused
    )
    metadata_hash = draft.image.metadata_hash(
        _topics_without(group, members, unused), group.group_id
    )
    draft.write(ConsumerGroupEpoch(group.group_id, group.epoch + 1, metadata_hash))
    tell_bump(draft, group, group.epoch + 1, cause)


def _topics_without(
    group: ConsumerGroup, members: Sequence[ConsumerGroupMember], unused: set[str]
) -> set[str]:
    gone = Counter(topic for each in members for topic in each.metadata.topics)
    topics = {topic for topic, count in group.topic_counts.items() if count > gone[topic]}
    for regex, found in group.resolved.items():
        if regex not in unused:
            topics |= found.topics
    return topics


# --- Timers ------------------------------------------------------------------------------------


def timer_due(draft: Draft, group: ConsumerGroup, kind: str, member_id: str) -> None:
    if kind == consumer_timers.REGEX:
        resolve(draft, group)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    cause = _silence(draft, group, member, kind)
    if cause is not None:
        fence(draft, group, [member], EventKind.MEMBER_EXPIRED, cause)


def _silence(
    draft: Draft, group: ConsumerGroup, member: ConsumerGroupMember, kind: str
) -> str | None:
    """What a member has not done in time; ``None`` if it has."""
    timeout_ms = member.metadata.rebalance_timeout_ms
    match kind:
        case consumer_timers.SESSION:
            classic = member.metadata.classic
            session_ms = consumer_timers.session_timeout_ms(draft, group.group_id)
            if classic is not None:
                session_ms = classic.session_timeout_ms
            return f"member {member.member_id} sent no heartbeat for {session_ms} ms"
        case consumer_timers.REBALANCE:
            if member.current.state is not ReconciliationState.UNREVOKED_PARTITIONS:
                return None
            return f"member {member.member_id} did not give up partitions in {timeout_ms} ms"
        case consumer_timers.JOIN if member.is_classic:
            return f"member {member.member_id} did not join again in {timeout_ms} ms"
        case consumer_timers.SYNC if member.is_classic:
            return f"member {member.member_id} did not sync in {timeout_ms} ms"
    return None


# --- Regular expressions -----------------------------------------------------------------------


def resolve(draft: Draft, group: ConsumerGroup) -> None:
    """Compare expressions with topics for a while; when all are done, write what was found."""
    work = group.resolution
    if work is None:
        sees = draft.sights.pop(group.group_id, None)
        work = group.resolution = Resolution(group.regex_counts, draft.image, draft.now_ms, sees)
    work.advance()
    if not work.is_done:
        draft.arm(consumer_timers.regex_timer(group.group_id), 1)
        return
    group.resolution = None
    found = [each for each in work.results(group.group_id) if group.regex_counts[each.regex]]
    if not found:
        return
    resolved = {**group.resolved, **{each.regex: each for each in found}}
    draft.write_all(found)
    topics = set(group.topic_counts).union(*(each.topics for each in resolved.values()))
    metadata_hash = draft.image.metadata_hash(topics, group.group_id)
    matches_more = any(
        each.topics != (known.topics if (known := group.resolved.get(each.regex)) else frozenset())
        for each in found
    )
    if matches_more or metadata_hash != group.metadata_hash:
        epoch = group.epoch + 1
        draft.write(ConsumerGroupEpoch(group.group_id, epoch, metadata_hash))
        tell_bump(draft, group, epoch, "regular expressions match other topics")
        group.metadata_known_for = epoch
