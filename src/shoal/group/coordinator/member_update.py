"""What a request of a member changes in a consumer group: subscription, epoch, target, step.

ConsumerGroupHeartbeat and, for classic members of such a group, JoinGroup say what a member wants
and what it has. From there the way is the same, in Kafka's order:

    1. what the member tells of itself       record 5
    2. expressions that come and go          16 (tombstone)
    3. must there be a new target?           3, and 4 (tombstone) if an old broker left one
    4. the target                            7 for each member whose part changed, then 6
    5. the member's next step towards it     8

Rule: nothing is changed here. Records are added to a list, and count when they are replayed.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from shoal.errors import ErrorCode
from shoal.group.coordinator.consumer_group_member import (
    ConsumerGroupMember,
    subscribed_ids,
)
from shoal.group.coordinator.consumer_journal import (
    ConsumerGroupEpoch,
    ConsumerGroupTombstone,
    ConsumerRecord,
    ConsumerRecordType,
)
from shoal.group.coordinator.consumer_timers import arm_rebalance, regex_timer
from shoal.group.coordinator.decision import Draft, EventKind, GroupEvent
from shoal.group.coordinator.reconciliation import Goal, Owned, reconcile
from shoal.group.coordinator.regex_resolution import MIN_INTERVAL_MS
from shoal.group.coordinator.target_assignment import MemberTarget, update_target
from shoal.group.coordinator.topic_pattern import TopicPattern

if TYPE_CHECKING:
    from shoal.group.coordinator.consumer_group import ConsumerGroup


class GroupRefusal(NamedTuple):
    """Why a request is not served."""

    error: ErrorCode
    message: str


class RegexChange(Enum):
    """What a request does to the member's expression."""

    NONE = "it stays"
    UNRESOLVED = "another one, of which nobody knows yet what it matches"
    RESOLVED = "another one that is known, or none any more (KAFKA-19891)"


class Update(NamedTuple):
    """What became of a member by a request."""

    member: ConsumerGroupMember
    group_epoch: int
    target_epoch: int


def note_member(
    old: ConsumerGroupMember, new: ConsumerGroupMember, records: list[ConsumerRecord]
) -> bool:
    """Step 1; whether the topics it names changed."""
    if new.metadata is old.metadata:
        return False
    if new.metadata != old.metadata:
        records.append(new.metadata)
    return new.metadata.topics != old.metadata.topics


def note_regex(
    draft: Draft,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    records: list[ConsumerRecord],
) -> RegexChange | GroupRefusal:
    """Step 2."""
    before, after = old.metadata.regex, new.metadata.regex
    change = RegexChange.NONE
    is_unknown = False
    if before != after:
        change = RegexChange.UNRESOLVED
        if before and group.regex_counts[before] == 1:
            records.append(ConsumerGroupTombstone(ConsumerRecordType.REGEX, group.group_id, before))
        if after and not group.regex_counts[after]:
            fault = _fault(after)
            if fault is not None:
                return GroupRefusal(
                    ErrorCode.INVALID_REGULAR_EXPRESSION,
                    f"SubscribedTopicRegex `{after}` is not a valid regular expression: {fault}.",
                )
            is_unknown = True
        elif not after or after in group.resolved:
            change = RegexChange.RESOLVED
    _resolve_if_needed(draft, group, before, after, is_unknown=is_unknown)
    return change


def _fault(regex: str) -> str | None:
    try:
        TopicPattern(regex)
    except ValueError as error:
        return str(error)
    return None


def _resolve_if_needed(
    draft: Draft, group: ConsumerGroup, before: str, after: str, *, is_unknown: bool
) -> None:
    """All expressions of a group are resolved together, and not too often."""
    if not is_unknown and not group.regex_counts:
        return
    timer = regex_timer(group.group_id)
    if group.resolution is not None or draft.timers.deadline(timer) is not None:
        return
    last = next(iter(group.resolved.values()), None)
    # One in the future is of a clock that was set back since: nobody is to wait for it.
    if last is not None and 0 <= draft.now_ms - last.timestamp_ms <= MIN_INTERVAL_MS:
        return
    counts = group.regex_counts.copy()
    counts[before] -= 1
    counts[after] += 1
    subscribed = {regex for regex, count in counts.items() if regex and count > 0}
    if not subscribed:
        return
    refresh_ms = draft.config.consumer.regex_refresh_interval_ms
    if (
        is_unknown
        or len(subscribed) != len(group.resolved)
        or last is None
        or last.version < draft.image.created_version
        or draft.now_ms > last.timestamp_ms + refresh_ms
    ):
        draft.sights[group.group_id] = draft.sees
        draft.arm(timer, 0)


