"""AddOffsetsToTxn (25): a group's offsets become part of a transaction (KIP-98).

v2 PRODUCER_FENCED (KIP-588) · v3 flexible · v4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Int16, Int32, Int64, Message, Request, String


class AddOffsetsToTxnRequest(
    Request["AddOffsetsToTxnResponse"],
    api_key=ApiKey.ADD_OFFSETS_TO_TXN,
    versions=(0, 4),
    flexible=3,
):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(
    Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), flexible=3
):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
