"""Kafka's configurations of a broker and of a group, as far as they mean something here.

Rule: a value shown is the value in force; what cannot be changed while running is read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.broker.config import BrokerConfig
from shoal.broker.topic_configs import (
    BROKER_NAMES,
    TOPIC_CONFIGS,
    ConfigSource,
    ConfigType,
    check_value,
)
from shoal.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from shoal.broker.broker import Broker

_Setting = tuple[ConfigType, str, Callable[[BrokerConfig], object]]


class Shown(NamedTuple):
    """One row of DescribeConfigs."""

    name: str
    value: str
    type: ConfigType
    source: ConfigSource
    read_only: bool
    about: str
    # (name, value, source), most specific first.
    synonyms: tuple[tuple[str, str, ConfigSource], ...] = ()


def broker_rows(broker: Broker) -> list[Shown]:
    """The broker's own settings, then the defaults it gives to topics."""
    rows = [
        Shown(name, value, kind, ConfigSource.STATIC_BROKER_CONFIG, True, about)
        for name, (value, kind, about) in _static(broker).items()
    ]
    for broker_name, topic_name in BROKER_NAMES.items():
        entry = TOPIC_CONFIGS[topic_name]
        synonyms = default_synonyms(broker, topic_name)
        rows.append(
            Shown(
                broker_name,
                synonyms[0][1],
                entry.type,
                synonyms[0][2],
                False,
                entry.about,
                synonyms,
            )
        )
    return rows


def default_synonyms(broker: Broker, topic_name: str) -> tuple[tuple[str, str, ConfigSource], ...]:
    """Where a topic's default comes from: set on the broker, in its file, or Kafka's own."""
    entry = TOPIC_CONFIGS[topic_name]
    name = entry.broker_name or topic_name
    found = []
    if name in broker.catalogue.broker_configs:
        value = broker.catalogue.broker_configs[name]
        found.append((name, value, ConfigSource.DYNAMIC_BROKER_CONFIG))
    if topic_name in broker.catalogue.file_defaults:
        value = broker.catalogue.file_defaults[topic_name]
        found.append((name, value, ConfigSource.STATIC_BROKER_CONFIG))
    found.append((name, entry.default, ConfigSource.DEFAULT_CONFIG))
    return tuple(found)


def _static(broker: Broker) -> dict[str, tuple[str, ConfigType, str]]:
    bound = broker.listeners
    listeners = ",".join(f"{b.config.protocol}://{b.host}:{b.port}" for b in bound)
    advertised = ",".join(
        f"{b.config.protocol}://{b.advertised[0]}:{b.advertised[1]}" for b in bound
    )
    rows = {
        "advertised.listeners": (advertised, ConfigType.STRING, "what clients are told to use"),
        "listeners": (listeners, ConfigType.STRING, "addresses served"),
        "log.dirs": (broker.partitions.root, ConfigType.STRING, "the data directory"),
    }
    for name, (kind, about, value) in _SETTINGS.items():
        shown = value(broker.config)
        rows[name] = (str(shown).lower() if isinstance(shown, bool) else str(shown), kind, about)
    return dict(sorted(rows.items()))


def _int(about: str, value: Callable[[BrokerConfig], object]) -> _Setting:
    return ConfigType.INT, about, value


