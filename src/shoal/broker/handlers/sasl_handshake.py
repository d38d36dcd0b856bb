"""SaslHandshake: which mechanism the client is going to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.sasl import SaslStage
from shoal.errors import ErrorCode
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(broker: Broker, call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    session = call.session
    offered = list(session.offered)
    if session.stage is not SaslStage.HANDSHAKE:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if not session.handshake(request.mechanism, raw_tokens=call.api_version == 0):
        broker.audit.access(
            "mechanism refused", peer=call.connection.peer_host, mechanism=request.mechanism
        )
        return SaslHandshakeResponse(
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered
        )
    return SaslHandshakeResponse(mechanisms=offered)
