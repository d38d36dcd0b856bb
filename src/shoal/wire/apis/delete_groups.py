"""DeleteGroups (42): empty groups are removed with their offsets (KIP-229). v2 flexible."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Message, Request, String, Struct


class DeleteGroupsRequest(
    Request["DeleteGroupsResponse"], api_key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2
):
    groups_names: Array[String]


class DeleteGroupsResponse(Message, api_key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2):
    class DeletableGroupResult(Struct):
        group_id: String
        error_code: Int16 = 0

    throttle_time_ms: Int32 = 0
    results: Array[DeletableGroupResult] = ()
