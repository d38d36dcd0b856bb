"""UpdateFeatures: there are no features to switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.wire.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(broker: Broker, call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    text = "this broker has no feature levels"
    if call.api_version >= 2:
        return UpdateFeaturesResponse(
            error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=text
        )
    return UpdateFeaturesResponse(
        results=[
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=update.feature,
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message=text,
            )
            for update in request.feature_updates
        ]
    )
