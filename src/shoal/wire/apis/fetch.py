"""Fetch (1): record batches are read, if need be after a wait.

v5 log start offset · v7 sessions: only changes are sent (KIP-227) · v9 leader epoch (KIP-320) ·
v10 zstd (KIP-110) · v11 reading from the nearest replica (KIP-392) · v12 flexible; a follower
learns of divergence (KIP-595) · v13 topic ids instead of names (KIP-516) · v15 replica state
(KIP-903) · v16 a new leader is named in the error (KIP-951) · v17 directory ids (KIP-853) ·
v18 high watermark of a follower (KIP-1166).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    ZERO_UUID,
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    Request,
    String,
    Struct,
    Uuid,
    since,
    tagged,
    until,
)


class FetchRequest(Request["FetchResponse"], api_key=ApiKey.FETCH, versions=(4, 18), flexible=12):
    class ReplicaState(Struct):
        replica_id: Int32 = -1  # -1: a consumer
        replica_epoch: Int64 = -1

    class Partition(Struct):
        partition: Int32
        current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)  # KIP-320
        fetch_offset: Int64
        last_fetched_epoch: Int32 = since(12, default=-1)  # KIP-595
        log_start_offset: Int64 = since(5, default=-1, ignorable=True)
        partition_max_bytes: Int32
        # KIP-853
        replica_directory_id: Uuid = tagged(0, since=17, default=ZERO_UUID, ignorable=True)
        # KIP-1166
        high_watermark: Int64 = tagged(1, since=18, default=9223372036854775807, ignorable=True)

    class Topic(Struct):
        topic: String = until(12, default="", ignorable=True)
        topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)  # KIP-516
        partitions: Array[FetchRequest.Partition]

    class ForgottenTopic(Struct):
        topic: String = until(12, default="", ignorable=True)
        topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)  # KIP-516
        partitions: Array[Int32]

    cluster_id: String | None = tagged(0, since=12, default=None, ignorable=True)  # KIP-595
    replica_id: Int32 = until(14, default=-1)  # -1: a consumer
    replica_state: ReplicaState | None = tagged(1, since=15, default=None)  # KIP-903
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0  # 0 read uncommitted, 1 read committed
    session_id: Int32 = since(7, default=0, ignorable=True)  # KIP-227
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: Array[Topic]
    # leave the session, KIP-227
    forgotten_topics_data: Array[ForgottenTopic] = since(7, default=())
    rack_id: String = since(11, default="", ignorable=True)  # KIP-392


class FetchResponse(Message, api_key=ApiKey.FETCH, versions=(4, 18), flexible=12):
    class EpochEndOffset(Struct):
        epoch: Int32 = -1
        end_offset: Int64 = -1

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = -1
        leader_epoch: Int32 = -1

    class SnapshotId(Struct):
        end_offset: Int64 = -1
        epoch: Int32 = -1

    class AbortedTransaction(Struct):
        producer_id: Int64
        first_offset: Int64 = 0

    class PartitionData(Struct):
        partition_index: Int32
        error_code: Int16 = 0
        high_watermark: Int64 = 0
        last_stable_offset: Int64 = -1
        log_start_offset: Int64 = since(5, default=-1, ignorable=True)
        # KIP-595
        diverging_epoch: FetchResponse.EpochEndOffset | None = tagged(0, since=12, default=None)
        # KIP-951
        current_leader: FetchResponse.LeaderIdAndEpoch | None = tagged(1, since=12, default=None)
        snapshot_id: FetchResponse.SnapshotId | None = tagged(2, since=12, default=None)  # KIP-630
        # null unless read committed
        aborted_transactions: Array[FetchResponse.AbortedTransaction] | None = None
        preferred_read_replica: Int32 = since(11, default=-1)  # KIP-392
        records: Records | None = b""  # librdkafka wants empty, not null, if there is nothing

    class FetchableTopicResponse(Struct):
        topic: String = until(12, default="", ignorable=True)
        topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)  # KIP-516
        partitions: Array[FetchResponse.PartitionData] = ()

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(7, default=0, ignorable=True)
    session_id: Int32 = since(7, default=0)  # 0: no session, KIP-227
    responses: Array[FetchableTopicResponse] = ()
    node_endpoints: Array[NodeEndpoint] = tagged(0, since=16, default=())  # KIP-951
