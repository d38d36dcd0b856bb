"""ApiVersions: what this broker serves.

The reply's header is never flexible, and a version we do not know is answered in version 0 with
UNSUPPORTED_VERSION and our own range (KIP-511): a client that starts too high can fall back.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from shoal.broker.features import FEATURES, level_of
from shoal.broker.handlers import SERVED, served
from shoal.errors import ErrorCode
from shoal.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from shoal.wire.apis.registry import ApiKey

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")


def handle(broker: Broker, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        call.connection.client_software = (name[:64], version[:64])
    return ApiVersionsResponse(
        api_keys=_ranges(
            has_receiver=broker.metrics is not None,
            two_phase_commit=broker.config.transactions.two_phase_commit,
        ),
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(
                name=name, min_version=feature.low, max_version=feature.high
            )
            for name, feature in FEATURES.items()
            # Clients of v3 stumble over a level 0 (KIP-1022).
            if feature.low > 0 or call.api_version >= 4
        ],
        # Clients believe the answer with the highest epoch.
        finalized_features_epoch=broker.catalogue.features_epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(
                name=name, max_version_level=level, min_version_level=level
            )
            for name in FEATURES
            # A feature that is switched off is left out.
            if (level := level_of(name, broker.catalogue.feature_levels))
        ],
    )


def unsupported() -> ApiVersionsResponse:
    ranges = _ranges(has_receiver=False, two_phase_commit=False)
    own = [entry for entry in ranges if entry.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


@cache
def _ranges(*, has_receiver: bool, two_phase_commit: bool) -> list[ApiVersionsResponse.ApiVersion]:
    ranges = []
    for key in sorted(SERVED):
        row = served(key, two_phase_commit=two_phase_commit)
        assert row is not None
        if row.needs_receiver and not has_receiver:
            continue
        versions = row.versions(key)
        advertised = row.advertised_min
        ranges.append(
            ApiVersionsResponse.ApiVersion(
                api_key=key,
                min_version=versions.start if advertised is None else advertised,
                max_version=versions.stop - 1,
            )
        )
    return ranges
