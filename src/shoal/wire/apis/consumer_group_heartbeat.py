"""ConsumerGroupHeartbeat (68): a member joins, stays in or leaves a new-style group (KIP-848).

A field that did not change since the last heartbeat is null (-1 for the timeout).

v1 subscription by regular expression; the member id is made by the client (KIP-1082).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Message, Request, String, Struct, Uuid, since


class ConsumerGroupHeartbeatRequest(
    Request["ConsumerGroupHeartbeatResponse"],
    api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
    versions=(0, 1),
    flexible=0,
):
    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]

    group_id: String
    member_id: String
    member_epoch: Int32  # 0 joins, -1 leaves, -2 a static member leaves for a while
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1  # -1: unchanged
    subscribed_topic_names: Array[String] | None = None
    subscribed_topic_regex: String | None = since(1, default=None)  # RE2 syntax
    server_assignor: String | None = None
    topic_partitions: Array[TopicPartitions] | None = None  # what the member owns


class ConsumerGroupHeartbeatResponse(
    Message, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible=0
):
    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32] = ()

    class Assignment(Struct):
        topic_partitions: Array[ConsumerGroupHeartbeatResponse.TopicPartitions] = ()

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None  # null: unchanged
