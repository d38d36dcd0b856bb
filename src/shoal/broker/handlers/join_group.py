"""JoinGroup: the coordinator of the group decides (``group/``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.handlers.group_request import ask
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(broker: Broker, call: Call, request: JoinGroupRequest) -> JoinGroupResponse | None:
    error = ask(broker, call, request.group_id, request)
    return JoinGroupResponse(error_code=error) if error else None
