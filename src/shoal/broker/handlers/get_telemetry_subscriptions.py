"""GetTelemetrySubscriptions: which metrics a client is to push, and how often (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.client_telemetry import CODECS, PUSH_BYTES_MAX
from shoal.broker.telemetry_subscriptions import TelemetryClient
from shoal.errors import ErrorCode
from shoal.wire.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(
    broker: Broker, call: Call, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    assert broker.metrics is not None, "the row says so"
    client = client_of(call, bytes(request.client_instance_id))
    wanted = broker.metrics.telemetry.get(client, broker.now_ms())
    if wanted.error is not ErrorCode.NONE:
        return GetTelemetrySubscriptionsResponse(error_code=wanted.error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=wanted.instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=[int(codec) for codec in CODECS],
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=PUSH_BYTES_MAX,
        delta_temporality=True,
        requested_metrics=list(wanted.metrics),
    )


def client_of(call: Call, instance_id: bytes) -> TelemetryClient:
    """Who asks, as far as subscriptions can tell clients apart."""
    connection = call.connection
    return TelemetryClient(
        instance_id,
        call.client_id or "",
        *connection.client_software,
        connection.peer_host,
        connection.peer_port,
    )
