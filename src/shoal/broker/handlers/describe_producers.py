"""DescribeProducers: who wrote idempotently to a partition, and how far."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from shoal.broker.catalogue import name_problem
from shoal.broker.door import REFUSAL_TEXTS
from shoal.broker.memory import TOO_MUCH, TOO_MUCH_TEXT
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
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    for name, indexes in wanted.items():
        partitions = []
        for index in indexes:
            described = _describe(broker, call, name, index)
            if not call.spend(1 + len(described.active_producers)):
                described = _Answer(
                    partition_index=index, error_code=TOO_MUCH, error_message=TOO_MUCH_TEXT
                )
            partitions.append(described)
            yield
        topics.append(DescribeProducersResponse.TopicResponse(name=name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _describe(broker: Broker, call: Call, name: str, index: int) -> _Answer:
    topic = call.topic(name)
    if topic is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return _Answer(partition_index=index, error_code=topic, error_message=REFUSAL_TEXTS[topic])
    if isinstance(topic, ErrorCode):
        if problem := name_problem(name):
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return _Answer(partition_index=index, error_code=code, error_message=problem)
        return _Answer(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"there is no topic {name}",
        )
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
            for entry in partition.log.producer_states()
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
