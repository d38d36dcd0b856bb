"""AddPartitionsToTxn: partitions become part of a transaction.

Clients send v0 to v3, of one transaction. v4 and v5 are for brokers, of many, and may only ask.
All partitions of a transaction are added or none: one that cannot be stops the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from shoal.broker.catalogue import INTERNAL_TOPICS
from shoal.broker.handlers import LATER, Deferred
from shoal.broker.handlers.group_request import Gathering
from shoal.broker.handlers.transaction_request import ask_coordinator
from shoal.errors import ErrorCode
from shoal.transaction.requests import TV0, TV2, AddPartitions, VerifyPartitions
from shoal.types import TopicPartition
from shoal.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_Transaction = AddPartitionsToTxnRequest.Transaction
_Topics = Sequence[AddPartitionsToTxnRequest.Topic]
_Codes = dict[TopicPartition, ErrorCode]
_OF_BROKERS_FROM: Final = 4
_FENCED_FROM: Final = 2


def handle(broker: Broker, call: Call, request: AddPartitionsToTxnRequest) -> Deferred:
    if call.api_version >= _OF_BROKERS_FROM:
        return _add_many(broker, call, request.transactions)
    topics = request.v3_and_below_topics
    partitions = _partitions(topics)
    ticket = _OfClient(call, topics)
    refused = _refused(call, partitions)
    if refused:
        ticket.reply(refused)
        return LATER
    question = AddPartitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        frozenset(partitions),
        TV0,
    )
    return ask_coordinator(broker, call, question.transactional_id, question, ticket)


class _OfClient:
    """Answers a client, which asks about its own transaction."""

    __slots__ = ("_call", "_topics")

    def __init__(self, call: Call, topics: _Topics) -> None:
        self._call = call
        self._topics = topics

    def reply(self, found: _Codes | ErrorCode) -> None:
        call = self._call
        with call.answered_or_cut():
            results = _topic_results(self._topics, _told(found, call.api_version))
            call.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


def _add_many(broker: Broker, call: Call, wanted: Sequence[_Transaction]) -> Deferred:
    def finish(replies: list[_Codes | ErrorCode]) -> None:
        results = [
            AddPartitionsToTxnResponse.Result(
                transactional_id=transaction.transactional_id,
                topic_results=_topic_results(transaction.topics, _told(codes, call.api_version)),
            )
            for transaction, codes in zip(wanted, replies, strict=True)
        ]
        call.reply(AddPartitionsToTxnResponse(results_by_transaction=results))

    gathering = Gathering(call, finish)
    for transaction in wanted:
        ticket = gathering.ticket()
        partitions = _partitions(transaction.topics)
        refused = _refused(call, partitions)
        if refused:
            ticket.reply(refused)
        elif transaction.verify_only:
            ticket.reply(_verified(broker, transaction, partitions))
        else:
            question = AddPartitions(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                frozenset(partitions),
                TV2,
            )
            ask_coordinator(broker, call, transaction.transactional_id, question, ticket)
    return gathering.close()


def _partitions(topics: _Topics) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _refused(call: Call, partitions: Sequence[TopicPartition]) -> _Codes:
    """Nothing is added if a partition cannot be."""
    codes = {tp: _fault(call, tp) for tp in partitions}
    if not any(codes.values()):
        return {}
    return {tp: code or ErrorCode.OPERATION_NOT_ATTEMPTED for tp, code in codes.items()}


def _fault(call: Call, partition: TopicPartition) -> ErrorCode:
    if partition.topic in INTERNAL_TOPICS:
        # A group's offsets come in through AddOffsetsToTxn.
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = call.topic(partition.topic)
    if isinstance(topic, ErrorCode):
        return topic
    if not 0 <= partition.partition < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _verified(
    broker: Broker, transaction: _Transaction, partitions: Sequence[TopicPartition]
) -> _Codes:
    producer = transaction.producer_id, transaction.producer_epoch
    return {
        tp: broker.transactions.verify(
            VerifyPartitions(transaction.transactional_id, *producer, frozenset({tp}))
        )
        for tp in partitions
    }


def _told(found: _Codes | ErrorCode, version: int) -> _Codes | ErrorCode:
    """In words the client knows."""
    if isinstance(found, dict):
        return {tp: _word(code, version) for tp, code in found.items()}
    return _word(found, version)


def _word(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _topic_results(
    topics: _Topics, found: _Codes | ErrorCode
) -> list[AddPartitionsToTxnResponse.TopicResult]:
    codes = found if isinstance(found, dict) else {}
    common = ErrorCode.NONE if isinstance(found, dict) else found
    return [
        AddPartitionsToTxnResponse.TopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnResponse.PartitionResult(
                    partition_index=index,
                    partition_error_code=codes.get(TopicPartition(topic.name, index), common),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def refuse(
    request: AddPartitionsToTxnRequest, code: ErrorCode, version: int
) -> AddPartitionsToTxnResponse:
    if version >= _OF_BROKERS_FROM:
        return AddPartitionsToTxnResponse(error_code=code)
    topics = _topic_results(request.v3_and_below_topics, code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
