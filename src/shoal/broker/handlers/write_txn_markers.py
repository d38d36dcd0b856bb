"""WriteTxnMarkers: markers that somebody else than our coordinators asks for.

Kafka's coordinators send it to other brokers; here only an administrator does, to end a
transaction that hangs. If one of our coordinators knows the transaction, it is asked to abort it,
everywhere: a marker behind its back would leave the other partitions to a commit (KIP-664).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import Gathering
from shoal.broker.handlers.transaction_request import ask_coordinator
from shoal.errors import ErrorCode
from shoal.transaction.requests import AbortByAdmin
from shoal.types import TopicPartition
from shoal.wire.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.coordinator_runtime import Ticket
    from shoal.broker.dispatch import Call

_Marker = WriteTxnMarkersRequest.WritableTxnMarker


def handle(broker: Broker, call: Call, request: WriteTxnMarkersRequest) -> Deferred:
    wanted = [
        (number, TopicPartition(topic.name, index))
        for number, marker in enumerate(request.markers)
        for topic in marker.topics
        for index in topic.partition_indexes
    ]

    def finish(replies: list[ErrorCode]) -> None:
        call.reply(_response(request, dict(zip(wanted, replies, strict=True))))

    gathering = Gathering(call, finish)
    for number, partition in wanted:
        _write(broker, call, request.markers[number], partition, gathering.ticket())
    return gathering.close()


def _write(
    broker: Broker, call: Call, marker: _Marker, partition: TopicPartition, ticket: Ticket
) -> None:
    known = broker.transactions.open_in(marker.producer_id, partition)
    if known is None:
        broker.markers.write_one(
            partition,
            marker.producer_id,
            marker.producer_epoch,
            commit=marker.transaction_result,
            transaction_version=marker.transaction_version,
            coordinator_epoch=marker.coordinator_epoch,
            then=ticket.reply,
        )
    elif marker.transaction_result:
        # Whether it is committed is its producer's to say, to the coordinator.
        ticket.reply(ErrorCode.INVALID_TXN_STATE)
    elif marker.producer_epoch < known.epoch:
        ticket.reply(ErrorCode.INVALID_PRODUCER_EPOCH)
    else:
        question = AbortByAdmin(known.transactional_id, known.producer_id)
        ask_coordinator(broker, call, known.transactional_id, question, ticket)


def _response(
    request: WriteTxnMarkersRequest, codes: dict[tuple[int, TopicPartition], ErrorCode]
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=codes[number, TopicPartition(topic.name, index)],
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for number, marker in enumerate(request.markers)
        ]
    )


def refuse(
    request: WriteTxnMarkersRequest, code: ErrorCode, version: int
) -> WriteTxnMarkersResponse:
    codes = {
        (number, TopicPartition(topic.name, index)): code
        for number, marker in enumerate(request.markers)
        for topic in marker.topics
        for index in topic.partition_indexes
    }
    return _response(request, codes)
