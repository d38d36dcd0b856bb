"""FindCoordinator: of groups and of transactional ids, it is always this node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.access.resources import ResourceType
from shoal.errors import ErrorCode
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_GROUP: Final = 0
_TRANSACTION: Final = 1
_RESOURCES: Final = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_NAMES: Final = {2: "share groups"}


def handle(broker: Broker, call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if call.api_version < 4:
        found = _find(broker, call, request.key_type, request.key)
        # Kafka spells out even that nothing is wrong, and there are clients that print it.
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message or ErrorCode.of(found.error_code).name,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    return FindCoordinatorResponse(
        coordinators=[
            _find(broker, call, request.key_type, key) for key in request.coordinator_keys
        ]
    )


def _find(
    broker: Broker, call: Call, key_type: int, key: str
) -> FindCoordinatorResponse.Coordinator:
    code, text = _verdict(call, key_type, key)
    if key_type == _TRANSACTION and code is ErrorCode.NONE:
        broker.changes.transactions_topic()  # as in Kafka, asking makes it
    host, port = broker.advertised(call.connection) if code is ErrorCode.NONE else ("", -1)
    return FindCoordinatorResponse.Coordinator(
        key=key,
        node_id=broker.node_id if code is ErrorCode.NONE else -1,
        host=host,
        port=port,
        error_code=code,
        error_message=text,
    )


def _verdict(call: Call, key_type: int, key: str) -> tuple[ErrorCode, str]:
    resource = _RESOURCES.get(key_type)
    if resource is not None and (code := call.check(resource, key)) is not ErrorCode.NONE:
        return code, ""
    if resource is not None:
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
