"""ListTransactions: the transactional ids this broker coordinates, filtered."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from shoal.access.resources import ResourceType
from shoal.broker.id_pattern import IdPattern
from shoal.broker.memory import TOO_MUCH
from shoal.errors import ErrorCode
from shoal.transaction.states import TransactionState
from shoal.wire.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

# The last two exist only for moments, and not here; but they are states of Kafka's.
_STATES = frozenset({*(state.title for state in TransactionState), "Dead", "PrepareEpochFence"})


def handle(
    broker: Broker, call: Call, request: ListTransactionsRequest
) -> Generator[None, None, ListTransactionsResponse]:
    unknown = [state for state in request.state_filters if state not in _STATES]
    pattern = None
    if request.transactional_id_pattern:
        pattern = IdPattern.read(request.transactional_id_pattern)
        if pattern is None:
            return refuse(request, ErrorCode.INVALID_REGULAR_EXPRESSION, call.api_version)
    if not broker.transactions.all_loaded:
        return refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, call.api_version)
    states, producers = set(request.state_filters), set(request.producer_id_filters)
    now_ms, duration_ms = broker.now_ms(), request.duration_filter
    found = []
    for record in list(broker.transactions.records()):
        yield
        if states and record.state.title not in states:
            continue
        if producers and record.producer_id not in producers:
            continue
        start_ms = -1 if record.start_ms is None else record.start_ms
        if duration_ms >= 0 and now_ms - start_ms <= duration_ms:
            continue
        if pattern is not None and not pattern.matches(record.transactional_id):
            continue
        if not call.shows(ResourceType.TRANSACTIONAL_ID, record.transactional_id):
            continue
        if not call.spend(1):
            return refuse(request, TOO_MUCH, call.api_version)
        found.append(
            ListTransactionsResponse.TransactionState(
                transactional_id=record.transactional_id,
                producer_id=record.producer_id,
                transaction_state=record.state.title,
            )
        )
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


def refuse(
    request: ListTransactionsRequest, code: ErrorCode, version: int
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)
