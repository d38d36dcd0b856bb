"""OffsetForLeaderEpoch: where an epoch ends, so that a consumer can see that its log was cut."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from shoal.broker.partitions import strict_epoch_fault
from shoal.errors import ErrorCode
from shoal.log.epochs import UNKNOWN_EPOCH
from shoal.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_Answer = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(
    broker: Broker,
    call: Call,
    request: OffsetForLeaderEpochRequest,
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    topics = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            partitions.append(_look_up(broker, call, topic.topic, wanted))
            yield
        topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=partitions
            )
        )
    return OffsetForLeaderEpochResponse(topics=topics)


def _look_up(
    broker: Broker,
    call: Call,
    name: str,
    wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition,
) -> _Answer:
    topic = call.topic(name)
    if isinstance(topic, ErrorCode):
        return _Answer(partition=wanted.partition, error_code=topic)
    partition = broker.partitions.find(topic, wanted.partition)
    if isinstance(partition, ErrorCode):
        return _Answer(partition=wanted.partition, error_code=partition)
    if (fault := strict_epoch_fault(partition, wanted.current_leader_epoch)) is not ErrorCode.NONE:
        return _Answer(partition=wanted.partition, error_code=fault)
    if partition is None:
        is_known = wanted.leader_epoch <= 0 and wanted.leader_epoch != UNKNOWN_EPOCH
        found = (wanted.leader_epoch, 0) if is_known else None
    else:
        found = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    if found is None:
        return _Answer(partition=wanted.partition)
    return _Answer(partition=wanted.partition, leader_epoch=found[0], end_offset=found[1])


def refuse(
    request: OffsetForLeaderEpochRequest,
    code: ErrorCode,
    version: int,
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _Answer(partition=wanted.partition, error_code=code)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
