"""ListPartitionReassignments (46): partitions that are being moved (KIP-455)."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Message, Request, String, Struct


class ListPartitionReassignmentsRequest(
    Request["ListPartitionReassignmentsResponse"],
    api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    flexible=0,
):
    class Topics(Struct):
        name: String
        partition_indexes: Array[Int32]

    timeout_ms: Int32 = 60000
    topics: Array[Topics] | None = None  # null: all


class ListPartitionReassignmentsResponse(
    Message, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible=0
):
    class OngoingPartitionReassignment(Struct):
        partition_index: Int32
        replicas: Array[Int32] = ()
        adding_replicas: Array[Int32] = ()
        removing_replicas: Array[Int32] = ()

    class OngoingTopicReassignment(Struct):
        name: String
        partitions: Array[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ()

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: Array[OngoingTopicReassignment] = ()
