"""Groups that change their protocol while they run: classic to consumer, and back.

*Up*: a member of the new protocol joins a classic group. Its members go on as members of the
consumer group that speak the classic protocol (``classic_members.py``), each with what it was last
assigned, at an epoch that is the generation. What a cooperative member had before and was not
assigned again is nobody's until that member has joined again without it. (Kafka hands it out at
once, and for a moment two read it.)

*Down*: the last member of the new protocol goes, and only classic ones are left. The group becomes
a classic one at a generation that is the group epoch, with the target as its assignment, and
rebalances at once: not everybody may be where the target is.

Rule: one batch of records says all of it, so a group is never both, whatever happens between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from shoal.assign.server import Target, TopicId
from shoal.errors import ErrorCode, InvalidMessageError
from shoal.group.coordinator import classic_rebalance
from shoal.group.coordinator.classic_group_member import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroupMember,
    vote,
)
from shoal.group.coordinator.cluster_image import ClusterImage
from shoal.group.coordinator.consumer_group_member import FIRST_EPOCH, ConsumerGroupMember
from shoal.group.coordinator.consumer_journal import (
    ClassicProtocols,
    ConsumerGroupEpoch,
    ConsumerMemberMetadata,
    ConsumerRecord,
    CurrentAssignment,
    PartitionEpochs,
    ReconciliationState,
    TargetAssignment,
    TargetEpoch,
)
from shoal.group.coordinator.consumer_timers import SESSION
from shoal.group.coordinator.decision import Draft, EventKind, GroupEvent
from shoal.group.coordinator.journal import GroupRecord, MemberRecord
from shoal.group.coordinator.member_update import GroupRefusal
from shoal.types import TopicPartition
from shoal.wire.apis.join_group import JoinGroupResponse
from shoal.wire.apis.sync_group import SyncGroupResponse
from shoal.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    subscription_version,
)

if TYPE_CHECKING:
    from shoal.group.coordinator.classic_group import ClassicGroup
    from shoal.group.coordinator.consumer_group import ConsumerGroup


# --- Classic to consumer -----------------------------------------------------------------------


def upgrade_refusal(draft: Draft, group: ClassicGroup) -> GroupRefusal | None:
    """Why a group with members may not become a consumer group."""
    config = draft.config.consumer
    why = None
    if not config.migration_policy.upgrades:
        why = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > config.max_size:
        why = "the group size exceeds the consumer group maximum size"
    return None if why is None else _cannot_upgrade(group.group_id, why)


def _cannot_upgrade(group_id: str, why: str) -> GroupRefusal:
    return GroupRefusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group_id} to consumer group because {why}.",
    )


def upgraded(draft: Draft, group: ClassicGroup) -> list[ConsumerRecord] | GroupRefusal:
    """The records of the consumer group that a classic one becomes."""
    try:
        held = {each: _held(draft.image, group.assignment(each)) for each in group.members}
        subscriptions = {
            each.member_id: _subscription(group, each) for each in group.members.values()
        }
        given_up = _given_up(draft.image, held, subscriptions)
        members = [
            _upgraded_member(
                group,
                each,
                subscriptions[each.member_id],
                held[each.member_id],
                given_up.get(each.member_id, {}),
            )
            for each in group.members.in_java_order()
        ]
    except InvalidMessageError:
        return _cannot_upgrade(group.group_id, "the embedded consumer protocol is malformed")
    except _CustomAssignorError:
        return _cannot_upgrade(
            group.group_id,
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade",
        )
    # Before its first generation a classic group counts from 0, which is no epoch of a member.
    group_id, generation = group.group_id, max(group.generation, FIRST_EPOCH)
    topics = {topic for metadata, _, _ in members for topic in metadata.topics}
    targets = [target.partitions for _, target, _ in members]
    return [
        *(metadata for metadata, _, _ in members),
        ConsumerGroupEpoch(
            group_id, generation, _known_hash(draft.image, topics, targets, group_id)
        ),
        *(target for _, target, _ in members),
        # Without a time: the first target of the new kind is due at once.
        TargetEpoch(group_id, generation),
        *(current for _, _, current in members),
    ]


def _known_hash(
    image: ClusterImage, topics: Collection[str], targets: Iterable[Target], group_id: str
) -> int:
    """Of the topics, if the classic leader assigned all there is of them.

    It may not have heard of new partitions yet; without a hash the next heartbeat finds out.
    """
    given = {one for target in targets for one in _each(target)}
    known = [topic for topic in map(image.topic, topics) if topic is not None]
    wanted = {(each.topic_id, number) for each in known for number in range(each.partition_count)}
    return image.metadata_hash(topics, group_id) if given == wanted else 0


class _CustomAssignorError(Exception):
    """What an assignor of the user's attached would be lost."""


