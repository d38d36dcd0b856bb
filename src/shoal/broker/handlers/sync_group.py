"""SyncGroup: the coordinator of the group decides (``group/``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import ask
from shoal.errors import ErrorCode
from shoal.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

# From then on a member must say which protocol it believes in (KIP-559).
_PROTOCOL_NAMED_SINCE: Final = 5


def handle(broker: Broker, call: Call, request: SyncGroupRequest) -> SyncGroupResponse | Deferred:
    if call.api_version >= _PROTOCOL_NAMED_SINCE and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return ask(broker, call, request.group_id, request)
