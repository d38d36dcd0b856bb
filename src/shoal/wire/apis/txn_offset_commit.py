"""TxnOffsetCommit (28): offsets are committed as part of a transaction (KIP-98).

v2 leader epoch (KIP-320) · v3 flexible; the member's identity is checked (KIP-447) ·
v4 TRANSACTION_ABORTABLE · v5 adds the offsets to the transaction by itself (KIP-890).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Int64, Message, Request, String, Struct, since


class TxnOffsetCommitRequest(
    Request["TxnOffsetCommitResponse"],
    api_key=ApiKey.TXN_OFFSET_COMMIT,
    versions=(0, 5),
    flexible=3,
):
    class Partition(Struct):
        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = since(2, default=-1, ignorable=True)  # KIP-320
        committed_metadata: String | None

    class Topic(Struct):
        name: String
        partitions: Array[TxnOffsetCommitRequest.Partition]

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = since(3, default=-1)  # KIP-447
    member_id: String = since(3, default="")
    group_instance_id: String | None = since(3, default=None)
    topics: Array[Topic]


class TxnOffsetCommitResponse(
    Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5), flexible=3
):
    class Partition(Struct):
        partition_index: Int32
        error_code: Int16 = 0

    class Topic(Struct):
        name: String
        partitions: Array[TxnOffsetCommitResponse.Partition] = ()

    throttle_time_ms: Int32 = 0
    topics: Array[Topic] = ()
