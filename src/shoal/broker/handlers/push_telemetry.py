"""PushTelemetry: a client's metrics, compressed (KIP-714). They are shown on the metrics port.

Inflating and reading a push is done in a thread: it may be a mebibyte, and its bytes are anybody's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shoal.broker.client_telemetry import INFLATED_BYTES_MAX
from shoal.broker.handlers.get_telemetry_subscriptions import client_of
from shoal.errors import (
    BatchTooLargeError,
    CorruptDataError,
    ErrorCode,
    InvalidMessageError,
)
from shoal.records.compression import decompress
from shoal.wire.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from shoal.wire.otlp import OtlpResource, decode_otlp_metrics

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

logger = logging.getLogger("shoal.broker.push_telemetry")


async def handle(
    broker: Broker, call: Call, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    assert broker.metrics is not None, "the row says so"
    telemetry = broker.metrics.telemetry
    client = client_of(call, bytes(request.client_instance_id))
    data = bytes(request.metrics or b"")
    error = telemetry.push(
        client,
        subscription_id=request.subscription_id,
        codec=request.compression_type,
        size_bytes=len(data),
        is_last=request.terminating,
        now_ms=broker.now_ms(),
    )
    if error is ErrorCode.NONE and data:
        read = await broker.loop.run_in_executor(None, _read, request.compression_type, data)
        if isinstance(read, ErrorCode):
            telemetry.failed(client.instance_id, read)
            error = read
        else:
            telemetry.take(client, read)
    return PushTelemetryResponse(error_code=error)


def _read(codec: int, data: bytes) -> list[OtlpResource] | ErrorCode:
    try:
        return decode_otlp_metrics(decompress(codec, data, limit_bytes=INFLATED_BYTES_MAX))
    except BatchTooLargeError:
        return ErrorCode.TELEMETRY_TOO_LARGE
    except (CorruptDataError, InvalidMessageError) as refusal:
        logger.info("a push cannot be read: %s", refusal)
        return ErrorCode.INVALID_RECORD
