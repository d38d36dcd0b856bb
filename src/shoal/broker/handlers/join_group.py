"""JoinGroup: the coordinator of the group decides (``group/``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import ask_with_sight
from shoal.errors import ErrorCode
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

# A refusal names no protocol: from then on with null, before with an empty string (KIP-559).
_NULL_PROTOCOL_SINCE: Final = 7


def handle(broker: Broker, call: Call, request: JoinGroupRequest) -> Deferred:
    ticket = _Ticket(call) if call.api_version >= _NULL_PROTOCOL_SINCE else None
    return ask_with_sight(broker, call, request.group_id, request, ticket)


class _Ticket:
    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def reply(self, response: Any) -> None:
        if response.error_code:
            response.protocol_name = None
        self._call.reply(response)


def refuse(request: JoinGroupRequest, code: ErrorCode, version: int) -> JoinGroupResponse:
    response = JoinGroupResponse(error_code=code)
    if version >= _NULL_PROTOCOL_SINCE:
        response.protocol_name = None
    return response
