"""DescribeTransactions: what the coordinators know of some transactional ids."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from shoal.access.resources import Operation, ResourceType
from shoal.broker.memory import TOO_MUCH
from shoal.errors import ErrorCode
from shoal.transaction.journal import TransactionRecord
from shoal.wire.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_State = DescribeTransactionsResponse.TransactionState


def handle(
    broker: Broker, call: Call, request: DescribeTransactionsRequest
) -> Generator[None, None, DescribeTransactionsResponse]:
    found = []
    for name in dict.fromkeys(request.transactional_ids):
        described = _describe(broker, call, name)
        if not call.spend(1 + sum(len(topic.partitions) for topic in described.topics)):
            described = _refused(name, TOO_MUCH)
        found.append(described)
        yield
    return DescribeTransactionsResponse(transaction_states=found)


def _describe(broker: Broker, call: Call, transactional_id: str) -> _State:
    refused = call.check(ResourceType.TRANSACTIONAL_ID, transactional_id)
    if refused is not ErrorCode.NONE:
        return _refused(transactional_id, refused)
    if not transactional_id:
        return _refused(transactional_id, ErrorCode.INVALID_REQUEST)
    found = broker.transactions.record(transactional_id)
    if isinstance(found, ErrorCode):
        return _refused(transactional_id, found)
    if found is None:
        return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return _State(
        transactional_id=transactional_id,
        transaction_state=found.state.title,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=-1 if found.start_ms is None else found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=_topics(broker, call, found),
    )


def _topics(
    broker: Broker, call: Call, record: TransactionRecord
) -> list[DescribeTransactionsResponse.TopicData]:
    """Of a decided one only those that do not know it yet."""
    partitions = broker.markers.left(record) if record.state.is_prepared else record.partitions
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return [
        DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes)
        for topic, indexes in topics.items()
        if call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    ]


def _refused(transactional_id: str, code: ErrorCode) -> _State:
    return _State(transactional_id=transactional_id, error_code=code, producer_id=0)


def refuse(
    request: DescribeTransactionsRequest, code: ErrorCode, version: int
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_refused(name, code) for name in request.transactional_ids]
    )
