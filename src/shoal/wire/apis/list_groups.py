"""ListGroups (16): the groups a broker coordinates.

v3 flexible · v4 filter by state (KIP-518) · v5 filter by type (KIP-848).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Int32, Message, Request, String, Struct, since


class ListGroupsRequest(
    Request["ListGroupsResponse"], api_key=ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3
):
    states_filter: Array[String] = since(4, default=())  # KIP-518
    types_filter: Array[String] = since(5, default=())  # KIP-848


class ListGroupsResponse(Message, api_key=ApiKey.LIST_GROUPS, versions=(0, 5), flexible=3):
    class ListedGroup(Struct):
        group_id: String
        protocol_type: String = ""
        group_state: String = since(4, default="", ignorable=True)  # KIP-518
        group_type: String = since(5, default="", ignorable=True)  # KIP-848

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
    groups: Array[ListedGroup] = ()
