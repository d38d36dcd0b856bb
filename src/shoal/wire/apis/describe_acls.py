"""DescribeAcls (29). v1 prefixed patterns (KIP-290) · v2 flexible · v3 user resources (KIP-373)."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int8, Int16, Int32, Message, Request, String, Struct


class DescribeAclsRequest(
    Request["DescribeAclsResponse"], api_key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible=2
):
    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = 3
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


class DescribeAclsResponse(Message, api_key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible=2):
    class AclDescription(Struct):
        principal: String = ""
        host: String
        operation: Int8 = 0
        permission_type: Int8 = 0

    class Resource(Struct):
        resource_type: Int8
        resource_name: String
        pattern_type: Int8 = 3
        acls: Array[DescribeAclsResponse.AclDescription] = ()

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    resources: Array[Resource] = ()
