"""The timers of consumer groups: names, and which of them must run.

    session     the member was heard; the group's setting, or what a classic member asked for
    rebalance   it was told to give something up
    join, sync  a classic member was told to join again, or has joined and not synced yet
    regex       expressions are being resolved

Rule: a timer of a member that has gone, or has done what it was to do, means nothing when it is
due. So nobody has to stop timers before it is certain that a record was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from shoal.group.coordinator.consumer_journal import ReconciliationState
from shoal.group.coordinator.decision import Draft, TimerName

if TYPE_CHECKING:
    from shoal.group.coordinator.consumer_group import ConsumerGroup
    from shoal.group.coordinator.consumer_group_member import ConsumerGroupMember

SESSION: Final = "consumer session"
REBALANCE: Final = "consumer rebalance"
JOIN: Final = "consumer join"
SYNC: Final = "consumer sync"
REGEX: Final = "consumer regex"


def regex_timer(group_id: str) -> TimerName:
    return (REGEX, group_id, "")


def of_member(group_id: str, member_id: str) -> Iterator[TimerName]:
    for kind in (SESSION, REBALANCE, JOIN, SYNC):
        yield (kind, group_id, member_id)


def cancel(draft: Draft, group_id: str, member_id: str) -> None:
    for name in of_member(group_id, member_id):
        draft.cancel(name)


def session_timeout_ms(draft: Draft, group_id: str) -> int:
    config = draft.config.consumer
    own = draft.image.overrides_of(group_id).session_timeout_ms
    if own is None:
        return config.session_timeout_ms
    # The bounds may have changed since it was set (KAFKA-20162).
    return min(max(own, config.min_session_timeout_ms), config.max_session_timeout_ms)


def arm_session(draft: Draft, group_id: str, member_id: str) -> None:
    draft.arm((SESSION, group_id, member_id), session_timeout_ms(draft, group_id))


def arm_rebalance(draft: Draft, member: ConsumerGroupMember) -> None:
    """After a change of what a member holds. Classic members have other timers."""
    if member.is_classic:
        return
    metadata = member.metadata
    name = (REBALANCE, metadata.group_id, metadata.member_id)
    if member.current.state is ReconciliationState.UNREVOKED_PARTITIONS:
        draft.arm(name, metadata.rebalance_timeout_ms)
    else:
        draft.cancel(name)


def arm_missing(draft: Draft, group: ConsumerGroup) -> None:
    """After loading, and after records were not written: everybody gets a whole session."""
    session_ms = session_timeout_ms(draft, group.group_id)
    for member_id, member in group.members.items():
        session = (SESSION, group.group_id, member_id)
        if draft.timers.deadline(session) is None:
            draft.arm(session, session_ms)
        if (
            member.current.state is ReconciliationState.UNREVOKED_PARTITIONS
            and draft.timers.deadline((REBALANCE, group.group_id, member_id)) is None
        ):
            arm_rebalance(draft, member)
