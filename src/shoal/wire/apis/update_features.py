"""UpdateFeatures (57): a feature of the cluster is raised or lowered (KIP-584).

v1 try without doing, and how to downgrade · v2 no error per feature any more (KIP-1022).
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
    until,
)


class UpdateFeaturesRequest(
    Request["UpdateFeaturesResponse"], api_key=ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible=0
):
    class FeatureUpdateKey(Struct):
        feature: String
        max_version_level: Int16
        allow_downgrade: Bool = until(0, default=False)
        upgrade_type: Int8 = since(1, default=1)  # 1 upgrade, 2 safe downgrade, 3 unsafe downgrade

    timeout_ms: Int32 = 60000
    feature_updates: Array[FeatureUpdateKey]
    validate_only: Bool = since(1, default=False)


class UpdateFeaturesResponse(Message, api_key=ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible=0):
    class UpdatableFeatureResult(Struct):
        feature: String = ""
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    # KIP-1022 dropped them
    results: Array[UpdatableFeatureResult] = until(1, default=(), ignorable=True)