def _held(image: ClusterImage, assignment: bytes) -> Target:
    """What a member was assigned."""
    if not assignment:
        return {}
    decoded = ConsumerProtocolAssignment.decode(assignment)
    if decoded.user_data:
        raise _CustomAssignorError
    return by_topic_id(decoded.partitions, image)


def _subscription(group: ClassicGroup, member: ClassicGroupMember) -> ConsumerProtocolSubscription:
    # A member that joined since the last generation may not offer its protocol.
    offered = dict(member.protocols)
    metadata = offered.get(group.protocol or "", member.protocols[0][1])
    return ConsumerProtocolSubscription.decode(metadata)


def _given_up(
    image: ClusterImage,
    held: Mapping[str, Target],
    subscriptions: Mapping[str, ConsumerProtocolSubscription],
) -> dict[str, Target]:
    """Member → what it said it owns when it joined, and nobody was assigned: it may read it still.

    Who spoke of the later generation is right if two said so of one partition.
    """
    free: dict[tuple[TopicId, int], str] = {}
    by_generation = sorted(subscriptions, key=lambda each: subscriptions[each].generation_id or -1)
    for member_id in by_generation:
        claimed = by_topic_id(subscriptions[member_id].owned_partitions, image)
        free.update((one, member_id) for one in _each(claimed))
    for target in held.values():
        for one in _each(target):
            free.pop(one, None)
    given_up: dict[str, Target] = {}
    for (topic_id, number), member_id in free.items():
        given_up.setdefault(member_id, {}).setdefault(topic_id, []).append(number)
    return given_up


def _each(target: Target) -> Iterator[tuple[TopicId, int]]:
    return ((topic_id, number) for topic_id, numbers in target.items() for number in numbers)


def _upgraded_member(
    group: ClassicGroup,
    member: ClassicGroupMember,
    subscription: ConsumerProtocolSubscription,
    held: Target,
    given_up: Target,
) -> tuple[ConsumerMemberMetadata, TargetAssignment, CurrentAssignment]:
    group_id, member_id = group.group_id, member.member_id
    generation = max(group.generation, FIRST_EPOCH)
    return (
        ConsumerMemberMetadata(
            group_id=group_id,
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicProtocols(member.session_timeout_ms, member.protocols),
        ),
        TargetAssignment(group_id, member_id, held),
        CurrentAssignment(
            group_id,
            member_id,
            member_epoch=generation,
            previous_member_epoch=generation,
            state=(
                ReconciliationState.UNREVOKED_PARTITIONS if given_up else ReconciliationState.STABLE
            ),
            assigned=_at(generation, held),
            pending_revocation=_at(generation, given_up),
        ),
    )


def _at(generation: int, target: Target) -> PartitionEpochs:
    return {topic_id: dict.fromkeys(numbers, generation) for topic_id, numbers in target.items()}


def leave_classic(draft: Draft, group: ClassicGroup) -> None:
    """Whoever waits for the classic group is to ask again, and meets the new one then."""
    again = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.members.values():
        join_ticket, sync_ticket = group.take_join(member), group.take_sync(member)
        if join_ticket is not None:
            response = JoinGroupResponse(error_code=again, member_id=member.member_id)
            draft.reply(join_ticket, response)
        if sync_ticket is not None:
            draft.reply(sync_ticket, SyncGroupResponse(error_code=again))
        draft.arm((SESSION, group.group_id, member.member_id), member.session_timeout_ms)
    tell_protocol(draft, group.group_id, group.generation, "a member of the new protocol joined")


def tell_protocol(draft: Draft, group_id: str, generation: int, cause: str) -> None:
    draft.tell(GroupEvent(EventKind.PROTOCOL_CHANGED, group_id, generation, cause))


# --- Consumer to classic -----------------------------------------------------------------------


def may_downgrade(
    draft: Draft, group: ConsumerGroup, leaving: Collection[ConsumerGroupMember]
) -> bool:
    """Whether only classic members are left once these have gone."""
    left = len(group.members) - len(leaving)
    classic_left = group.classic_count - sum(each.is_classic for each in leaving)
    return (
        0 < left <= draft.config.group_max_size
        and classic_left == left
        and draft.config.consumer.migration_policy.downgrades
    )


