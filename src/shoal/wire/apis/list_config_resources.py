"""ListConfigResources (74): the names that have settings (KIP-1142).

v0 is ListClientMetricsResources of KIP-714: it lists those and nothing else.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int8, Int16, Int32, Message, Request, String, Struct, since


class ListConfigResourcesRequest(
    Request["ListConfigResourcesResponse"],
    api_key=ApiKey.LIST_CONFIG_RESOURCES,
    versions=(0, 1),
    flexible=0,
):
    resource_types: Array[Int8] = since(1, default=())  # empty: all, KIP-1142


class ListConfigResourcesResponse(
    Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), flexible=0
):
    class ConfigResource(Struct):
        resource_name: String
        resource_type: Int8 = since(1, default=16, ignorable=True)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: Array[ConfigResource] = ()
