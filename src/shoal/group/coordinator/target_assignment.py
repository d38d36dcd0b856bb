"""Who is to have what: the target of a consumer group, computed by one of the broker's assignors.

The assignor with most votes among the members runs, at most once per assignment interval. A target
is taken only if it is legal: every partition of the topics subscribed to has one owner, who wants
the topic. An assignor that raises, or whose result is not legal, changes nothing: the last target
stays, the fault is told, and after the interval it is tried again, later and later. (Kafka answers
every heartbeat with an error then, which ends every client.) The broker's own assignors run here;
targets of users' ones are ordered (``target_orders.py``), and taken if the epoch still holds.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.assign.server import SERVER_ASSIGNORS, ServerMember, Target, TopicId
from shoal.errors import counted
from shoal.group.coordinator.cluster_image import ImageTopic
from shoal.group.coordinator.config import CoordinatorAssignor, OutsideAssignor
from shoal.group.coordinator.consumer_group_member import (
    NO_TARGET,
    ConsumerGroupMember,
    subscribed_names,
)
from shoal.group.coordinator.consumer_journal import (
    ConsumerRecord,
    TargetAssignment,
    TargetEpoch,
)
from shoal.group.coordinator.decision import Draft, EventKind, GroupEvent
from shoal.group.coordinator.target_orders import (
    Failures,
    OrderedMember,
    TargetAnswer,
    TargetFault,
    TargetOrder,
)

if TYPE_CHECKING:
    from shoal.group.coordinator.consumer_group import ConsumerGroup

_RETRY_MS: Final = 1_000
_RETRY_DOUBLINGS_MAX: Final = 6


class MemberTarget(NamedTuple):
    """What one member is to go to."""

    epoch: int
    partitions: Target


def last_target(group: ConsumerGroup, new: ConsumerGroupMember) -> MemberTarget:
    """A static member that takes somebody's place takes their target."""
    place = group.static_ids.get(new.metadata.instance_id or "", new.member_id)
    return MemberTarget(group.target_epoch, group.target_of(place))


def update_target(
    draft: Draft,
    group: ConsumerGroup,
    group_epoch: int,
    new: ConsumerGroupMember,
    records: list[ConsumerRecord],
) -> MemberTarget:
    """Compute or order the target if the group needs one and may have one now; that of the
    member."""
    if group.target_epoch >= group_epoch or not _is_time(draft, group, group_epoch):
        return last_target(group, new)
    assignor = preferred_assignor(draft, group, new)
    if isinstance(assignor, OutsideAssignor):
        if not draft.orders.is_pending(group.group_id):
            draft.order(_order(draft, group, group_epoch, new, assignor.name))
        return last_target(group, new)
    members, topics = _spec(draft, group, new)
    counts = {topic_id: topic.partition_count for topic_id, topic in topics.items()}
    try:
        target = assignor.assign(members, counts)
        if assignor.name not in SERVER_ASSIGNORS:
            check_target(members, counts, target)
    except Exception as error:  # noqa: BLE001 - user code: whatever it raises, members live on
        reason = f"{type(error).__name__}: {error}"
        _tell_fault(draft, group, f"{assignor.name}: {reason}")
        return last_target(group, new)
    order = (group_epoch, assignor.name, sum(counts.values()))
    records += _written(draft, group, *order, target, members)
    return MemberTarget(group_epoch, target.get(new.member_id, NO_TARGET))


def _written(
    draft: Draft,
    group: ConsumerGroup,
    epoch: int,
    assignor: str,
    partition_count: int,
    target: Mapping[str, Target],
    members: Collection[str],
) -> Iterator[ConsumerRecord]:
    """The records of a new target."""
    group_id = group.group_id
    for member_id in members:
        mine, before = target.get(member_id, NO_TARGET), group.targets.get(member_id)
        # Most members keep theirs, which is then the same object.
        if before is not mine and before != mine:
            yield TargetAssignment(group_id, member_id, mine)
    yield TargetEpoch(group_id, epoch, draft.now_ms)
    shares = f"{counted(partition_count, 'partition')} to {counted(len(members), 'member')}"
    cause = f"{assignor} assigned {shares}"
    draft.tell(
        GroupEvent(EventKind.TARGET_COMPUTED, group_id, epoch, cause, member_count=len(members))
    )


# --- Targets that are ordered ------------------------------------------------------------------


def _order(
    draft: Draft, group: ConsumerGroup, epoch: int, new: ConsumerGroupMember, assignor: str
) -> TargetOrder:
    members, topics = _spec(draft, group, new)
    overrides = draft.image.overrides_of(group.group_id)
    known = {member.member_id: member.metadata for member, _ in _members(group, new)}
    ordered = {
        member_id: OrderedMember(
            member,
            known[member_id].client_id,
            known[member_id].rack_id,
            overrides.weight_of(member.instance_id, known[member_id].client_id),
        )
        for member_id, member in members.items()
    }
    return TargetOrder(group.group_id, epoch, assignor, ordered, topics)


def take_answer(
    draft: Draft, group: ConsumerGroup, order: TargetOrder, answered: TargetAnswer
) -> None:
    """A target comes, or the news that there is none. If the group has moved on meanwhile, it is
    about another group: the next heartbeat orders again."""
    if not _still_holds(group, order):
        return
    if isinstance(answered, TargetFault):
        before = group.failed_orders
        times = before.times + 1 if before.epoch == order.epoch else 1
        group.failed_orders = Failures(order.epoch, times)
        _tell_fault(draft, group, f"{order.assignor}: {answered.reason}")
        return
    count = sum(topic.partition_count for topic in order.topics.values())
    draft.write_all(
        _written(draft, group, order.epoch, order.assignor, count, answered, order.members)
    )


