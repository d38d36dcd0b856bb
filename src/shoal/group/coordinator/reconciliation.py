"""From what a member holds to its target, one step per heartbeat (KIP-848).

A partition changes hands in two heartbeats of two members: its owner is told to give it up and
says that it has; only then is it anybody else's. A member that must give something up stays at its
epoch until it has done so; then it moves to the epoch of the target, and takes what is free.

Rule: a function of values. Epochs are never made up here: a member keeps its own or takes the
target's, or two members would own one partition at one epoch (KAFKA-19974).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from shoal.assign.server import Target, TopicId
from shoal.group.coordinator.consumer_journal import (
    NO_PARTITIONS,
    CurrentAssignment,
    PartitionEpochs,
    ReconciliationState,
)

Owned = Mapping[TopicId, Collection[int]]
"""What a member says it has."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a member is to go."""

    epoch: int
    target: Target
    subscribed: Collection[TopicId]
    """A target may be older than the subscription: what is not in it is not handed out
    (KAFKA-19431)."""
    is_free: Callable[[TopicId, int], bool]
    """Whether nobody holds a partition."""


def owned_of(rows: Iterable[tuple[TopicId, Iterable[int]]]) -> dict[TopicId, set[int]]:
    owned: dict[TopicId, set[int]] = {}
    for topic_id, partitions in rows:
        owned.setdefault(topic_id, set()).update(partitions)
    return owned


def reconcile(
    current: CurrentAssignment, goal: Goal, owned: Owned | None, *, subscription_changed: bool
) -> CurrentAssignment | None:
    """The next step; the same value if there is none to take.

    ``owned`` is ``None`` if the member said nothing about it. ``None`` comes back if the member
    must give up everything and join again: its state is of a kind that only newer brokers know.
    """
    match current.state:
        case ReconciliationState.STABLE if current.member_epoch == goal.epoch:
            return _drop_unsubscribed(current, goal, owned) if subscription_changed else current
        case ReconciliationState.UNREVOKED_PARTITIONS if _owns(owned, current.pending_revocation):
            return _drop_unsubscribed(current, goal, owned) if subscription_changed else current
        case ReconciliationState.UNKNOWN if owned is None or owned:
            return None
    return _next(current, goal, owned)


def _owns(owned: Owned | None, revoked: PartitionEpochs) -> bool:
    """A member that says nothing may still have them."""
    if owned is None:
        return True
    return any(
        not epochs.keys().isdisjoint(owned.get(topic_id, ()))
        for topic_id, epochs in revoked.items()
    )


def _drop_unsubscribed(
    current: CurrentAssignment, goal: Goal, owned: Owned | None
) -> CurrentAssignment:
    """Without waiting for a new target, take away what the member no longer wants."""
    dropped = {each: held for each, held in current.assigned.items() if each not in goal.subscribed}
    if not dropped:
        return current
    kept = {each: held for each, held in current.assigned.items() if each in goal.subscribed}
    pending = _joined(current.pending_revocation, dropped)
    if _owns(owned, pending):
        return _moved(current, current.member_epoch, _UNREVOKED, kept, pending)
    return current._replace(previous_member_epoch=current.member_epoch, assigned=kept)


def _next(current: CurrentAssignment, goal: Goal, owned: Owned | None) -> CurrentAssignment:
    kept: dict[TopicId, dict[int, int]] = {}
    revoked: dict[TopicId, dict[int, int]] = {}
    given: dict[TopicId, dict[int, int]] = {}
    waits = False
    for topic_id in {**goal.target, **current.assigned}:
        wanted = set(goal.target.get(topic_id, ())) if topic_id in goal.subscribed else set()
        own_pending = current.pending_revocation.get(topic_id, {})
        for partition, epoch in current.assigned.get(topic_id, {}).items():
            (kept if partition in wanted else revoked).setdefault(topic_id, {})[partition] = epoch
        for partition in wanted.difference(kept.get(topic_id, ())):
            # What I am giving up myself is nobody else's (KAFKA-19449).
            if goal.is_free(topic_id, partition) or partition in own_pending:
                given.setdefault(topic_id, {})[partition] = goal.epoch
            else:
                waits = True
    if revoked and _owns(owned, revoked):
        return _moved(current, current.member_epoch, _UNREVOKED, kept, revoked)
    state = _UNRELEASED if waits else _STABLE
    return _moved(current, goal.epoch, state, _joined(kept, given), NO_PARTITIONS)


_STABLE = ReconciliationState.STABLE
_UNREVOKED = ReconciliationState.UNREVOKED_PARTITIONS
_UNRELEASED = ReconciliationState.UNRELEASED_PARTITIONS


def _moved(
    current: CurrentAssignment,
    epoch: int,
    state: ReconciliationState,
    assigned: PartitionEpochs,
    pending: PartitionEpochs,
) -> CurrentAssignment:
    return current._replace(
        member_epoch=epoch,
        previous_member_epoch=current.member_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )


def _joined(some: PartitionEpochs, others: PartitionEpochs) -> PartitionEpochs:
    return {each: {**some.get(each, {}), **others.get(each, {})} for each in {**some, **others}}
