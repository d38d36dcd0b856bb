"""OffsetForLeaderEpoch (23): where an epoch of a leader ended; finds out whether a log was cut.

v2 the asker's own epoch is checked (KIP-320) · v3 replica id · v4 flexible.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Int64, Message, Request, String, Struct, since


class OffsetForLeaderEpochRequest(
    Request["OffsetForLeaderEpochResponse"],
    api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions=(2, 4),
    flexible=4,
):
    class OffsetForLeaderPartition(Struct):
        partition: Int32
        current_leader_epoch: Int32 = -1
        leader_epoch: Int32

    class OffsetForLeaderTopic(Struct):
        topic: String
        partitions: Array[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]

    replica_id: Int32 = since(3, default=-2, ignorable=True)  # -2: anybody
    topics: Array[OffsetForLeaderTopic]


class OffsetForLeaderEpochResponse(
    Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible=4
):
    class EpochEndOffset(Struct):
        error_code: Int16 = 0
        partition: Int32
        leader_epoch: Int32 = -1
        end_offset: Int64 = -1

    class OffsetForLeaderTopicResult(Struct):
        topic: String
        partitions: Array[OffsetForLeaderEpochResponse.EpochEndOffset] = ()

    throttle_time_ms: Int32 = 0
    topics: Array[OffsetForLeaderTopicResult] = ()
