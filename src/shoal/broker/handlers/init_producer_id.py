"""InitProducerId: an identity for a producer.

Without a transactional id it is new each time. With one, the coordinator of the id decides
(``transaction/``): whoever had the id before is fenced. Two-phase commit (v6) is a right
of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.access.resources import Operation, ResourceType
from shoal.broker.handlers import LATER, Deferred
from shoal.broker.handlers.transaction_request import ask_coordinator
from shoal.errors import ErrorCode
from shoal.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(
    broker: Broker,
    call: Call,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse | Deferred:
    if request.transactional_id is None:
        refused = call.check(ResourceType.CLUSTER)
        if refused is not ErrorCode.NONE:
            return refuse(request, refused, call.api_version)
    elif request.enable2_pc and not call.may(
        Operation.TWO_PHASE_COMMIT,
        ResourceType.TRANSACTIONAL_ID,
        request.transactional_id,
        audited=True,
    ):
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return refuse(request, refused, call.api_version)
    has_id, has_epoch = request.producer_id != -1, request.producer_epoch != -1
    name = request.transactional_id
    if name == "" or has_id != has_epoch:
        return refuse(request, ErrorCode.INVALID_REQUEST, call.api_version)
    if name is not None:
        # The coordinator cannot wait for a producer id, so one is at hand before it is asked.
        transactional_id = name
        broker.changes.reserve_producer_ids(
            lambda: _ask(broker, call, transactional_id, request),
        )
        return LATER

    def then(producer_id: int | None) -> None:
        if producer_id is None:
            # The producer asks again.
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            call.reply(refuse(request, unavailable, call.api_version))
        else:
            call.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    broker.changes.new_producer_id(then)
    return LATER


def _ask(broker: Broker, call: Call, transactional_id: str, request: InitProducerIdRequest) -> None:
    with call.answered_or_cut():
        ask_coordinator(broker, call, transactional_id, request)


def refuse(request: InitProducerIdRequest, code: ErrorCode, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
