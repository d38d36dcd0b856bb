"""DescribeProducers: who wrote idempotently to a partition, and how far."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.wire.apis.describe_producers import DescribeProducersRequest, DescribeProducersResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Answer = DescribeProducersResponse.PartitionResponse


def handle(
    broker: Broker, call: Call, request: DescribeProducersRequest
) -> Generator[None, None, DescribeProducersResponse]:
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            partitions.append(_describe(broker, topic.name, index))
            yield
        topics.append(
            DescribeProducersResponse.TopicResponse(name=topic.name, partitions=partitions)
        )
    return DescribeProducersResponse(topics=topics)


def _describe(broker: Broker, name: str, index: int) -> _Answer:
    topic = broker.catalogue.get(name)
    if topic is None:
        return _Answer(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = broker.partitions.find(topic, index)
    if isinstance(partition, ErrorCode):
        return _Answer(partition_index=index, error_code=partition)
    if partition is None:
        return _Answer(partition_index=index)
    return _Answer(
        partition_index=index,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=-1
                if entry.current_txn_first_offset is None
                else entry.current_txn_first_offset,
            )
            for entry in partition.log.active_producers
        ],
    )


def refuse(
    request: DescribeProducersRequest, code: ErrorCode, version: int
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    _Answer(partition_index=i, error_code=code) for i in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )
