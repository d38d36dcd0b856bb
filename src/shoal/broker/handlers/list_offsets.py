"""ListOffsets: the offset at a time, at the start, at the end.

For a reader of committed records the end is the last stable offset, and no record at or behind it
is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from shoal.broker.partitions import strict_epoch_fault
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
_READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (0, _READ_COMMITTED)
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

_Answer = ListOffsetsResponse.PartitionResponse


def handle(
    broker: Broker, call: Call, request: ListOffsetsRequest
) -> Generator[None, None, ListOffsetsResponse]:
    if call.api_version >= 2 and request.isolation_level not in _ISOLATION_LEVELS:
        return refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, call.api_version)
    committed_only = call.api_version >= 2 and request.isolation_level == _READ_COMMITTED
    asked = Counter(
        (topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
    )
    # A topic is answered once, and a partition that was asked for twice is refused once.
    topics: dict[str, dict[int, _Answer]] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            index = wanted.partition_index
            if asked[topic.name, index] > 1:
                answer = _refused(index, ErrorCode.INVALID_REQUEST)
            else:
                answer = _look_up(broker, call, topic.name, wanted, committed_only)
            topics.setdefault(topic.name, {})[index] = answer
            yield
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.TopicResponse(name=name, partitions=list(answers.values()))
            for name, answers in topics.items()
        ]
    )


def _look_up(
    broker: Broker,
    call: Call,
    name: str,
    wanted: ListOffsetsRequest.Partition,
    committed_only: bool,
) -> _Answer:
    index, version = wanted.partition_index, call.api_version
    topic = call.topic(name)
    if isinstance(topic, ErrorCode):
        return _refused(index, topic)
    partition = broker.partitions.find(topic, index)
    if isinstance(partition, ErrorCode):
        return _refused(index, partition)
    if (fault := strict_epoch_fault(partition, wanted.current_leader_epoch)) is not ErrorCode.NONE:
        return _refused(index, fault)
    if version < _SINCE.get(wanted.timestamp, 0) or wanted.timestamp < EARLIEST_PENDING_UPLOAD:
        return _refused(index, ErrorCode.UNSUPPORTED_VERSION)
    if partition is None:
        start_or_end = wanted.timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL)
        offset, timestamp_ms, epoch = (0, -1, 0) if start_or_end else (-1, -1, -1)
    else:
        offset, timestamp_ms, epoch = _find(
            partition.log, wanted.timestamp, committed_only=committed_only
        )
    return _Answer(
        partition_index=index,
        timestamp=timestamp_ms,
        offset=offset,
        # Versions before 4 have no epoch; a value would not fit in them.
        leader_epoch=epoch if version >= 4 else -1,
    )


def _find(log: PartitionLog, timestamp: int, *, committed_only: bool) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch), each -1 if there is none."""
    end = log.last_stable_offset if committed_only else log.high_watermark
    if timestamp == LATEST:
        return end, -1, log.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, -1, log.leader_epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1
    found = log.latest_by_time() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp)
    if found is None or found.offset >= end:
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
