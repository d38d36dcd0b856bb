"""Kafka's topic configurations: names, types, defaults, and which values are allowed.

Rule: one table. DescribeConfigs, CreateTopics, AlterConfigs, the configuration file and the log
read it; nobody else knows a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from shoal.errors import ConfigError, did_you_mean

LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1


class ConfigType(IntEnum):
    """DescribeConfigs' numbers."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """DescribeConfigs' numbers: where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """One configuration: what it may hold and what it holds when nobody says."""

    type: ConfigType
    default: str
    about: str
    low: int = 0
    high: int = LONG_MAX
    choices: tuple[str, ...] = ()
    # The broker's own name for the default of all topics.
    broker_name: str | None = None
    # Kafka's coarser setting that counts while the broker's own is not set.
    fallback: tuple[str, str] | None = None


def _long(
    default: int,
    about: str,
    low: int = 0,
    broker: str | None = None,
    fallback: tuple[str, str] | None = None,
) -> ConfigDefinition:
    return ConfigDefinition(
        ConfigType.LONG,
        str(default),
        about,
        low,
        LONG_MAX,
        (),
        broker_name=broker,
        fallback=fallback,
    )


def _int(default: int, about: str, low: int = 0, broker: str | None = None) -> ConfigDefinition:
    return ConfigDefinition(ConfigType.INT, str(default), about, low, INT_MAX, broker_name=broker)


def _bool(default: str, about: str, broker: str | None = None) -> ConfigDefinition:
    return ConfigDefinition(
        ConfigType.BOOLEAN, default, about, choices=("true", "false"), broker_name=broker
    )


def _list(
    default: str, about: str, choices: tuple[str, ...], broker: str | None
) -> ConfigDefinition:
    return ConfigDefinition(ConfigType.LIST, default, about, choices=choices, broker_name=broker)


def _choice(default: str, about: str, choices: tuple[str, ...], broker: str) -> ConfigDefinition:
    return ConfigDefinition(ConfigType.STRING, default, about, choices=choices, broker_name=broker)


