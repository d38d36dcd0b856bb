"""DescribeLogDirs (35): how much each partition takes on disk (KIP-113).

v2 flexible · v3 an error of the whole answer · v4 size of the volume (KIP-827) · v5 cordoned
directories (KIP-1066).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    since,
)


class DescribeLogDirsRequest(
    Request["DescribeLogDirsResponse"],
    api_key=ApiKey.DESCRIBE_LOG_DIRS,
    versions=(1, 5),
    flexible=2,
):
    class DescribableLogDirTopic(Struct):
        topic: String
        partitions: Array[Int32]

    topics: Array[DescribableLogDirTopic] | None  # null: all


class DescribeLogDirsResponse(
    Message, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), flexible=2
):
    class Partition(Struct):
        partition_index: Int32
        partition_size: Int64 = 0
        offset_lag: Int64 = 0
        is_future_key: Bool = False

    class Topic(Struct):
        name: String
        partitions: Array[DescribeLogDirsResponse.Partition] = ()

    class Result(Struct):
        error_code: Int16 = 0
        log_dir: String
        topics: Array[DescribeLogDirsResponse.Topic] = ()
        total_bytes: Int64 = since(4, default=-1, ignorable=True)  # KIP-827
        usable_bytes: Int64 = since(4, default=-1, ignorable=True)  # KIP-827
        is_cordoned: Bool = since(5, default=False, ignorable=True)  # KIP-1066

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(3, default=0, ignorable=True)
    results: Array[Result] = ()
