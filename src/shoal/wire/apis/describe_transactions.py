"""DescribeTransactions (65): the state of transactional ids (KIP-664)."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Int64, Message, Request, String, Struct


class DescribeTransactionsRequest(
    Request["DescribeTransactionsResponse"],
    api_key=ApiKey.DESCRIBE_TRANSACTIONS,
    versions=(0, 0),
    flexible=0,
):
    transactional_ids: Array[String]


class DescribeTransactionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible=0
):
    class TopicData(Struct):
        topic: String
        partitions: Array[Int32] = ()

    class TransactionState(Struct):
        error_code: Int16 = 0
        transactional_id: String
        transaction_state: String = ""
        transaction_timeout_ms: Int32 = 0
        transaction_start_time_ms: Int64 = 0
        producer_id: Int64
        producer_epoch: Int16 = 0
        topics: Array[DescribeTransactionsResponse.TopicData] = ()

    throttle_time_ms: Int32 = 0
    transaction_states: Array[TransactionState] = ()
