"""UpdateFeatures: the level of transactions may be changed; the others are what this release has.

All updates of a request count, or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, level_of, update_fault
from shoal.errors import ErrorCode
from shoal.wire.apis.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_UPGRADE_TYPES = (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)


async def handle(
    broker: Broker, call: Call, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    async with broker.changes.turn:
        levels = dict(broker.catalogue.feature_levels)
        for update in request.feature_updates:
            if text := _fault(update, call.api_version, broker.catalogue.feature_levels):
                return UpdateFeaturesResponse(
                    error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=text
                )
            if update.max_version_level != level_of(update.feature, levels):
                levels[update.feature] = update.max_version_level
        if levels != broker.catalogue.feature_levels and not request.validate_only:
            await broker.changes.commit([{"kind": "features", "levels": levels}])
            broker.audit("features set", user=call.session.principal, levels=levels)
    results = [
        # Kafka's results spell out that nothing is wrong.
        UpdateFeaturesResponse.UpdatableFeatureResult(
            feature=update.feature, error_message=ErrorCode.NONE.name
        )
        for update in request.feature_updates
    ]
    return UpdateFeaturesResponse(results=results)


def _fault(
    update: UpdateFeaturesRequest.FeatureUpdateKey, version: int, changed: dict[str, int]
) -> str:
    upgrade_type = update.upgrade_type
    if version == 0:
        upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    elif upgrade_type not in _UPGRADE_TYPES:
        return f"Invalid upgrade type {upgrade_type} for feature {update.feature}."
    return update_fault(update.feature, update.max_version_level, upgrade_type, changed)
