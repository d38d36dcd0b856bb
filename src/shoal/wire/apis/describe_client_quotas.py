"""DescribeClientQuotas (48): quotas by user, client id and address (KIP-546). v1 flexible."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Struct,
)


class DescribeClientQuotasRequest(
    Request["DescribeClientQuotasResponse"],
    api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS,
    versions=(0, 1),
    flexible=1,
):
    class ComponentData(Struct):
        entity_type: String
        match_type: Int8  # 0 exactly, 1 the default, 2 any that has one
        match: String | None

    components: Array[ComponentData]
    strict: Bool


class DescribeClientQuotasResponse(
    Message, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible=1
):
    class EntityData(Struct):
        entity_type: String
        entity_name: String | None  # null: the default

    class ValueData(Struct):
        key: String
        value: Float64 = 0.0

    class EntryData(Struct):
        entity: Array[DescribeClientQuotasResponse.EntityData] = ()
        values: Array[DescribeClientQuotasResponse.ValueData] = ()

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    entries: Array[EntryData] | None = None
