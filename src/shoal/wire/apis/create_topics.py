"""CreateTopics (19).

v4 partitions and replication may be left to the broker (KIP-464) · v5 flexible, and the answer
holds the new topic's settings (KIP-525) · v6 THROTTLING_QUOTA_EXCEEDED (KIP-599) · v7 topic id
(KIP-516).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    ZERO_UUID,
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
    tagged,
)


class CreateTopicsRequest(
    Request["CreateTopicsResponse"], api_key=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5
):
    class CreatableReplicaAssignment(Struct):
        partition_index: Int32
        broker_ids: Array[Int32]

    class CreatableTopicConfig(Struct):
        name: String
        value: String | None

    class CreatableTopic(Struct):
        name: String
        num_partitions: Int32  # -1: the broker's default, KIP-464
        replication_factor: Int16  # -1: the broker's default, KIP-464
        assignments: Array[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: Array[CreateTopicsRequest.CreatableTopicConfig]

    topics: Array[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreateTopicsResponse(Message, api_key=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5):
    class CreatableTopicConfigs(Struct):
        name: String
        value: String | None = ""
        read_only: Bool = False
        config_source: Int8 = -1
        is_sensitive: Bool = False

    class CreatableTopicResult(Struct):
        name: String
        topic_id: Uuid = since(7, default=ZERO_UUID, ignorable=True)  # KIP-516
        error_code: Int16 = 0
        error_message: String | None = None
        topic_config_error_code: Int16 = tagged(0, since=5, default=0, ignorable=True)  # KIP-525
        num_partitions: Int32 = since(5, default=-1, ignorable=True)
        replication_factor: Int16 = since(5, default=-1, ignorable=True)
        # KIP-525
        configs: Array[CreateTopicsResponse.CreatableTopicConfigs] | None = since(
            5, default=(), ignorable=True
        )

    throttle_time_ms: Int32 = 0
    topics: Array[CreatableTopicResult] = ()
