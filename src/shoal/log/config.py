"""Settings of one topic's logs, and the one place where Kafka's dotted names are known.

Inside, a setting is a field with a unit in its name and ``None`` for "no limit"; Kafka's ``-1`` is
translated here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Final

from shoal.errors import ConfigError, did_you_mean
from shoal.types import TimestampType

_DAY_MS: Final = 24 * 60 * 60 * 1000
_MAX_INT32: Final = 2**31 - 1


class Durability(Enum):
    """When an append counts as stored."""

    GROUP = "group"
    """After a sync shared by everyone waiting. A power cut loses nothing acknowledged."""
    EACH = "each"
    """After a sync of its own. For finding faults, not for speed."""
    INTERVAL = "interval"
    """At once; synced every so often. A power cut may cost one interval."""
    OS = "os"
    """At once; synced when the operating system likes. Kafka's default."""

    def __init__(self, name: str) -> None:
        #: Whether readers and acknowledgements wait for a sync.
        self.waits = name in ("group", "each")


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of the logs of one topic. Defaults are Kafka's."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int | None = 7 * _DAY_MS
    retention_bytes: int | None = None
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    max_message_bytes: int = 1_048_588
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int | None = None
    message_timestamp_after_max_ms: int | None = 60 * 60 * 1000
    compression_type: str = "producer"
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], base: LogConfig | None = None
    ) -> LogConfig:
        """Read Kafka's topic settings, e.g. ``{"segment.bytes": "1048576"}``, over ``base``.

        Raises:
            ConfigError: a name is not known or a value is not allowed; the text names it.
        """
        changes: dict[str, Any] = {}
        for name, text in properties.items():
            setting = _SETTINGS.get(name)
            if setting is None:
                raise ConfigError(f"unknown topic setting {name!r}{did_you_mean(name, _SETTINGS)}")
            field, parse, _ = setting
            try:
                changes[field] = parse(str(text).strip())
            except ValueError as error:
                raise ConfigError(f"{name}={text!r} is not allowed: {error}") from None
        return replace(base or cls(), **changes)

    def to_properties(self) -> dict[str, str]:
        """Every setting under Kafka's name, as Kafka spells the value."""
        return {name: show(getattr(self, field)) for name, (field, _, show) in _SETTINGS.items()}


def _whole(minimum: int, maximum: int = 2**63 - 1) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not minimum <= value <= maximum:
            raise ValueError(f"must lie between {minimum} and {maximum}")
        return value

    return parse


def _limit(text: str) -> int | None:
    """A limit where -1 and the largest long both say "none"."""
    value = _whole(-1)(text)
    return None if value == -1 or value == 2**63 - 1 else value


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("must lie between 0 and 1")
    return value


def _choices(allowed: frozenset[str]) -> Callable[[str], frozenset[str]]:
    def parse(text: str) -> frozenset[str]:
        names = frozenset(part.strip() for part in text.split(",") if part.strip())
        if not names <= allowed:
            raise ValueError(f"must be of {', '.join(sorted(allowed))}")
        return names

    return parse


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return text

    return parse


def _timestamp_type(text: str) -> TimestampType:
    return _TIMESTAMP_TYPES[_choice(*_TIMESTAMP_TYPES)(text)]


_TIMESTAMP_TYPES: Final = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


def _show_limit(value: int | None) -> str:
    return "-1" if value is None else str(value)


def _show_long_limit(value: int | None) -> str:
    return str(2**63 - 1 if value is None else value)


def _show_timestamp_type(value: TimestampType) -> str:
    return {kind: name for name, kind in _TIMESTAMP_TYPES.items()}[value]


def _show_names(value: frozenset[str]) -> str:
    return ",".join(sorted(value))


_SETTINGS: Final[dict[str, tuple[str, Callable[[str], Any], Callable[[Any], str]]]] = {
    "segment.bytes": ("segment_bytes", _whole(14, _MAX_INT32), str),
    "segment.ms": ("segment_ms", _whole(1), str),
    "segment.index.bytes": ("segment_index_bytes", _whole(4, _MAX_INT32), str),
    "index.interval.bytes": ("index_interval_bytes", _whole(0, _MAX_INT32), str),
    "retention.ms": ("retention_ms", _limit, _show_limit),
    "retention.bytes": ("retention_bytes", _limit, _show_limit),
    "cleanup.policy": (
        "cleanup_policy",
        _choices(frozenset({"delete", "compact"})),
        _show_names,
    ),
    "max.message.bytes": ("max_message_bytes", _whole(0, _MAX_INT32), str),
    "message.timestamp.type": ("message_timestamp_type", _timestamp_type, _show_timestamp_type),
    "message.timestamp.before.max.ms": (
        "message_timestamp_before_max_ms",
        _limit,
        _show_long_limit,
    ),
    "message.timestamp.after.max.ms": (
        "message_timestamp_after_max_ms",
        _limit,
        _show_long_limit,
    ),
    "compression.type": (
        "compression_type",
        _choice("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        str,
    ),
    "min.compaction.lag.ms": ("min_compaction_lag_ms", _whole(0), str),
    "max.compaction.lag.ms": ("max_compaction_lag_ms", _limit, _show_long_limit),
    "min.cleanable.dirty.ratio": ("min_cleanable_dirty_ratio", _ratio, str),
    "delete.retention.ms": ("delete_retention_ms", _whole(0), str),
    "file.delete.delay.ms": ("file_delete_delay_ms", _whole(0), str),
}
assert {field for field, _, _ in _SETTINGS.values()} == {field.name for field in fields(LogConfig)}
