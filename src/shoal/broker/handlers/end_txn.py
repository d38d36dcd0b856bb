"""EndTxn: the coordinator of the transactional id decides (``transaction/``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.handlers import Deferred
from shoal.broker.handlers.transaction_request import ask_coordinator

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call
    from shoal.wire.apis.end_txn import EndTxnRequest


def handle(broker: Broker, call: Call, request: EndTxnRequest) -> Deferred:
    return ask_coordinator(broker, call, request.transactional_id, request)
