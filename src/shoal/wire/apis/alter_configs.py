"""AlterConfigs (33): all settings of a resource are replaced. v2 flexible.

Deprecated in favour of IncrementalAlterConfigs, which changes only what it names.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Bool, Int8, Int16, Int32, Message, Request, String, Struct


class AlterConfigsRequest(
    Request["AlterConfigsResponse"], api_key=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible=2
):
    class AlterableConfig(Struct):
        name: String
        value: String | None

    class Resource(Struct):
        resource_type: Int8
        resource_name: String
        configs: Array[AlterConfigsRequest.AlterableConfig]

    resources: Array[Resource]
    validate_only: Bool


class AlterConfigsResponse(Message, api_key=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible=2):
    class ResourceResponse(Struct):
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32 = 0
    responses: Array[ResourceResponse] = ()
