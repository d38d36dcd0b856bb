"""ElectLeaders: the only replica leads already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.wire.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_PREFERRED, _UNCLEAN = 0, 1
_ELECTION_TYPES = (_PREFERRED, _UNCLEAN)
_Result = ElectLeadersResponse.PartitionResult
_Topic = ElectLeadersResponse.ReplicaElectionResult


def handle(broker: Broker, call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if call.api_version >= 1 and request.election_type not in _ELECTION_TYPES:
        return refuse(request, ErrorCode.INVALID_REQUEST, call.api_version)
    if request.topic_partitions is None:
        # All partitions were asked for: those that need no election are left out.
        return ElectLeadersResponse(
            replica_election_results=[_Topic(topic=topic.name) for topic in broker.catalogue]
        )
    topics = []
    for wanted in request.topic_partitions:
        topic = broker.catalogue.get(wanted.topic)
        results = []
        for index in wanted.partitions:
            if topic is None or not 0 <= index < topic.partition_count:
                code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic or partition"
            else:
                code, text = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed"
            results.append(_Result(partition_id=index, error_code=code, error_message=text))
        topics.append(_Topic(topic=wanted.topic, partition_result=results))
    return ElectLeadersResponse(replica_election_results=topics)


def refuse(request: ElectLeadersRequest, code: ErrorCode, version: int) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code if version >= 1 else ErrorCode.NONE,
        replica_election_results=[
            _Topic(
                topic=wanted.topic,
                partition_result=[
                    _Result(partition_id=index, error_code=code, error_message=code.name)
                    for index in wanted.partitions
                ],
            )
            for wanted in request.topic_partitions or ()
        ],
    )
