"""InitProducerId: an identity for an idempotent producer. Transactional ids are refused yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(
    broker: Broker,
    call: Call,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse | None:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)

    def then(producer_id: int | None) -> None:
        if producer_id is None:
            # The producer asks again.
            call.reply(InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            call.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    broker.changes.new_producer_id(then)
    return None
