"""IncrementalAlterConfigs (44): single settings are set, deleted or edited as lists (KIP-339).

v1 flexible.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Bool, Int8, Int16, Int32, Message, Request, String, Struct


class IncrementalAlterConfigsRequest(
    Request["IncrementalAlterConfigsResponse"],
    api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    versions=(0, 1),
    flexible=1,
):
    class AlterableConfig(Struct):
        name: String
        config_operation: Int8  # 0 set, 1 delete, 2 append, 3 subtract
        value: String | None

    class AlterConfigsResource(Struct):
        resource_type: Int8
        resource_name: String
        configs: Array[IncrementalAlterConfigsRequest.AlterableConfig]

    resources: Array[AlterConfigsResource]
    validate_only: Bool


class IncrementalAlterConfigsResponse(
    Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible=1
):
    class AlterConfigsResourceResponse(Struct):
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32 = 0
    responses: Array[AlterConfigsResourceResponse] = ()