# What DescribeConfigs shows of our configuration, under Kafka's names.
_SETTINGS: Final[Mapping[str, _Setting]] = {
    "auto.create.topics.enable": (
        ConfigType.BOOLEAN,
        "create topics on first use",
        lambda c: c.topics.auto_create,
    ),
    "broker.id": _int("the number of this node", lambda c: c.node_id),
    "connections.max.idle.ms": (
        ConfigType.LONG,
        "idle connections are closed after this time",
        lambda c: int(c.limits.idle_seconds * 1000),
    ),
    "default.replication.factor": _int("one node, one replica", lambda _: 1),
    "group.initial.rebalance.delay.ms": _int(
        "how long a new group waits for more members",
        lambda c: c.groups.initial_rebalance_delay_ms,
    ),
    "group.max.session.timeout.ms": _int(
        "longest session timeout a member may ask for", lambda c: c.groups.max_session_timeout_ms
    ),
    "group.max.size": _int("members of one group", lambda c: c.groups.max_size),
    "group.min.session.timeout.ms": _int(
        "shortest session timeout a member may ask for", lambda c: c.groups.min_session_timeout_ms
    ),
    "max.connections": _int("open connections", lambda c: c.limits.connections),
    "max.connections.per.ip": _int(
        "open connections from one address", lambda c: c.limits.connections_per_address
    ),
    "node.id": _int("the number of this node", lambda c: c.node_id),
    "num.partitions": _int(
        "partitions of topics created on first use", lambda c: c.topics.partitions
    ),
    "offset.metadata.max.bytes": _int(
        "largest note with a committed offset", lambda c: c.groups.offset_metadata_max_bytes
    ),
    "offsets.retention.minutes": _int(
        "how long offsets of an empty group are kept", lambda c: c.groups.offsets_retention_minutes
    ),
    "offsets.topic.num.partitions": _int(
        "partitions of the offsets topic", lambda c: c.groups.offsets_partitions
    ),
    "offsets.topic.replication.factor": (
        ConfigType.SHORT,
        "one node, one replica",
        lambda _: 1,
    ),
    "shoal.durability": (
        ConfigType.STRING,
        "when an append counts as stored",
        lambda c: c.durability,
    ),
    "socket.request.max.bytes": _int("largest request", lambda c: c.limits.frame_bytes),
}


# Group configurations belong to the consumer protocol of KIP-848; they are kept and shown.
GROUP_CONFIGS: Final[Mapping[str, tuple[str, ConfigType, int, int]]] = {
    "consumer.heartbeat.interval.ms": ("5000", ConfigType.INT, 1, 15_000),
    "consumer.session.timeout.ms": ("45000", ConfigType.INT, 1, 60_000),
    "share.auto.offset.reset": ("latest", ConfigType.STRING, 0, 0),
    "share.heartbeat.interval.ms": ("5000", ConfigType.INT, 1, 15_000),
    "share.isolation.level": ("read_uncommitted", ConfigType.STRING, 0, 0),
    "share.record.lock.duration.ms": ("30000", ConfigType.INT, 1_000, 3_600_000),
    "share.session.timeout.ms": ("45000", ConfigType.INT, 1, 60_000),
    "streams.heartbeat.interval.ms": ("5000", ConfigType.INT, 1, 15_000),
    "streams.num.standby.replicas": ("0", ConfigType.INT, 0, 2),
    "streams.session.timeout.ms": ("45000", ConfigType.INT, 1, 60_000),
}


def group_rows(broker: Broker, group_id: str) -> list[Shown]:
    own = broker.catalogue.group_configs.get(group_id, {})
    return [
        Shown(
            name,
            own.get(name, default),
            kind,
            ConfigSource.GROUP_CONFIG if name in own else ConfigSource.DEFAULT_CONFIG,
            False,
            "of the consumer protocol (KIP-848)",
        )
        for name, (default, kind, _, _) in GROUP_CONFIGS.items()
    ]


def check_group_value(name: str, value: str) -> None:
    known = GROUP_CONFIGS.get(name)
    if known is None:
        raise ConfigError(
            f"unknown group configuration {name!r}{did_you_mean(name, list(GROUP_CONFIGS))}"
        )
    _, kind, low, high = known
    if kind is ConfigType.INT:
        try:
            number = int(value)
        except ValueError:
            raise ConfigError(f"invalid value {value!r} for configuration {name}") from None
        if not low <= number <= high:
            raise ConfigError(f"{name} must lie between {low} and {high}")


def check_broker_value(name: str, value: str) -> None:
    """Only the defaults of topics can be changed while the broker runs."""
    topic_name = BROKER_NAMES.get(name)
    if topic_name is None:
        raise ConfigError(
            f"cannot update {name!r} dynamically{did_you_mean(name, list(BROKER_NAMES))}"
        )
    check_value(topic_name, value)