def may_downgrade_with(draft: Draft, group: ConsumerGroup) -> bool:
    """Whether only classic members are left once the last other one comes back as one."""
    return (
        group.classic_count == len(group.members) - 1
        and len(group.members) <= draft.config.group_max_size
        and draft.config.consumer.migration_policy.downgrades
    )


def downgrade(
    draft: Draft, group: ConsumerGroup, leaving: Sequence[ConsumerGroupMember], cause: str
) -> None:
    """Some members go and leave a classic group behind, which rebalances at once."""
    gone = {each.member_id for each in leaving}
    stay = [each for each in group.members.values() if each.member_id not in gone]
    for timer in group.timers():
        draft.cancel(timer)
    draft.write_all(group.tombstones())
    draft.write(_classic_record(draft, group, stay, rebalances=True))
    draft.arm(classic_rebalance.migration_timer(group.group_id), 0)
    tell_protocol(draft, group.group_id, group.epoch, cause)


def downgrade_with(
    draft: Draft,
    group: ConsumerGroup,
    replaced: ConsumerGroupMember,
    joined: ConsumerGroupMember,
    records: list[ConsumerRecord],
    *,
    rebalances: bool,
) -> None:
    """A classic member takes the place of the last one of the new protocol.

    ``records`` have put it there already, so what is ended is the group with the new one.
    """
    ids = [joined.member_id if each == replaced.member_id else each for each in group.members]
    stay = [each for each in group.members.values() if each.member_id != replaced.member_id]
    for timer in group.timers():
        draft.cancel(timer)
    draft.write_all(records)
    draft.write_all(group.tombstones_for(ids))
    targets = {joined.member_id: group.target_of(replaced.member_id)}
    draft.write(
        _classic_record(draft, group, [*stay, joined], rebalances=rebalances, targets=targets)
    )
    draft.arm(classic_rebalance.migration_timer(group.group_id), 0)
    cause = f"classic member {joined.member_id} takes the place of {replaced.member_id}"
    tell_protocol(draft, group.group_id, group.epoch, cause)


def _classic_record(
    draft: Draft,
    group: ConsumerGroup,
    members: Sequence[ConsumerGroupMember],
    *,
    rebalances: bool,
    targets: dict[str, Target] | None = None,
) -> GroupRecord:
    """Without a leader nobody has assigned yet: should we stop now, whoever loads it rebalances."""
    protocols = {each.member_id: _classic(each).protocols for each in members}
    protocol = vote(list(protocols.values()))
    rows = []
    for each in members:
        offered = dict(protocols[each.member_id])
        target = (targets or {}).get(each.member_id, group.target_of(each.member_id))
        rows.append(
            MemberRecord(
                member_id=each.member_id,
                instance_id=each.metadata.instance_id,
                client_id=each.metadata.client_id,
                client_host=each.metadata.client_host,
                rebalance_timeout_ms=each.metadata.rebalance_timeout_ms,
                session_timeout_ms=_classic(each).session_timeout_ms,
                subscription=offered[protocol],
                assignment=assignment_bytes(target, draft.image, offered[protocol]),
            )
        )
    return GroupRecord(
        group_id=group.group_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=protocol,
        leader=None if rebalances else rows[0].member_id,
        state_timestamp_ms=draft.now_ms,
        members=tuple(rows),
    )


def _classic(member: ConsumerGroupMember) -> ClassicProtocols:
    assert member.metadata.classic is not None
    return member.metadata.classic


# --- Between ids and names ---------------------------------------------------------------------


def by_topic_id(partitions: Iterable[TopicPartition], image: ClusterImage) -> Target:
    """Without what does not exist: a topic that was made again may have fewer partitions."""
    held: Target = {}
    for name, number in partitions:
        topic = image.topic(name)
        if topic is not None and number < topic.partition_count:
            held.setdefault(topic.topic_id, []).append(number)
    return {topic_id: sorted(numbers) for topic_id, numbers in held.items()}


def assignment_bytes(target: Target, image: ClusterImage, subscription: bytes) -> bytes:
    """In the version of the member's own subscription: it can read that."""
    found = ((image.by_id(topic_id), numbers) for topic_id, numbers in target.items())
    partitions = [
        TopicPartition(topic.name, number)
        for topic, numbers in found
        if topic is not None
        for number in numbers
    ]
    return ConsumerProtocolAssignment(partitions).encode(subscription_version(subscription))
