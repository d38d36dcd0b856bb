"""AlterPartitionReassignments: one node; the only possible assignment is the present one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.door import REFUSAL_TEXTS
from shoal.errors import ErrorCode
from shoal.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse


def handle(
    broker: Broker, call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None if request.topics else "",
        responses=[
            _Topic(
                name=topic.name,
                partitions=[_judge(broker, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _judge(
    broker: Broker, name: str, wanted: AlterPartitionReassignmentsRequest.ReassignablePartition
) -> _Result:
    index = wanted.partition_index
    topic = broker.catalogue.get(name)
    if topic is None or not 0 <= index < topic.partition_count:
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic or partition."
    elif wanted.replicas is None:
        return _Result(partition_index=index, error_code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    elif list(wanted.replicas) != [broker.node_id]:
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        text = f"this broker is one node, {broker.node_id}; it holds the only replica."
    else:
        return _Result(partition_index=index)
    return _Result(partition_index=index, error_code=code, error_message=text)


def refuse(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode, version: int
) -> AlterPartitionReassignmentsResponse:
    text = REFUSAL_TEXTS.get(code)
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=text,
        responses=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Result(
                        partition_index=wanted.partition_index, error_code=code, error_message=text
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
