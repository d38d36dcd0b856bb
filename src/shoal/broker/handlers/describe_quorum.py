"""DescribeQuorum: a quorum of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.wire.apis.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_METADATA_TOPIC = "__cluster_metadata"
_Topic = DescribeQuorumResponse.TopicData
_Partition = DescribeQuorumResponse.PartitionData


def handle(broker: Broker, call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, p.partition_index) for topic in request.topics for p in topic.partitions
    ]
    if asked != [(_METADATA_TOPIC, 0)]:
        return _unknown(request)
    host, port = broker.advertised(call.connection)
    now_ms = broker.now_ms()
    voter = DescribeQuorumResponse.ReplicaState(
        replica_id=broker.node_id,
        log_end_offset=broker.journal.written,
        last_fetch_timestamp=now_ms if call.api_version >= 1 else -1,
        last_caught_up_timestamp=now_ms if call.api_version >= 1 else -1,
    )
    partition = _Partition(
        partition_index=0,
        error_message="",
        leader_id=broker.node_id,
        leader_epoch=1,
        high_watermark=broker.journal.written,
        current_voters=[voter],
    )
    response = DescribeQuorumResponse(
        error_message="", topics=[_Topic(topic_name=_METADATA_TOPIC, partitions=[partition])]
    )
    if call.api_version >= 2:
        response.nodes = [
            DescribeQuorumResponse.Node(
                node_id=broker.node_id,
                listeners=[DescribeQuorumResponse.Listener(name="BROKER", host=host, port=port)],
            )
        ]
    return response


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """There is one partition of that kind; a question about others or more is refused whole."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        error_message="",
        topics=[
            _Topic(
                topic_name=topic.topic_name,
                partitions=[
                    _Partition(
                        partition_index=partition.partition_index,
                        error_code=code,
                        error_message=f"ask for {_METADATA_TOPIC} 0, and for nothing else",
                        leader_id=0,
                        leader_epoch=0,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
