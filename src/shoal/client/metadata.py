"""What we know of the cluster: nodes, topics, who leads what. Values only.

Rule: a ``Metadata`` never changes. An answer of a broker makes a new one out of the old
(``merged``), so whoever holds one sees one consistent picture.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.types import Node, PartitionInfo, TopicPartition
from shoal.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from shoal.wire.apis.metadata import MetadataResponse


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition as a broker described it; ``leader_id`` is ``None`` while there is none."""

    leader_id: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic. ``partitions`` is indexed by partition number and has no holes."""

    name: str
    topic_id: bytes | None
    partitions: tuple[PartitionMetadata, ...]
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class Metadata:
    """A picture of the cluster at one moment."""

    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    errors: Mapping[str, ErrorCode] = field(default_factory=dict)
    """Topics asked for about which a broker answered with an error."""
    controller_id: int | None = None
    cluster_id: str | None = None

    def leader_of(self, tp: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def partition_count(self, topic: str) -> int:
        """0 of a topic that is not known."""
        found = self.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def led_in_part(self) -> dict[str, list[int]]:
        """Topics in which some partition has no leader, and the partitions that have one."""
        return {
            name: [n for n, one in enumerate(topic.partitions) if one.leader_id is not None]
            for name, topic in self.topics.items()
            if any(one.leader_id is None for one in topic.partitions)
        }

    def partition_infos(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic for the user, nodes instead of ids."""
        found = self.topics.get(topic)
        if found is None:
            return []
        return [self._info(topic, number, one) for number, one in enumerate(found.partitions)]

    def _info(self, topic: str, number: int, one: PartitionMetadata) -> PartitionInfo:
        def nodes(ids: Collection[int]) -> tuple[Node, ...]:
            return tuple(self.nodes.get(id_, Node(id_, "", -1)) for id_ in ids)

        leader = None if one.leader_id is None else self.nodes.get(one.leader_id)
        return PartitionInfo(
            topic,
            number,
            leader,
            nodes(one.replicas),
            nodes(one.in_sync_replicas),
            nodes(one.offline_replicas),
        )


def merged(old: Metadata, answer: MetadataResponse, asked: Collection[str] | None) -> Metadata:
    """``old`` with an answer in it. ``asked`` ``None``: the answer speaks for every topic.

    A partition without a newer leader epoch than the one we know keeps what we know: brokers
    learn of elections at different times, and an old answer must not send us back.
    """
    topics = {} if asked is None else {n: t for n, t in old.topics.items() if n not in asked}
    errors = {} if asked is None else {n: e for n, e in old.errors.items() if n not in asked}
    for entry in answer.topics:
        if entry.name is None:
            continue
        if entry.error_code:
            errors[entry.name] = ErrorCode.of(entry.error_code)
            continue
        topics[entry.name] = _topic(entry, old.topics.get(entry.name))
    nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in answer.brokers}
    controller = answer.controller_id
    return replace(
        old,
        nodes=nodes,
        topics=topics,
        errors=errors,
        controller_id=controller if controller is not None and controller >= 0 else None,
        cluster_id=answer.cluster_id or old.cluster_id,
    )


def _topic(entry: MetadataResponse.Topic, old: TopicMetadata | None) -> TopicMetadata:
    topic_id = None if entry.topic_id == ZERO_UUID else entry.topic_id
    # A topic deleted and made anew starts its epochs again: what we knew does not count.
    same = old is not None and old.topic_id == topic_id
    found: dict[int, PartitionMetadata] = {}
    for partition in entry.partitions:
        number = partition.partition_index
        new = _partition(partition)
        if same and old is not None and number < len(old.partitions):
            new = _newer(old.partitions[number], new)
        found[number] = new
    nothing = PartitionMetadata(None, None, (), (), ())
    count = max(found) + 1 if found else 0
    partitions = tuple(found.get(number, nothing) for number in range(count))
    return TopicMetadata(entry.name or "", topic_id, partitions, entry.is_internal)


def _partition(entry: MetadataResponse.Partition) -> PartitionMetadata:
    return PartitionMetadata(
        leader_id=entry.leader_id if entry.leader_id >= 0 else None,
        leader_epoch=entry.leader_epoch if entry.leader_epoch >= 0 else None,
        replicas=tuple(entry.replica_nodes),
        in_sync_replicas=tuple(entry.isr_nodes),
        offline_replicas=tuple(entry.offline_replicas),
    )


def _newer(old: PartitionMetadata, new: PartitionMetadata) -> PartitionMetadata:
    if old.leader_epoch is None or new.leader_epoch is None:
        return new
    return old if new.leader_epoch < old.leader_epoch else new
