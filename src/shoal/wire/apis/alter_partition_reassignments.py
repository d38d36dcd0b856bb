"""AlterPartitionReassignments (45): partitions are moved to other brokers (KIP-455).

v1 changing the replication factor may be forbidden (KIP-860).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Bool, Int16, Int32, Message, Request, String, Struct, since


class AlterPartitionReassignmentsRequest(
    Request["AlterPartitionReassignmentsResponse"],
    api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 1),
    flexible=0,
):
    class ReassignablePartition(Struct):
        partition_index: Int32
        replicas: Array[Int32] | None = None  # null: cancel

    class ReassignableTopic(Struct):
        name: String
        partitions: Array[AlterPartitionReassignmentsRequest.ReassignablePartition]

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = since(1, default=True)  # KIP-860
    topics: Array[ReassignableTopic]


class AlterPartitionReassignmentsResponse(
    Message, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible=0
):
    class ReassignablePartitionResponse(Struct):
        partition_index: Int32
        error_code: Int16 = 0
        error_message: String | None = None

    class ReassignableTopicResponse(Struct):
        name: String
        partitions: Array[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ()

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = since(1, default=True, ignorable=True)
    error_code: Int16 = 0
    error_message: String | None = None
    responses: Array[ReassignableTopicResponse] = ()
