"""How a classic group gets from one generation to the next.

    prepare_rebalance   everybody is called to join again
    complete_join       all have joined or the time is up: vote, elect, a new generation
    sync_expired, session_expired, …   what happens when somebody does not do their part

Each function drafts; the group moves to the new generation when the record is replayed. If it
cannot be appended, ``append_failed`` puts the group back to where its members can try again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.group.coordinator.classic_group_member import ClassicGroupMember, vote
from shoal.group.coordinator.decision import Draft, EventKind, GroupEvent, TimerName
from shoal.group.coordinator.journal import GroupRecord
from shoal.group.coordinator.states import GroupState
from shoal.wire.apis.join_group import JoinGroupResponse
from shoal.wire.apis.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    # The group is the object and these are its rules: it calls them.
    from shoal.group.coordinator.classic_group import ClassicGroup

EMPTY_RETRY_MS = 1_000
"""Between two attempts to journal that a group became Empty."""


@dataclass(slots=True)
class JoinPhase:
    """The join phase of a rebalance."""

    cause: str
    started_ms: int
    initial: bool
    """The group was Empty: wait a little for more members before the first generation."""
    delay_ms: int = 0
    remaining_ms: int = 0
    new_member_added: bool = False


def session_timer(group: ClassicGroup, member_id: str) -> TimerName:
    return ("session", group.group_id, member_id)


def join_timer(group: ClassicGroup) -> TimerName:
    return ("join", group.group_id, "")


def sync_timer(group: ClassicGroup) -> TimerName:
    return ("sync", group.group_id, "")


def migration_timer(group_id: str) -> TimerName:
    """The group was a consumer group until now: its members are to be watched, and called."""
    return ("migration", group_id, "")


def tell(
    draft: Draft,
    group: ClassicGroup,
    kind: EventKind,
    cause: str,
    *,
    member_id: str | None = None,
    generation: int | None = None,
    duration_ms: int | None = None,
) -> None:
    draft.tell(
        GroupEvent(
            kind=kind,
            group_id=group.group_id,
            generation=group.generation if generation is None else generation,
            cause=cause,
            member_id=member_id,
            member_count=len(group.members),
            duration_ms=duration_ms,
        )
    )


# --- The join phase ----------------------------------------------------------------------------


def rebalance_or_complete(draft: Draft, group: ClassicGroup, cause: str) -> None:
    """Membership or metadata changed: start a rebalance, or go on with the running one."""
    if group.rebalance is None:
        prepare_rebalance(draft, group, cause)
    else:
        complete_join_if_ready(draft, group)


def prepare_rebalance(draft: Draft, group: ClassicGroup, cause: str) -> None:
    """Call everybody to join again."""
    state = group.state
    if state is GroupState.COMPLETING_REBALANCE:
        answer_syncs(draft, group, ErrorCode.REBALANCE_IN_PROGRESS)
    draft.cancel(sync_timer(group))
    initial = state is GroupState.EMPTY
    rebalance = JoinPhase(cause=cause, started_ms=draft.now_ms, initial=initial)
    group.begin_rebalance(rebalance)
    tell(draft, group, EventKind.REBALANCE_STARTED, cause)
    if initial:
        rebalance.delay_ms = draft.config.group_initial_rebalance_delay_ms
        rebalance.remaining_ms = max(group.rebalance_timeout_ms - rebalance.delay_ms, 0)
        draft.arm(join_timer(group), rebalance.delay_ms)
    elif group.everyone_joined:
        complete_join(draft, group)
    else:
        draft.arm(join_timer(group), group.rebalance_timeout_ms)


def complete_join_if_ready(draft: Draft, group: ClassicGroup) -> None:
    """The first rebalance always waits for its delay, for more members to come."""
    assert group.rebalance is not None
    if not group.rebalance.initial and group.everyone_joined:
        complete_join(draft, group)


def timer_due(draft: Draft, group: ClassicGroup, kind: str, member_id: str) -> None:
    if kind == "session":
        session_expired(draft, group, member_id)
    elif kind == "join":
        join_timer_due(draft, group)
    elif kind == "migration":
        loaded(draft, group, "the group went back to the classic protocol")
    elif kind.startswith("consumer"):
        return  # It was armed for a change of protocol that was not written.
    else:
        assert kind == "sync"
        sync_expired(draft, group)


def join_timer_due(draft: Draft, group: ClassicGroup) -> None:
    rebalance = group.rebalance
    assert rebalance is not None
    if not (rebalance.initial and rebalance.new_member_added and rebalance.remaining_ms > 0):
        complete_join(draft, group)
        return
    # Somebody came during the delay, so others may be on their way too: wait once more.
    last_delay_ms = rebalance.delay_ms
    rebalance.new_member_added = False
    rebalance.delay_ms = min(draft.config.group_initial_rebalance_delay_ms, rebalance.remaining_ms)
    rebalance.remaining_ms = max(rebalance.remaining_ms - last_delay_ms, 0)
    draft.arm(join_timer(group), rebalance.delay_ms)


def complete_join(draft: Draft, group: ClassicGroup) -> None:
    """End the join phase. Who did not come is out, unless it is a static member."""
    draft.cancel(join_timer(group))
    missing = [
        each.member_id
        for each in group.members.values()
        if each.joining is None and each.instance_id is None
    ]
    for member_id in missing:
        forget(draft, group, member_id)
        tell(
            draft,
            group,
            EventKind.MEMBER_EXPIRED,
            f"member {member_id} did not rejoin in time",
            member_id=member_id,
        )
    if not group.members:
        _become_empty(draft, group)
    elif group.elect_leader():
        _start_generation(draft, group)
    else:
        # Only static members are left and none came: their sessions decide.
        draft.arm(join_timer(group), group.rebalance_timeout_ms)


def _become_empty(draft: Draft, group: ClassicGroup) -> None:
    assert group.rebalance is not None
    generation = group.generation + 1
    draft.write(
        group.next_record(
            generation=generation,
            leader=None,
            now_ms=draft.now_ms,
            protocol=None,
            assignments={},
        )
    )
    tell(draft, group, EventKind.EMPTY, group.rebalance.cause, generation=generation)


def _start_generation(draft: Draft, group: ClassicGroup) -> None:
    """Journal the generation before anybody hears of it, so that it is never given out twice.

    Until the leader has assigned, each member has what it was last assigned: a cooperative one
    reads on, and should the group become a consumer group now, nobody else may be given that.
    """
    assert group.rebalance is not None
    record = group.next_record(
        generation=group.generation + 1,
        leader=None,
        now_ms=draft.now_ms,
        protocol=vote([each.protocols for each in group.members.in_java_order()]),
        assignments={member_id: group.assignment(member_id) for member_id in group.members},
    )
    draft.write(record)
    tell(
        draft,
        group,
        EventKind.GENERATION_STARTED,
        group.rebalance.cause,
        generation=record.generation,
        duration_ms=draft.now_ms - group.rebalance.started_ms,
    )
    for member in group.members.values():
        ticket = group.take_join(member)
        if ticket is not None:
            draft.reply(ticket, joined(group, member, record))
        member.is_new = False
        reset_session(draft, group, member)
        group.pending_sync[member.member_id] = None
    draft.arm(sync_timer(group), group.rebalance_timeout_ms)


def joined(
    group: ClassicGroup, member: ClassicGroupMember, record: GroupRecord
) -> JoinGroupResponse:
    """Only the leader needs to know the others."""
    leads = member.member_id == group.leader_id
    return JoinGroupResponse(
        generation_id=record.generation,
        protocol_type=record.protocol_type,
        protocol_name=record.protocol,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=member_list(record) if leads else [],
    )


def member_list(record: GroupRecord) -> list[JoinGroupResponse.Member]:
    return [
        JoinGroupResponse.Member(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            metadata=each.subscription,
        )
        for each in record.members
    ]


# --- Members that go ---------------------------------------------------------------------------


def forget(draft: Draft, group: ClassicGroup, member_id: str) -> None:
    """Remove a member. Its parked requests are answered, so that it comes back if it lives."""
    member = group.remove(member_id)
    draft.cancel(session_timer(group, member_id))
    if member is None:
        return
    if member.joining is not None:
        draft.reply(member.joining, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    if member.syncing is not None:
        draft.reply(member.syncing, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))


def session_expired(draft: Draft, group: ClassicGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is None:
        assert member_id in group.pending_ids
        group.remove(member_id)
    elif member.is_excused:
        return  # The session starts anew when the parked request is answered.
    else:
        cause = f"member {member_id} sent no heartbeat for {member.session_timeout_ms} ms"
        if member.is_new:
            cause = f"new member {member_id} waited too long for the group"
        member_gone(draft, group, member_id, cause)
        return
    if group.rebalance is not None and group.everyone_joined:
        complete_join(draft, group)


def member_gone(draft: Draft, group: ClassicGroup, member_id: str, cause: str) -> None:
    forget(draft, group, member_id)
    tell(draft, group, EventKind.MEMBER_EXPIRED, cause, member_id=member_id)
    if group.rebalance is None:
        prepare_rebalance(draft, group, cause)
    # Unlike a leave, an expiry ends even the first rebalance early, as in Kafka.
    elif group.everyone_joined:
        complete_join(draft, group)


def sync_expired(draft: Draft, group: ClassicGroup) -> None:
    """KAFKA-12890: who got a generation and does not sync must not hold up the others."""
    late = list(group.pending_sync)
    if not late:
        return  # The last one was a static member, which came back under another id meanwhile.
    cause = f"no SyncGroup in time from {', '.join(late)}"
    for member_id in late:
        forget(draft, group, member_id)
        tell(draft, group, EventKind.MEMBER_EXPIRED, cause, member_id=member_id)
    prepare_rebalance(draft, group, cause)


# --- Sessions and parked requests --------------------------------------------------------------


def reset_session(draft: Draft, group: ClassicGroup, member: ClassicGroupMember) -> None:
    draft.arm(session_timer(group, member.member_id), member.session_timeout_ms)


def answer_syncs(draft: Draft, group: ClassicGroup, error: ErrorCode) -> None:
    for member in group.members.values():
        ticket = group.take_sync(member)
        if ticket is not None:
            draft.reply(ticket, SyncGroupResponse(error_code=error))
            reset_session(draft, group, member)


def abandon(draft: Draft, group: ClassicGroup, error: ErrorCode) -> None:
    """Answer whoever waits and stop every timer: this coordinator is done with the group."""
    for timer in group.timers():
        draft.cancel(timer)
    for member in group.members.values():
        ticket = group.take_join(member)
        if ticket is not None:
            response = JoinGroupResponse(error_code=error, member_id=member.member_id)
            draft.reply(ticket, response)
        ticket = group.take_sync(member)
        if ticket is not None:
            draft.reply(ticket, SyncGroupResponse(error_code=error))


# --- Around the journal ------------------------------------------------------------------------


def loaded(
    draft: Draft,
    group: ClassicGroup,
    cause: str = "the coordinator restarted before the assignment was stored",
) -> None:
    """The group was rebuilt from the journal: every member gets a whole session to show up."""
    for member in group.members.values():
        reset_session(draft, group, member)
    if group.state is GroupState.COMPLETING_REBALANCE:
        prepare_rebalance(draft, group, cause)
    elif len(group.members) > draft.config.group_max_size:
        prepare_rebalance(
            draft,
            group,
            f"{len(group.members)} members are more than the {draft.config.group_max_size} allowed",
        )


def append_failed(draft: Draft, group: ClassicGroup, error: ErrorCode) -> None:
    """A record of this group was not appended. The replies are refused elsewhere.

    What the record meant can be told from the state, because records move the state and this
    one did not:

    * PreparingRebalance: a generation could not start. Who joined was told so and joins again.
    * CompletingRebalance: the assignment could not be stored. The group rebalances.
    * Stable: the new id of a static member could not be stored. The old one goes on.
    * Empty: the group could not be removed. It stays.
    """
    cause = f"the journal could not be written: {error.name}"
    tell(draft, group, EventKind.APPEND_FAILED, cause)
    state = group.state
    if group.rebalance is not None:
        # Nobody new is on the way: the next attempt begins when all have joined again.
        group.rebalance.initial = False
        group.pending_sync.clear()
        draft.cancel(sync_timer(group))
        draft.arm(
            join_timer(group), group.rebalance_timeout_ms if group.members else EMPTY_RETRY_MS
        )
    elif state is GroupState.COMPLETING_REBALANCE:
        prepare_rebalance(draft, group, cause)
    elif state is GroupState.STABLE:
        _restore_static_member(draft, group)


def _restore_static_member(draft: Draft, group: ClassicGroup) -> None:
    staged, group.staged = group.staged, None
    if staged is None:
        return  # The group was to become a consumer group; it stays what it is.
    assert staged.instance_id is not None
    draft.cancel(session_timer(group, staged.member_id))
    reset_session(draft, group, group.members[group.static_ids[staged.instance_id]])
