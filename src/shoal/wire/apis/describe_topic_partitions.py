"""DescribeTopicPartitions (75): topics page by page, with eligible leaders (KIP-966)."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Bool, Int16, Int32, Message, Request, String, Struct, Uuid


class DescribeTopicPartitionsRequest(
    Request["DescribeTopicPartitionsResponse"],
    api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    flexible=0,
):
    class TopicRequest(Struct):
        name: String

    class Cursor(Struct):
        topic_name: String
        partition_index: Int32

    topics: Array[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None  # null: from the start


class DescribeTopicPartitionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible=0
):
    class Partition(Struct):
        error_code: Int16 = 0
        partition_index: Int32
        leader_id: Int32
        leader_epoch: Int32 = -1
        replica_nodes: Array[Int32] = ()
        isr_nodes: Array[Int32] = ()
        eligible_leader_replicas: Array[Int32] | None = None
        last_known_elr: Array[Int32] | None = None
        offline_replicas: Array[Int32] = ()

    class Topic(Struct):
        error_code: Int16 = 0
        name: String | None
        topic_id: Uuid
        is_internal: Bool = False
        partitions: Array[DescribeTopicPartitionsResponse.Partition] = ()
        topic_authorized_operations: Int32 = -2147483648

    class Cursor(Struct):
        topic_name: String
        partition_index: Int32

    throttle_time_ms: Int32 = 0
    topics: Array[Topic] = ()
    next_cursor: Cursor | None = None  # null: this was the last page
