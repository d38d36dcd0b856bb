"""DescribeTopicPartitions: topics page by page (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.access.resources import ResourceType
from shoal.broker.catalogue import name_problem
from shoal.errors import ErrorCode
from shoal.wire.apis.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from shoal.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

TOPIC = ResourceType.TOPIC
_Topic = DescribeTopicPartitionsResponse.Topic
_Partition = DescribeTopicPartitionsResponse.Partition
_Cursor = DescribeTopicPartitionsResponse.Cursor


def handle(
    broker: Broker, call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    limit = min(request.response_partition_limit, broker.config.limits.partitions_per_request)
    names = sorted({topic.name for topic in request.topics} or _all(broker, call))
    first = 0
    if request.cursor is not None:
        if request.cursor.partition_index < 0:
            return refuse(request, ErrorCode.INVALID_REQUEST, call.api_version)
        names = [name for name in names if name >= request.cursor.topic_name]
        if request.topics and request.cursor.topic_name not in names:
            return refuse(request, ErrorCode.INVALID_REQUEST, call.api_version)
        if names and names[0] == request.cursor.topic_name:
            first = request.cursor.partition_index
    topics: list[_Topic] = []
    left = max(limit, 1)
    for name in names:
        if left <= 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=_Cursor(topic_name=name, partition_index=0)
            )
        described, next_index = _described(broker, call, name, first, left)
        first = 0
        topics.append(described)
        left -= len(described.partitions)
        if next_index is not None:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=_Cursor(topic_name=name, partition_index=next_index)
            )
    return DescribeTopicPartitionsResponse(topics=topics)


def _all(broker: Broker, call: Call) -> set[str]:
    return {topic.name for topic in broker.catalogue if call.shows(TOPIC, topic.name)}


def _described(
    broker: Broker, call: Call, name: str, first: int, limit: int
) -> tuple[_Topic, int | None]:
    topic = call.topic(name)
    if isinstance(topic, ErrorCode):
        if topic is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name_problem(name):
            topic = ErrorCode.INVALID_TOPIC_EXCEPTION
        return _Topic(error_code=topic, name=name, topic_id=ZERO_UUID), None
    end = min(topic.partition_count, first + limit)
    node = (broker.node_id,)
    described = _Topic(
        name=name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        topic_authorized_operations=call.operations(TOPIC, name),
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
