"""Produce (0): record batches are appended.

v3 transactions and batch format 2 (KIP-98) · v7 zstd (KIP-110) · v8 errors per record (KIP-467) ·
v9 flexible · v10 a new leader is named in the error (KIP-951) · v12 adds partitions to the
transaction by itself (KIP-890) · v13 topic ids instead of names (KIP-516).
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
    Records,
    Request,
    String,
    Struct,
    Uuid,
    since,
    tagged,
    until,
)


class ProduceRequest(
    Request["ProduceResponse"], api_key=ApiKey.PRODUCE, versions=(3, 13), flexible=9
):
    class PartitionProduceData(Struct):
        index: Int32
        records: Records | None  # one batch of format 2

    class TopicProduceData(Struct):
        name: String = until(12, default="", ignorable=True)
        topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)  # KIP-516
        partition_data: Array[ProduceRequest.PartitionProduceData]

    transactional_id: String | None = None  # KIP-98
    acks: Int16  # 0 none, 1 the leader, -1 all in sync
    timeout_ms: Int32
    topic_data: Array[TopicProduceData]


class ProduceResponse(Message, api_key=ApiKey.PRODUCE, versions=(3, 13), flexible=9):
    class BatchIndexAndErrorMessage(Struct):
        batch_index: Int32 = 0
        batch_index_error_message: String | None = None

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = -1
        leader_epoch: Int32 = -1

    class PartitionProduceResponse(Struct):
        index: Int32
        error_code: Int16 = 0
        base_offset: Int64 = 0
        log_append_time_ms: Int64 = -1  # -1 with timestamps of the producer
        log_start_offset: Int64 = since(5, default=-1, ignorable=True)
        # KIP-467
        record_errors: Array[ProduceResponse.BatchIndexAndErrorMessage] = since(
            8, default=(), ignorable=True
        )
        error_message: String | None = since(8, default=None, ignorable=True)  # KIP-467
        # KIP-951
        current_leader: ProduceResponse.LeaderIdAndEpoch | None = tagged(0, since=10, default=None)

    class TopicProduceResponse(Struct):
        name: String = until(12, default="", ignorable=True)
        topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)  # KIP-516
        partition_responses: Array[ProduceResponse.PartitionProduceResponse] = ()

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None

    responses: Array[TopicProduceResponse] = ()
    throttle_time_ms: Int32 = 0
    node_endpoints: Array[NodeEndpoint] = tagged(0, since=10, default=())  # KIP-951
