"""SaslHandshake (17): the client names a mechanism.

v1 the exchange that follows is made of SaslAuthenticate requests (KIP-152). Never flexible, because
old clients negotiate it wrongly (KAFKA-9577).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int16, Message, Request, String


class SaslHandshakeRequest(
    Request["SaslHandshakeResponse"], api_key=ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=None
):
    mechanism: String


class SaslHandshakeResponse(Message, api_key=ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible=None):
    error_code: Int16 = 0
    mechanisms: Array[String] = ()
