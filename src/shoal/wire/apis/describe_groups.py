"""DescribeGroups (15): state, protocol and members of classic groups.

v3 authorized operations (KIP-430) · v4 static members (KIP-345) · v5 flexible · v6 a group that
does not exist is GROUP_ID_NOT_FOUND and no longer "Dead" (KIP-1043).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Struct,
    since,
)


class DescribeGroupsRequest(
    Request["DescribeGroupsResponse"], api_key=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible=5
):
    groups: Array[String]
    include_authorized_operations: Bool = since(3, default=False)  # KIP-430


class DescribeGroupsResponse(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible=5):
    class DescribedGroupMember(Struct):
        member_id: String
        group_instance_id: String | None = since(4, default=None, ignorable=True)  # KIP-345
        client_id: String = ""
        client_host: String = ""
        member_metadata: Bytes = b""
        member_assignment: Bytes = b""

    class DescribedGroup(Struct):
        error_code: Int16 = 0
        error_message: String | None = since(6, default=None)  # KIP-1043
        group_id: String
        group_state: String = ""
        protocol_type: String = ""
        protocol_data: String = ""  # the chosen assignor
        members: Array[DescribeGroupsResponse.DescribedGroupMember] = ()
        authorized_operations: Int32 = since(3, default=-2147483648)  # KIP-430

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    groups: Array[DescribedGroup] = ()
