"""Kafka's configurations of a broker and of a group, as far as they mean something here.

Rule: a value shown is the value in force; what cannot be changed while running is read-only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.broker.config import suggestion
from shoal.broker.topic_configs import (
    BROKER_NAMES,
    TOPIC_CONFIGS,
    ConfigSource,
    ConfigType,
    check_value,
)
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.broker.broker import Broker


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
    config = broker.config
    groups = config.groups
    addresses = [(b.config, b.host, b.port, b.advertised) for b in broker.listeners]
    listeners = ",".join(f"{c.protocol}://{host}:{port}" for c, host, port, _ in addresses)
    advertised = ",".join(f"{c.protocol}://{a[0]}:{a[1]}" for c, _, _, a in addresses)
    text, integer, long = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
    boolean = ConfigType.BOOLEAN
    return {
        "advertised.listeners": (advertised, text, "what clients are told to use"),
        "auto.create.topics.enable": (
            str(config.topics.auto_create).lower(),
            boolean,
            "create topics on first use",
        ),
        "broker.id": (str(broker.node_id), integer, "the number of this node"),
        "connections.max.idle.ms": (
            str(int(config.limits.idle_seconds * 1000)),
            long,
            "idle connections are closed after this time",
        ),
        "default.replication.factor": ("1", integer, "one node, one replica"),
        "group.initial.rebalance.delay.ms": (
            str(groups.initial_rebalance_delay_ms),
            integer,
            "how long a new group waits for more members",
        ),
        "group.max.session.timeout.ms": (
            str(groups.max_session_timeout_ms),
            integer,
            "longest session timeout a member may ask for",
        ),
        "group.max.size": (str(groups.max_size), integer, "members of one group"),
        "group.min.session.timeout.ms": (
            str(groups.min_session_timeout_ms),
            integer,
            "shortest session timeout a member may ask for",
        ),
        "listeners": (listeners, text, "addresses served"),
        "log.dirs": (broker.partitions.root, text, "the data directory"),
        "max.connections": (str(config.limits.connections), integer, "open connections"),
        "max.connections.per.ip": (
            str(config.limits.connections_per_address),
            integer,
            "open connections from one address",
        ),
        "node.id": (str(broker.node_id), integer, "the number of this node"),
        "num.partitions": (
            str(config.topics.partitions),
            integer,
            "partitions of topics created on first use",
        ),
        "offset.metadata.max.bytes": (
            str(groups.offset_metadata_max_bytes),
            integer,
            "largest note with a committed offset",
        ),
        "offsets.retention.minutes": (
            str(groups.offsets_retention_minutes),
            integer,
            "how long offsets of an empty group are kept",
        ),
        "offsets.topic.num.partitions": (
            str(groups.offsets_partitions),
            integer,
            "partitions of the offsets topic",
        ),
        "offsets.topic.replication.factor": ("1", ConfigType.SHORT, "one node, one replica"),
        "shoal.durability": (config.durability, text, "when an append counts as stored"),
        "socket.request.max.bytes": (
            str(config.limits.frame_bytes),
            integer,
            "largest request",
        ),
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
            f"unknown group configuration {name!r}{suggestion(name, list(GROUP_CONFIGS))}"
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
            f"cannot update {name!r} dynamically{suggestion(name, list(BROKER_NAMES))}"
        )
    check_value(topic_name, value)
