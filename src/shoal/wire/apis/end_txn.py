"""EndTxn (26): a transaction is committed or aborted (KIP-98).

v2 PRODUCER_FENCED (KIP-588) · v3 flexible · v4 TRANSACTION_ABORTABLE · v5 the producer's epoch
grows with every transaction and comes back in the answer (KIP-890).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Bool, Int16, Int32, Int64, Message, Request, String, since


class EndTxnRequest(Request["EndTxnResponse"], api_key=ApiKey.END_TXN, versions=(0, 5), flexible=3):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool  # false: abort


class EndTxnResponse(Message, api_key=ApiKey.END_TXN, versions=(0, 5), flexible=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = since(5, default=-1, ignorable=True)  # KIP-890
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)
