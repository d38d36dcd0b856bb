"""ConsumerGroupHeartbeat: the coordinator of the group decides (``group/``).

An expression matches what its sender may see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import ask_with_sight

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call
    from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def handle(broker: Broker, call: Call, request: ConsumerGroupHeartbeatRequest) -> Deferred:
    return ask_with_sight(broker, call, request.group_id, request)
