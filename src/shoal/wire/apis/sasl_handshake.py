"""SaslHandshake (17): the client names a mechanism.

v1 the exchange that follows is made of SaslAuthenticate requests (KIP-152). Never flexible, because
old clients negotiate it wrongly (KAFKA-9577).
"""

from __future__ import annotations

from shoal.wire.schema import Array, Int16, Message, String


class SaslHandshakeRequest(Message, api_key=17, versions=(0, 1), flexible=None):
    mechanism: String


class SaslHandshakeResponse(Message, api_key=17, versions=(0, 1), flexible=None):
    error_code: Int16 = 0
    mechanisms: Array[String] = ()
