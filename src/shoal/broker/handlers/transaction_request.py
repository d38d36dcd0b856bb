"""How a request reaches the transaction coordinator of its id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.broker.handlers import LATER, Deferred
from shoal.broker.handlers.group_request import caller_of

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def ask_coordinator(
    broker: Broker, call: Call, transactional_id: str, request: Any, ticket: Any = None
) -> Deferred:
    """Hand a request to the id's coordinator; the reply goes to the call or the ticket."""
    caller = caller_of(call, call if ticket is None else ticket)
    broker.transactions.ask(transactional_id, request, caller)
    return LATER
