"""DeleteRecords: raise the start of a log; the files follow with retention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.wire.apis.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = DeleteRecordsResponse.PartitionResult


def handle(broker: Broker, call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.TopicResult(
                name=topic.name,
                partitions=[_delete(broker, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    broker.audit("records deleted", user=call.session.principal, topics=len(request.topics))
    return response


def _delete(broker: Broker, name: str, wanted: DeleteRecordsRequest.Partition) -> _Result:
    index = wanted.partition_index
    topic = broker.catalogue.get(name)
    if topic is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        return _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if "delete" not in broker.catalogue.config(topic, "cleanup.policy"):
        return _refused(index, ErrorCode.POLICY_VIOLATION)
    partition = broker.partitions.get(topic, index)
    if isinstance(partition, ErrorCode):
        return _refused(index, partition)
    if wanted.offset < -1:
        return _refused(index, ErrorCode.OFFSET_OUT_OF_RANGE)
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
