"""SyncGroup (14): the leader hands in the assignment, everybody takes theirs.

v3 static members (KIP-345) · v4 flexible · v5 protocol type and name are checked (KIP-559).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Bytes, Int16, Int32, Message, Request, String, Struct, since


class SyncGroupRequest(
    Request["SyncGroupResponse"], api_key=ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4
):
    class Assignment(Struct):
        member_id: String
        assignment: Bytes  # an Assignment of consumer_protocol.py

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = since(3, default=None)  # KIP-345
    protocol_type: String | None = since(5, default=None, ignorable=True)  # KIP-559
    protocol_name: String | None = since(5, default=None, ignorable=True)  # KIP-559
    assignments: Array[Assignment]  # empty unless sent by the leader


class SyncGroupResponse(Message, api_key=ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4):
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
    protocol_type: String | None = since(5, default=None, ignorable=True)  # KIP-559
    protocol_name: String | None = since(5, default=None, ignorable=True)  # KIP-559
    assignment: Bytes = b""
