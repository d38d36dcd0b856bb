"""Heartbeat: the coordinator of the group decides (``group/``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.handlers.group_request import ask
from shoal.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(broker: Broker, call: Call, request: HeartbeatRequest) -> HeartbeatResponse | None:
    error = ask(broker, call, request.group_id, request)
    return HeartbeatResponse(error_code=error) if error else None
