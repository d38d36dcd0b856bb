"""DeleteRecords (21): everything below an offset is dropped (KIP-107). v2 flexible."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Int64, Message, Request, String, Struct


class DeleteRecordsRequest(
    Request["DeleteRecordsResponse"], api_key=ApiKey.DELETE_RECORDS, versions=(0, 2), flexible=2
):
    class Partition(Struct):
        partition_index: Int32
        offset: Int64  # -1: the high watermark

    class Topic(Struct):
        name: String
        partitions: Array[DeleteRecordsRequest.Partition]

    topics: Array[Topic]
    timeout_ms: Int32


class DeleteRecordsResponse(Message, api_key=ApiKey.DELETE_RECORDS, versions=(0, 2), flexible=2):
    class PartitionResult(Struct):
        partition_index: Int32
        low_watermark: Int64 = 0  # the first offset left
        error_code: Int16 = 0

    class TopicResult(Struct):
        name: String
        partitions: Array[DeleteRecordsResponse.PartitionResult] = ()

    throttle_time_ms: Int32 = 0
    topics: Array[TopicResult] = ()
