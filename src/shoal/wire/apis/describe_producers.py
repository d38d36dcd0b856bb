"""DescribeProducers (61): who writes to a partition, and with which open transaction (KIP-664)."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Int64, Message, Request, String, Struct


class DescribeProducersRequest(
    Request["DescribeProducersResponse"],
    api_key=ApiKey.DESCRIBE_PRODUCERS,
    versions=(0, 0),
    flexible=0,
):
    class TopicRequest(Struct):
        name: String
        partition_indexes: Array[Int32]

    topics: Array[TopicRequest]


class DescribeProducersResponse(
    Message, api_key=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0
):
    class ProducerState(Struct):
        producer_id: Int64
        producer_epoch: Int32 = 0
        last_sequence: Int32 = -1
        last_timestamp: Int64 = -1
        coordinator_epoch: Int32 = 0
        current_txn_start_offset: Int64 = -1

    class PartitionResponse(Struct):
        partition_index: Int32
        error_code: Int16 = 0
        error_message: String | None = None
        active_producers: Array[DescribeProducersResponse.ProducerState] = ()

    class TopicResponse(Struct):
        name: String
        partitions: Array[DescribeProducersResponse.PartitionResponse] = ()

    throttle_time_ms: Int32 = 0
    topics: Array[TopicResponse] = ()
