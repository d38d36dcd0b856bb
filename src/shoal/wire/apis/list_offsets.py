"""ListOffsets (2): the offset at a timestamp, or at the ends of a log.

Timestamps below zero are names: -1 latest, -2 earliest, -3 the largest timestamp (v7, KIP-734),
-4 earliest local (v8, KIP-405), -5 latest tiered (v9, KIP-1005), -6 earliest not yet uploaded
(v11, KIP-1023).

v2 isolation level · v4 leader epoch (KIP-320) · v6 flexible · v10 may wait for remote storage
(KIP-1075).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    since,
)


class ListOffsetsRequest(
    Request["ListOffsetsResponse"], api_key=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible=6
):
    class Partition(Struct):
        partition_index: Int32
        current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)  # KIP-320
        timestamp: Int64  # or a name below zero, see above

    class Topic(Struct):
        name: String
        partitions: Array[ListOffsetsRequest.Partition]

    replica_id: Int32 = -1  # -1: a consumer
    isolation_level: Int8 = since(2, default=0)
    topics: Array[Topic]
    timeout_ms: Int32 = since(10, default=0, ignorable=True)  # KIP-1075


class ListOffsetsResponse(Message, api_key=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible=6):
    class PartitionResponse(Struct):
        partition_index: Int32
        error_code: Int16 = 0
        timestamp: Int64 = -1
        offset: Int64 = -1
        leader_epoch: Int32 = since(4, default=-1)  # KIP-320

    class TopicResponse(Struct):
        name: String
        partitions: Array[ListOffsetsResponse.PartitionResponse] = ()

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[TopicResponse] = ()
