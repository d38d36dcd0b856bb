"""AddPartitionsToTxn (24): partitions become part of a transaction (KIP-98).

Clients use v0 to v3. v4 and v5 are for brokers, which check several transactions at once (KIP-890).
v3 flexible · v5 TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    since,
    until,
)


class AddPartitionsToTxnRequest(
    Request["AddPartitionsToTxnResponse"],
    api_key=ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=(0, 5),
    flexible=3,
):
    class Topic(Struct):
        name: String
        partitions: Array[Int32]

    class Transaction(Struct):
        transactional_id: String
        producer_id: Int64
        producer_epoch: Int16
        verify_only: Bool = False  # ask, do not add
        topics: Array[AddPartitionsToTxnRequest.Topic]

    transactions: Array[Transaction] = since(4, default=())  # brokers only, KIP-890
    v3_and_below_transactional_id: String = until(3, default="")
    v3_and_below_producer_id: Int64 = until(3, default=0)
    v3_and_below_producer_epoch: Int16 = until(3, default=0)
    v3_and_below_topics: Array[Topic] = until(3, default=())


class AddPartitionsToTxnResponse(
    Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), flexible=3
):
    class PartitionResult(Struct):
        partition_index: Int32
        partition_error_code: Int16 = 0

    class TopicResult(Struct):
        name: String
        results_by_partition: Array[AddPartitionsToTxnResponse.PartitionResult] = ()

    class Result(Struct):
        transactional_id: String
        topic_results: Array[AddPartitionsToTxnResponse.TopicResult] = ()

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(4, default=0, ignorable=True)
    results_by_transaction: Array[Result] = since(4, default=())
    results_by_topic_v3_and_below: Array[TopicResult] = until(3, default=())
