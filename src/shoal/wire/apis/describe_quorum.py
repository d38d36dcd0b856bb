"""DescribeQuorum (55): the controllers' raft quorum (KIP-595).

v1 timestamps of the replicas (KIP-836) · v2 directory ids and listeners (KIP-853).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    Uint16,
    Uuid,
    since,
)


class DescribeQuorumRequest(
    Request["DescribeQuorumResponse"], api_key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0
):
    class PartitionData(Struct):
        partition_index: Int32

    class TopicData(Struct):
        topic_name: String
        partitions: Array[DescribeQuorumRequest.PartitionData]

    topics: Array[TopicData]


class DescribeQuorumResponse(Message, api_key=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0):
    class ReplicaState(Struct):
        replica_id: Int32
        replica_directory_id: Uuid = since(2, default=ZERO_UUID)
        log_end_offset: Int64 = 0
        last_fetch_timestamp: Int64 = since(1, default=-1, ignorable=True)
        last_caught_up_timestamp: Int64 = since(1, default=-1, ignorable=True)

    class PartitionData(Struct):
        partition_index: Int32
        error_code: Int16 = 0
        error_message: String | None = since(2, default=None, ignorable=True)
        leader_id: Int32
        leader_epoch: Int32
        high_watermark: Int64 = 0
        current_voters: Array[DescribeQuorumResponse.ReplicaState] = ()
        observers: Array[DescribeQuorumResponse.ReplicaState] = ()

    class TopicData(Struct):
        topic_name: String
        partitions: Array[DescribeQuorumResponse.PartitionData] = ()

    class Listener(Struct):
        name: String
        host: String
        port: Uint16

    class Node(Struct):
        node_id: Int32
        listeners: Array[DescribeQuorumResponse.Listener] = ()

    error_code: Int16 = 0
    error_message: String | None = since(2, default=None, ignorable=True)
    topics: Array[TopicData] = ()
    nodes: Array[Node] = since(2, default=())
