"""InitProducerId (22): a producer gets an id and an epoch (KIP-98).

v2 flexible · v3 a producer may go on with the id it has (KIP-360) · v4 PRODUCER_FENCED (KIP-588) ·
v5 TRANSACTION_ABORTABLE (KIP-890) · v6 two-phase commit (KIP-939).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Bool, Int16, Int32, Int64, Message, Request, String, since


class InitProducerIdRequest(
    Request["InitProducerIdResponse"], api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible=2
):
    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = since(3, default=-1)  # KIP-360
    producer_epoch: Int16 = since(3, default=-1)
    enable2_pc: Bool = since(6, default=False)  # KIP-939
    keep_prepared_txn: Bool = since(6, default=False)  # KIP-939


class InitProducerIdResponse(Message, api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 6), flexible=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Int64 = since(6, default=-1)  # KIP-939
    ongoing_txn_producer_epoch: Int16 = since(6, default=-1)
