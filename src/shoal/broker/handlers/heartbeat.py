"""Heartbeat: the coordinator of the group decides (``group/``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import ask

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call
    from shoal.wire.apis.heartbeat import HeartbeatRequest


def handle(broker: Broker, call: Call, request: HeartbeatRequest) -> Deferred:
    return ask(broker, call, request.group_id, request)
