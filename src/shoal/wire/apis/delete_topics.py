"""DeleteTopics (20).

v4 flexible · v5 error message, THROTTLING_QUOTA_EXCEEDED (KIP-599) · v6 by id as well (KIP-516).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Struct,
    Uuid,
    nullable,
    since,
    until,
)


class DeleteTopicsRequest(
    Request["DeleteTopicsResponse"], api_key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4
):
    class DeleteTopicState(Struct):
        name: String | None = None
        topic_id: Uuid

    topics: Array[DeleteTopicState] = since(6, default=())  # KIP-516
    topic_names: Array[String] = until(5, default=(), ignorable=True)
    timeout_ms: Int32


class DeleteTopicsResponse(Message, api_key=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4):
    class DeletableTopicResult(Struct):
        name: String | None = nullable(since=6, default="")
        topic_id: Uuid = since(6, default=ZERO_UUID, ignorable=True)
        error_code: Int16 = 0
        error_message: String | None = since(5, default=None, ignorable=True)  # KIP-599

    throttle_time_ms: Int32 = 0
    responses: Array[DeletableTopicResult] = ()
