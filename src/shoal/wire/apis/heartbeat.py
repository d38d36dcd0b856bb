"""Heartbeat (12): a member of a classic group says that it lives and learns of a rebalance.

v3 static members (KIP-345) · v4 flexible.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Int16, Int32, Message, Request, String, since


class HeartbeatRequest(
    Request["HeartbeatResponse"], api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4
):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = since(3, default=None)  # static membership, KIP-345


class HeartbeatResponse(Message, api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
