"""ListConfigResources: what has configurations (v0: subscriptions to clients' metrics only)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.access.resources import CLUSTER_NAME, ResourceType
from shoal.errors import ErrorCode
from shoal.wire.apis.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_Resource = ListConfigResourcesResponse.ConfigResource


def resource_of(kind: int) -> ResourceType:
    """Which rights count for the configurations of a resource: its own, or the cluster's."""
    return {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP}.get(kind, ResourceType.CLUSTER)


def authorized_name(kind: int, name: str) -> str:
    return name if kind in (TOPIC, GROUP) else CLUSTER_NAME


def handle(
    broker: Broker, call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    known = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
    wanted = set(request.resource_types) or set(known)
    if call.api_version == 0:
        wanted = {CLIENT_METRICS}
    if not wanted <= set(known):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names = {
        TOPIC: sorted(topic.name for topic in broker.catalogue),
        BROKER: [str(broker.node_id)],
        BROKER_LOGGER: [str(broker.node_id)],
        CLIENT_METRICS: sorted(broker.catalogue.client_metrics),
        GROUP: sorted(broker.catalogue.group_configs),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            _Resource(resource_name=name, resource_type=kind)
            for kind in known
            if kind in wanted
            for name in names[kind]
        ]
    )
