"""ListTransactions: there are none yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.wire.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def handle(
    broker: Broker, call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    unknown = [state for state in request.state_filters if state not in _STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)
