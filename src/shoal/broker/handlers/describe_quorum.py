"""DescribeQuorum: a quorum of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.wire.apis.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_METADATA_TOPIC = "__cluster_metadata"


def handle(broker: Broker, call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    host, port = broker.advertised(call.connection)
    now_ms = broker.now_ms()
    voter = DescribeQuorumResponse.ReplicaState(
        replica_id=broker.node_id,
        log_end_offset=broker.journal.written,
        last_fetch_timestamp=now_ms if call.api_version >= 1 else -1,
        last_caught_up_timestamp=now_ms if call.api_version >= 1 else -1,
    )
    topics = [
        DescribeQuorumResponse.TopicData(
            topic_name=topic.topic_name,
            partitions=[
                DescribeQuorumResponse.PartitionData(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.NONE
                    if (topic.topic_name, partition.partition_index) == (_METADATA_TOPIC, 0)
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    leader_id=broker.node_id,
                    leader_epoch=1,
                    high_watermark=broker.journal.written,
                    current_voters=[voter],
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    response = DescribeQuorumResponse(topics=topics)
    if call.api_version >= 2:
        response.nodes = [
            DescribeQuorumResponse.Node(
                node_id=broker.node_id,
                listeners=[DescribeQuorumResponse.Listener(name="BROKER", host=host, port=port)],
            )
        ]
    return response
