"""DescribeCluster: one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.access.resources import ResourceType
from shoal.errors import ErrorCode
from shoal.wire.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_BROKERS, _CONTROLLERS = 1, 2


def handle(broker: Broker, call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type not in (_BROKERS, _CONTROLLERS):
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"there are no endpoints of type {request.endpoint_type}",
            endpoint_type=_BROKERS,
        )
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this endpoint is a broker, not a controller",
            endpoint_type=_BROKERS,
        )
    host, port = broker.advertised(call.connection)
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterResponse.Broker(
                broker_id=broker.node_id, host=host, port=port, rack=broker.config.rack
            )
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = call.operations(ResourceType.CLUSTER)
    return response
