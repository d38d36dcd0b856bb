"""CreatePartitions (37): a topic grows (KIP-195).

v2 flexible · v3 THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Bool, Int16, Int32, Message, Request, String, Struct


class CreatePartitionsRequest(
    Request["CreatePartitionsResponse"],
    api_key=ApiKey.CREATE_PARTITIONS,
    versions=(0, 3),
    flexible=2,
):
    class Assignment(Struct):
        broker_ids: Array[Int32]

    class Topic(Struct):
        name: String
        count: Int32  # the new total
        assignments: Array[CreatePartitionsRequest.Assignment] | None  # null: the broker chooses

    topics: Array[Topic]
    timeout_ms: Int32
    validate_only: Bool


class CreatePartitionsResponse(
    Message, api_key=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2
):
    class TopicResult(Struct):
        name: String
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    results: Array[TopicResult] = ()
