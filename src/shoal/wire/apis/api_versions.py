"""ApiVersions (18): which APIs and versions a broker speaks; the first request of a connection.

v3 flexible, with the client's name (KIP-511) and the cluster's features (KIP-584) · v4 features may
start at zero (KAFKA-17011).

The response header is v0 in every version: a client cannot know yet what the broker speaks. A
broker answers a version it does not know with a v0 body and UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    Request,
    String,
    Struct,
    since,
    tagged,
)


class ApiVersionsRequest(
    Request["ApiVersionsResponse"], api_key=ApiKey.API_VERSIONS, versions=(0, 4), flexible=3
):
    client_software_name: String = since(3, default="", ignorable=True)  # KIP-511
    client_software_version: String = since(3, default="", ignorable=True)


class ApiVersionsResponse(Message, api_key=ApiKey.API_VERSIONS, versions=(0, 4), flexible=3):
    class ApiVersion(Struct):
        api_key: Int16
        min_version: Int16
        max_version: Int16

    class SupportedFeatureKey(Struct):
        name: String
        min_version: Int16
        max_version: Int16

    class FinalizedFeatureKey(Struct):
        name: String
        max_version_level: Int16 = 0
        min_version_level: Int16 = 0

    error_code: Int16 = 0
    api_keys: Array[ApiVersion] = ()
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    # KIP-584
    supported_features: Array[SupportedFeatureKey] = tagged(0, since=3, default=(), ignorable=True)
    finalized_features_epoch: Int64 = tagged(1, since=3, default=-1, ignorable=True)  # KIP-584
    # KIP-584
    finalized_features: Array[FinalizedFeatureKey] = tagged(2, since=3, default=(), ignorable=True)
    zk_migration_ready: Bool = tagged(3, since=3, default=False, ignorable=True)  # KIP-866
