"""ApiVersions: what this broker serves.

The reply's header is never flexible, and a version we do not know is answered in version 0 with
UNSUPPORTED_VERSION and our own range (KIP-511): a client that starts too high can fall back.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from shoal.broker.handlers import SUPPORTED
from shoal.errors import ErrorCode
from shoal.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse

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
    return ApiVersionsResponse(api_keys=_ranges())


def unsupported() -> ApiVersionsResponse:
    own = [entry for entry in _ranges() if entry.api_key == 18]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


@cache
def _ranges() -> list[ApiVersionsResponse.ApiVersion]:
    return [
        ApiVersionsResponse.ApiVersion(
            api_key=key,
            min_version=support.min_version
            if support.advertised_min is None
            else support.advertised_min,
            max_version=support.max_version,
        )
        for key, support in SUPPORTED.items()
    ]
