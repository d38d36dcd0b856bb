"""ConsumerGroupDescribe (69): groups of the new protocol and their members (KIP-848).

v1 tells members of the classic protocol apart (KIP-1099).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Struct,
    Uuid,
    since,
)


class ConsumerGroupDescribeRequest(
    Request["ConsumerGroupDescribeResponse"],
    api_key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions=(0, 1),
    flexible=0,
):
    group_ids: Array[String]
    include_authorized_operations: Bool


class ConsumerGroupDescribeResponse(
    Message, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible=0
):
    class TopicPartitions(Struct):
        topic_id: Uuid
        topic_name: String
        partitions: Array[Int32] = ()

    class Assignment(Struct):
        topic_partitions: Array[ConsumerGroupDescribeResponse.TopicPartitions] = ()

    class Member(Struct):
        member_id: String
        instance_id: String | None = None
        rack_id: String | None = None
        member_epoch: Int32 = 0
        client_id: String = ""
        client_host: String = ""
        subscribed_topic_names: Array[String] = ()
        subscribed_topic_regex: String | None = None
        assignment: ConsumerGroupDescribeResponse.Assignment
        target_assignment: ConsumerGroupDescribeResponse.Assignment
        # -1 unknown, 0 classic, 1 consumer, KIP-1099
        member_type: Int8 = since(1, default=-1, ignorable=True)

    class DescribedGroup(Struct):
        error_code: Int16 = 0
        error_message: String | None = None
        group_id: String
        group_state: String = ""
        group_epoch: Int32 = 0
        assignment_epoch: Int32 = 0
        assignor_name: String = ""
        members: Array[ConsumerGroupDescribeResponse.Member] = ()
        authorized_operations: Int32 = -2147483648

    throttle_time_ms: Int32 = 0
    groups: Array[DescribedGroup] = ()
