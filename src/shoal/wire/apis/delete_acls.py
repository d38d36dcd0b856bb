"""DeleteAcls (31). v1 prefixed patterns (KIP-290) · v2 flexible · v3 user resources (KIP-373)."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int8, Int16, Int32, Message, Request, String, Struct


class DeleteAclsRequest(
    Request["DeleteAclsResponse"], api_key=ApiKey.DELETE_ACLS, versions=(1, 3), flexible=2
):
    class Filter(Struct):
        resource_type_filter: Int8
        resource_name_filter: String | None
        pattern_type_filter: Int8 = 3
        principal_filter: String | None
        host_filter: String | None
        operation: Int8
        permission_type: Int8

    filters: Array[Filter]


class DeleteAclsResponse(Message, api_key=ApiKey.DELETE_ACLS, versions=(1, 3), flexible=2):
    class MatchingAcl(Struct):
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String
        pattern_type: Int8 = 3
        principal: String = ""
        host: String
        operation: Int8 = 0
        permission_type: Int8 = 0

    class FilterResult(Struct):
        error_code: Int16 = 0
        error_message: String | None = None
        matching_acls: Array[DeleteAclsResponse.MatchingAcl] = ()

    throttle_time_ms: Int32 = 0
    filter_results: Array[FilterResult] = ()
