"""SaslAuthenticate (36): one step of an authentication (KIP-152).

v1 session lifetime (KIP-368) · v2 flexible.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Bytes, Int16, Int64, Message, Request, String, since


class SaslAuthenticateRequest(
    Request["SaslAuthenticateResponse"],
    api_key=ApiKey.SASL_AUTHENTICATE,
    versions=(0, 2),
    flexible=2,
):
    auth_bytes: Bytes


class SaslAuthenticateResponse(
    Message, api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2
):
    error_code: Int16 = 0
    error_message: String | None = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Int64 = since(1, default=0, ignorable=True)  # KIP-368
