"""DescribeConfigs (32): the settings of topics, brokers and groups (KIP-133).

v1 synonyms and sources (KIP-226) · v3 documentation and type (KIP-569) · v4 flexible.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Struct,
    since,
)


class DescribeConfigsRequest(
    Request["DescribeConfigsResponse"], api_key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4
):
    class Resource(Struct):
        resource_type: Int8  # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group
        resource_name: String
        configuration_keys: Array[String] | None  # null: all

    resources: Array[Resource]
    include_synonyms: Bool = False
    include_documentation: Bool = since(3, default=False)  # KIP-569


class DescribeConfigsResponse(
    Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4
):
    class Synonym(Struct):
        name: String
        value: String | None = ""
        source: Int8 = 0

    class ResourceResult(Struct):
        name: String
        value: String | None = ""
        read_only: Bool = False
        config_source: Int8 = -1  # KIP-226
        is_sensitive: Bool = False
        synonyms: Array[DescribeConfigsResponse.Synonym] = ()
        config_type: Int8 = since(3, default=0, ignorable=True)  # KIP-569
        documentation: String | None = since(3, default="", ignorable=True)  # KIP-569

    class Result(Struct):
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String
        configs: Array[DescribeConfigsResponse.ResourceResult] = ()

    throttle_time_ms: Int32 = 0
    results: Array[Result] = ()
