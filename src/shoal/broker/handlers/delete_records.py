"""DeleteRecords: raise the start of a log; the files follow with retention.

The answer leaves when the new start is stored: what a client was told is gone stays gone, even if
the machine loses power before retention comes by.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shoal.broker.slices import Turns
from shoal.errors import ErrorCode
from shoal.wire.apis.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

logger = logging.getLogger("shoal.broker.delete_records")

_Result = DeleteRecordsResponse.PartitionResult


async def handle(
    broker: Broker, call: Call, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    turns = Turns()
    asked: dict[str, dict[int, DeleteRecordsRequest.Partition]] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            asked.setdefault(topic.name, {})[wanted.partition_index] = wanted
    results = []
    for name, wishes in asked.items():
        partitions = []
        for wanted in wishes.values():
            await turns.pause()
            partitions.append(_delete(broker, call, name, wanted))
        results.append(DeleteRecordsResponse.TopicResult(name=name, partitions=partitions))
    raised = [each for topic in results for each in topic.partitions if not each.error_code]
    if raised:
        try:
            await broker.run_job(broker.directory.save_starts())
        except OSError as error:
            logger.error("the starts of logs cannot be stored: %s", error)
            for each in raised:
                each.low_watermark, each.error_code = -1, ErrorCode.KAFKA_STORAGE_ERROR
    for result in results:
        count = sum(not each.error_code for each in result.partitions)
        if count:
            broker.audit(
                "records deleted",
                user=call.session.principal,
                topic=result.name,
                partitions=count,
            )
    return DeleteRecordsResponse(topics=results)


def _delete(
    broker: Broker, call: Call, name: str, wanted: DeleteRecordsRequest.Partition
) -> _Result:
    index = wanted.partition_index
    topic = call.topic(name)
    if isinstance(topic, ErrorCode):
        return _refused(index, topic)
    if topic.is_internal:
        return _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if "delete" not in broker.catalogue.config(topic, "cleanup.policy"):
        return _refused(index, ErrorCode.POLICY_VIOLATION)
    partition = broker.partitions.find(topic, index)
    if isinstance(partition, ErrorCode):
        return _refused(index, partition)
    if wanted.offset < -1 or (partition is None and wanted.offset > 0):
        return _refused(index, ErrorCode.OFFSET_OUT_OF_RANGE)
    if partition is None:
        return _Result(partition_index=index, low_watermark=0)
    error = partition.log.delete_records(None if wanted.offset == -1 else wanted.offset)
    if error is not ErrorCode.NONE:
        return _refused(index, error)
    broker.waiting.disturb(partition.topic_partition)
    return _Result(partition_index=index, low_watermark=partition.log.start_offset)


def _refused(index: int, code: ErrorCode) -> _Result:
    return _Result(partition_index=index, low_watermark=-1, error_code=code)


def refuse(request: DeleteRecordsRequest, code: ErrorCode, version: int) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.TopicResult(
                name=topic.name,
                partitions=[_refused(wanted.partition_index, code) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )
