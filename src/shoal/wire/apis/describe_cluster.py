"""DescribeCluster (60): cluster id, controller and brokers (KIP-700).

v1 brokers or controllers (KIP-919) · v2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Struct,
    since,
)


class DescribeClusterRequest(
    Request["DescribeClusterResponse"], api_key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible=0
):
    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = since(1, default=1)  # 1 brokers, 2 controllers, KIP-919
    include_fenced_brokers: Bool = since(2, default=False)  # KIP-1073


class DescribeClusterResponse(
    Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible=0
):
    class Broker(Struct):
        broker_id: Int32
        host: String
        port: Int32
        rack: String | None = None
        is_fenced: Bool = since(2, default=False)  # KIP-1073

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: Array[Broker] = ()
    cluster_authorized_operations: Int32 = -2147483648
