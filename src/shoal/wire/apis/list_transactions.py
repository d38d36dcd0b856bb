"""ListTransactions (66): the transactions a broker coordinates (KIP-664).

v1 filter by duration (KIP-994) · v2 filter by a pattern of the id (KIP-1152).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Int64, Message, Request, String, Struct, since


class ListTransactionsRequest(
    Request["ListTransactionsResponse"],
    api_key=ApiKey.LIST_TRANSACTIONS,
    versions=(0, 2),
    flexible=0,
):
    state_filters: Array[String]
    producer_id_filters: Array[Int64]
    duration_filter: Int64 = since(1, default=-1)  # KIP-994
    transactional_id_pattern: String | None = since(2, default=None)  # KIP-1152


class ListTransactionsResponse(
    Message, api_key=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible=0
):
    class TransactionState(Struct):
        transactional_id: String
        producer_id: Int64
        transaction_state: String = ""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: Array[String] = ()
    transaction_states: Array[TransactionState] = ()