def _still_holds(group: ConsumerGroup, order: TargetOrder) -> bool:
    """A static member that comes back under another id does not change the epoch."""
    return group.target_epoch < order.epoch == group.epoch and (
        group.members.keys() == order.members.keys()
    )


# --- When, and by whom -------------------------------------------------------------------------


def _is_time(draft: Draft, group: ConsumerGroup, group_epoch: int) -> bool:
    interval_ms = assignment_interval_ms(draft, group.group_id)
    failures = group.failed_orders
    if failures.epoch == group_epoch and failures.times > 1:
        # The same again will most likely fail again, and perhaps take long to do so.
        often = min(failures.times - 1, _RETRY_DOUBLINGS_MAX)
        interval_ms = max(interval_ms, _RETRY_MS) << often
    if interval_ms == 0:
        return True  # A way out if the clock was set back.
    # A time in the future is of a clock that was set back since: nobody is to wait for it.
    return all(
        not last_ms <= draft.now_ms < last_ms + interval_ms
        for last_ms in (group.target_timestamp_ms, group.tried_ms)
    )


def assignment_interval_ms(draft: Draft, group_id: str) -> int:
    config = draft.config.consumer
    own = draft.image.overrides_of(group_id).assignment_interval_ms
    if own is None:
        return config.assignment_interval_ms
    return min(max(own, config.min_assignment_interval_ms), config.max_assignment_interval_ms)


def preferred_assignor(
    draft: Draft, group: ConsumerGroup, new: ConsumerGroupMember
) -> CoordinatorAssignor:
    """What is set on the group counts, else most votes win. In a tie, as in Kafka, that of the
    member that asks if it stands alone with it; else the one that is configured first."""
    config = draft.config.consumer
    own = draft.image.overrides_of(group.group_id).assignor
    chosen = config.assignor(own) if own is not None else None
    if chosen is not None:
        return chosen
    old = group.members.get(new.member_id) or group.static_member(new.metadata.instance_id)
    before = old.metadata.server_assignor if old is not None else None
    mine = new.metadata.server_assignor
    votes = group.votes.copy()
    if before is not None:
        votes[before] -= 1
    is_alone = mine is not None and votes[mine] == 0
    if mine is not None:
        votes[mine] += 1
    # Names that are no longer configured have no vote.
    return max(
        config.assignors, key=lambda each: (votes[each.name], is_alone and each.name == mine)
    )


def _spec(
    draft: Draft, group: ConsumerGroup, new: ConsumerGroupMember
) -> tuple[dict[str, ServerMember], dict[TopicId, ImageTopic]]:
    """The members as they will be, and the topics they subscribe to."""
    image: dict[TopicId, ImageTopic] = {}
    # Members of a group mostly subscribe to the same.
    known: dict[Hashable, tuple[Hashable, tuple[TopicId, ...]]] = {}
    members: dict[str, ServerMember] = {}
    for member, place in _members(group, new):
        metadata = member.metadata
        # The same object for all that ask for the same: an assignor compares thousands of them.
        subscription, topics = known.get((metadata.topics, metadata.regex), (None, ()))
        if subscription is None:
            subscription = (metadata.topics, metadata.regex)
            found = map(draft.image.topic, subscribed_names(metadata, group.resolved))
            existing = [topic for topic in found if topic is not None]
            image.update((topic.topic_id, topic) for topic in existing)
            topics = tuple(topic.topic_id for topic in existing)
            known[subscription] = subscription, topics
        # Whoever sends names and an expression is like nobody else.
        like = member.member_id if metadata.regex and metadata.topics else subscription
        members[member.member_id] = ServerMember(
            topics, group.target_of(place), metadata.instance_id, like
        )
    return members, image


def _members(
    group: ConsumerGroup, new: ConsumerGroupMember
) -> Iterator[tuple[ConsumerGroupMember, str]]:
    """Each with the id under which its target stands."""
    replaced = group.static_ids.get(new.metadata.instance_id or "")
    for member_id, member in group.members.items():
        if member_id not in (new.member_id, replaced):
            yield member, member_id
    yield new, replaced or new.member_id


def _tell_fault(draft: Draft, group: ConsumerGroup, fault: str) -> None:
    group.tried_ms = draft.now_ms
    if fault == group.assignor_fault:
        return  # Told already; heartbeats come every second.
    group.assignor_fault = fault
    cause = f"{fault}; the last target stays"
    draft.tell(
        GroupEvent(
            EventKind.ASSIGNOR_FAILED,
            group.group_id,
            group.epoch,
            cause,
            member_count=len(group.members),
        )
    )


def check_target(
    members: Mapping[str, ServerMember],
    counts: Mapping[TopicId, int],
    target: Mapping[str, Mapping[TopicId, list[int]]],
) -> None:
    """Raises ``ValueError`` if a target may not be used."""
    unknown = target.keys() - members.keys()
    if unknown:
        raise ValueError(f"it assigns to {min(unknown)!r}, who is not a member")
    owners: dict[tuple[TopicId, int], str] = {}
    for member_id, by_topic in target.items():
        wanted = set(members[member_id].topics)
        for topic_id, numbers in by_topic.items():
            if topic_id not in wanted:
                raise ValueError(f"{member_id!r} does not subscribe to topic {topic_id.hex()}")
            for number in numbers:
                if not 0 <= number < counts[topic_id]:
                    raise ValueError(f"topic {topic_id.hex()} has no partition {number}")
                if (topic_id, number) in owners:
                    raise ValueError(f"partition {number} of {topic_id.hex()} has two owners")
                owners[topic_id, number] = member_id
    subscribed = {topic_id for member in members.values() for topic_id in member.topics}
    missing = sum(counts[topic_id] for topic_id in subscribed) - len(owners)
    if missing:
        raise ValueError(f"{missing} partitions have no owner")