def update_epoch(
    draft: Draft,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    records: list[ConsumerRecord],
    *,
    bump: bool,
) -> int:
    """Step 3: the group epoch from now on."""
    known_for = group.metadata_known_for
    if not bump and known_for is not None and group.epoch >= known_for:
        return group.epoch
    metadata_hash = draft.image.metadata_hash(_topics_with(group, old, new), group.group_id)
    epoch = group.epoch
    cause = f"member {new.member_id} changed its subscription"
    if not bump and metadata_hash != group.metadata_hash:
        bump, cause = True, "topics it reads, or its settings, changed"
    if bump:
        epoch += 1
        records.append(ConsumerGroupEpoch(group.group_id, epoch, metadata_hash))
        tell_bump(draft, group, epoch, cause)
    group.metadata_known_for = epoch
    if group.has_partition_metadata:
        records.append(
            ConsumerGroupTombstone(ConsumerRecordType.PARTITION_METADATA, group.group_id)
        )
    return epoch


def tell_bump(draft: Draft, group: ConsumerGroup, epoch: int, cause: str) -> None:
    draft.tell(
        GroupEvent(
            EventKind.EPOCH_BUMPED,
            group.group_id,
            epoch,
            cause,
            member_count=len(group.members),
        )
    )


def _topics_with(
    group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember
) -> set[str]:
    """All topics of the group once the member has changed. ``old`` is counted, or has nothing."""
    counts = group.topic_counts
    dropped = {topic for topic in old.metadata.topics if counts[topic] <= 1}
    topics = (counts.keys() - dropped) | new.metadata.topics
    before = old.metadata.regex
    is_last = before != new.metadata.regex and group.regex_counts[before] <= 1
    for regex, found in group.resolved.items():
        if not (is_last and regex == before):
            topics |= found.topics
    return topics


def step(
    draft: Draft,
    group: ConsumerGroup,
    new: ConsumerGroupMember,
    target: MemberTarget,
    owned: Owned | None,
    records: list[ConsumerRecord],
    *,
    subscription_changed: bool,
) -> ConsumerGroupMember | GroupRefusal:
    """Step 5."""
    if not subscription_changed and new.is_reconciled(target.epoch):
        return new
    goal = Goal(
        target.epoch,
        target.partitions,
        subscribed_ids(new.metadata, group.resolved, draft.image),
        group.is_free,
    )
    current = reconcile(new.current, goal, owned, subscription_changed=subscription_changed)
    if current is None:
        return GroupRefusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    if current == new.current:
        return new
    records.append(current)
    moved = new._replace(current=current)
    arm_rebalance(draft, moved)
    return moved


def update(
    draft: Draft,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    owned: Owned | None,
    records: list[ConsumerRecord],
    *,
    any_regex_change_bumps: bool = False,
) -> Update | GroupRefusal:
    """All steps."""
    topics_changed = note_member(old, new, records)
    regex = note_regex(draft, group, old, new, records)
    if isinstance(regex, GroupRefusal):
        return regex
    bump = topics_changed or regex is RegexChange.RESOLVED
    if any_regex_change_bumps:
        bump = bump or regex is not RegexChange.NONE
    epoch = update_epoch(draft, group, old, new, records, bump=bump)
    target = update_target(draft, group, epoch, new, records)
    moved = step(
        draft,
        group,
        new,
        target,
        owned,
        records,
        subscription_changed=topics_changed or regex is not RegexChange.NONE,
    )
    return moved if isinstance(moved, GroupRefusal) else Update(moved, epoch, target.epoch)
