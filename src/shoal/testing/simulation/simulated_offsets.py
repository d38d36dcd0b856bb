"""What a simulated consumer says beside its member: OffsetCommit, OffsetFetch, and nonsense."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from shoal.errors import ErrorCode
from shoal.types import ConsumerGroupMetadata, TopicPartition
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from shoal.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from shoal.wire.apis.sync_group import SyncGroupRequest


def first_error(response: OffsetCommitResponse) -> ErrorCode:
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code != ErrorCode.NONE:
                return ErrorCode.of(each.error_code)
    return ErrorCode.NONE


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        grouped.setdefault(tp.topic, []).append(tp)
    return grouped


def commit_request(
    identity: ConsumerGroupMetadata, offsets: dict[TopicPartition, int]
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=identity.group_id,
        generation_id_or_member_epoch=identity.generation_id,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        topics=[
            OffsetCommitRequest.Topic(
                name=topic,
                partitions=[
                    OffsetCommitRequest.Partition(
                        partition_index=tp.partition,
                        committed_offset=offsets[tp],
                        committed_metadata="",
                    )
                    for tp in partitions
                ],
            )
            for topic, partitions in _by_topic(offsets).items()
        ],
    )


def fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], version: int
) -> OffsetFetchRequest:
    grouped = {
        topic: [tp.partition for tp in each] for topic, each in _by_topic(partitions).items()
    }
    if version < 8:
        topics = [
            OffsetFetchRequest.Topic(name=topic, partition_indexes=numbers)
            for topic, numbers in grouped.items()
        ]
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)
    asked = OffsetFetchRequest.Group(
        group_id=group_id,
        topics=[
            OffsetFetchRequest.Topics(name=topic, partition_indexes=numbers)
            for topic, numbers in grouped.items()
        ],
    )
    return OffsetFetchRequest(groups=[asked], require_stable=True)


def fetched_offsets(response: OffsetFetchResponse) -> Iterator[tuple[TopicPartition, int]]:
    """What is committed, -1 for nothing; partitions and groups with an error are left out."""
    for group in response.groups:
        for topics in group.topics:
            for one in topics.partitions:
                if one.error_code == ErrorCode.NONE:
                    yield TopicPartition(topics.name, one.partition_index), one.committed_offset
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code == ErrorCode.NONE:
                yield TopicPartition(topic.name, each.partition_index), each.committed_offset


def stray_version(request: Any) -> int:
    """The version to send it in."""
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return 1
    return 9 if isinstance(request, OffsetCommitRequest) else 4


def stray_request(pick: int, identity: ConsumerGroupMetadata) -> Any:
    """A request that was never right, or is so no longer."""
    past = replace(identity, generation_id=identity.generation_id - 1)
    offsets = {TopicPartition("stray", 0): 0}
    match pick % 4:
        case 0:
            return commit_request(identity, offsets)
        case 1:
            return commit_request(past, offsets)
        case 2:
            return SyncGroupRequest(
                group_id=past.group_id,
                generation_id=past.generation_id,
                member_id=past.member_id,
                group_instance_id=past.group_instance_id,
                assignments=[],
            )
        case _:
            return HeartbeatRequest(
                group_id=past.group_id,
                generation_id=past.generation_id,
                member_id=past.member_id,
                group_instance_id=past.group_instance_id,
            )