TOPIC_CONFIGS: Final[Mapping[str, ConfigDefinition]] = {
    "cleanup.policy": _list(
        "delete",
        "what happens to old records: delete, compact, both",
        ("compact", "delete"),
        "log.cleanup.policy",
    ),
    "compression.gzip.level": _int(
        -1, "gzip level if the broker recompresses", -1, "compression.gzip.level"
    ),
    "compression.lz4.level": _int(
        9, "lz4 level if the broker recompresses", 1, "compression.lz4.level"
    ),
    "compression.type": _choice(
        "producer",
        "codec on disk; 'producer' keeps batches as they come",
        ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "compression.type",
    ),
    "compression.zstd.level": _int(
        3, "zstd level if the broker recompresses", -131072, "compression.zstd.level"
    ),
    "delete.retention.ms": _long(
        86_400_000,
        "how long tombstones stay after compaction",
        0,
        "log.cleaner.delete.retention.ms",
    ),
    "file.delete.delay.ms": _long(
        60_000, "delay before a removed segment's files go", 0, "log.segment.delete.delay.ms"
    ),
    "flush.messages": _long(
        LONG_MAX,
        "records between syncs (the durability policy decides here)",
        1,
        "log.flush.interval.messages",
    ),
    "flush.ms": _long(
        LONG_MAX,
        "time between syncs (the durability policy decides here)",
        0,
        "log.flush.interval.ms",
        fallback=("log.flush.scheduler.interval.ms", str(LONG_MAX)),
    ),
    "follower.replication.throttled.replicas": ConfigDefinition(
        ConfigType.LIST, "", "no replication here"
    ),
    "index.interval.bytes": _int(
        4_096, "bytes between entries of the offset index", 0, "log.index.interval.bytes"
    ),
    "leader.replication.throttled.replicas": ConfigDefinition(
        ConfigType.LIST, "", "no replication here"
    ),
    "local.retention.bytes": _long(-2, "no tiered storage here", -2, "log.local.retention.bytes"),
    "local.retention.ms": _long(-2, "no tiered storage here", -2, "log.local.retention.ms"),
    "max.compaction.lag.ms": _long(
        LONG_MAX, "longest time a record stays uncompacted", 1, "log.cleaner.max.compaction.lag.ms"
    ),
    "max.message.bytes": _int(1_048_588, "largest batch accepted", 0, "message.max.bytes"),
    "message.timestamp.after.max.ms": _long(
        3_600_000,
        "how far ahead of the broker a timestamp may be",
        0,
        "log.message.timestamp.after.max.ms",
    ),
    "message.timestamp.before.max.ms": _long(
        LONG_MAX,
        "how far behind the broker a timestamp may be",
        0,
        "log.message.timestamp.before.max.ms",
    ),
    "message.timestamp.type": _choice(
        "CreateTime",
        "who sets timestamps",
        ("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
    ),
    "min.cleanable.dirty.ratio": ConfigDefinition(
        ConfigType.DOUBLE,
        "0.5",
        "share of uncompacted bytes that starts compaction",
        0,
        1,
        broker_name="log.cleaner.min.cleanable.ratio",
    ),
    "min.compaction.lag.ms": _long(
        0, "time a record surely stays uncompacted", 0, "log.cleaner.min.compaction.lag.ms"
    ),
    "min.insync.replicas": _int(1, "one node: always 1", 1, "min.insync.replicas"),
    "preallocate": _bool("false", "preallocate segment files", "log.preallocate"),
    "remote.log.copy.disable": _bool("false", "no tiered storage here"),
    "remote.log.delete.on.disable": _bool("false", "no tiered storage here"),
    "remote.storage.enable": _bool("false", "no tiered storage here"),
    "retention.bytes": _long(
        -1, "bytes kept per partition; -1 for no limit", -1, "log.retention.bytes"
    ),
    "retention.ms": _long(
        604_800_000,
        "time records are kept; -1 forever",
        -1,
        "log.retention.ms",
        fallback=("log.retention.hours", "168"),
    ),
    "segment.bytes": _int(
        1_073_741_824, "size at which a new segment starts", 14, "log.segment.bytes"
    ),
    "segment.index.bytes": _int(
        10_485_760, "size of a segment's offset index", 4, "log.index.size.max.bytes"
    ),
    "segment.jitter.ms": _long(
        0,
        "random delay of segment rolls",
        0,
        "log.roll.jitter.ms",
        fallback=("log.roll.jitter.hours", "0"),
    ),
    "segment.ms": _long(
        604_800_000,
        "age at which a new segment starts",
        1,
        "log.roll.ms",
        fallback=("log.roll.hours", "168"),
    ),
    "unclean.leader.election.enable": _bool(
        "false", "no replication here", "unclean.leader.election.enable"
    ),
}

# Since eligible leader replicas (KIP-966) Kafka keeps this one in the cluster and not in a file.
CLUSTER_CONFIGS: Final[Mapping[str, str]] = {"min.insync.replicas": "1"}

BROKER_NAMES: Final[Mapping[str, str]] = {
    entry.broker_name: name
    for name, entry in TOPIC_CONFIGS.items()
    if entry.broker_name is not None
}


def segment_fault(name: str, value: str, least: int) -> str:
    """Why segments must not be so small, or an empty string. Each takes files and memory."""
    if name not in ("segment.bytes", "log.segment.bytes") or int(value) >= least:
        return ""
    return f"Invalid value {value} for configuration {name}: Value must be at least {least}"


def check_value(name: str, value: str) -> None:
    """Raise ConfigError unless ``name`` is a topic configuration that may hold ``value``."""
    entry = TOPIC_CONFIGS.get(name)
    if entry is None:
        raise ConfigError(
            f"unknown topic configuration {name!r}{did_you_mean(name, list(TOPIC_CONFIGS))}"
        )
    if fault := problem(entry, value):
        raise ConfigError(f"invalid value {value!r} for configuration {name}: {fault}")


def problem(entry: ConfigDefinition, value: str) -> str:
    """Why a setting cannot have a value, or an empty string."""
    if entry.type is ConfigType.LIST:
        items = [item for item in value.split(",") if item]
        if entry.choices and not set(items) <= set(entry.choices):
            return f"allowed are {', '.join(entry.choices)}"
        return ""
    if entry.choices:
        wanted = value.lower() if entry.type is ConfigType.BOOLEAN else value
        return "" if wanted in entry.choices else f"allowed are {', '.join(entry.choices)}"
    if entry.type in (ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE):
        try:
            number = float(value) if entry.type is ConfigType.DOUBLE else int(value)
        except ValueError:
            return "not a number"
        return "" if entry.low <= number <= entry.high else f"must be at least {entry.low}"
    return ""
