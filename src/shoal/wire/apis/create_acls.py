"""CreateAcls (30). v1 prefixed patterns (KIP-290) · v2 flexible · v3 user resources (KIP-373)."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int8, Int16, Int32, Message, Request, String, Struct


class CreateAclsRequest(
    Request["CreateAclsResponse"], api_key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2
):
    class AclCreation(Struct):
        resource_type: Int8
        resource_name: String
        resource_pattern_type: Int8 = 3
        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    creations: Array[AclCreation]


class CreateAclsResponse(Message, api_key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2):
    class AclCreationResult(Struct):
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    results: Array[AclCreationResult] = ()
