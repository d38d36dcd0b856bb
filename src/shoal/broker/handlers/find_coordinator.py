"""FindCoordinator: it is always this node. Transactions have none yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.errors import ErrorCode
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_GROUP: Final = 0
_NAMES: Final = {1: "transactions", 2: "share groups"}


def handle(broker: Broker, call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    code, text = _verdict(request.key_type)
    host, port = broker.advertised(call.connection) if code is ErrorCode.NONE else ("", -1)
    node_id = broker.node_id if code is ErrorCode.NONE else -1
    if call.api_version < 4:
        return FindCoordinatorResponse(
            error_code=code, error_message=text, node_id=node_id, host=host, port=port
        )
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key,
                node_id=node_id,
                host=host,
                port=port,
                error_code=code,
                error_message=text,
            )
            for key in request.coordinator_keys
        ]
    )


def _verdict(key_type: int) -> tuple[ErrorCode, str]:
    if key_type == _GROUP:
        return ErrorCode.NONE, ""
    # Not a retriable error: a client would ask for ever for what is not here.
    kind = _NAMES.get(key_type, f"coordinators of type {key_type}")
    return ErrorCode.INVALID_REQUEST, f"this broker has no {kind}"


def refuse(
    request: FindCoordinatorRequest, code: ErrorCode, version: int
) -> FindCoordinatorResponse:
    if version < 4:
        return FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code
            )
            for key in request.coordinator_keys
        ]
    )
