"""GetTelemetrySubscriptions (71): a client asks which metrics the broker wants (KIP-714)."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import (
    ZERO_UUID,
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    Request,
    String,
    Uuid,
)


class GetTelemetrySubscriptionsRequest(
    Request["GetTelemetrySubscriptionsResponse"],
    api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    versions=(0, 0),
    flexible=0,
):
    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(
    Message, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0), flexible=0
):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: Array[Int8] = ()
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: Array[String] = ()
