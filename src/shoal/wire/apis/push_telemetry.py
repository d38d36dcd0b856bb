"""PushTelemetry (72): a client sends its metrics (KIP-714)."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Bool, Bytes, Int8, Int16, Int32, Message, Request, Uuid


class PushTelemetryRequest(
    Request["PushTelemetryResponse"], api_key=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible=0
):
    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes  # OpenTelemetry, compressed


class PushTelemetryResponse(Message, api_key=ApiKey.PUSH_TELEMETRY, versions=(0, 0), flexible=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
