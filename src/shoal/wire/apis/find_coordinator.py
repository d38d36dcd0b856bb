"""FindCoordinator (10): which broker coordinates a group or a transactional id.

v3 flexible · v4 several keys in one request (KIP-699) · v5 TRANSACTION_ABORTABLE (KIP-890) ·
v6 share groups (KIP-932).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Int8,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Struct,
    since,
    until,
)


class FindCoordinatorRequest(
    Request["FindCoordinatorResponse"], api_key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3
):
    key: String = until(3, default="")  # group or transactional id
    key_type: Int8 = since(1, default=0)  # 0 group, 1 transaction, 2 share
    coordinator_keys: Array[String] = since(4, default=())  # KIP-699


class FindCoordinatorResponse(
    Message, api_key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible=3
):
    class Coordinator(Struct):
        key: String
        node_id: Int32
        host: String
        port: Int32
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = until(3, default=0)
    error_message: String | None = since(1, until=3, default=None, ignorable=True)
    node_id: Int32 = until(3, default=0)
    host: String = until(3, default="")
    port: Int32 = until(3, default=0)
    coordinators: Array[Coordinator] = since(4, default=())  # KIP-699
