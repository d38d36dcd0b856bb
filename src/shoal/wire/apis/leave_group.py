"""LeaveGroup (13): members leave a group at once instead of timing out.

v3 several members, also by instance id (KIP-345) · v4 flexible · v5 reason (KIP-800).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Message, Request, String, Struct, since, until


class LeaveGroupRequest(
    Request["LeaveGroupResponse"], api_key=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4
):
    class MemberIdentity(Struct):
        member_id: String
        group_instance_id: String | None = None
        reason: String | None = since(5, default=None, ignorable=True)  # KIP-800

    group_id: String
    member_id: String = until(2, default="")
    members: Array[MemberIdentity] = since(3, default=())  # KIP-345


class LeaveGroupResponse(Message, api_key=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4):
    class MemberResponse(Struct):
        member_id: String
        group_instance_id: String | None = ""
        error_code: Int16 = 0

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
    members: Array[MemberResponse] = since(3, default=())  # KIP-345
