"""OffsetFetch, for groups of any type: one group up to v7, several since v8 (KIP-709).

A group nobody knows has no offsets; that is not an error. Since v10 topics go by id: the broker
puts the names in before it asks, and the ids of topics nobody asked for by name after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shoal.errors import ErrorCode
from shoal.group.coordinator.group_interface import Group
from shoal.group.coordinator.offset_store import Committed, OffsetStore
from shoal.types import TopicPartition
from shoal.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from shoal.wire.schema import ZERO_UUID

BATCHED_SINCE = 8

NO_OFFSET = Committed(-1, None, "", -1, None, -1)


def fetch(
    store: OffsetStore,
    groups: Mapping[str, Group],
    request: OffsetFetchRequest,
    version: int,
) -> OffsetFetchResponse:
    if version < BATCHED_SINCE:
        return _fetch_one(store, request)
    answers = []
    for each in request.groups:
        group = groups.get(each.group_id)
        error = ErrorCode.NONE
        if group is not None:
            error = group.fetch_error(each.member_id, each.member_epoch)
        answers.append(
            OffsetFetchResponse.Group(group_id=each.group_id, error_code=error)
            if error
            else _fetch_group(store, each, request.require_stable)
        )
    return OffsetFetchResponse(groups=answers)


def _fetch_one(store: OffsetStore, request: OffsetFetchRequest) -> OffsetFetchResponse:
    asked = request.topics
    if asked is None:
        asked = [
            OffsetFetchRequest.Topic(name=name, partition_indexes=partitions)
            for name, partitions in _everything(store, request.group_id)
        ]
    topics = []
    for topic in asked:
        partitions = []
        for index in topic.partition_indexes:
            tp = TopicPartition(topic.name, index)
            position, error = _look_up(store, request.group_id, tp, request.require_stable)
            partitions.append(
                OffsetFetchResponse.Partition(
                    partition_index=index,
                    committed_offset=position.offset,
                    committed_leader_epoch=_epoch(position),
                    metadata=position.metadata,
                    error_code=error,
                )
            )
        topics.append(OffsetFetchResponse.Topic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(topics=topics)


def _fetch_group(
    store: OffsetStore, request: OffsetFetchRequest.Group, require_stable: bool
) -> OffsetFetchResponse.Group:
    asked = request.topics
    if asked is None:
        asked = [
            OffsetFetchRequest.Topics(name=name, partition_indexes=partitions)
            for name, partitions in _everything(store, request.group_id)
        ]
    topics = []
    for topic in asked:
        partitions = []
        for index in topic.partition_indexes:
            tp = TopicPartition(topic.name, index)
            position, error = _look_up(store, request.group_id, tp, require_stable, topic.topic_id)
            partitions.append(
                OffsetFetchResponse.Partitions(
                    partition_index=index,
                    committed_offset=position.offset,
                    committed_leader_epoch=_epoch(position),
                    metadata=position.metadata,
                    error_code=error,
                )
            )
        topics.append(
            OffsetFetchResponse.Topics(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return OffsetFetchResponse.Group(group_id=request.group_id, topics=topics)


def _everything(store: OffsetStore, group_id: str) -> Iterator[tuple[str, Sequence[int]]]:
    for topic, partitions in store.by_topic(group_id).items():
        yield topic, list(partitions)


def _look_up(
    store: OffsetStore,
    group_id: str,
    tp: TopicPartition,
    require_stable: bool,
    topic_id: bytes = ZERO_UUID,
) -> tuple[Committed, ErrorCode]:
    if require_stable and store.is_unstable(group_id, tp):
        # KIP-447: the caller must not read what an open transaction may be about to move.
        return NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT
    position = store.get(group_id, tp)
    if position is None:
        return NO_OFFSET, ErrorCode.NONE
    unknown = (None, ZERO_UUID)
    if (
        topic_id not in unknown
        and position.topic_id not in unknown
        and topic_id != position.topic_id
    ):
        # Of a topic that is gone: whoever asks means another one with its name.
        return NO_OFFSET, ErrorCode.NONE
    return position, ErrorCode.NONE


def _epoch(position: Committed) -> int:
    return -1 if position.leader_epoch is None else position.leader_epoch
