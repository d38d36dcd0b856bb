"""AlterReplicaLogDirs (34): replicas move between a broker's directories (KIP-113). v2 flexible."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Message, Request, String, Struct


class AlterReplicaLogDirsRequest(
    Request["AlterReplicaLogDirsResponse"],
    api_key=ApiKey.ALTER_REPLICA_LOG_DIRS,
    versions=(1, 2),
    flexible=2,
):
    class AlterReplicaLogDirTopic(Struct):
        name: String
        partitions: Array[Int32]

    class AlterReplicaLogDir(Struct):
        path: String
        topics: Array[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]

    dirs: Array[AlterReplicaLogDir]


class AlterReplicaLogDirsResponse(
    Message, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible=2
):
    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: Int32
        error_code: Int16 = 0

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: String
        partitions: Array[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = ()

    throttle_time_ms: Int32 = 0
    results: Array[AlterReplicaLogDirTopicResult] = ()
