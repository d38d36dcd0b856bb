"""Metadata (3): brokers, topics, partitions and who leads them.

v0 an empty list means all topics, from v1 on null does · v4 automatic creation may be refused ·
v5 offline replicas (KIP-112) · v7 leader epoch (KIP-320) · v8 authorized operations (KIP-430) ·
v9 flexible · v10 topic ids (KIP-516) · v11 cluster operations moved to DescribeCluster (KIP-700) ·
v12 asking by topic id works · v13 an error of the whole answer (KIP-1102).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Struct,
    Uuid,
    nullable,
    since,
)


class MetadataRequest(
    Request["MetadataResponse"], api_key=ApiKey.METADATA, versions=(0, 13), flexible=9
):
    class Topic(Struct):
        topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)  # works from v12 on, KIP-516
        name: String | None = nullable(since=10, default="")

    topics: Array[Topic] | None = nullable(since=1, default=())  # null: all; in v0 empty means all
    allow_auto_topic_creation: Bool = since(4, default=True)
    # KIP-430, KIP-700
    include_cluster_authorized_operations: Bool = since(8, until=10, default=False)
    include_topic_authorized_operations: Bool = since(8, default=False)  # KIP-430


class MetadataResponse(Message, api_key=ApiKey.METADATA, versions=(0, 13), flexible=9):
    class Broker(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = since(1, default=None, ignorable=True)

    class Partition(Struct):
        error_code: Int16 = 0
        partition_index: Int32
        leader_id: Int32
        leader_epoch: Int32 = since(7, default=-1, ignorable=True)  # KIP-320
        replica_nodes: Array[Int32] = ()
        isr_nodes: Array[Int32] = ()
        offline_replicas: Array[Int32] = since(5, default=(), ignorable=True)  # KIP-112

    class Topic(Struct):
        error_code: Int16 = 0
        name: String | None = nullable(since=12, default="")
        topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)  # KIP-516
        is_internal: Bool = since(1, default=False, ignorable=True)
        partitions: Array[MetadataResponse.Partition] = ()
        topic_authorized_operations: Int32 = since(8, default=-2147483648)

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    brokers: Array[Broker] = ()
    cluster_id: String | None = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[Topic] = ()
    cluster_authorized_operations: Int32 = since(8, until=10, default=-2147483648)
    error_code: Int16 = since(13, default=0, ignorable=True)
