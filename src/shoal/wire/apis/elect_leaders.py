"""ElectLeaders (43): the preferred, or any, replica is made leader (KIP-183).

v1 elections of an unclean leader (KIP-460) · v2 flexible.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int8, Int16, Int32, Message, Request, String, Struct, since


class ElectLeadersRequest(
    Request["ElectLeadersResponse"], api_key=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2
):
    class TopicPartitions(Struct):
        topic: String
        partitions: Array[Int32]

    election_type: Int8 = since(1, default=0)  # 0 preferred, 1 unclean, KIP-460
    topic_partitions: Array[TopicPartitions] | None  # null: all
    timeout_ms: Int32 = 60000


class ElectLeadersResponse(Message, api_key=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2):
    class PartitionResult(Struct):
        partition_id: Int32
        error_code: Int16 = 0
        error_message: String | None = None

    class ReplicaElectionResult(Struct):
        topic: String
        partition_result: Array[ElectLeadersResponse.PartitionResult] = ()

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(1, default=0)
    replica_election_results: Array[ReplicaElectionResult] = ()
