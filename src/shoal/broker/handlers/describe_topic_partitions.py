"""DescribeTopicPartitions: topics page by page (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.handlers.metadata import TOPIC_OPERATIONS
from shoal.broker.topics import name_problem
from shoal.errors import ErrorCode
from shoal.wire.apis.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from shoal.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Topic = DescribeTopicPartitionsResponse.Topic
_Partition = DescribeTopicPartitionsResponse.Partition
_Cursor = DescribeTopicPartitionsResponse.Cursor


def handle(
    broker: Broker, call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    limit = min(request.response_partition_limit, broker.config.limits.partitions_per_request)
    if limit <= 0:
        return refuse(request, ErrorCode.INVALID_REQUEST, call.api_version)
    names = sorted({topic.name for topic in request.topics} or {t.name for t in broker.catalogue})
    first = 0
    if request.cursor is not None:
        if request.cursor.partition_index < 0:
            return refuse(request, ErrorCode.INVALID_REQUEST, call.api_version)
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first = request.cursor.partition_index
    topics: list[_Topic] = []
    left = limit
    for name in names:
        if left <= 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=_Cursor(topic_name=name, partition_index=0)
            )
        described, next_index = _described(broker, name, first, left)
        first = 0
        topics.append(described)
        left -= len(described.partitions)
        if next_index is not None:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=_Cursor(topic_name=name, partition_index=next_index)
            )
    return DescribeTopicPartitionsResponse(topics=topics)


def _described(broker: Broker, name: str, first: int, limit: int) -> tuple[_Topic, int | None]:
    topic = broker.catalogue.get(name)
    if topic is None:
        invalid = bool(name_problem(name))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else unknown
        return _Topic(error_code=code, name=name, topic_id=ZERO_UUID), None
    end = min(topic.partition_count, first + limit)
    node = (broker.node_id,)
    described = _Topic(
        name=name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            _Partition(
                partition_index=index,
                leader_id=broker.node_id,
                leader_epoch=broker.partitions.leader_epoch(name, index),
                replica_nodes=node,
                isr_nodes=node,
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for index in range(first, end)
        ],
    )
    return described, end if end < topic.partition_count else None


def refuse(
    request: DescribeTopicPartitionsRequest, code: ErrorCode, version: int
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            _Topic(error_code=code, name=topic.name, topic_id=ZERO_UUID) for topic in request.topics
        ]
    )
