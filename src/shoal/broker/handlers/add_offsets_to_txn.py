"""AddOffsetsToTxn: the partition that holds a group's offsets becomes part of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.broker.handlers import Deferred
from shoal.broker.handlers.transaction_request import ask_coordinator
from shoal.errors import ErrorCode
from shoal.transaction.requests import AddPartitions
from shoal.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_FENCED_FROM: Final = 2


class _Ticket:
    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def reply(self, code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and self._call.api_version < _FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        self._call.reply(AddOffsetsToTxnResponse(error_code=code))


def handle(
    broker: Broker, call: Call, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | Deferred:
    question = AddPartitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset({broker.groups.partition_of(request.group_id)}),
    )
    return ask_coordinator(broker, call, request.transactional_id, question, _Ticket(call))
