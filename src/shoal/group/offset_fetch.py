"""OffsetFetch, for groups of any type: one group up to v7, several since v8 (KIP-709).

A group nobody knows has no offsets; that is no error. Since v10 topics go by id: the broker puts
the names in before it asks, and the ids of topics nobody asked for by name after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.errors import ErrorCode
from shoal.group.offsets import Committed, OffsetStore
from shoal.types import TopicPartition
from shoal.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

BATCHED_SINCE = 8

NO_OFFSET = Committed(-1, None, "", -1, None, -1)


def fetch(store: OffsetStore, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    if version < BATCHED_SINCE:
        return _fetch_one(store, request)
    return OffsetFetchResponse(
        groups=[_fetch_group(store, each, request.require_stable) for each in request.groups]
    )


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
            position, error = _look_up(store, request.group_id, tp, require_stable)
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
    store: OffsetStore, group_id: str, tp: TopicPartition, require_stable: bool
) -> tuple[Committed, ErrorCode]:
    if require_stable and store.is_unstable(group_id, tp):
        # KIP-447: the caller must not read what an open transaction may be about to move.
        return NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT
    return store.get(group_id, tp) or NO_OFFSET, ErrorCode.NONE


def _epoch(position: Committed) -> int:
    return -1 if position.leader_epoch is None else position.leader_epoch
