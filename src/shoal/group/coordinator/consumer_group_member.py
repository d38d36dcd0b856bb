"""One member of a consumer group, which is what two of its records say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from shoal.assign.server import Target, TopicId
from shoal.group.coordinator.cluster_image import ClusterImage
from shoal.group.coordinator.consumer_journal import (
    ConsumerMemberMetadata,
    CurrentAssignment,
    ReconciliationState,
    ResolvedRegex,
)

FIRST_EPOCH = 1
"""Of group and target (KAFKA-20268): who joins before there is a target must not get 0."""

LEAVES = -1
"""A member epoch: the member leaves for good; in the journal, it is on its way out."""

LEAVES_FOR_A_WHILE = -2
"""A member epoch: a static member is away and keeps its partitions until its session ends."""

NO_TARGET: Target = {}


class ConsumerGroupMember(NamedTuple):
    """What it told of itself, and where it stands."""

    metadata: ConsumerMemberMetadata
    current: CurrentAssignment

    @property
    def member_id(self) -> str:
        return self.metadata.member_id

    @property
    def is_classic(self) -> bool:
        """It speaks the classic protocol."""
        return self.metadata.classic is not None

    @property
    def is_away(self) -> bool:
        return self.current.member_epoch == LEAVES_FOR_A_WHILE

    def is_reconciled(self, target_epoch: int) -> bool:
        current = self.current
        return current.state is ReconciliationState.STABLE and current.member_epoch == target_epoch

    def assignment_epoch(self, topic_id: TopicId, partition: int) -> int | None:
        """Since when it may commit for a partition; ``None`` if it holds nothing of the kind."""
        for held in (self.current.assigned, self.current.pending_revocation):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


def new_member(group_id: str, member_id: str) -> ConsumerGroupMember:
    return ConsumerGroupMember(
        ConsumerMemberMetadata(group_id, member_id), CurrentAssignment(group_id, member_id)
    )


def subscribed_names(
    metadata: ConsumerMemberMetadata, resolved: Mapping[str, ResolvedRegex]
) -> frozenset[str]:
    """An expression that is not resolved yet matches nothing."""
    found = resolved.get(metadata.regex) if metadata.regex else None
    return metadata.topics if found is None else metadata.topics | found.topics


def subscribed_ids(
    metadata: ConsumerMemberMetadata, resolved: Mapping[str, ResolvedRegex], image: ClusterImage
) -> frozenset[TopicId]:
    """Of the topics that exist."""
    topics = map(image.topic, subscribed_names(metadata, resolved))
    return frozenset(topic.topic_id for topic in topics if topic is not None)
