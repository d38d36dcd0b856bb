"""AlterClientQuotas (49): quotas are set and removed (KIP-546). v1 flexible."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Bool, Float64, Int16, Int32, Message, Request, String, Struct


class AlterClientQuotasRequest(
    Request["AlterClientQuotasResponse"],
    api_key=ApiKey.ALTER_CLIENT_QUOTAS,
    versions=(0, 1),
    flexible=1,
):
    class EntityData(Struct):
        entity_type: String
        entity_name: String | None  # null: the default

    class OpData(Struct):
        key: String
        value: Float64
        remove: Bool

    class EntryData(Struct):
        entity: Array[AlterClientQuotasRequest.EntityData]
        ops: Array[AlterClientQuotasRequest.OpData]

    entries: Array[EntryData]
    validate_only: Bool


class AlterClientQuotasResponse(
    Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible=1
):
    class EntityData(Struct):
        entity_type: String
        entity_name: String | None  # null: the default

    class EntryData(Struct):
        error_code: Int16 = 0
        error_message: String | None = None
        entity: Array[AlterClientQuotasResponse.EntityData] = ()

    throttle_time_ms: Int32 = 0
    entries: Array[EntryData] = ()
