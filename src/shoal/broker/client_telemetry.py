"""Metrics that clients push (KIP-714): who may push what and when.

A client asks what is wanted (GetTelemetrySubscriptions) and gets an id of its own, an id of the
answer, and an interval; then it pushes (PushTelemetry) at that interval, under the answer's id.
When subscriptions change, the id of the answer is another, a push under the old one is refused, and
the client asks again.

Rule: as Apache Kafka. Who comes before its interval is over is told to wait; at once only after an
answer, and for the last push. What was pushed goes to ``ReceivedMetrics``; here is only the order.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from shoal.broker.client_metrics import ReceivedMetrics
from shoal.broker.telemetry_subscriptions import (
    EVERYTHING,
    INTERVAL_MS,
    TelemetryClient,
    TelemetrySubscription,
)
from shoal.errors import ErrorCode
from shoal.records.checksum import crc32c
from shoal.records.compression import Codec
from shoal.wire.otlp import OtlpResource

logger = logging.getLogger("shoal.broker.client_telemetry")

INSTANCES_MAX: Final = 16_384
PUSH_BYTES_MAX: Final = 1 << 20
INFLATED_BYTES_MAX: Final = 8 << 20
NO_ID: Final = bytes(16)
CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""The order is the broker's wish; a push need not be compressed at all."""
_SILENCE_MS_MIN: Final = 300_000
_NEVER_MS: Final = -(1 << 62)
# So that the last push is seen by a scrape.
_ENDED_MS: Final = 60_000
_MAY_ASK_AGAIN: Final = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)


class WantedMetrics(NamedTuple):
    """The answer to a client that asks what to push."""

    error: ErrorCode
    instance_id: bytes = NO_ID
    subscription_id: int = 0
    interval_ms: int = 0
    metrics: tuple[str, ...] = ()


class _Instance:
    """One client: what it was told, and when it came."""

    __slots__ = (
        "got_ms",
        "has_ended",
        "interval_ms",
        "last_error",
        "metrics",
        "pushed_ms",
        "seen_ms",
        "subscription_id",
        "version",
    )

    def __init__(self, version: int, interval_ms: int, metrics: tuple[str, ...], key: bytes):
        self.version = version
        self.interval_ms = interval_ms
        self.metrics = metrics
        text = f"{','.join(metrics)} {interval_ms}".encode() + key
        # As a signed number, and the same after a restart as long as nothing changed.
        self.subscription_id = (crc32c(text) ^ 1 << 31) - (1 << 31)
        self.got_ms = self.pushed_ms = self.seen_ms = _NEVER_MS
        self.last_error = ErrorCode.NONE
        self.has_ended = False

    def silence_ms_max(self) -> int:
        if self.has_ended:
            return _ENDED_MS
        return max(3 * self.interval_ms, _SILENCE_MS_MIN)


class PushedTelemetry:
    """Every client that came lately; the newest ``INSTANCES_MAX``."""

    def __init__(self, subscriptions: Mapping[str, Mapping[str, str]]) -> None:
        """``subscriptions``: name → settings; what is in it may change, see ``changed``."""
        self._configs = subscriptions
        self._version = 0
        self._subscriptions = list(map(TelemetrySubscription, subscriptions.values()))
        self._instances: OrderedDict[bytes, _Instance] = OrderedDict()
        self.received = ReceivedMetrics()

    def __len__(self) -> int:
        return len(self._instances)

    def changed(self) -> None:
        """There are other subscriptions now: clients learn of it when they push."""
        self._version += 1
        self._subscriptions = list(map(TelemetrySubscription, self._configs.values()))

    def get(self, client: TelemetryClient, now_ms: int) -> WantedMetrics:
        """GetTelemetrySubscriptions."""
        if client.instance_id == NO_ID:
            client = client._replace(instance_id=os.urandom(16))
        instance = self._instance(client, now_ms)
        elapsed_ms = now_ms - max(instance.got_ms, instance.pushed_ms)
        if elapsed_ms < instance.interval_ms and instance.last_error not in _MAY_ASK_AGAIN:
            return WantedMetrics(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.got_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return WantedMetrics(
            ErrorCode.NONE,
            client.instance_id,
            instance.subscription_id,
            instance.interval_ms,
            instance.metrics,
        )

    def push(
        self,
        client: TelemetryClient,
        *,
        subscription_id: int,
        codec: int,
        size_bytes: int,
        is_last: bool,
        now_ms: int,
    ) -> ErrorCode:
        """PushTelemetry: why it is refused; ``NONE`` if what it holds may be looked at."""
        if client.instance_id == NO_ID:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(client, now_ms)
        error = self._push_error(instance, subscription_id, codec, size_bytes, is_last, now_ms)
        instance.last_error = error
        instance.has_ended = is_last
        return error

    def _push_error(
        self,
        instance: _Instance,
        subscription_id: int,
        codec: int,
        size_bytes: int,
        is_last: bool,
        now_ms: int,
    ) -> ErrorCode:
        if instance.has_ended:
            return ErrorCode.INVALID_REQUEST
        is_due = (
            instance.got_ms > instance.pushed_ms
            or now_ms - instance.pushed_ms >= instance.interval_ms
        )
        if is_due:
            instance.pushed_ms = now_ms
        elif not is_last:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if subscription_id != instance.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if codec != Codec.NONE and codec not in CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if size_bytes > PUSH_BYTES_MAX:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def failed(self, instance_id: bytes, error: ErrorCode) -> None:
        """What an accepted push held was no good after all."""
        instance = self._instances.get(instance_id)
        if instance is not None:
            instance.last_error = error

    def take(self, client: TelemetryClient, pushed: Sequence[OtlpResource]) -> None:
        """What an accepted push held, unless its client was forgotten meanwhile."""
        if client.instance_id in self._instances:
            self.received.take(client.instance_id, client.client_id, pushed)

    def _instance(self, client: TelemetryClient, now_ms: int) -> _Instance:
        key = client.instance_id
        instance = self._instances.get(key)
        if instance is None or instance.version != self._version:
            interval_ms, metrics = self._wanted(client)
            instance = self._instances[key] = _Instance(self._version, interval_ms, metrics, key)
        instance.seen_ms = now_ms
        self._instances.move_to_end(key)
        if len(self._instances) > INSTANCES_MAX:
            gone, _ = self._instances.popitem(last=False)
            self.received.forget(gone)
        return instance

    def _wanted(self, client: TelemetryClient) -> tuple[int, tuple[str, ...]]:
        texts = client.property_texts()
        matching = [one for one in self._subscriptions if one.matches(texts)]
        interval_ms = min((INTERVAL_MS, *(one.interval_ms for one in matching)))
        metrics = frozenset[str]().union(*(one.metrics for one in matching))
        return interval_ms, (EVERYTHING,) if EVERYTHING in metrics else tuple(sorted(metrics))

    def expire(self, now_ms: int) -> None:
        """Forget who has not come for three intervals."""
        for key, instance in list(self._instances.items()):
            if now_ms - instance.seen_ms > instance.silence_ms_max():
                del self._instances[key]
                self.received.forget(key)
