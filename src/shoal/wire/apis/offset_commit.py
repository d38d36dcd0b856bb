"""OffsetCommit (8): a group's positions are stored.

v5 drops the retention time, now the broker's setting (KIP-211) · v6 leader epoch (KIP-320) ·
v7 static members (KIP-345) · v8 flexible · v9 new group protocol (KIP-848) · v10 topic ids
instead of names (KIP-848).
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
    Uuid,
    since,
    until,
)


class OffsetCommitRequest(
    Request["OffsetCommitResponse"], api_key=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible=8
):
    class Partition(Struct):
        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)  # KIP-320
        committed_metadata: String | None

    class Topic(Struct):
        name: String = until(9, default="", ignorable=True)
        topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)  # KIP-848
        partitions: Array[OffsetCommitRequest.Partition]

    group_id: String
    generation_id_or_member_epoch: Int32 = -1  # -1 from a client that is no member
    member_id: String
    group_instance_id: String | None = since(7, default=None)  # KIP-345
    retention_time_ms: Int64 = until(4, default=-1, ignorable=True)  # KIP-211 gave it to the broker
    topics: Array[Topic]


class OffsetCommitResponse(Message, api_key=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible=8):
    class Partition(Struct):
        partition_index: Int32
        error_code: Int16 = 0

    class Topic(Struct):
        name: String = until(9, default="", ignorable=True)
        topic_id: Uuid = since(10, default=ZERO_UUID, ignorable=True)  # KIP-848
        partitions: Array[OffsetCommitResponse.Partition] = ()

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[Topic] = ()
