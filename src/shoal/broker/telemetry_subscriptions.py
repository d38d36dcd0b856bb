"""Which metrics of which clients the broker wants (KIP-714): Kafka's CLIENT_METRICS resources.

A subscription is a name with three settings: ``metrics`` (prefixes of names, ``*`` for all),
``interval.ms`` and ``match`` (``client_id=billing-.*``; a client must match all of them, and one
without any matches everybody). A client gets all that the subscriptions that match it name, at the
shortest of their intervals.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.broker.broker_configs import Shown, Synonym
from shoal.broker.id_pattern import IdPattern
from shoal.broker.topic_configs import INT_MAX, ConfigDefinition, ConfigSource, ConfigType, problem
from shoal.errors import ErrorCode

if TYPE_CHECKING:
    from shoal.broker.catalogue import Refusal

INTERVAL_MS: Final = 300_000
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000
EVERYTHING: Final = "*"
SETTINGS: Final[dict[str, tuple[ConfigType, str, str]]] = {
    "interval.ms": (ConfigType.INT, str(INTERVAL_MS), "how often clients push"),
    "match": (ConfigType.LIST, "", "which clients: a pattern for each property"),
    "metrics": (ConfigType.LIST, "", "prefixes of names, or * for all"),
}
_INTERVAL: Final = ConfigDefinition(
    ConfigType.INT, str(INTERVAL_MS), "", low=-INT_MAX - 1, high=INT_MAX
)
PROPERTIES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class TelemetryClient(NamedTuple):
    """Who asks: what ``match`` may be about, in the order of ``PROPERTIES``."""

    instance_id: bytes
    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int

    def property_texts(self) -> dict[str, str]:
        instance = base64.urlsafe_b64encode(self.instance_id).decode().rstrip("=")
        values = (instance, *self[1:5], str(self.port))
        return dict(zip(PROPERTIES, values, strict=True))


class TelemetrySubscription:
    """One resource, read."""

    __slots__ = ("_patterns", "interval_ms", "metrics")

    def __init__(self, configs: Mapping[str, str]) -> None:
        self.interval_ms = int(configs.get("interval.ms", INTERVAL_MS))
        self.metrics = frozenset(_items(configs.get("metrics", "")))
        self._patterns = _patterns(configs.get("match", ""))

    def matches(self, texts: Mapping[str, str]) -> bool:
        return all(
            pattern is not None and pattern.matches(texts[name])
            for name, pattern in self._patterns.items()
        )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _patterns(text: str) -> dict[str, IdPattern | None]:
    found: dict[str, IdPattern | None] = {}
    for item in _items(text):
        name, _, pattern = item.partition("=")
        found[name.strip()] = IdPattern.read(pattern.strip())
    return found


def subscription_fault(name: str, configs: Mapping[str, str]) -> Refusal | None:
    """Why a subscription cannot be so, in Kafka's words."""
    if not name:
        return ErrorCode.INVALID_REQUEST, "TelemetrySubscription name can't be empty"
    for key, value in configs.items():
        if key not in SETTINGS:
            return ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}"
        if key == "interval.ms":
            if fault := problem(_INTERVAL, value):
                return ErrorCode.INVALID_CONFIG, f"Invalid value {value} for {key}: {fault}"
            if not INTERVAL_MS_MIN <= int(value) <= INTERVAL_MS_MAX:
                return (
                    ErrorCode.INVALID_REQUEST,
                    f"Invalid value {value} for interval.ms, interval must be between "
                    f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)",
                )
        elif key == "match":
            for item in _items(value):
                known, _, pattern = item.partition("=")
                is_one = item.count("=") == 1 and known.strip() in PROPERTIES
                if not is_one or IdPattern.read(pattern.strip()) is None:
                    return ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item}"
    return None


def subscription_rows(own: Mapping[str, str]) -> list[Shown]:
    """As DescribeConfigs shows a subscription."""
    rows = []
    for name, (kind, default, about) in SETTINGS.items():
        value, source = default, ConfigSource.DEFAULT_CONFIG
        synonyms: tuple[Synonym, ...] = ()
        if name in own:
            source = ConfigSource.CLIENT_METRICS_CONFIG
            value = ",".join(_items(own[name])) if kind is ConfigType.LIST else own[name]
            synonyms = ((name, value, source),)
        rows.append(Shown(name, value, kind, source, False, about, synonyms))
    return rows
