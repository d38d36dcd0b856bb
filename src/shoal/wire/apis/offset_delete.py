"""OffsetDelete (47): stored positions of topics nobody in the group reads are dropped (KIP-496).

Never flexible.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Message, Request, String, Struct


class OffsetDeleteRequest(
    Request["OffsetDeleteResponse"], api_key=ApiKey.OFFSET_DELETE, versions=(0, 0), flexible=None
):
    class Partition(Struct):
        partition_index: Int32

    class Topic(Struct):
        name: String
        partitions: Array[OffsetDeleteRequest.Partition]

    group_id: String
    topics: Array[Topic]


class OffsetDeleteResponse(Message, api_key=ApiKey.OFFSET_DELETE, versions=(0, 0), flexible=None):
    class Partition(Struct):
        partition_index: Int32
        error_code: Int16 = 0

    class Topic(Struct):
        name: String
        partitions: Array[OffsetDeleteResponse.Partition] = ()

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: Array[Topic] = ()
