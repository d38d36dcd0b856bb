"""ListOffsets: the offset at a time, at the start, at the end."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from shoal.broker.partitions import epoch_fault
from shoal.errors import ErrorCode
from shoal.log.partition import PartitionLog
from shoal.wire.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

_Answer = ListOffsetsResponse.PartitionResponse


def handle(
    broker: Broker, call: Call, request: ListOffsetsRequest
) -> Generator[None, None, ListOffsetsResponse]:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            (twice if key in seen else seen).add(key)
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            if (topic.name, wanted.partition_index) in twice:
                answers.append(_refused(wanted.partition_index, ErrorCode.INVALID_REQUEST))
            else:
                answers.append(_look_up(broker, topic.name, wanted, call.api_version))
            yield
        topics.append(ListOffsetsResponse.TopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _look_up(
    broker: Broker, name: str, wanted: ListOffsetsRequest.Partition, version: int
) -> _Answer:
    index = wanted.partition_index
    topic = broker.catalogue.get(name)
    if topic is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = broker.partitions.find(topic, index)
    if isinstance(partition, ErrorCode):
        return _refused(index, partition)
    if (fault := epoch_fault(partition, wanted.current_leader_epoch)) is not ErrorCode.NONE:
        return _refused(index, fault)
    if version < _SINCE.get(wanted.timestamp, 0) or wanted.timestamp < EARLIEST_PENDING_UPLOAD:
        return _refused(index, ErrorCode.UNSUPPORTED_VERSION)
    if partition is None:
        start_or_end = wanted.timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL)
        offset, timestamp_ms, epoch = (0, -1, 0) if start_or_end else (-1, -1, -1)
    else:
        offset, timestamp_ms, epoch = _find(partition.log, wanted.timestamp)
    return _Answer(
        partition_index=index,
        timestamp=timestamp_ms,
        offset=offset,
        # Versions before 4 have no epoch; a value would not fit in them.
        leader_epoch=epoch if version >= 4 else -1,
    )


def _find(log: PartitionLog, timestamp: int) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch), each -1 if there is none."""
    if timestamp == LATEST:
        return log.high_watermark, -1, log.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, -1, log.leader_epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    found = log.latest_by_time() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp)
    if found is None:
        return -1, -1, -1
    epoch = log.leader_epoch if found.leader_epoch is None else found.leader_epoch
    return found.offset, found.timestamp_ms, epoch


def _refused(index: int, code: ErrorCode) -> _Answer:
    return _Answer(partition_index=index, error_code=code)


def refuse(request: ListOffsetsRequest, code: ErrorCode, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.TopicResponse(
                name=topic.name,
                partitions=[_refused(wanted.partition_index, code) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )
